//! P12: the same entry leaves the same state on every node.

use crate::at::At;
use crate::event::Event;
use crate::report::{Promise, Report};
use std::collections::BTreeMap;

pub(crate) fn check(events: &[(At, Event)], report: &mut Report) {
    // Per (group, index): the first hash, its node and its event, and whether another node's hash has been counted. A
    // node that applies an entry again after a restart is compared with itself, and proves less.
    let mut seen: BTreeMap<(u32, u64), (u64, u32, usize, bool)> = BTreeMap::new();
    for (at, (_, event)) in events.iter().enumerate() {
        let Event::Applied { node, group, index, hash } = event else { continue };
        let first = seen.entry((group.number(), *index)).or_insert((*hash, *node, at, false));
        if first.1 != *node && !first.3 {
            first.3 = true;
            report.stats.hashes_compared += 1;
        }
        if first.0 != *hash {
            let (other_hash, other, other_at, _) = *first;
            let says = format!(
                "group {group} after entry {index}: node {other} has hash {other_hash:016x}, node {node} {hash:016x}"
            );
            report.broken(Promise::P12, vec![other_at, at], says);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::GroupId;

    fn judged(applied: &[(u32, u32, u64, u64)]) -> Report {
        let event = |&(node, group, index, hash)| {
            (At::ZERO, Event::Applied { node, group: GroupId::new(group), index, hash })
        };
        let mut report = Report::default();
        check(&applied.iter().map(event).collect::<Vec<_>>(), &mut report);
        report
    }

    fn found(applied: &[(u32, u32, u64, u64)]) -> Vec<Vec<usize>> {
        judged(applied).violations.into_iter().map(|violation| violation.events).collect()
    }

    #[test]
    fn an_entry_counts_as_compared_once_two_nodes_gave_its_hash() {
        let compared = |applied| judged(applied).stats.hashes_compared;
        assert_eq!(compared(&[(1, 0, 7, 5), (1, 0, 7, 5)]), 0);
        assert_eq!(compared(&[(1, 0, 7, 5), (1, 0, 7, 5), (2, 0, 7, 5), (3, 0, 7, 5), (2, 0, 8, 6)]), 1);
    }

    #[test]
    fn replicas_that_agree_pass() {
        assert!(found(&[(1, 0, 7, 5), (2, 0, 7, 5), (2, 0, 8, 6), (1, 1, 7, 9)]).is_empty());
    }

    #[test]
    fn two_hashes_for_one_entry_are_a_violation() {
        assert_eq!(found(&[(1, 0, 7, 5), (2, 0, 8, 5), (3, 0, 7, 6)]), [[0, 2]]);
    }
}
