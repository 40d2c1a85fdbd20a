//! Leases: grant, renew, revoke. Not here: their ends, which time brings (`work`).

use super::State;
use super::identity::SEQ_MAX;
use crate::command::{GrantLease, LeaseChoice, RenewLeases, Renewal, RevokeLease};
use crate::index::hash_number;
use crate::lease::{Lease, Residence};
use crate::planted::Bug;
use crate::reply::{EndReason, EndedLease, Rejection, Renewed, Reply};
use crate::requests::Requests;
use crate::slab::Id;
use tollgate_types::{Address, ClientId, DurationMs, LeaseId, Limit, LogTime, REVISION_END};

/// More requests than a program makes without its lease's home hearing of any: keepalives acknowledge them.
const SEQS_PASSED_OVER: u64 = 1 << 24;

impl State {
    pub(super) fn grant_lease(&mut self, grant: &GrantLease) -> Reply {
        let (min, max) =
            (DurationMs::from_ms(self.limits.ttl_ms_min), DurationMs::from_ms(self.limits.ttl_ms_max));
        if grant.ttl < min || grant.ttl > max {
            return Reply::Rejected(Rejection::TtlOutOfRange { asked: grant.ttl, min, max });
        }
        if let LeaseChoice::Chosen(id) = grant.id
            && let Some(lease) = self.find_lease_to_renew(id)
        {
            return match self.check_home(lease) {
                Ok(()) => self.grant_again(lease, grant),
                Err(rejection) => Reply::Rejected(rejection),
            };
        }
        if let Err(rejection) = self.check(Limit::Leases, self.leases.len() as u64 + 1) {
            return Reply::Rejected(rejection);
        }
        let ttl = DurationMs::from_ms(grant.ttl.ms() + u64::from(self.rehearses()));
        let incarnation = self.bump();
        let id = match grant.id {
            LeaseChoice::Chosen(id) => id,
            LeaseChoice::Assigned(slot) => (incarnation.get()..REVISION_END)
                .map(|counter| LeaseId::assigned(slot, counter))
                .find(|id| self.find_lease(*id).is_none())
                .expect("there are more ids in a slot than leases"),
        };
        let lease = self.insert_lease(Lease {
            id,
            incarnation,
            ttl,
            deadline: self.now.after(ttl),
            end_reason: EndReason::LeaseExpired,
            client_id: grant.client_id.clone(),
            address: grant.address.clone(),
            last_seen: self.now,
            revoke_on_disconnect: grant.revoke_on_disconnect,
            requests: Requests::default(),
            seqs_from: 0,
            residence: Residence::Here,
            oldest: None,
            youngest: None,
            claims: 0,
            counted: false,
        });
        self.lease_granted(lease, false)
    }

    fn find_lease_to_renew(&self, id: LeaseId) -> Option<Id<Lease>> {
        if self.planted(Bug::EndedIdRevived) || self.planted(Bug::RenewOfEndedLease) {
            return self.lease_ids.find(hash_number(id.get()), |lease| self.leases.get(lease).id == id);
        }
        self.find_lease(id)
    }

    /// Grants a living lease again to the same client: a renewal that may change the terms.
    fn grant_again(&mut self, id: Id<Lease>, grant: &GrantLease) -> Reply {
        if !self.is_same_client(&self.leases.get(id).client_id, &grant.client_id) {
            return Reply::Rejected(Rejection::LeaseTaken { lease: self.leases.get(id).id });
        }
        self.pass_over_seqs_of_other_groups(id);
        let lease = self.leases.get_mut(id);
        lease.ttl = grant.ttl;
        lease.address = grant.address.clone();
        lease.revoke_on_disconnect = grant.revoke_on_disconnect;
        self.renew(id);
        self.lease_granted(id, true)
    }

    /// True if both ids name the same client. From version 2 on, an empty client id is equal to none, not even to
    /// another empty one.
    fn is_same_client(&self, one: &ClientId, other: &ClientId) -> bool {
        let silent = one.is_empty() && self.knows_requests() && !self.planted(Bug::EmptyClientIdsEqual);
        one == other && !silent
    }

    /// Moves the lease's next seq past those that only other groups may have seen, because a program that starts again
    /// with the lease of its predecessor must not use such a seq.
    fn pass_over_seqs_of_other_groups(&mut self, id: Id<Lease>) {
        let elsewhere = !self.leases.get(id).groups().is_empty() && self.knows_requests();
        if elsewhere && !self.planted(Bug::SeqsElsewhereForgotten) {
            let from = self.next_seq(id).get().saturating_add(SEQS_PASSED_OVER);
            self.leases.get_mut(id).seqs_from = from.min(SEQ_MAX);
        }
    }

    fn lease_granted(&self, id: Id<Lease>, renewed: bool) -> Reply {
        let lease = self.leases.get(id);
        Reply::LeaseGranted {
            lease: lease.id,
            ttl: lease.ttl,
            incarnation: lease.incarnation,
            deadline: lease.deadline,
            renewed,
            next_seq: self.next_seq(id),
        }
    }

    /// Adds a lease to every table. An older lease with the same id, ended and not reaped yet, is no longer found by
    /// it.
    pub(super) fn insert_lease(&mut self, lease: Lease) -> Id<Lease> {
        let (lease_id, hash) = (lease.id, hash_number(lease.id.get()));
        let (deadline, incarnation) = (lease.deadline, lease.incarnation);
        if let Some(old) = self.lease_ids.find(hash, |lease| self.leases.get(lease).id == lease_id) {
            self.lease_ids.remove(hash, old);
        }
        let id = self.leases.insert(lease);
        self.lease_ids.insert(hash, id);
        self.lease_deadlines.insert((deadline, incarnation), id);
        self.note_stub(id);
        id
    }

    /// Removes an ended lease, with nothing left on it, from every table.
    pub(super) fn forget_lease(&mut self, id: Id<Lease>) {
        self.note_lease_end(id);
        let lease = self.leases.remove(id);
        assert!(lease.claims == 0 && lease.groups().is_empty(), "a lease goes last");
        self.lease_deadlines.remove(&(lease.deadline, lease.incarnation));
        self.forget_stub(lease.id, id);
        let (incarnation, reason) = (lease.home_incarnation(), lease.end_reason);
        self.scratch.ended_leases.push(EndedLease { lease: lease.id, incarnation, reason });
        // Not found if the id has been granted again.
        self.lease_ids.remove(hash_number(lease.id.get()), id);
    }

    pub(super) fn renew_leases(&mut self, renew: &RenewLeases) -> Reply {
        if let Err(rejection) = self.check(Limit::RenewalsPerEntry, renew.renewals.len() as u64) {
            return Reply::Rejected(rejection);
        }
        Reply::LeasesRenewed(renew.renewals.iter().map(|renewal| self.renew_one(renewal)).collect())
    }

    fn renew_one(&mut self, renewal: &Renewal) -> Renewed {
        let found = if self.planted(Bug::RenewOfEndedLease) {
            self.find_lease_to_renew(renewal.lease)
        } else {
            self.find_lease(renewal.lease)
        };
        let Some(id) = found else { return Renewed { lease: renewal.lease, result: None, home: None } };
        if let Some(stub) = self.leases.get(id).stub() {
            return Renewed { lease: renewal.lease, result: None, home: Some(stub.home) };
        }
        // A client with so many gaps is misbehaving; its lease lives all the same.
        let _ = self.acknowledge(id, &renewal.acked);
        if let Some(address) = &renewal.address {
            self.leases.get_mut(id).address = address.clone();
        }
        self.renew(id);
        let lease = self.leases.get(id);
        Renewed { lease: renewal.lease, result: Some((lease.ttl, lease.deadline)), home: None }
    }

    fn renew(&mut self, id: Id<Lease>) {
        let lease = self.leases.get(id);
        let from = if self.planted(Bug::RenewalExtendsDeadline) { lease.deadline } else { self.now };
        let deadline = from.after(lease.ttl);
        self.leases.get_mut(id).last_seen = self.now;
        self.set_deadline(id, deadline);
    }

    fn set_deadline(&mut self, id: Id<Lease>, deadline: LogTime) {
        let lease = self.leases.get_mut(id);
        let (old, incarnation) = (lease.deadline, lease.incarnation);
        lease.deadline = deadline;
        if old != deadline {
            self.lease_deadlines.remove(&(old, incarnation));
            self.lease_deadlines.insert((deadline, incarnation), id);
        }
    }

    /// Ends a lease by making it due now; `work` reaps it in bounded steps.
    pub(super) fn revoke_lease(&mut self, revoke: &RevokeLease) -> Reply {
        let Some(id) = self.find_lease(revoke.lease) else {
            return Reply::Rejected(Rejection::LeaseNotFound { lease: revoke.lease });
        };
        if let Err(rejection) = self.check_home(id) {
            return Reply::Rejected(rejection);
        }
        let lease = self.leases.get(id);
        let stays =
            |from: &Address| !lease.revoke_on_disconnect || (!from.is_empty() && lease.address != *from);
        if revoke.disconnected.as_ref().is_some_and(stays) {
            return Reply::Done;
        }
        let disconnected = revoke.disconnected.is_some();
        let reason = if disconnected { EndReason::Disconnected } else { EndReason::LeaseRevoked };
        self.end_lease_now(id, reason);
        Reply::LeaseRevoked
    }

    /// Makes a lease due. From here on every command and read finds it ended.
    pub(super) fn end_lease_now(&mut self, id: Id<Lease>, reason: EndReason) {
        self.leases.get_mut(id).end_reason = reason;
        self.set_deadline(id, self.now);
        self.scratch.overdue = true;
        self.scratch.moment += 1;
    }

    /// Refuses a command that only a lease's home can run.
    fn check_home(&self, id: Id<Lease>) -> Result<(), Rejection> {
        let lease = self.leases.get(id);
        lease.stub().map_or(Ok(()), |stub| Err(Rejection::NotHome { lease: lease.id, home: stub.home }))
    }
}
