//! Leases: granting, renewing and revoking them.

use super::{Lease, Oracle};
use std::collections::{BTreeMap, BTreeSet};
use tollgate_core::{
    EndReason, GrantLease, LeaseChoice, Rejection, RenewLeases, Renewal, Renewed, Reply, RevokeLease,
};
use tollgate_types::{DurationMs, LeaseId, Limit, Revision, SeqRanges};

impl Oracle {
    pub(super) fn grant_lease(&mut self, grant: &GrantLease) -> Reply {
        self.try_grant_lease(grant).unwrap_or_else(Reply::Rejected)
    }

    fn try_grant_lease(&mut self, grant: &GrantLease) -> Result<Reply, Rejection> {
        let (min, max) = (self.limits.ttl_ms_min, self.limits.ttl_ms_max);
        if !(min..=max).contains(&grant.ttl.ms()) {
            let (min, max) = (DurationMs::from_ms(min), DurationMs::from_ms(max));
            return Err(Rejection::TtlOutOfRange { asked: grant.ttl, min, max });
        }
        if let LeaseChoice::Chosen(id) = grant.id
            && let Ok(incarnation) = self.found(id)
        {
            self.must_be_home(incarnation)?;
            return self.grant_again(id, incarnation, grant);
        }
        self.check_limit(Limit::Leases, self.leases.len() as u64 + 1)?;
        let incarnation = self.next_revision();
        let id = match grant.id {
            LeaseChoice::Chosen(id) => id,
            LeaseChoice::Assigned(slot) => {
                let mut counter = incarnation.get();
                while self.found(LeaseId::assigned(slot, counter)).is_ok() {
                    counter += 1;
                }
                LeaseId::assigned(slot, counter)
            }
        };
        self.leases.push(Lease {
            id,
            incarnation,
            ttl: grant.ttl,
            deadline: self.now.after(grant.ttl),
            client_id: grant.client_id.clone(),
            address: grant.address.clone(),
            last_seen: self.now,
            revoke_on_disconnect: grant.revoke_on_disconnect,
            revoked: None,
            seen: SeqRanges::default(),
            kept: BTreeMap::new(),
            about: BTreeMap::new(),
            seqs_from: 0,
            waited: BTreeSet::new(),
            groups: BTreeSet::new(),
            stub: None,
        });
        Ok(self.lease_granted(incarnation, false))
    }

    fn grant_again(
        &mut self,
        id: LeaseId,
        incarnation: Revision,
        grant: &GrantLease,
    ) -> Result<Reply, Rejection> {
        let now = self.now;
        let lease = self.lease_of(incarnation);
        let silent = self.version >= 2 && grant.client_id.is_empty();
        if lease.client_id != grant.client_id || silent {
            return Err(Rejection::LeaseTaken { lease: id });
        }
        if self.version >= 2 && !lease.groups.is_empty() {
            let next = self.next_seq(incarnation).get();
            self.lease_of_mut(incarnation).seqs_from = (next + (1 << 24)).min((1 << 53) - 1);
        }
        let lease = self.lease_of_mut(incarnation);
        lease.ttl = grant.ttl;
        lease.deadline = now.after(grant.ttl);
        lease.last_seen = now;
        lease.address = grant.address.clone();
        lease.revoke_on_disconnect = grant.revoke_on_disconnect;
        Ok(self.lease_granted(incarnation, true))
    }

    fn lease_granted(&self, incarnation: Revision, renewed: bool) -> Reply {
        let lease = self.lease_of(incarnation);
        Reply::LeaseGranted {
            lease: lease.id,
            ttl: lease.ttl,
            incarnation,
            deadline: lease.deadline,
            renewed,
            next_seq: self.next_seq(incarnation),
        }
    }

    pub(super) fn renew_leases(&mut self, renew: &RenewLeases) -> Reply {
        if let Err(rejection) = self.check_limit(Limit::RenewalsPerEntry, renew.renewals.len() as u64) {
            return Reply::Rejected(rejection);
        }
        Reply::LeasesRenewed(renew.renewals.iter().map(|renewal| self.renew(renewal)).collect())
    }

    fn renew(&mut self, renewal: &Renewal) -> Renewed {
        let Ok(incarnation) = self.found(renewal.lease) else {
            return Renewed { lease: renewal.lease, result: None, home: None };
        };
        if let Some(stub) = self.lease_of(incarnation).stub {
            return Renewed { lease: renewal.lease, result: None, home: Some(stub.home) };
        }
        // Acks over the bound are ignored: the keepalive itself must not fail.
        let _ = self.take_acks(incarnation, &renewal.acked);
        let now = self.now;
        let lease = self.lease_of_mut(incarnation);
        lease.deadline = now.after(lease.ttl);
        lease.last_seen = now;
        if let Some(address) = &renewal.address {
            lease.address = address.clone();
        }
        Renewed { lease: renewal.lease, result: Some((lease.ttl, lease.deadline)), home: None }
    }

    pub(super) fn revoke_lease(&mut self, revoke: &RevokeLease) -> Reply {
        let home = self.found(revoke.lease).and_then(|found| self.must_be_home(found).map(|()| found));
        let incarnation = match home {
            Ok(incarnation) => incarnation,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let now = self.now;
        let lease = self.lease_of_mut(incarnation);
        lease.revoked = Some(match &revoke.disconnected {
            None => EndReason::LeaseRevoked,
            Some(_) if !lease.revoke_on_disconnect => return Reply::Done,
            Some(from) if !from.is_empty() && lease.address != *from => return Reply::Done,
            Some(_) => EndReason::Disconnected,
        });
        lease.deadline = now;
        Reply::LeaseRevoked
    }

    /// Refuses a command that only the lease's home may run.
    fn must_be_home(&self, incarnation: Revision) -> Result<(), Rejection> {
        let lease = self.lease_of(incarnation);
        lease.stub.map_or(Ok(()), |stub| Err(Rejection::NotHome { lease: lease.id, home: stub.home }))
    }

    /// Refuses `got` if it exceeds a limit.
    pub(super) fn check_limit(&self, limit: Limit, got: u64) -> Result<(), Rejection> {
        let max = self.limits.get(limit);
        if got > max { Err(Rejection::LimitExceeded { limit, max, got }) } else { Ok(()) }
    }
}
