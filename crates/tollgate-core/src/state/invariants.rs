//! Invariants that hold after every entry. Tests check them each time; loading a snapshot checks them once.

use super::State;
use super::grant::timers;
use crate::claim::{Claim, Extras};
use crate::event::{Change, lock_ring_bytes};
use crate::fingerprint::Subject;
use crate::lease::Lease;
use crate::lock::{Held, Lock};
use crate::owners::WALKED_MAX;
use crate::reply::Kind;
use crate::requests::{Kept, KeptFor};
use crate::slab::Id;
use std::collections::{BTreeMap, BTreeSet};
use tollgate_types::{LogTime, Owner, Revision};

/// Returns an error with a sentence unless the condition holds.
macro_rules! must {
    ($condition:expr, $($says:tt)*) => {
        if !$condition {
            return Err(format!($($says)*));
        }
    };
}

type Checked = Result<(), String>;

impl State {
    /// Panics, saying what is wrong, if the state contradicts itself: P1 (exclusion), P2 (tokens), P8 and P9 (no waiter
    /// that could be granted still waits), P14 (no names, keys or leases of other groups are here), and every derived
    /// table against the records.
    pub fn assert_invariants(&self) {
        if let Err(broken) = self.check_invariants() {
            panic!("invariant broken at revision {}: {broken}", self.revision);
        }
    }

    pub(crate) fn check_invariants(&self) -> Checked {
        self.check_claims()?;
        self.check_locks()?;
        self.check_leases()?;
        self.check_homes()?;
        self.check_deadlines()?;
        self.check_owners()?;
        self.check_metadata()?;
        self.check_registers()?;
        self.check_placed()?;
        self.check_ring()
    }

    fn check_claims(&self) -> Checked {
        let values = self.claims.iter().filter(|(_, claim)| claim.said().is_some()).count() as u64;
        must!(self.claim_values == values, "{} values, {values} of them on claims", self.claim_values);
        let mut created = BTreeSet::new();
        for (id, claim) in self.claims.iter() {
            let at = claim.create_revision;
            must!(created.insert(at), "two claims were created at {at:?}");
            must!(
                at <= claim.mod_revision && claim.mod_revision <= self.revision,
                "{at:?} changed in the future"
            );
            must!(claim.version >= 1, "{at:?} has no version");
            let upgrading = claim.upgrade.as_ref().map_or(claim.since, |upgrade| upgrade.since);
            let past = claim.since <= upgrading && upgrading <= self.now;
            must!(past, "{at:?} holds or waits since the future");
            if let Some(said) = claim.said() {
                let range =
                    if claim.holds() { at..=claim.mod_revision } else { Revision::ZERO..=Revision::ZERO };
                must!(range.contains(&said.revision), "{at:?} says something before or after its time");
            }
            let extras = claim.extras.as_ref().is_none_or(|extras| **extras != Extras::default());
            must!(extras, "{at:?} keeps room for nothing");
            must!(claim.holds() || claim.upgrade.is_none(), "{at:?} upgrades what it does not hold");
            must!(
                claim.names.as_slice().len() == claim.locks.as_slice().len(),
                "{at:?} has names without locks"
            );
            must!(self.leases.get(claim.lease).id == claim.lease_id, "{at:?} is on another lease");
            if let Some(token) = claim.token {
                must!(token.get() >= at.get(), "{at:?} was granted before it came");
                must!(token.get() <= claim.mod_revision.get(), "{at:?} has a token from the future");
            }
            for (name, lock) in claim.names.as_slice().iter().zip(claim.locks.as_slice()) {
                let lock = self.locks.get(*lock);
                must!(lock.name == *name, "{at:?} claims {name} and is on {}", lock.name);
                let held = claim.token.is_none_or(|token| lock.holder(token) == Some(id));
                must!(held, "{at:?} holds {name}, which does not know");
                let queued = lock.queue.get(&claim.queue_key()) == Some(&id);
                must!(queued == claim.is_queued(), "{at:?} and the queue of {name} disagree");
            }
        }
        Ok(())
    }

    fn check_locks(&self) -> Checked {
        for (id, lock) in self.locks.iter() {
            let name = &lock.name;
            must!(!lock.is_idle(), "{name} is idle and takes memory");
            must!(self.find_lock(name).1 == Some(id), "{name} is not found by its name");
            must!(lock.holders.is_sorted_by(|a, b| a.0 < b.0), "the holders of {name} are not in order");
            self.check_exclusion(lock)?;
            self.check_members(id, lock)?;
            if let Some(closure) = lock.closure {
                let closure = self.closures.get(closure);
                must!(closure.name == *name, "{name} is closed by the closure of {}", closure.name);
            }
            self.check_nobody_forgotten(lock)?;
        }
        let closed = self.locks.iter().filter(|(_, lock)| lock.closure.is_some()).count();
        must!(closed == self.closures.len(), "{} closures for {closed} closed locks", self.closures.len());
        Ok(())
    }

    /// P1: every holder is compatible with all the others.
    fn check_exclusion(&self, lock: &Lock) -> Checked {
        let mut held = Held::default();
        for (_, claim) in &lock.holders {
            held.add(self.claims.get(*claim).mode);
        }
        must!(held == lock.held, "{} miscounts its holders", lock.name);
        for (token, claim) in &lock.holders {
            let mode = self.claims.get(*claim).mode;
            let together = held.goes_with_others(mode, mode);
            must!(together, "{}: {mode} with token {token} is held beside what excludes it", lock.name);
        }
        Ok(())
    }

    fn check_members(&self, id: Id<Lock>, lock: &Lock) -> Checked {
        let mut owners: BTreeMap<(Id<Lease>, Owner), Id<Claim>> = BTreeMap::new();
        for member in lock.members() {
            let claim = self.claims.get(member);
            must!(claim.locks.as_slice().contains(&id), "{} lists a claim that is elsewhere", lock.name);
            must!(Kind::of(claim.mode) == lock.kind, "{} mixes kinds", lock.name);
            let first = owners.insert((claim.lease, claim.owner.clone()), member).is_none();
            must!(first, "{:?} of {:?} has two claims on {}", claim.owner, claim.lease_id, lock.name);
        }
        for (key, member) in &lock.queue {
            let claim = self.claims.get(*member);
            let here = claim.locks.as_slice().contains(&id) && claim.is_queued() && claim.queue_key() == *key;
            must!(here, "the queue of {} lists a claim that does not wait there", lock.name);
        }
        must!(lock.crowd().is_none_or(|crowd| *crowd == owners), "{} miscounts its crowd", lock.name);
        Ok(())
    }

    /// P8 and P9: once nothing is left to reap, a claim that is first in line can't be granted yet.
    fn check_nobody_forgotten(&self, lock: &Lock) -> Checked {
        if let Some((_, first)) = lock.queue.first_key_value() {
            let claim = self.claims.get(*first);
            if claim.names.as_slice().iter().any(|name| self.dirty.contains(name)) {
                return Ok(());
            }
            let blocked = claim.locks.as_slice().iter().any(|other| {
                let other = self.locks.get(*other);
                let ahead = other.queue.first_key_value().is_some_and(|(key, _)| *key != claim.queue_key());
                ahead || other.closure.is_some() || !room(other, claim)
            });
            must!(blocked, "{}: the waiter of {:?} waits for nobody", lock.name, claim.create_revision);
        }
        Ok(())
    }

    fn check_leases(&self) -> Checked {
        let mut claims = 0;
        for (id, lease) in self.leases.iter() {
            let (mut count, mut next, mut last) = (0, lease.oldest, Revision::ZERO);
            let mut before = None;
            while let Some(claim_id) = next {
                let claim = self.claims.get(claim_id);
                must!(claim.lease == id, "{:?} lists another lease's claim", lease.id);
                must!(claim.create_revision > last, "{:?} lists its claims out of order", lease.id);
                must!(claim.older == before, "{:?} has a broken list", lease.id);
                (count, last, before, next) =
                    (count + 1, claim.create_revision, Some(claim_id), claim.younger);
            }
            must!(lease.youngest == before && lease.claims == count, "{:?} miscounts its claims", lease.id);
            claims += count as usize;
            if !self.is_past(lease.deadline) {
                must!(self.find_lease(lease.id) == Some(id), "{:?} is not found by its id", lease.id);
                self.check_requests(lease)?;
            }
        }
        must!(claims == self.claims.len(), "{} claims, {claims} of them on leases", self.claims.len());
        Ok(())
    }

    /// Stubs and homes: the notices owed to groups, and the tables by which the leader finds them.
    fn check_homes(&self) -> Checked {
        let (mut stubs, mut pending, mut registered) = (0, 0, 0);
        for (id, lease) in self.leases.iter() {
            let must_be_idle = lease.is_pending();
            let idle = lease.claims == 0
                && lease.requests.seen().is_empty()
                && self.first_register_of(lease.incarnation).is_none();
            must!(!must_be_idle || idle, "the stub of {:?} was used before its home confirmed it", lease.id);
            if self.stubs.get(&lease.id) == Some(&id) {
                stubs += 1;
                pending += usize::from(lease.is_pending());
                let listed = self.stubs_pending.contains(&lease.id);
                must!(listed == lease.is_pending(), "the stub of {:?} is half pending", lease.id);
                must!(lease.stub().is_some(), "{:?} is no stub", lease.id);
            } else {
                let gone = lease.stub().is_none() || self.is_past(lease.deadline);
                must!(gone, "the stub of {:?} is forgotten", lease.id);
            }
            if lease.stub().is_some() {
                let ends = lease.deadline == LogTime::NEVER || self.is_past(lease.deadline);
                must!(ends, "the stub of {:?} has a deadline", lease.id);
            }
            must!(lease.groups().is_sorted_by(|a, b| a < b), "the groups of {:?} are out of order", lease.id);
            let listed = self.registered.get(&lease.incarnation) == Some(&id);
            must!(listed != lease.groups().is_empty(), "{:?} is half registered", lease.id);
            registered += usize::from(listed);
        }
        must!(stubs == self.stubs.len(), "stubs that are gone");
        must!(pending == self.stubs_pending.len(), "pending stubs that are gone");
        must!(registered == self.registered.len(), "registered leases that are gone");
        for (id, unacked) in self.unacked.iter() {
            let known = self.unacked_leases.get(&(unacked.lease, unacked.incarnation)) == Some(&id);
            must!(known, "the end of {:?} is forgotten", unacked.lease);
            let sorted = unacked.groups.is_sorted_by(|a, b| a < b) && !unacked.groups.is_empty();
            must!(sorted, "nobody, or somebody twice, must be told of the end of {:?}", unacked.lease);
            let lives = self.find_lease(unacked.lease).map(|lease| self.leases.get(lease));
            let other = lives.is_none_or(|lease| lease.incarnation != unacked.incarnation);
            must!(other, "{:?} lives and has ended", unacked.lease);
        }
        must!(self.unacked.len() == self.unacked_leases.len(), "ends that are gone");
        Ok(())
    }

    fn check_requests(&self, lease: &Lease) -> Checked {
        let kept = lease.requests.kept();
        must!(kept.is_sorted_by(|a, b| a.seq < b.seq), "{:?} keeps requests out of order", lease.id);
        let waits = kept.iter().filter(|kept| kept.waited).count() as u64;
        must!(lease.requests.waits() == waits, "{:?} miscounts its waits", lease.id);
        let mut by_lease = 0;
        for KeptFor { seq, kept, waited, subject } in kept {
            must!(self.knows_requests() || *subject == Subject::UNKNOWN, "{seq:?} is known too well");
            must!(lease.requests.is_seen(*seq), "{:?} keeps {seq:?} unseen", lease.id);
            if let Kept::Claim { claim, part } = kept {
                let waits = self.seq_waits(*claim, *part, *seq);
                must!(*waited || !waits, "{seq:?} of {:?} waits and does not count so", lease.id);
                let claim = self.claims.get(*claim);
                let upgrade = claim.upgrade.as_ref().is_some_and(|upgrade| upgrade.seqs.contains(seq));
                let known = upgrade || claim.seqs.iter().any(|(s, _)| s == seq);
                must!(known, "{seq:?} of {:?} is not on its claim", lease.id);
                by_lease += 1;
            }
        }
        let mut next = lease.oldest;
        let mut by_claims = 0;
        while let Some(claim) = next.map(|id| self.claims.get(id)) {
            by_claims += claim.seqs.len() + claim.upgrade.as_ref().map_or(0, |upgrade| upgrade.seqs.len());
            next = claim.younger;
        }
        must!(by_lease == by_claims, "{:?} keeps {by_lease} of {by_claims} requests on claims", lease.id);
        Ok(())
    }

    fn check_metadata(&self) -> Checked {
        for (_, claim) in self.claims.iter().filter(|_| !self.takes_any_metadata()) {
            let at = claim.create_revision;
            must!(
                claim.metadata.is_plain(),
                "{at:?} has metadata that snapshots of its version have no place for"
            );
        }
        Ok(())
    }

    fn check_deadlines(&self) -> Checked {
        let mut timed = 0;
        for (id, claim) in self.claims.iter() {
            for (at, revision) in timers(claim).into_iter().flatten() {
                let known = self.claim_deadlines.get(&(at, revision)) == Some(&id);
                must!(known, "the deadline {at:?} of {revision:?} is forgotten");
                timed += 1;
            }
        }
        must!(timed == self.claim_deadlines.len(), "deadlines of claims that are gone");
        for (id, lease) in self.leases.iter() {
            let known = self.lease_deadlines.get(&(lease.deadline, lease.incarnation)) == Some(&id);
            must!(known, "the deadline of {:?} is forgotten", lease.id);
        }
        must!(self.leases.len() == self.lease_deadlines.len(), "deadlines of leases that are gone");
        for (_, closure) in self.closures.iter() {
            let lock = self.closure_ends.get(&(closure.until, closure.name.clone()));
            let known = lock.is_some_and(|lock| self.locks.get(*lock).name == closure.name);
            must!(known, "the end of the lock-delay of {} is forgotten", closure.name);
        }
        must!(self.closures.len() == self.closure_ends.len(), "ends of closures that are gone");
        Ok(())
    }

    fn check_owners(&self) -> Checked {
        let mut owners: BTreeMap<u64, (u32, BTreeSet<Id<Claim>>)> = BTreeMap::new();
        for (id, claim) in self.claims.iter() {
            let Some(hash) = self.counted_hash(claim) else { continue };
            let entry = owners.entry(hash).or_default();
            entry.0 += u32::from(claim.holds());
            if claim.is_queued() {
                entry.1.insert(id);
            }
        }
        for (hash, (holds, waiting)) in owners {
            let (known, listed) = self.owners.claims(hash);
            let agrees = known == holds && listed.iter().copied().collect::<BTreeSet<_>>() == waiting;
            must!(agrees, "an owner is miscounted");
        }
        for (_, lease) in self.leases.iter() {
            must!(
                lease.counted || lease.claims as usize <= WALKED_MAX,
                "{:?} has many claims and no counts",
                lease.id
            );
        }
        Ok(())
    }

    fn check_registers(&self) -> Checked {
        must!(self.keys.len() == self.registers.len(), "registers without keys");
        let mut attached = 0;
        for (key, id) in &self.keys {
            let register = self.registers.get(*id);
            must!(register.key == *key, "{key} finds {}", register.key);
            let state = &register.state;
            let past = state.create_revision <= state.mod_revision && state.mod_revision <= self.revision;
            must!(past && state.version >= 1, "{key} was put in the future");
            must!(register.lease.is_some() == state.lease.is_some(), "{key} lost its lease");
            if let Some(lease) = register.lease.map(|lease| self.leases.get(lease)) {
                must!(Some(lease.id) == state.lease, "{key} is on another lease");
                let known = self.lease_registers.contains(&(lease.incarnation, key.clone()));
                must!(known, "{key} is not on its lease");
                attached += 1;
            }
        }
        let known = self.lease_registers.len();
        must!(known == attached, "leases know {known} registers of {attached}");
        Ok(())
    }

    fn check_ring(&self) -> Checked {
        let (mut bytes, mut last) = (0, self.ring.min_revision());
        for event in self.ring.freeze().events() {
            must!(last <= event.revision && event.revision <= self.revision, "history is out of order");
            let counts = match &event.change {
                Change::Lock(lock) => lock_ring_bytes(&lock.borrowed()),
                Change::Register(register) => register.ring_bytes(),
            };
            (bytes, last) = (bytes + counts, event.revision);
        }
        must!(bytes == self.ring.bytes(), "history miscounts its bytes");
        Ok(())
    }
}

fn room(lock: &Lock, claim: &Claim) -> bool {
    match &claim.upgrade {
        Some(upgrade) => lock.held.goes_with_others(claim.mode, upgrade.mode),
        None => lock.held.goes_with(claim.mode),
    }
}
