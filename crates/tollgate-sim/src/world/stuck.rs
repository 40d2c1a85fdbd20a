//! Checks that deadlocks over groups are broken in time.
//!
//! The world looks at the states of all leaders at one moment, without the search that it judges. A cycle of named
//! owners, each with a wait that a grant of the next one blocks, must not stay unchanged for long while every group is
//! led. Permits are left out: a wait for them may have other ways out. Not here: breaking deadlocks (`deadlocks`).

use super::World;
use crate::types::At;
use std::collections::{BTreeMap, BTreeSet};
use tollgate_types::{GroupId, LeaseId, Mode, Owner, Revision, Token};

/// Maximum time that a cycle may last: a few searches, of which some may come to nothing.
const STANDS_US_MAX: At = 6_000_000;

type Thread = (LeaseId, Owner);
/// A wait, by group and create revision, and the token of the grant in its way.
type Step = (GroupId, Revision, Token);
type Steps = BTreeMap<Thread, BTreeSet<(Step, Thread)>>;

/// The cycle that was seen last.
#[derive(Default)]
pub(super) struct Stuck {
    circle: BTreeSet<Step>,
    since: At,
    told: bool,
}

impl World {
    /// Looks for a cycle, and reports one that has lasted for too long.
    pub(super) fn look_for_circles(&mut self) {
        let circle = self.steps().map_or_else(BTreeSet::new, circle);
        if circle.is_empty() || circle != self.stuck.circle {
            (self.stuck.circle, self.stuck.since) = (circle, self.now);
            return;
        }
        let stood_us = self.now - self.stuck.since;
        if stood_us > STANDS_US_MAX && !self.stuck.told {
            self.stuck.told = true;
            let says = format!("P8: a deadlock stands for {} ms: {:?}", stood_us / 1_000, self.stuck.circle);
            self.violation(says);
        }
    }

    /// Returns the waits of each owner and the owners in their way; none if any group is not led, because then nobody
    /// can be expected to do anything.
    fn steps(&self) -> Option<Steps> {
        let mut steps = Steps::new();
        for group in self.groups() {
            let (leader, _) =
                self.leader_of(group).filter(|_| self.leadership.is_led_in_time(group.number()))?;
            let state = self.nodes[&leader].process.as_ref()?.host.state(group)?;
            for lock in state.snapshot().locks(b"", None, usize::MAX) {
                let named = lock.waiters.iter().filter(|waiter| !waiter.owner.is_empty());
                for waiter in named.filter(|waiter| !matches!(waiter.mode, Mode::Permit { .. })) {
                    let thread = (waiter.lease, waiter.owner.clone());
                    let others = lock.holders.iter().filter(|holder| {
                        let own = (holder.lease, &holder.owner) == (thread.0, &thread.1);
                        !own && !holder.owner.is_empty() && !waiter.mode.compatible(holder.mode)
                    });
                    let step = |token| (group, waiter.create_revision, token);
                    let found =
                        others.map(|holder| (step(holder.token), (holder.lease, holder.owner.clone())));
                    steps.entry(thread.clone()).or_default().extend(found);
                }
            }
        }
        Some(steps)
    }
}

/// Returns a cycle, the same one each time as long as nothing changes; empty if there is none.
fn circle(mut steps: Steps) -> BTreeSet<Step> {
    // An owner that waits for nobody who is stuck is not stuck.
    loop {
        let stuck: BTreeSet<Thread> = steps.keys().cloned().collect();
        steps.retain(|_, waits| {
            waits.retain(|(_, other)| stuck.contains(other));
            !waits.is_empty()
        });
        if steps.len() == stuck.len() {
            break;
        }
    }
    let Some(mut at) = steps.keys().next().cloned() else { return BTreeSet::new() };
    let mut way: Vec<(Thread, Step)> = Vec::new();
    loop {
        if let Some(first) = way.iter().position(|(thread, _)| *thread == at) {
            return way[first..].iter().map(|(_, step)| *step).collect();
        }
        let (step, next) = steps[&at].first().expect("who is left waits for one who is left").clone();
        way.push((at, step));
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(number: u64) -> Thread {
        (LeaseId::new(number).unwrap(), Owner::new("t").unwrap())
    }

    fn steps(edges: &[(u64, u64)]) -> Steps {
        let mut steps = Steps::new();
        for (from, to) in edges {
            let step = (GroupId::MAP, Revision::new(*from).unwrap(), Token::new(*to).unwrap());
            steps.entry(thread(*from)).or_default().insert((step, thread(*to)));
        }
        steps
    }

    #[test]
    fn a_circle_is_found_behind_those_who_wait_for_it_and_a_chain_is_none() {
        assert!(circle(steps(&[(1, 2), (2, 3), (3, 4)])).is_empty());
        let found = circle(steps(&[(1, 2), (2, 3), (3, 2), (3, 9)]));
        let waits: Vec<u64> = found.iter().map(|(_, wait, _)| wait.get()).collect();
        assert_eq!(waits, [2, 3]);
    }
}
