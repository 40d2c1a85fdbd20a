//! Callers that wait in a queue, parked at the group's leader until the log says what became of them.
//!
//! Invariant: each caller parked is given back exactly once, by the entry that ended its wait or because this node
//! can no longer tell. Not here: how they are answered (`desk`).

use super::Caller;
use std::collections::BTreeMap;
use tollgate_core::Resolution;
use tollgate_types::{GroupId, LeaseId, Owner, Revision};

/// Callers of one wait: attempts of one request, or several who ask for the same without a seq.
const CALLERS_PER_WAIT_MAX: usize = 8;

/// The name of a wait: no two waits of a group have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitKey {
    pub(super) group: GroupId,
    pub(super) create_revision: Revision,
    pub(super) lease: LeaseId,
    pub(super) owner: Owner,
}

/// All callers that are parked on a node. There are no more waits than the groups' limits let wait.
#[derive(Debug)]
pub(super) struct Parked<C> {
    waits: BTreeMap<WaitKey, Vec<C>>,
    /// How many callers there are.
    count: usize,
}

impl<C> Default for Parked<C> {
    fn default() -> Parked<C> {
        Parked { waits: BTreeMap::new(), count: 0 }
    }
}

impl<C: Caller> Parked<C> {
    /// Parks a caller. A later attempt of a call takes the place of an earlier one. False if too many wait for the
    /// same.
    pub(super) fn park(&mut self, key: WaitKey, caller: C) -> bool {
        let callers = self.waits.entry(key).or_default();
        self.count -= callers.len();
        callers.retain(|parked| !caller.replaces(parked));
        let room = callers.len() < CALLERS_PER_WAIT_MAX;
        if room {
            callers.push(caller);
        }
        self.count += callers.len();
        room
    }

    /// Those whose wait this ends.
    pub(super) fn resolve(&mut self, group: GroupId, resolution: &Resolution) -> Vec<C> {
        if self.waits.is_empty() {
            return Vec::new();
        }
        let Resolution { create_revision, lease, .. } = *resolution;
        let key = WaitKey { group, create_revision, lease, owner: resolution.owner.clone() };
        let callers = self.waits.remove(&key).unwrap_or_default();
        self.count -= callers.len();
        callers
    }

    /// Everyone who waits in the group: this node may miss how their waits end.
    pub(super) fn leave(&mut self, group: GroupId) -> Vec<C> {
        let gone = self.waits.extract_if(.., |key, _| key.group == group);
        let gone: Vec<C> = gone.flat_map(|(_, callers)| callers).collect();
        self.count -= gone.len();
        gone
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{EndReason, WaitOutcome};

    const GROUP: GroupId = GroupId::new(0);

    /// Call and attempt.
    impl Caller for (u64, u32) {
        fn replaces(&self, other: &(u64, u32)) -> bool {
            self.0 == other.0
        }
    }

    fn key(revision: u64) -> WaitKey {
        let (lease, owner) = (LeaseId::new(9).unwrap(), Owner::LEASE);
        WaitKey { group: GROUP, create_revision: Revision::new(revision).unwrap(), lease, owner }
    }

    fn resolution(revision: u64) -> Resolution {
        let WaitKey { lease, owner, create_revision, .. } = key(revision);
        Resolution { create_revision, lease, owner, outcome: WaitOutcome::Ended(EndReason::TimedOut) }
    }

    #[test]
    fn a_parked_caller_is_given_back_once() {
        let mut parked = Parked::default();
        parked.park(key(5), (1, 1));
        parked.park(key(6), (2, 1));
        assert_eq!(parked.len(), 2);
        assert_eq!(parked.resolve(GROUP, &resolution(5)), [(1, 1)]);
        assert_eq!(parked.resolve(GROUP, &resolution(5)), []);
        assert_eq!(parked.leave(GroupId::new(1)), []);
        assert_eq!(parked.leave(GROUP), [(2, 1)]);
        assert_eq!(parked.resolve(GROUP, &resolution(6)), []);
    }

    #[test]
    fn a_repeat_takes_the_place_of_the_first_attempt() {
        let mut parked = Parked::default();
        parked.park(key(5), (1, 1));
        parked.park(key(5), (1, 2));
        parked.park(key(5), (3, 1));
        assert_eq!(parked.resolve(GROUP, &resolution(5)), [(1, 2), (3, 1)]);
    }

    #[test]
    fn p16_no_more_than_a_few_are_parked_on_one_wait() {
        let mut parked = Parked::default();
        let taken = (0..20).filter(|call| parked.park(key(5), (*call, 1))).count();
        assert_eq!(taken, CALLERS_PER_WAIT_MAX);
    }
}
