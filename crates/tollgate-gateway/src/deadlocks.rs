//! Deadlocks that this node found as a leader, for operators; and the circles of deadlocks across several groups, for
//! the callers whose waits were ended to break them.
//!
//! A group that ends such a wait does not know the circle, which lies in other groups as well: the node that found the
//! circle sends it along with the request to end the wait. Bounded, and gone with the process. Not here: deadlocks that
//! other nodes found (`deadlock_report`).

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::time::Instant;
use tollgate_core::CycleStep;
use tollgate_proto::v1;
use tollgate_types::{LeaseId, Names, Owner};

/// Maximum number of deadlocks remembered.
pub(crate) const REMEMBERED_MAX: usize = 1_000;

/// Maximum number of steps, summed over all circles that are kept for callers.
const CIRCLE_STEPS_MAX: usize = 10_000;

/// Deadlocks that this node found: their number, and the latest of them.
#[derive(Debug, Default)]
pub(crate) struct Deadlocks(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    count: u64,
    last: VecDeque<(Instant, v1::Error)>,
    /// Circles across several groups for which a wait in a group of this node is ended. Oldest first; the first step of
    /// each circle is the wait that is ended.
    circles: VecDeque<Vec<CycleStep>>,
    /// Number of steps in all `circles`.
    circle_steps: usize,
}

impl Deadlocks {
    /// Remembers an error if it is a deadlock. A deadlock without a circle is remembered by the node that found it.
    pub(crate) fn note(&self, error: &v1::Error) {
        if error.cause() != v1::ErrorReason::Deadlock || error.cycle.is_empty() {
            return;
        }
        let mut found = self.lock();
        found.count += 1;
        found.last.push_back((Instant::now(), error.clone()));
        if found.last.len() > REMEMBERED_MAX {
            found.last.pop_front();
        }
    }

    /// Returns the number of deadlocks since the node started, and the latest of them, newest first.
    pub(crate) fn list(&self, limit: usize) -> (u64, Vec<v1::Deadlock>) {
        let found = self.lock();
        let worded = found.last.iter().rev().take(limit).map(|(at, error)| v1::Deadlock {
            cycle: error.cycle.clone(),
            ago_ms: i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX),
            group_id: error.group_id,
        });
        (found.count, worded.collect())
    }

    /// Keeps a circle across several groups; called before the wait of its first step is ended.
    pub(crate) fn keep_circle(&self, circle: Vec<CycleStep>) {
        if circle.is_empty() || circle.len() > CIRCLE_STEPS_MAX {
            return;
        }
        let mut found = self.lock();
        found.circle_steps += circle.len();
        found.circles.push_back(circle);
        while found.circle_steps > CIRCLE_STEPS_MAX
            && let Some(oldest) = found.circles.pop_front()
        {
            found.circle_steps -= oldest.len();
        }
    }

    /// Returns the latest circle for which a wait of this owner for one of these names was ended.
    pub(crate) fn circle_of(&self, lease: LeaseId, owner: &Owner, names: &Names) -> Option<Vec<CycleStep>> {
        let found = self.lock();
        let is_its = |circle: &&Vec<CycleStep>| {
            let CycleStep { waiter, wants, .. } = &circle[0];
            (waiter.0, &waiter.1) == (lease, owner) && names.as_slice().contains(wants)
        };
        found.circles.iter().rev().find(is_its).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::{Mode, Name};

    fn circle(owner: &str, steps: usize) -> Vec<CycleStep> {
        let who = (LeaseId::new(1).unwrap(), Owner::new(owner).unwrap());
        let wants = Name::new("a").unwrap();
        let step = CycleStep {
            waiter: who.clone(),
            wants,
            mode: Mode::Exclusive,
            blocker: who,
            blocker_token: None,
        };
        vec![step; steps]
    }

    fn found(deadlocks: &Deadlocks, owner: &str, name: &str) -> Option<usize> {
        let names = Names::from(Name::new(name).unwrap());
        let found = deadlocks.circle_of(LeaseId::new(1).unwrap(), &Owner::new(owner).unwrap(), &names);
        found.map(|circle| circle.len())
    }

    #[test]
    fn a_refused_caller_is_told_the_last_circle_of_its_own_wait() {
        let deadlocks = Deadlocks::default();
        for (owner, steps) in [("t1", 2), ("t2", 3), ("t1", 4)] {
            deadlocks.keep_circle(circle(owner, steps));
        }
        assert_eq!(found(&deadlocks, "t1", "a"), Some(4));
        assert_eq!(found(&deadlocks, "t2", "a"), Some(3));
        assert_eq!((found(&deadlocks, "t3", "a"), found(&deadlocks, "t1", "b")), (None, None));
    }

    #[test]
    fn p16_circles_are_kept_up_to_a_bound_of_steps() {
        let deadlocks = Deadlocks::default();
        deadlocks.keep_circle(circle("huge", CIRCLE_STEPS_MAX + 1));
        deadlocks.keep_circle(circle("first", 4_000));
        deadlocks.keep_circle(circle("second", 4_000));
        deadlocks.keep_circle(circle("third", 4_000));
        let kept = ["huge", "first", "second", "third"].map(|owner| found(&deadlocks, owner, "a").is_some());
        assert_eq!(kept, [false, false, true, true]);
    }

    #[test]
    fn a_deadlock_without_a_circle_is_listed_by_whoever_found_it() {
        let deadlocks = Deadlocks::default();
        deadlocks.note(&v1::Error::new(v1::ErrorReason::Deadlock, "over groups"));
        assert_eq!(deadlocks.list(10), (0, vec![]));
    }
}
