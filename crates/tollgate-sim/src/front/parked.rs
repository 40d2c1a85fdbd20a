//! Callers that wait in a queue, parked at the group's leader until the log says what became of them.
//!
//! Invariant: each caller parked is given back exactly once, by the entry that ended its wait or because this node
//! can no longer tell. Not here: how they are answered (`front`).

use super::Caller;
use std::collections::BTreeMap;
use tollgate_core::Resolution;
use tollgate_types::{GroupId, LeaseId, Owner, Revision};

/// The name of a wait: no two waits of a group have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitKey {
    pub(super) group: GroupId,
    pub(super) lease: LeaseId,
    pub(super) owner: Owner,
    pub(super) create_revision: Revision,
}

/// All callers that are parked on a node.
#[derive(Debug, Default)]
pub(super) struct Parked {
    waits: BTreeMap<WaitKey, Vec<Caller>>,
}

impl Parked {
    /// Parks a caller. A repeat of a call takes the place of its earlier attempt.
    pub(super) fn park(&mut self, key: WaitKey, caller: Caller) {
        let callers = self.waits.entry(key).or_default();
        callers.retain(|parked| (parked.client, parked.call) != (caller.client, caller.call));
        callers.push(caller);
    }

    /// Those whose wait this ends.
    pub(super) fn resolve(&mut self, group: GroupId, resolution: &Resolution) -> Vec<Caller> {
        let key = WaitKey {
            group,
            lease: resolution.lease,
            owner: resolution.owner.clone(),
            create_revision: resolution.create_revision,
        };
        self.waits.remove(&key).unwrap_or_default()
    }

    /// Everyone who waits in the group: this node may miss how their waits end.
    pub(super) fn leave(&mut self, group: GroupId) -> Vec<Caller> {
        let keys: Vec<WaitKey> = self.waits.keys().filter(|key| key.group == group).cloned().collect();
        keys.iter().flat_map(|key| self.waits.remove(key).unwrap_or_default()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ClientNo;
    use tollgate_check::CallId;
    use tollgate_core::{EndReason, WaitOutcome};

    const GROUP: GroupId = GroupId::new(0);

    fn caller(call: u64, attempt: u32) -> Caller {
        Caller { client: ClientNo(1), call: CallId(call), attempt, group: GROUP }
    }

    fn key(revision: u64) -> WaitKey {
        let (lease, owner) = (LeaseId::new(9).unwrap(), Owner::LEASE);
        WaitKey { group: GROUP, lease, owner, create_revision: Revision::new(revision).unwrap() }
    }

    fn resolution(revision: u64) -> Resolution {
        let WaitKey { lease, owner, create_revision, .. } = key(revision);
        Resolution { create_revision, lease, owner, outcome: WaitOutcome::Ended(EndReason::TimedOut) }
    }

    #[test]
    fn a_parked_caller_is_given_back_once() {
        let mut parked = Parked::default();
        parked.park(key(5), caller(1, 1));
        parked.park(key(6), caller(2, 1));
        assert_eq!(parked.resolve(GROUP, &resolution(5)), [caller(1, 1)]);
        assert_eq!(parked.resolve(GROUP, &resolution(5)), []);
        assert_eq!(parked.leave(GroupId::new(1)), []);
        assert_eq!(parked.leave(GROUP), [caller(2, 1)]);
        assert_eq!(parked.resolve(GROUP, &resolution(6)), []);
    }

    #[test]
    fn a_repeat_takes_the_place_of_the_first_attempt() {
        let mut parked = Parked::default();
        parked.park(key(5), caller(1, 1));
        parked.park(key(5), caller(1, 2));
        parked.park(key(5), caller(3, 1));
        assert_eq!(parked.resolve(GROUP, &resolution(5)), [caller(1, 2), caller(3, 1)]);
    }
}
