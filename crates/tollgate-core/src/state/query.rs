//! Reads: the state as clients see it. The dead are not shown, reaped or not.

use super::State;
use crate::claim::Claim;
use crate::event::claim_key;
use crate::lock::Lock;
use crate::reply::Reply;
use crate::ring::{Compacted, EventBatch};
use crate::slab::Id;
use crate::view::{HolderView, LeaseView, LockView, RegisterView, WaiterView};
use crate::watch::Watch;
use std::collections::BTreeMap;
use tollgate_types::{Key, LeaseId, Limits, LogTime, Name, Names, Revision, Token};

impl State {
    /// The log time of the last entry.
    pub fn now(&self) -> LogTime {
        self.now
    }

    /// The number of state changes so far.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How entries are applied; raised by a command only.
    pub fn apply_version(&self) -> u32 {
        self.apply_version
    }

    /// How many locks are held, awaited or closed.
    pub fn lock_count(&self) -> u64 {
        self.locks.len() as u64
    }

    /// How many leases there are, ended ones that are not reaped yet included.
    pub fn lease_count(&self) -> u64 {
        self.leases.len() as u64
    }

    /// How many registers there are, those of ended leases that are not reaped yet included.
    pub fn register_count(&self) -> u64 {
        self.registers.len() as u64
    }

    /// The first revision from which history is complete.
    pub fn min_revision(&self) -> Revision {
        self.ring.min_revision()
    }

    /// The events from a revision on that a watch asks for; never part of a revision. An empty batch whose `next` is
    /// not above the state's revision means: read on from there.
    pub fn events_since(
        &self,
        from: Revision,
        watch: &Watch,
        events_max: usize,
    ) -> Result<EventBatch, Compacted> {
        self.ring.read(from, watch, events_max, self.revision)
    }

    /// Who holds a lock and who waits; none if nobody does and no lock-delay keeps it closed.
    pub fn lock(&self, name: &Name) -> Option<LockView> {
        self.lock_view(self.locks.get(self.find_lock(name).1?))
    }

    /// Locks by name, from the first after `after`, whose name begins with `prefix`: at most `limit`.
    ///
    /// Looks at every lock: names are hashed, not sorted, because keeping them sorted would cost every lock operation
    /// more than all the rest of it.
    pub fn locks(&self, prefix: &[u8], after: Option<&Name>, limit: usize) -> Vec<LockView> {
        let mut found: BTreeMap<&Name, &Lock> = BTreeMap::new();
        for (_, lock) in self.locks.iter() {
            let wanted =
                lock.name.as_bytes().starts_with(prefix) && after.is_none_or(|after| lock.name > *after);
            if !wanted || !self.is_visible(lock) {
                continue;
            }
            found.insert(&lock.name, lock);
            if found.len() > limit {
                found.pop_last();
            }
        }
        found.values().filter_map(|lock| self.lock_view(lock)).collect()
    }

    fn is_visible(&self, lock: &Lock) -> bool {
        self.closed_until(lock).is_some() || lock.members().any(|claim| self.is_alive(claim))
    }

    fn is_alive(&self, claim: Id<Claim>) -> bool {
        !matches!(self.death(claim), Some(super::work::Death::Claim(..)))
    }

    fn lock_view(&self, lock: &Lock) -> Option<LockView> {
        let alive = lock.holders.iter().filter(|(_, claim)| self.is_alive(*claim));
        let holders: Vec<HolderView> = alive.map(|(_, claim)| self.holder_view(lock, *claim)).collect();
        let queue = lock.queue.values().filter(|claim| self.death(**claim).is_none());
        let mut waiters: Vec<WaiterView> = Vec::new();
        for (claim, position) in queue.zip(1..) {
            let mut waiter = self.waiter_view(lock, *claim, position);
            waiter.predecessor_key = match waiters.last() {
                Some(before) => Some(before.waiter_key.clone()),
                None => holders.iter().rev().map(|h| &h.key).find(|key| **key != waiter.waiter_key).cloned(),
            };
            waiters.push(waiter);
        }
        let closed_until = self.closed_until(lock);
        let visible = !holders.is_empty() || !waiters.is_empty() || closed_until.is_some();
        visible.then(|| LockView { name: lock.name.clone(), holders, waiters, closed_until })
    }

    fn closed_until(&self, lock: &Lock) -> Option<LogTime> {
        lock.closure.map(|closure| self.closures.get(closure).until).filter(|until| *until > self.now)
    }

    fn holder_view(&self, lock: &Lock, id: Id<Claim>) -> HolderView {
        let claim = self.claims.get(id);
        let lease = self.leases.get(claim.lease);
        HolderView {
            key: claim_key(&lock.name, claim.lease_id, &claim.owner),
            lease: claim.lease_id,
            owner: claim.owner.clone(),
            client_id: lease.client_id.clone(),
            mode: claim.mode,
            token: claim.token.expect("holders hold"),
            metadata: claim.metadata.clone(),
            create_revision: claim.create_revision,
            mod_revision: claim.mod_revision,
            version: claim.version,
            expiration: lease.deadline.min(claim.until),
        }
    }

    fn waiter_view(&self, lock: &Lock, id: Id<Claim>, position: u64) -> WaiterView {
        let claim = self.claims.get(id);
        let deadline = claim.upgrade.as_ref().map_or(claim.until, |upgrade| upgrade.wait_until);
        WaiterView {
            waiter_key: claim_key(&lock.name, claim.lease_id, &claim.owner),
            predecessor_key: None,
            position,
            lease: claim.lease_id,
            owner: claim.owner.clone(),
            client_id: self.leases.get(claim.lease).client_id.clone(),
            mode: claim.wanted(),
            upgrade: claim.upgrade.is_some(),
            metadata: claim.metadata.clone(),
            create_revision: claim.wait_revision(),
            deadline: (deadline != LogTime::NEVER).then_some(deadline),
        }
    }

    /// The place of a queued claim, in the longest of its queues. 1 is the next in line.
    pub(super) fn position(&self, claim: &Claim) -> u64 {
        let key = claim.queue_key();
        let places = claim.locks.as_slice().iter().map(|lock| {
            let queue = &self.locks.get(*lock).queue;
            let last = queue.last_key_value().is_some_and(|(last, _)| *last == key);
            if last { queue.len() } else { queue.range(..=key).count() }
        });
        places.max().unwrap_or(0) as u64
    }

    /// The answer to those who won't wait: who holds the names.
    pub(super) fn busy(&self, names: &Names) -> Reply {
        let locks = names.as_slice().iter().filter_map(|name| self.find_lock(name).1);
        let locks = locks.map(|lock| self.locks.get(lock));
        let holders = locks.flat_map(|lock| lock.holders.iter().map(move |(_, claim)| (lock, *claim)));
        let holders =
            holders.take(Reply::BUSY_HOLDERS_MAX).map(|(lock, claim)| self.holder_view(lock, claim));
        Reply::Busy { holders: holders.collect() }
    }

    /// A lease, unless it has ended.
    pub fn lease(&self, id: LeaseId) -> Option<LeaseView> {
        let lease = self.leases.get(self.find_lease(id)?);
        Some(LeaseView {
            lease: lease.id,
            incarnation: lease.incarnation,
            ttl: lease.ttl,
            remaining: self.now.until(lease.deadline),
            deadline: lease.deadline,
            client_id: lease.client_id.clone(),
            address: lease.address.clone(),
            last_seen: lease.last_seen,
            revoke_on_disconnect: lease.revoke_on_disconnect,
            claims: u64::from(lease.claims),
        })
    }

    /// Leases by id, from the first after `after`: at most `limit`. Looks at every lease.
    pub fn leases(&self, after: Option<LeaseId>, limit: usize) -> Vec<LeaseView> {
        let mut ids = std::collections::BTreeSet::new();
        for (_, lease) in self.leases.iter() {
            if after.is_none_or(|after| lease.id > after) && !self.is_past(lease.deadline) {
                ids.insert(lease.id);
                if ids.len() > limit {
                    ids.pop_last();
                }
            }
        }
        ids.into_iter().filter_map(|id| self.lease(id)).collect()
    }

    /// The keys of a lease's holders and waiters, oldest first: at most `limit`.
    pub fn lease_keys(&self, id: LeaseId, limit: usize) -> Vec<(String, Option<Token>)> {
        let mut next = self.find_lease(id).and_then(|lease| self.leases.get(lease).oldest);
        let mut keys = Vec::new();
        while let Some(claim) = next.map(|id| self.claims.get(id)) {
            for name in claim.names.as_slice() {
                if keys.len() == limit {
                    return keys;
                }
                keys.push((claim_key(name, claim.lease_id, &claim.owner), claim.token));
            }
            next = claim.younger;
        }
        keys
    }

    /// A register, unless its lease has ended.
    pub fn register(&self, key: &Key) -> Option<RegisterView> {
        Some(self.registers.get(self.living_register(key)?).view())
    }
}
