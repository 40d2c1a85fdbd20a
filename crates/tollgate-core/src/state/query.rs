//! Reads of one thing: the state as clients see it. The dead are not shown, reaped or not. Not here: reads of many
//! things, off the thread that applies (`listing`).

use super::State;
use crate::claim::{Claim, Death};
use crate::listing::{Member, Members, holder_view, lease_view};
use crate::lock::Lock;
use crate::reply::Reply;
use crate::ring::{Compacted, EventBatch};
use crate::slab::Id;
use crate::view::{LeaseClaim, LeaseView, LockView, RegisterView, WaitView};
use crate::watch::Watch;
use tollgate_types::{Key, LeaseId, Limits, Lineage, LogTime, Name, Names, Revision, Seq};

/// Shows the state's position and sizes, and no records: there can be millions.
impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("now", &self.now())
            .field("revision", &self.revision())
            .field("locks", &self.lock_count())
            .field("leases", &self.lease_count())
            .finish_non_exhaustive()
    }
}

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

    /// The apply version in force, which only a command raises.
    pub fn apply_version(&self) -> u32 {
        self.apply_version
    }

    /// The lineage, that is, the history of grants that this state continues; none before the first leader of its
    /// cluster has drawn one, or while the group is at apply version 1.
    pub fn lineage(&self) -> Option<Lineage> {
        self.lineage
    }

    /// Returns the number of locks that are held, awaited or closed.
    pub fn lock_count(&self) -> u64 {
        self.locks.len() as u64
    }

    /// Returns the number of leases, including ended ones that are not reaped yet.
    pub fn lease_count(&self) -> u64 {
        self.leases.len() as u64
    }

    /// Returns the number of registers, including those of ended leases that are not reaped yet.
    pub fn register_count(&self) -> u64 {
        self.registers.len() as u64
    }

    /// Returns the number of claims, holders and waiters, including dead ones that are not reaped yet.
    pub fn claim_count(&self) -> u64 {
        self.claims.len() as u64
    }

    /// The first revision from which history is complete.
    pub fn min_revision(&self) -> Revision {
        self.ring.min_revision()
    }

    /// Returns the events from a revision on that a watch sees; never part of a revision. If the batch is empty and its
    /// `next` is not above the state's revision, read on from `next`.
    pub fn events_since(
        &self,
        from: Revision,
        watch: &Watch,
        events_max: usize,
    ) -> Result<EventBatch, Compacted> {
        self.ring.read(from, watch, events_max, self.revision)
    }

    /// Returns the holders and waiters of a lock; none if it has neither and no lock-delay keeps it closed.
    pub fn lock(&self, name: &Name) -> Option<LockView> {
        self.lock_view(self.locks.get(self.find_lock(name).1?))
    }

    fn lock_view(&self, lock: &Lock) -> Option<LockView> {
        let alive = |id: &Id<Claim>| !matches!(self.death(*id), Some(Death::Claim(..)));
        let holders = lock.holders.iter().map(|(_, id)| *id).filter(alive);
        let queue = lock.queue.values().copied().filter(|id| self.death(*id).is_none());
        let members = Members {
            holders: holders.map(|id| self.with_lease(id)).collect(),
            queue: queue.map(|id| self.with_lease(id)).collect(),
            closed_until: lock.closure.map(|closure| self.closures.get(closure).until),
        };
        members.view(&lock.name, self.now)
    }

    /// Returns the wait that joined the queue of a name at this revision; none if it is over.
    pub fn wait(&self, name: &Name, create_revision: Revision) -> Option<WaitView> {
        let id = self.queued_claim(name, create_revision).filter(|id| self.death(*id).is_none())?;
        Some(wait_view(self.claims.get(id)))
    }

    /// Returns the waits whose callers stand by, among a part of all claims: begin at 0, go on with the number returned
    /// until there is none. A wait that exists from the first call to the last is returned; of other waits, some are.
    pub fn attended_waits(&self, from: usize, claims_max: usize) -> (Vec<WaitView>, Option<usize>) {
        let (claims, next) = self.claims.part(from, claims_max);
        let attended = |claim: &&Claim| claim.is_queued() && claim.is_attended();
        (claims.filter(attended).map(wait_view).collect(), next)
    }

    fn with_lease(&self, id: Id<Claim>) -> Member<'_> {
        let claim = self.claims.get(id);
        (claim, self.leases.get(claim.lease))
    }

    /// Position of a queued claim in the longest of its queues; 1 for the next in line.
    pub(super) fn position(&self, claim: &Claim) -> u64 {
        let key = claim.queue_key();
        let places = claim.locks.as_slice().iter().map(|lock| {
            let queue = &self.locks.get(*lock).queue;
            let last = queue.last_key_value().is_some_and(|(last, _)| *last == key);
            if last { queue.len() } else { queue.range(..=key).count() }
        });
        places.max().unwrap_or(0) as u64
    }

    /// Returns the reply to requests that don't wait: the holders of the names, and the reason why they are closed.
    pub fn busy(&self, names: &Names) -> Reply {
        let locks = names.as_slice().iter().filter_map(|name| self.find_lock(name).1);
        let locks = locks.map(|lock| self.locks.get(lock));
        let holders = locks.flat_map(|lock| lock.holders.iter().map(move |(_, claim)| (lock, *claim)));
        let holders = holders.take(Reply::BUSY_HOLDERS_MAX);
        Reply::Busy {
            holders: holders.map(|(lock, id)| holder_view(&lock.name, self.with_lease(id))).collect(),
            closed: self.closed(names),
        }
    }

    /// Returns true if a request of a lease with this seq was carried out, refused or queued here.
    pub fn has_seen(&self, lease: LeaseId, seq: Seq) -> bool {
        self.find_lease(lease).is_some_and(|lease| self.leases.get(lease).requests.is_seen(seq))
    }

    /// Returns a lease, unless it has ended.
    pub fn lease(&self, id: LeaseId) -> Option<LeaseView> {
        Some(lease_view(self.leases.get(self.find_lease(id)?), self.now))
    }

    /// Returns the names that a lease holds and awaits, oldest claim first: at most `limit` names.
    pub fn lease_claims(&self, id: LeaseId, limit: usize) -> Vec<LeaseClaim> {
        let Some(lease) = self.find_lease(id) else { return Vec::new() };
        let alive = |id: &Id<Claim>| !matches!(self.death(*id), Some(Death::Claim(..)));
        let claims = self.claims_of(lease).filter(|(id, _)| alive(id));
        let names =
            claims.flat_map(|(_, claim)| claim.names.as_slice().iter().map(move |name| (name, claim)));
        let view = |(name, claim): (&Name, &Claim)| LeaseClaim {
            name: name.clone(),
            owner: claim.owner.clone(),
            mode: claim.mode,
            token: claim.token,
        };
        names.take(limit).map(view).collect()
    }

    /// Returns a register, unless its lease has ended.
    pub fn register(&self, key: &Key) -> Option<RegisterView> {
        Some(self.registers.get(self.living_register(key)?).view())
    }
}

fn wait_view(claim: &Claim) -> WaitView {
    WaitView {
        name: claim.names.as_slice()[0].clone(),
        create_revision: claim.wait_revision(),
        lease: claim.lease_id,
        attended: claim.is_attended(),
        asks: claim.asks,
    }
}
