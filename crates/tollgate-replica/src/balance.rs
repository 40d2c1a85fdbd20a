//! Spreads the leadership of many groups over the nodes.
//!
//! Elections choose leaders by chance, and after a failure the leaders concentrate on the surviving nodes. So a node
//! that leads at least two groups more than another hands over one of them from time to time: a few milliseconds of a
//! group's time for the work of a whole node. Nodes decide for themselves, by what they know; if several choose the
//! same successor, the next round evens it out. Invariant: nothing moves unless two nodes differ by more than one
//! group, so a cluster with one group is left alone. Not here: whether a node could take a group over (`replica`).

use std::collections::BTreeMap;
use tollgate_types::{GroupId, NodeId, Zone};

/// A node that did not take a group over is offered no other group for this long: each attempt costs the group a time
/// in which nobody can propose, and the cause of the failure rarely passes at once.
pub(crate) const LEFT_ALONE_MS: u64 = 60_000;

/// A group that this node leads, and the nodes that could lead it instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Led {
    pub(crate) group: GroupId,
    pub(crate) successors: Vec<NodeId>,
}

/// Decides which group to hand over to which node, if any. `leads` counts the groups that each node leads, as far as is
/// known, and `zones` has the nodes' zones: among equal nodes, the one whose zone leads the fewest groups is chosen.
pub(crate) fn next_move(
    own: NodeId,
    led: &[Led],
    leads: &BTreeMap<NodeId, usize>,
    zones: &BTreeMap<NodeId, Zone>,
) -> Option<(GroupId, NodeId)> {
    let count = |node: NodeId| leads.get(&node).copied().unwrap_or(0);
    let zone = |node: NodeId| zones.get(&node).unwrap_or(&Zone::NONE);
    let of_zone = |node: NodeId| -> usize {
        leads.iter().filter(|(other, _)| zone(**other) == zone(node)).map(|(_, count)| count).sum()
    };
    let moves = led.iter().flat_map(|led| led.successors.iter().map(|to| (led.group, *to)));
    let useful = moves.filter(|(_, to)| count(own) >= count(*to) + 2);
    useful.min_by_key(|(group, to)| (count(*to), of_zone(*to), *to, *group))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn led(groups: &[u32], successors: &[u64]) -> Vec<Led> {
        let successors: Vec<NodeId> = successors.iter().map(|number| node(*number)).collect();
        let one = |group: &u32| Led { group: GroupId::new(*group), successors: successors.clone() };
        groups.iter().map(one).collect()
    }

    fn leads(counts: &[(u64, usize)]) -> BTreeMap<NodeId, usize> {
        counts.iter().map(|(number, count)| (node(*number), *count)).collect()
    }

    #[test]
    fn one_that_leads_two_more_hands_a_group_to_the_one_that_leads_least() {
        let zones = BTreeMap::new();
        let counts = leads(&[(1, 3), (2, 1)]);
        assert_eq!(
            next_move(node(1), &led(&[4, 5, 6], &[2, 3]), &counts, &zones),
            Some((GroupId::new(4), node(3))),
            "the third leads nothing"
        );
        assert_eq!(
            next_move(node(1), &led(&[4, 5, 6], &[2]), &counts, &zones),
            Some((GroupId::new(4), node(2))),
            "who is not fit is passed over"
        );
    }

    #[test]
    fn where_nobody_leads_two_more_nothing_moves() {
        let zones = BTreeMap::new();
        for counts in [leads(&[(1, 1)]), leads(&[(1, 2), (2, 1), (3, 1)])] {
            assert_eq!(next_move(node(1), &led(&[0], &[2, 3]), &counts, &zones), None, "{counts:?}");
        }
    }

    #[test]
    fn of_equals_the_one_whose_zone_leads_least_is_chosen() {
        let zones =
            [(1, "a"), (2, "a"), (3, "b")].map(|(number, zone)| (node(number), Zone::new(zone).unwrap()));
        let counts = leads(&[(1, 2)]);
        let chosen = next_move(node(1), &led(&[0, 1], &[2, 3]), &counts, &BTreeMap::from(zones));
        assert_eq!(chosen, Some((GroupId::new(0), node(3))));
    }

    /// From any distribution of leaders, the nodes' independent decisions end with no node two groups ahead of another.
    #[test]
    fn nodes_that_decide_for_themselves_end_up_even() {
        for seed in 0..50_usize {
            let (nodes, groups) = (2 + seed % 4, 1 + seed * 7 % 23);
            let mut leader: Vec<usize> =
                (0..groups).map(|group| (group * seed + group / 3) % nodes).collect();
            for _ in 0..=groups {
                for own in 0..nodes {
                    let mine: Vec<u32> =
                        (0_u32..).zip(&leader).filter(|(_, at)| **at == own).map(|(g, _)| g).collect();
                    let others: Vec<u64> =
                        (1..=nodes as u64).filter(|number| *number != own as u64 + 1).collect();
                    let counts: Vec<(u64, usize)> = (0..nodes)
                        .map(|at| (at as u64 + 1, leader.iter().filter(|led| **led == at).count()))
                        .collect();
                    let chosen = next_move(
                        node(own as u64 + 1),
                        &led(&mine, &others),
                        &leads(&counts),
                        &BTreeMap::new(),
                    );
                    if let Some((group, to)) = chosen {
                        leader[group.number() as usize] = usize::try_from(to.number()).unwrap() - 1;
                    }
                }
            }
            let counts = (0..nodes).map(|at| leader.iter().filter(|led| **led == at).count());
            let (least, most) = (counts.clone().min().unwrap(), counts.max().unwrap());
            assert!(most - least <= 1, "seed {seed}: {leader:?}");
        }
    }
}
