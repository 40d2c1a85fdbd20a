//! Decides which clock is wrong, from the rates of all that are known, and words the warnings for an operator.
//!
//! Invariant: pure, and by majority. A clock is named only if more than half of the known clocks agree with each other
//! and not with it; otherwise the verdict is only that clocks differ. As every node compares the same clocks in the
//! same order, all nodes reach the same verdict, except near the threshold. Not here: measuring a rate (`clock_rate`),
//! logging the verdict (`clock_monitor`).

use std::collections::{BTreeMap, BTreeSet};
use tollgate_types::NodeId;

/// Deviation from which on a clock is reported as wrong: half of what leases allow for.
const WARNED_FROM: f64 = 0.005;

/// Deviation below which a reported clock is right again, so that a clock at the threshold does not flap.
const RIGHT_BELOW: f64 = 0.004;

/// Bounds within which rates against this node's clock are judged.
const SLOWEST: f64 = -0.99;
const FASTEST: f64 = 10.0;

/// Rates of the peers' clocks against this node's, and the verdict.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClockRates {
    /// Rate of each peer's clock relative to this node's (0.02: 2% fast, -0.02: 2% slow), for the peers that were
    /// measured for long enough.
    pub differences: BTreeMap<NodeId, f64>,
    /// Verdict about the clocks.
    pub verdict: ClockVerdict,
}

/// Verdict about the clocks: which are wrong.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ClockVerdict {
    /// No clock is known to be wrong.
    #[default]
    Right,
    /// Most clocks agree, and these clocks deviate from them by this much (0.02: 2% fast, -0.02: 2% slow).
    Wrong(BTreeMap<NodeId, f64>),
    /// No majority agrees: the clock of `fastest` runs faster than that of `slowest` by `difference`.
    Divided {
        /// Node with the slowest clock.
        slowest: NodeId,
        /// Node with the fastest clock.
        fastest: NodeId,
        /// Difference between the two clocks.
        difference: f64,
    },
}

impl ClockVerdict {
    /// Returns the verdict about node `own`, with whose clock the others were compared, and its peers.
    pub(crate) fn of(
        own: NodeId,
        differences: &BTreeMap<NodeId, f64>,
        before: &ClockVerdict,
    ) -> ClockVerdict {
        // A clock that stands still, or is set back repeatedly, counts as very slow; this avoids a division by zero.
        let moving = |rate: f64| rate.clamp(SLOWEST, FASTEST);
        let mut rates: Vec<(NodeId, f64)> =
            differences.iter().map(|(node, rate)| (*node, moving(*rate))).collect();
        rates.push((own, 0.0));
        rates.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        // With an even number of clocks, the slower of the two in the middle: their mean is the rate of no clock.
        let (_, middle) = rates[(rates.len() - 1) / 2];
        let off = |rate: f64| (1.0 + rate) / (1.0 + middle) - 1.0;
        let wrong = rates.iter().map(|(node, rate)| (*node, off(*rate)));
        let wrong: BTreeMap<NodeId, f64> =
            wrong.filter(|(node, off)| off.abs() >= before.threshold(*node)).collect();
        let ((slowest, slow), (fastest, fast)) = (rates[0], rates[rates.len() - 1]);
        if wrong.is_empty() {
            ClockVerdict::Right
        } else if wrong.len() * 2 < rates.len() {
            ClockVerdict::Wrong(wrong)
        } else {
            ClockVerdict::Divided { slowest, fastest, difference: (1.0 + fast) / (1.0 + slow) - 1.0 }
        }
    }

    /// Returns the deviation from which on a node's clock is wrong.
    fn threshold(&self, node: NodeId) -> f64 {
        let warned = match self {
            ClockVerdict::Right => false,
            ClockVerdict::Wrong(wrong) => wrong.contains_key(&node),
            ClockVerdict::Divided { .. } => true,
        };
        if warned { RIGHT_BELOW } else { WARNED_FROM }
    }

    /// Returns true if the same clocks are wrong in the same direction, regardless of the amount. Two verdicts without
    /// a majority are alike, because among clocks that agree the slowest may change at any time.
    pub(crate) fn is_like(&self, other: &ClockVerdict) -> bool {
        let of = |verdict: &ClockVerdict| match verdict {
            ClockVerdict::Right => (false, BTreeSet::new()),
            ClockVerdict::Wrong(wrong) => {
                (false, wrong.iter().map(|(node, off)| (*node, *off > 0.0)).collect())
            }
            ClockVerdict::Divided { .. } => (true, BTreeSet::new()),
        };
        of(self) == of(other)
    }

    /// Returns the warnings of node `own` for an operator, with what to do: a line for each clock that is wrong.
    pub fn warnings(&self, own: NodeId) -> Vec<String> {
        match self {
            ClockVerdict::Right => Vec::new(),
            ClockVerdict::Wrong(wrong) => {
                let line = |(node, off): (&NodeId, &f64)| {
                    let whose =
                        if *node == own { "this node's".to_owned() } else { format!("node {node}'s") };
                    format!(
                        "{whose} clock runs {:.1}% {} against the others: leases are exact only while clocks run \
                         within 1% (P5 to P7); check the time source and hypervisor of its machine, and stop the node \
                         until its clock is right",
                        off.abs() * 100.0,
                        if *off > 0.0 { "fast" } else { "slow" },
                    )
                };
                wrong.iter().map(line).collect()
            }
            ClockVerdict::Divided { slowest, fastest, difference } => {
                vec![format!(
                    "node {fastest}'s clock runs {:.1}% faster than node {slowest}'s, and too few others are measured \
                     to say which is wrong: leases are exact only while clocks run within 1% (P5 to P7); check the \
                     time source and hypervisor of both machines",
                    difference * 100.0,
                )]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    /// Returns the verdict of node `own` about clocks that run too fast by these thousandths.
    fn verdict_of(own: u64, clocks: &[(u64, f64)], before: &ClockVerdict) -> ClockVerdict {
        let rates: BTreeMap<u64, f64> = clocks.iter().copied().collect();
        let relative = |rate: f64| (1.0 + rate / 1e3) / (1.0 + rates[&own] / 1e3) - 1.0;
        let others = rates.iter().filter(|(number, _)| **number != own);
        let differences = others.map(|(number, rate)| (node(*number), relative(*rate))).collect();
        ClockVerdict::of(node(own), &differences, before)
    }

    /// Returns the verdict of all nodes, which must be the same.
    #[track_caller]
    fn verdict(clocks: &[(u64, f64)]) -> ClockVerdict {
        let of = |own| verdict_of(own, clocks, &ClockVerdict::Right);
        let first = of(clocks[0].0);
        for (own, _) in clocks {
            assert!(of(*own).is_like(&first), "node {own} says {:?}, another {first:?}", of(*own));
        }
        first
    }

    #[test]
    fn p16_a_clock_that_stands_still_or_goes_back_is_told_in_numbers() {
        for rate in [-1.0, -7.0, f64::INFINITY] {
            let differences = BTreeMap::from([(node(2), rate)]);
            let verdict = ClockVerdict::of(node(1), &differences, &ClockVerdict::Right);
            let ClockVerdict::Divided { difference, .. } = verdict else { panic!("{rate}: {verdict:?}") };
            assert!(difference.is_finite() && difference > 1.0, "{rate}: {difference}");
        }
    }

    #[track_caller]
    fn wrong(verdict: &ClockVerdict) -> Vec<(u64, f64)> {
        let ClockVerdict::Wrong(wrong) = verdict else { panic!("{verdict:?}") };
        wrong.iter().map(|(node, off)| (node.number(), (off * 1e4).round() / 10.0)).collect()
    }

    #[test]
    fn p5_the_odd_one_of_three_or_more_is_named_by_all_and_by_itself() {
        assert_eq!(wrong(&verdict(&[(1, 0.0), (2, 20.0), (3, 0.1)])), [(2, 19.9)]);
        assert_eq!(wrong(&verdict(&[(1, -20.0), (2, 0.0), (3, 0.0)])), [(1, -20.0)]);
        assert_eq!(wrong(&verdict(&[(1, 0.0), (2, 0.0), (3, 0.0), (4, 7.0)])), [(4, 7.0)]);
        assert_eq!(wrong(&verdict(&[(1, 0.0), (2, 0.0), (3, 0.0), (4, -7.0)])), [(4, -7.0)]);
        let two = verdict(&[(1, -9.0), (2, 0.0), (3, 0.2), (4, 0.1), (5, 30.0)]);
        assert_eq!(wrong(&two).iter().map(|(node, _)| *node).collect::<Vec<_>>(), [1, 5]);
    }

    #[test]
    fn p5_without_a_majority_nobody_is_named() {
        let divided = |slowest, fastest, clocks: &[(u64, f64)]| {
            let found = verdict(clocks);
            let ClockVerdict::Divided { slowest: slow, fastest: fast, difference } = found else {
                panic!("{found:?}")
            };
            assert_eq!((slow, fast), (node(slowest), node(fastest)));
            difference
        };
        let difference = divided(1, 2, &[(1, 0.0), (2, 20.0)]);
        assert!((difference - 0.02).abs() < 1e-9);
        divided(2, 1, &[(1, 6.0), (2, 0.0)]);
        divided(1, 3, &[(1, 0.0), (2, 10.0), (3, 20.0)]);
        divided(1, 4, &[(1, -0.1), (2, 0.0), (3, 20.0), (4, 20.1)]);
    }

    #[test]
    fn clocks_that_are_right_and_a_node_that_knows_no_other_are_not_warned_of() {
        for clocks in
            [&[(1, 0.0)][..], &[(1, 0.0), (2, 4.9)], &[(1, -4.0), (2, 0.0), (3, 4.0)], &[(7, 900.0)]]
        {
            assert_eq!(verdict(clocks), ClockVerdict::Right);
        }
        assert_eq!(ClockVerdict::Right.warnings(node(1)), Vec::<String>::new());
    }

    #[test]
    fn a_clock_at_the_threshold_does_not_come_and_go() {
        let mut now = ClockVerdict::Right;
        let mut changes = 0;
        for off in [4.9, 5.1, 4.9, 5.1, 4.2, 5.0, 4.1, 3.9, 4.1, 4.9] {
            let next = verdict_of(1, &[(1, 0.0), (2, off), (3, 0.0)], &now);
            changes += usize::from(!next.is_like(&now));
            now = next;
        }
        assert_eq!(changes, 2, "once wrong, once right");
    }

    #[test]
    fn a_verdict_is_another_if_another_clock_is_wrong_or_by_the_other_sign() {
        let of = |number, off| ClockVerdict::Wrong(BTreeMap::from([(node(number), off)]));
        let divided = |slowest, fastest| ClockVerdict::Divided {
            slowest: node(slowest),
            fastest: node(fastest),
            difference: 0.02,
        };
        assert!(of(1, 0.02).is_like(&of(1, 0.006)));
        for other in [of(2, 0.02), of(1, -0.02), ClockVerdict::Right, divided(1, 2)] {
            assert!(!of(1, 0.02).is_like(&other));
        }
        assert!(divided(1, 3).is_like(&divided(2, 3)));
    }

    #[test]
    fn a_warning_says_whose_clock_is_wrong_by_how_much_and_what_to_do() {
        let wrong = ClockVerdict::Wrong(BTreeMap::from([(node(2), 0.0194), (node(3), -0.0061)]));
        let said = wrong.warnings(node(3));
        assert!(said[0].starts_with("node 2's clock runs 1.9% fast against the others: "), "{said:?}");
        assert!(said[1].starts_with("this node's clock runs 0.6% slow against the others: "), "{said:?}");
        assert!(said.iter().all(|said| said.contains("check the time source") && said.contains("P5")));
        let divided = ClockVerdict::Divided { slowest: node(1), fastest: node(2), difference: 0.02 };
        let said = divided.warnings(node(1));
        assert!(said[0].starts_with("node 2's clock runs 2.0% faster than node 1's, "), "{said:?}");
    }
}
