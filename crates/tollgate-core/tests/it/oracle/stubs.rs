//! Leases over groups: the stubs of leases that live elsewhere, and the notices owed to groups with stubs of this
//! group's leases.

use super::{Lease, Oracle, Stub};
use std::collections::{BTreeMap, BTreeSet};
use tollgate_core::{
    AckLeaseEnd, AddStub, ConfirmStub, EndReason, EndStub, LeaseEnd, RegisterStub, Rejection, Reply,
    StubView, UnackedEnd,
};
use tollgate_types::{Address, DurationMs, LeaseId, Limit, LogTime, Revision, SeqRanges};

/// Most groups in which a lease may be registered.
const GROUPS_MAX: usize = 1_024;

impl Lease {
    pub(super) fn stub_view(&self) -> Option<StubView> {
        let Stub { home, incarnation, pending } = self.stub?;
        Some(StubView { lease: self.id, incarnation, home, added: self.incarnation, pending })
    }
}

impl Oracle {
    pub(super) fn add_stub(&mut self, add: &AddStub) -> Reply {
        self.try_add_stub(add).unwrap_or_else(Reply::Rejected)
    }

    fn try_add_stub(&mut self, add: &AddStub) -> Result<Reply, Rejection> {
        let lease = add.lease;
        if let Ok(found) = self.found(lease) {
            let stub = self.lease_of(found).stub.ok_or(Rejection::HomeHere { lease })?;
            if stub.incarnation < add.incarnation {
                return Err(Rejection::OtherIncarnation { lease, stands: stub.incarnation });
            }
            if stub.incarnation > add.incarnation {
                return Err(Rejection::LeaseNotFound { lease });
            }
            return Ok(self.stub_reply(found));
        }
        self.check_limit(Limit::Leases, self.leases.len() as u64 + 1)?;
        let added = self.next_revision();
        self.leases.push(Lease {
            id: lease,
            incarnation: added,
            ttl: DurationMs::ZERO,
            deadline: LogTime::NEVER,
            client_id: add.client_id.clone(),
            address: Address::NONE,
            last_seen: self.now,
            revoke_on_disconnect: false,
            revoked: None,
            seen: SeqRanges::default(),
            kept: BTreeMap::new(),
            about: BTreeMap::new(),
            seqs_from: 0,
            waited: BTreeSet::new(),
            groups: BTreeSet::new(),
            stub: Some(Stub { home: add.home, incarnation: add.incarnation, pending: true }),
        });
        Ok(self.stub_reply(added))
    }

    fn stub_reply(&self, added: Revision) -> Reply {
        Reply::Stub(self.lease_of(added).stub_view().expect("it is a stub"))
    }

    pub(super) fn confirm_stub(&mut self, confirm: ConfirmStub) -> Reply {
        let ConfirmStub { lease, incarnation, added } = confirm;
        let is_it = |stub: &StubView| (stub.incarnation, stub.added) == (incarnation, added);
        if !self.living_stub(lease).is_some_and(|stub| is_it(&stub)) {
            return Reply::Rejected(Rejection::StubNotFound { lease });
        }
        let stub = self.lease_of_mut(added).stub.as_mut().expect("it is a stub");
        stub.pending = false;
        self.stub_reply(added)
    }

    pub(super) fn end_stub(&mut self, end: EndStub) -> Reply {
        let Some(stub) = self.living_stub(end.lease) else { return Reply::Done };
        if stub.incarnation != end.incarnation {
            return Reply::Rejected(Rejection::OtherIncarnation {
                lease: end.lease,
                stands: stub.incarnation,
            });
        }
        let now = self.now;
        let record = self.lease_of_mut(stub.added);
        record.deadline = now;
        record.revoked = Some(match end.reason {
            LeaseEnd::Expired => EndReason::LeaseExpired,
            LeaseEnd::Revoked => EndReason::LeaseRevoked,
            LeaseEnd::Disconnected => EndReason::Disconnected,
        });
        Reply::Done
    }

    pub(super) fn register_stub(&mut self, register: RegisterStub) -> Reply {
        let RegisterStub { lease, incarnation, group } = register;
        let Ok(found) = self.found(lease) else { return Reply::LeaseUnknown };
        if let Some(stub) = self.lease_of(found).stub {
            return Reply::Rejected(Rejection::NotHome { lease, home: stub.home });
        }
        if found != incarnation {
            return Reply::LeaseUnknown;
        }
        let groups = &self.lease_of(found).groups;
        if !groups.contains(&group) {
            if groups.len() >= GROUPS_MAX {
                return Reply::Rejected(Rejection::TooManyGroups { lease, max: GROUPS_MAX as u64 });
            }
            let registered = self.leases.iter().filter(|lease| !lease.groups.is_empty()).count();
            let owed = (registered + self.unacked.len() + 1) as u64;
            if groups.is_empty()
                && let Err(rejection) = self.check_limit(Limit::Leases, owed)
            {
                return Reply::Rejected(rejection);
            }
        }
        self.lease_of_mut(found).groups.insert(group);
        Reply::StubRegistered
    }

    pub(super) fn ack_lease_end(&mut self, ack: AckLeaseEnd) -> Reply {
        if let Some((_, groups)) = self.unacked.get_mut(&(ack.lease, ack.incarnation)) {
            groups.remove(&ack.group);
        }
        self.unacked.retain(|_, (_, groups)| !groups.is_empty());
        Reply::Done
    }

    /// Turns the registered groups of a due lease into its unacked end.
    pub(super) fn owe_end(&mut self, incarnation: Revision) {
        let lease = self.lease_of_mut(incarnation);
        let groups = std::mem::take(&mut lease.groups);
        let (id, reason) = (lease.id, lease.revoked);
        let reason = match reason {
            None | Some(EndReason::LeaseExpired) => LeaseEnd::Expired,
            Some(EndReason::LeaseRevoked) => LeaseEnd::Revoked,
            Some(EndReason::Disconnected) => LeaseEnd::Disconnected,
            Some(other) => panic!("no lease ends as {other:?}"),
        };
        if !groups.is_empty() {
            self.unacked.insert((id, incarnation), (reason, groups));
        }
    }

    fn living_stub(&self, lease: LeaseId) -> Option<StubView> {
        self.lease_of(self.found(lease).ok()?).stub_view()
    }

    /// The stubs that have not ended, by id.
    pub(crate) fn stubs(&self) -> Vec<StubView> {
        let living = self.leases.iter().filter(|lease| lease.deadline > self.now);
        let mut stubs: Vec<StubView> = living.filter_map(Lease::stub_view).collect();
        stubs.sort_by_key(|stub| stub.lease);
        stubs
    }

    /// The groups that must be told of leases' ends, in order.
    pub(crate) fn unacked_ends(&self) -> Vec<UnackedEnd> {
        let ends = self.unacked.iter().flat_map(|((lease, incarnation), (reason, groups))| {
            groups.iter().map(|group| UnackedEnd {
                lease: *lease,
                incarnation: *incarnation,
                group: *group,
                reason: *reason,
            })
        });
        ends.collect()
    }

    /// The answer to an audit. A stub counts as living, because only the lease's home can decide.
    pub(crate) fn lease_lives(&self, lease: LeaseId, incarnation: Revision) -> bool {
        self.lease(lease).is_some_and(|lease| lease.incarnation == incarnation)
    }
}
