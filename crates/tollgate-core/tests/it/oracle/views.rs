//! Views of the oracle: those that reads return, and those that the comparer needs besides.

use super::{Claim, Oracle, Place};
use tollgate_core::{Closed, Event, HolderView, LeaseView, LockView, Reply, WaiterView, claim_key};
use tollgate_types::{DurationMs, LeaseId, Limits, LogTime, Name, Names, Revision};

impl Oracle {
    pub(crate) fn now(&self) -> LogTime {
        self.now
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn lineage(&self) -> Option<tollgate_types::Lineage> {
        self.lineage
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Every event since the beginning.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// The revision of the last event that left the ring.
    pub(crate) fn compacted(&self) -> Option<Revision> {
        self.events[..self.ring_start].last().map(|event| event.revision)
    }

    /// A lock without its dead claims and without a due closure; none if nothing is left of it.
    pub(crate) fn lock(&self, name: &Name) -> Option<LockView> {
        let holders = self.living_holders(name);
        let queue: Vec<Place> =
            self.queue(name).into_iter().filter(|place| self.place_death(*place).is_none()).collect();
        let closed_until = self.closures.get(name).copied().filter(|until| *until > self.now);
        if holders.is_empty() && queue.is_empty() && closed_until.is_none() {
            return None;
        }
        let waiters = (0..queue.len()).map(|at| self.waiter_view(name, &queue, at)).collect();
        let holders = holders.into_iter().map(|claim| self.holder_view(name, claim)).collect();
        Some(LockView { name: name.clone(), holders, waiters, closed_until })
    }

    /// The names of all locks with something left to see.
    pub(crate) fn lock_names(&self) -> Vec<Name> {
        self.lock_records().into_iter().filter(|name| self.lock(name).is_some()).collect()
    }

    fn living_holders(&self, name: &Name) -> Vec<&Claim> {
        let holders = self.holders(name).into_iter().map(|id| self.claim(id));
        holders.filter(|claim| self.claim_death(claim).is_none()).collect()
    }

    fn holder_view(&self, name: &Name, claim: &Claim) -> HolderView {
        let lease = self.lease_of(claim.incarnation);
        HolderView {
            key: claim_key(name, claim.lease, &claim.owner),
            lease: claim.lease,
            owner: claim.owner.clone(),
            client_id: lease.client_id.clone(),
            mode: claim.mode,
            token: claim.token.expect("it holds"),
            metadata: claim.metadata.clone(),
            said: claim.value.clone(),
            create_revision: claim.create_revision,
            mod_revision: claim.mod_revision,
            version: claim.version,
            since: claim.since,
            expiration: claim.hold_until.map_or(lease.deadline, |until| until.min(lease.deadline)),
        }
    }

    fn waiter_view(&self, name: &Name, queue: &[Place], at: usize) -> WaiterView {
        let claim = self.claim(queue[at].claim);
        let upgrade = claim.upgrade.as_ref();
        let key = |claim: &Claim| claim_key(name, claim.lease, &claim.owner);
        let other_holder = || {
            let mut holders = self.living_holders(name).into_iter();
            holders.rfind(|holder| holder.create_revision != claim.create_revision)
        };
        let before = match at {
            0 => other_holder(),
            _ => Some(self.claim(queue[at - 1].claim)),
        };
        WaiterView {
            waiter_key: key(claim),
            predecessor_key: before.map(key),
            position: at as u64 + 1,
            lease: claim.lease,
            owner: claim.owner.clone(),
            client_id: self.lease_of(claim.incarnation).client_id.clone(),
            mode: upgrade.map_or(claim.mode, |upgrade| upgrade.mode),
            upgrade: upgrade.is_some(),
            metadata: claim.metadata.clone(),
            create_revision: upgrade.map_or(claim.create_revision, |upgrade| upgrade.queued_at),
            since: upgrade.map_or(claim.since, |upgrade| upgrade.since),
            deadline: upgrade.map_or(claim.wait_until, |upgrade| upgrade.wait_until),
            attended: upgrade.map_or(claim.attended, |upgrade| upgrade.attended),
            asks: claim.asks,
        }
    }

    /// The answer to a request that does not wait. Reading: by name, then token; the requester's own grants included.
    pub(super) fn busy(&self, names: &Names) -> Reply {
        let on_name =
            |name| self.living_holders(name).into_iter().map(move |claim| self.holder_view(name, claim));
        let holders = names.as_slice().iter().flat_map(on_name).take(Reply::BUSY_HOLDERS_MAX).collect();
        // Reading: the longest of those that keep any of the names closed.
        let closures = names.as_slice().iter().filter_map(|name| self.closures.get(name).copied());
        let until = closures.chain([self.closed_until]).max().filter(|until| *until > self.now);
        let restored = self.closed_until > self.now;
        let closed = until.map(|until| Closed { left: self.now.until(until), restored });
        Reply::Busy { holders, closed }
    }

    pub(crate) fn lease(&self, id: LeaseId) -> Option<LeaseView> {
        let lease = self.lease_of(self.found(id).ok()?);
        let claims = self.claims.iter().filter(|claim| claim.incarnation == lease.incarnation).count();
        Some(LeaseView {
            lease: id,
            incarnation: lease.stub.map_or(lease.incarnation, |stub| stub.incarnation),
            ttl: lease.ttl,
            remaining: match lease.stub {
                Some(_) => DurationMs::ZERO,
                None => self.now.until(lease.deadline),
            },
            deadline: lease.deadline,
            client_id: lease.client_id.clone(),
            address: lease.address.clone(),
            last_seen: lease.last_seen,
            revoke_on_disconnect: lease.revoke_on_disconnect,
            claims: claims as u64,
            groups: lease.groups.iter().copied().collect(),
            stub: lease.stub_view(),
        })
    }

    /// The living leases.
    pub(crate) fn lease_ids(&self) -> Vec<LeaseId> {
        self.leases.iter().filter(|lease| lease.deadline > self.now).map(|lease| lease.id).collect()
    }

    /// The living leases whose home is this group.
    pub(crate) fn home_lease_ids(&self) -> Vec<LeaseId> {
        let stubs = self.stubs();
        let is_home = |id: &LeaseId| stubs.iter().all(|stub| stub.lease != *id);
        self.lease_ids().into_iter().filter(is_home).collect()
    }

    /// Log time at which there is something to do next: now if anything is due or dirty.
    pub(crate) fn next_deadline(&self) -> Option<LogTime> {
        if !self.dirty.is_empty() {
            return Some(self.now);
        }
        let leases = self.leases.iter().map(|lease| lease.deadline).filter(|at| *at != LogTime::NEVER);
        let claims = self.deadlines().into_iter().map(|(at, ..)| at);
        let closures = self.closures.values().copied();
        let closed = Some(self.closed_until).filter(|until| *until > self.now);
        leases.chain(claims).chain(closures).chain(closed).min().map(|at| at.max(self.now))
    }

    /// Checks that no waiter is left waiting for nothing: once no work is left, the first of no queue could be granted.
    pub(crate) fn check_settled(&self) -> Result<(), String> {
        if self.next_deadline().is_some_and(|at| at <= self.now) {
            return Ok(());
        }
        for name in self.lock_records() {
            if self.queue(&name).first().is_some_and(|first| self.may_be_granted(*first)) {
                return Err(format!("the first in the queue of {name} could be granted but is not"));
            }
        }
        Ok(())
    }
}
