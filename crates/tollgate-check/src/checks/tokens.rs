//! P2: tokens strictly increase for each name, and no two grants share one.
//!
//! No check is needed that tokens stay below 2^53: `Token` can't hold more.

use crate::call::Outcome;
use crate::evidence::{Evidence, Grant, Track};
use crate::report::{Promise, Report};
use std::collections::BTreeMap;
use tollgate_types::{Name, Token};

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for track in &evidence.tracks.0 {
        rise(track, report);
    }
    are_not_given_again(evidence, report);
    have_one_holder(evidence, report);
}

/// Checks that a grant requested after another was known has the higher token.
fn rise(track: &Track<'_>, report: &mut Report) {
    let mut by_open: Vec<&Grant<'_>> = track.grants.iter().collect();
    by_open.sort_by_key(|grant| grant.open);
    let mut by_close = by_open.clone();
    by_close.sort_by_key(|grant| grant.close);
    let mut closed = by_close.into_iter().peekable();
    let mut highest: Option<&Grant<'_>> = None;
    for grant in by_open {
        while let Some(before) = closed.next_if(|before| before.close < grant.open) {
            if highest.is_none_or(|highest| highest.token < before.token) {
                highest = Some(before);
            }
        }
        if let Some(before) = highest.filter(|before| before.token >= grant.token) {
            let says = format!("token {} of {} comes after token {}", grant.token, track.name, before.token);
            report.broken(Promise::P2, before.events.iter().chain(&grant.events).copied().collect(), says);
        }
    }
}

/// Checks that a request made after a grant had ended is not answered with that grant's token.
fn are_not_given_again(evidence: &Evidence<'_>, report: &mut Report) {
    let mut ended: BTreeMap<(&Name, Token), &Grant<'_>> = BTreeMap::new();
    for track in &evidence.tracks.0 {
        let grants = track.grants.iter().filter(|grant| grant.ends_by != usize::MAX);
        ended.extend(grants.map(|grant| ((track.name, grant.token), grant)));
    }
    for call in &evidence.calls.all {
        let Some((_, Outcome::Granted { token, .. })) = call.returned else { continue };
        let Some((names, _)) = call.claim() else { continue };
        for name in names.as_slice() {
            if let Some(grant) = ended.get(&(name, *token)).filter(|grant| grant.ends_by < call.invoked) {
                let says = format!("token {token} of {name} was given again after its grant had ended");
                report.broken(Promise::P2, grant.events.iter().copied().chain(call.events()).collect(), says);
            }
        }
    }
}

/// Checks that in a group a token belongs to one holder; several names of one request share it.
fn have_one_holder(evidence: &Evidence<'_>, report: &mut Report) {
    let mut holders: BTreeMap<(u32, Token), (&Name, &Grant<'_>)> = BTreeMap::new();
    for track in &evidence.tracks.0 {
        for grant in &track.grants {
            let (name, first) =
                *holders.entry((grant.group.number(), grant.token)).or_insert((track.name, grant));
            if first.who() != grant.who() {
                let says = format!(
                    "token {} was given to {}/{} on {name} and to {}/{} on {}",
                    grant.token, first.lease, first.owner, grant.lease, grant.owner, track.name
                );
                report.broken(Promise::P2, first.events.iter().chain(&grant.events).copied().collect(), says);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::scenario::Scenario;
    use crate::report::Promise::P2;
    use tollgate_types::Mode;

    #[test]
    fn tokens_that_rise_pass() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).unlock("a", 1, 11).lock("a", 2, 12).unlock("a", 2, 13).lock("a", 1, 14);
        run.passes();
    }

    #[test]
    fn a_token_below_an_earlier_one_is_a_violation() {
        let mut run = Scenario::with_leases(2);
        run.lock_as("a", 1, 12, Mode::Shared).lock_as("a", 2, 10, Mode::Shared);
        run.breaks(P2, "token 10 of a comes after token 12");
    }

    #[test]
    fn one_token_for_two_holders_is_a_violation() {
        let mut run = Scenario::with_leases(2);
        run.lock_as("a", 1, 10, Mode::Shared).lock_as("b", 2, 10, Mode::Shared);
        run.breaks(P2, "token 10 was given to");
    }

    #[test]
    fn the_token_of_a_released_grant_given_again_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).unlock("a", 1, 11).lock("a", 1, 10);
        run.breaks(P2, "token 10 of a was given again");
    }

    #[test]
    fn a_holder_that_asks_again_is_told_its_token() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).lock("a", 1, 10);
        run.passes();
    }
}
