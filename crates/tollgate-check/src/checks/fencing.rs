//! P3: a fenced store never accepts a stale token.
//!
//! Replays the writes to each store with the rule itself: an exclusive token must not be below the highest exclusive
//! token accepted (strict: nor equal to it); a shared or permit token must not be below it either, and never raises it.

use crate::at::At;
use crate::event::{Event, FenceMode};
use crate::report::{Promise, Report};
use std::collections::BTreeMap;
use tollgate_types::{Name, Token};

pub(crate) fn check(events: &[(At, Event)], report: &mut Report) {
    // The highest exclusive token that each store accepted for each name, and the index of that event.
    let mut highest: BTreeMap<(u32, &Name), (Token, usize)> = BTreeMap::new();
    for (at, (_, event)) in events.iter().enumerate() {
        let Event::FencedWrite { store, name, token, mode, strict, accepted } = event else { continue };
        report.stats.fenced_writes += 1;
        let before = highest.get(&(*store, name)).copied();
        let exclusive = *mode == FenceMode::Exclusive;
        let stale = before.is_some_and(|(high, _)| *token < high || (exclusive && *strict && *token == high));
        if stale == *accepted {
            let high = before.map_or("none".to_owned(), |(high, _)| high.to_string());
            let did = if *accepted { "accepted stale" } else { "refused good" };
            let says =
                format!("store {store} {did} token {token} of {name}: the highest exclusive was {high}");
            report.broken(
                Promise::P3,
                before.map(|(_, event)| event).into_iter().chain([at]).collect(),
                says,
            );
        }
        if *accepted && exclusive && before.is_none_or(|(high, _)| *token > high) {
            highest.insert((*store, name), (*token, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FenceMode::{Exclusive, Permit, Shared};

    fn found(writes: &[(u64, FenceMode, bool, bool)]) -> Vec<Vec<usize>> {
        let name = Name::new("jobs").unwrap();
        let events: Vec<_> = writes
            .iter()
            .map(|&(token, mode, strict, accepted)| {
                let (name, token) = (name.clone(), Token::new(token).unwrap());
                (At::ZERO, Event::FencedWrite { store: 1, name, token, mode, strict, accepted })
            })
            .collect();
        let mut report = Report::default();
        check(&events, &mut report);
        assert!(report.violations.iter().all(|violation| violation.promise == Promise::P3));
        report.violations.into_iter().map(|violation| violation.events).collect()
    }

    const NONE: [Vec<usize>; 0] = [];

    #[test]
    fn a_store_that_keeps_the_rule_passes() {
        let writes = [
            (5, Exclusive, false, true),
            (5, Exclusive, false, true),
            (5, Exclusive, true, false),
            (9, Shared, false, true),
            (8, Permit, false, true),
            (4, Shared, false, false),
            (7, Exclusive, true, true),
        ];
        assert_eq!(found(&writes), NONE);
    }

    #[test]
    fn an_accepted_stale_token_is_a_violation() {
        assert_eq!(found(&[(5, Exclusive, false, true), (4, Exclusive, false, true)]), [[0, 1]]);
        assert_eq!(found(&[(5, Exclusive, false, true), (4, Shared, false, true)]), [[0, 1]]);
        assert_eq!(found(&[(5, Exclusive, false, true), (5, Exclusive, true, true)]), [[0, 1]]);
    }

    #[test]
    fn a_shared_token_that_raises_the_bar_is_a_violation() {
        assert_eq!(found(&[(9, Shared, false, true), (8, Exclusive, false, false)]), [[1]]);
    }
}
