//! Stubs: leases that live in other groups and have claims in this one.
//!
//! A stub is added pending, before the home knows of it; it can be used once the home has registered this group, and so
//! will tell it of the lease's end. Invariant: a stub has no deadline, and only the home's word ends it here, so the
//! times of two groups are never compared. Not here: the home's side (`homes`), and sending the messages.

use super::State;
use crate::command::{AddStub, ConfirmStub, EndStub};
use crate::lease::{Lease, Residence, Stub};
use crate::planted::Bug;
use crate::reply::{EndReason, Rejection, Reply};
use crate::requests::Requests;
use crate::slab::Id;
use crate::view::StubView;
use std::cmp::Ordering;
use std::ops::Bound;
use tollgate_types::{Address, DurationMs, LeaseId, Limit, LogTime};

impl State {
    pub(super) fn add_stub(&mut self, add: &AddStub) -> Reply {
        if let Some(present) = self.find_lease(add.lease) {
            return self.add_stub_again(present, add);
        }
        if let Err(rejection) = self.check(Limit::Leases, self.leases.len() as u64 + 1) {
            return Reply::Rejected(rejection);
        }
        let added = self.bump();
        let stub = Stub { home: add.home, incarnation: add.incarnation, pending: true };
        let id = self.insert_lease(Lease {
            id: add.lease,
            incarnation: added,
            ttl: DurationMs::ZERO,
            deadline: LogTime::NEVER,
            end_reason: EndReason::LeaseExpired,
            client_id: add.client_id.clone(),
            address: Address::NONE,
            last_seen: self.now,
            revoke_on_disconnect: false,
            requests: Requests::default(),
            seqs_from: 0,
            residence: Residence::Elsewhere(stub),
            oldest: None,
            youngest: None,
            claims: 0,
            counted: false,
        });
        self.stub_reply(id)
    }

    /// Answers a command for an id that is in use: by its stub, by the stub of another lease, or by a lease that lives
    /// here.
    fn add_stub_again(&mut self, present: Id<Lease>, add: &AddStub) -> Reply {
        let lease = add.lease;
        let Some(stub) = self.leases.get(present).stub() else {
            return Reply::Rejected(Rejection::HomeHere { lease });
        };
        match add.incarnation.cmp(&stub.incarnation) {
            Ordering::Equal => self.stub_reply(present),
            Ordering::Greater if self.planted(Bug::NewerStubTakesOver) => {
                let stub = Stub { incarnation: add.incarnation, ..stub };
                self.leases.get_mut(present).residence = Residence::Elsewhere(stub);
                self.stub_reply(present)
            }
            // The claims on the stub belong to a lease that must have ended. Only its home can say whether it has.
            Ordering::Greater => {
                Reply::Rejected(Rejection::OtherIncarnation { lease, stands: stub.incarnation })
            }
            Ordering::Less => Reply::Rejected(Rejection::LeaseNotFound { lease }),
        }
    }

    fn stub_reply(&self, id: Id<Lease>) -> Reply {
        Reply::Stub(self.leases.get(id).stub_view().expect("the caller found a stub"))
    }

    pub(super) fn confirm_stub(&mut self, confirm: ConfirmStub) -> Reply {
        let ConfirmStub { lease, incarnation, added } = confirm;
        let found = self.find_stub(lease).filter(|(id, stub)| {
            let same = self.leases.get(*id).incarnation == added;
            stub.incarnation == incarnation && (same || self.planted(Bug::StubConfirmedByOldAnswer))
        });
        let Some((id, stub)) = found else { return Reply::Rejected(Rejection::StubNotFound { lease }) };
        if stub.pending {
            self.leases.get_mut(id).residence = Residence::Elsewhere(Stub { pending: false, ..stub });
            self.stubs_pending.remove(&lease);
        }
        self.stub_reply(id)
    }

    /// Ends a stub by making it due now, like a revoked lease: `work` reaps it in bounded steps.
    pub(super) fn end_stub(&mut self, end: EndStub) -> Reply {
        let Some((id, stub)) = self.find_stub(end.lease) else { return Reply::Done };
        if stub.incarnation != end.incarnation && !self.planted(Bug::StubEndIgnoresIncarnation) {
            let stands = stub.incarnation;
            return Reply::Rejected(Rejection::OtherIncarnation { lease: end.lease, stands });
        }
        self.forget_stub(end.lease, id);
        self.end_lease_now(id, end.reason.into());
        Reply::Done
    }

    /// The stub with this id, unless it has ended.
    fn find_stub(&self, lease: LeaseId) -> Option<(Id<Lease>, Stub)> {
        let id = self.find_lease(lease)?;
        self.leases.get(id).stub().map(|stub| (id, stub))
    }

    /// Adds a new or loaded stub to the tables by which the leader finds stubs that need work.
    pub(super) fn note_stub(&mut self, id: Id<Lease>) {
        let lease = self.leases.get(id);
        if lease.stub().is_some() && !self.is_past(lease.deadline) {
            let (lease_id, pending) = (lease.id, lease.is_pending());
            self.stubs.insert(lease_id, id);
            if pending {
                self.stubs_pending.insert(lease_id);
            }
        }
    }

    /// Removes a stub from the leader's tables, if it is there.
    pub(super) fn forget_stub(&mut self, lease: LeaseId, id: Id<Lease>) {
        if self.stubs.get(&lease) == Some(&id) {
            self.stubs.remove(&lease);
            self.stubs_pending.remove(&lease);
        }
    }

    /// Returns the stubs that have not ended, by id, from the first after `after`: at most `limit`. For the slow audit,
    /// which asks their homes whether the leases still live.
    pub fn stubs(&self, after: Option<LeaseId>, limit: usize) -> Vec<StubView> {
        let found = self.stubs.range(after_id(after)).map(|(_, id)| *id);
        found.filter_map(|id| self.living_stub_view(id)).take(limit).collect()
    }

    /// Returns the stubs that the home has not confirmed, likewise: they are to be registered there.
    pub fn pending_stubs(&self, after: Option<LeaseId>, limit: usize) -> Vec<StubView> {
        let found = self.stubs_pending.range(after_id(after)).map(|lease| self.stubs[lease]);
        found.filter_map(|id| self.living_stub_view(id)).take(limit).collect()
    }

    /// Returns the number of stubs that have not ended.
    pub fn stub_count(&self) -> u64 {
        self.stubs.len() as u64
    }

    fn living_stub_view(&self, id: Id<Lease>) -> Option<StubView> {
        let lease = self.leases.get(id);
        if self.is_past(lease.deadline) { None } else { lease.stub_view() }
    }
}

fn after_id(after: Option<LeaseId>) -> (Bound<LeaseId>, Bound<LeaseId>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}
