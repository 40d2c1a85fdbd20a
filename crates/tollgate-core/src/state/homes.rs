//! The home of a lease: knows the groups that have a stub of the lease, and owes each of them notice of the lease's end
//! until it has answered.
//!
//! Invariant: a group is registered only while the lease lives, and the notices owed are part of the state: so no stub
//! that was ever confirmed can outlive its lease unnoticed. Not here: the stubs themselves (`stubs`), and sending the
//! messages.

use super::State;
use crate::command::{AckLeaseEnd, RegisterStub};
use crate::lease::{Lease, Residence, Unacked};
use crate::planted::Bug;
use crate::reply::{LeaseEnd, Rejection, Reply};
use crate::slab::Id;
use crate::view::UnackedEnd;
use std::ops::Bound;
use std::sync::Arc;
use tollgate_types::{GroupId, LeaseId, Limit, Revision};

/// Most groups in which one lease may have stubs.
pub const STUB_GROUPS_MAX: usize = 1_024;

impl State {
    pub(super) fn register_stub(&mut self, register: RegisterStub) -> Reply {
        let RegisterStub { lease, incarnation, group } = register;
        let Some(id) = self.find_lease(lease) else {
            let registered = self.planted(Bug::EndedLeaseRegistered);
            return if registered { Reply::StubRegistered } else { Reply::LeaseUnknown };
        };
        let record = self.leases.get(id);
        if let Some(stub) = record.stub() {
            return Reply::Rejected(Rejection::NotHome { lease, home: stub.home });
        }
        if record.incarnation != incarnation {
            return Reply::LeaseUnknown;
        }
        match self.add_group(id, group) {
            Ok(()) => Reply::StubRegistered,
            Err(rejection) => Reply::Rejected(rejection),
        }
    }

    fn add_group(&mut self, id: Id<Lease>, group: GroupId) -> Result<(), Rejection> {
        let lease = self.leases.get(id);
        let groups = lease.groups();
        let Err(place) = groups.binary_search(&group) else { return Ok(()) };
        if groups.len() >= STUB_GROUPS_MAX {
            return Err(Rejection::TooManyGroups { lease: lease.id, max: STUB_GROUPS_MAX as u64 });
        }
        let first = groups.is_empty();
        let mut groups = groups.to_vec();
        groups.insert(place, group);
        if first {
            // The notices owed for ended leases must not grow without bound while a group does not answer.
            self.check(Limit::Leases, (self.registered.len() + self.unacked.len()) as u64 + 1)?;
            self.registered.insert(self.leases.get(id).incarnation, id);
        }
        self.leases.get_mut(id).residence = Residence::HereAndStubs(groups.into());
        Ok(())
    }

    /// First step of reaping an ended lease: records that the groups with stubs of it are owed notice of its end.
    pub(super) fn owe_ends(&mut self, id: Id<Lease>) {
        let lease = self.leases.get(id);
        if lease.groups().is_empty() {
            return;
        }
        let reason = LeaseEnd::from_reason(lease.end_reason).expect("leases end as leases do");
        let (lease_id, incarnation) = (lease.id, lease.incarnation);
        let residence = std::mem::replace(&mut self.leases.get_mut(id).residence, Residence::Here);
        let Residence::HereAndStubs(groups) = residence else { unreachable!("it has groups") };
        self.registered.remove(&incarnation);
        self.insert_unacked(Unacked { lease: lease_id, incarnation, reason, groups });
    }

    pub(super) fn insert_unacked(&mut self, unacked: Unacked) {
        let key = (unacked.lease, unacked.incarnation);
        let id = self.unacked.insert(unacked);
        let twice = self.unacked_leases.insert(key, id);
        assert!(twice.is_none(), "a lease ends once");
    }

    pub(super) fn ack_lease_end(&mut self, ack: AckLeaseEnd) -> Reply {
        let key = (ack.lease, ack.incarnation);
        let Some(&id) = self.unacked_leases.get(&key) else { return Reply::Done };
        let groups = &self.unacked.get(id).groups;
        if groups.binary_search(&ack.group).is_err() {
            return Reply::Done;
        }
        let left: Arc<[GroupId]> = groups.iter().copied().filter(|group| *group != ack.group).collect();
        if left.is_empty() || self.planted(Bug::OneAckForAll) {
            self.unacked.remove(id);
            self.unacked_leases.remove(&key);
        } else {
            self.unacked.get_mut(id).groups = left;
        }
        Reply::Done
    }

    /// Returns the groups that must be told of a lease's end, in order of (lease, incarnation, group), from the first
    /// after `after`: at most `limit`.
    pub fn unacked_ends(&self, after: Option<(LeaseId, Revision, GroupId)>, limit: usize) -> Vec<UnackedEnd> {
        let from =
            after.map_or(Bound::Unbounded, |(lease, incarnation, _)| Bound::Included((lease, incarnation)));
        let mut ends = Vec::new();
        for (_, id) in self.unacked_leases.range((from, Bound::Unbounded)) {
            let Unacked { lease, incarnation, reason, groups } = self.unacked.get(*id);
            let told = after.filter(|after| (after.0, after.1) == (*lease, *incarnation));
            let first = told.map_or(0, |(_, _, group)| groups.partition_point(|other| *other <= group));
            let left = limit - ends.len();
            ends.extend(groups[first..].iter().take(left).map(|group| UnackedEnd {
                lease: *lease,
                incarnation: *incarnation,
                group: *group,
                reason: *reason,
            }));
            if ends.len() == limit {
                break;
            }
        }
        ends
    }

    /// Returns the number of ended leases that some group has yet to acknowledge.
    pub fn unacked_count(&self) -> u64 {
        self.unacked.len() as u64
    }

    /// Returns true if this lease lives; asked for a group that has a stub of it. False counts as ended, so the
    /// question must go to the group that serves the lease's slot, by a linearizable read. True if this group has a
    /// stub of it too: then the decision is not this group's.
    pub fn lease_lives(&self, lease: LeaseId, incarnation: Revision) -> bool {
        self.find_lease(lease).is_some_and(|id| self.leases.get(id).home_incarnation() == incarnation)
    }
}
