//! Brings a lock up to date: ends its dead, then grants its living waiters in order.

use super::State;
use crate::claim::{Claim, Death, Locks};
use crate::lock::Lock;
use crate::planted::Bug;
use crate::reply::EndReason;
use crate::slab::Id;
use smallvec::SmallVec;
use tollgate_types::{Metadata, Name};
use xxhash_rust::xxh3::xxh3_64;

/// A name's hash, and its lock if there is one.
pub(super) type Place = (u64, Option<Id<Lock>>);

impl State {
    pub(super) fn find_lock(&self, name: &Name) -> Place {
        let hash = xxh3_64(name.as_bytes());
        (hash, self.lock_names.find(hash, |id| self.locks.get(id).name == *name))
    }

    /// Settles the names that a command is about to use, or has just changed.
    pub(super) fn settle_names(&mut self, names: &[Name]) -> SmallVec<[Place; 1]> {
        let mut places: SmallVec<[Place; 1]> = SmallVec::new();
        for name in names {
            let place = self.find_lock(name);
            if let Some(lock) = place.1 {
                self.settle_lock(lock);
            }
            places.push(place);
        }
        while !self.dirty.is_empty() && names.iter().any(|name| self.dirty.contains(name)) {
            for name in names {
                if self.dirty.contains(name) {
                    self.settle(name);
                }
            }
        }
        // Settling can free a lock, its own or another's.
        if self.scratch.overdue || places.len() > 1 {
            return names.iter().map(|name| self.find_lock(name)).collect();
        }
        places
    }

    pub(super) fn settle(&mut self, name: &Name) {
        match self.find_lock(name).1 {
            Some(lock) => self.settle_lock(lock),
            None => _ = self.dirty.remove(name),
        }
    }

    /// Ends the dead of a lock and grants those who may be; frees it if nobody is left.
    pub(super) fn settle_lock(&mut self, lock: Id<Lock>) {
        if !self.dirty.is_empty() {
            self.dirty.remove(&self.locks.get(lock).name);
        }
        self.purge(lock);
        while let Some(claim) = self.next_grantable(lock) {
            self.grant_queued(claim, lock);
            if self.planted(Bug::BatchGrantStops) {
                break;
            }
        }
        self.free_if_idle(lock);
    }

    /// Ends every dead holder and waiter of a lock, and its lock-delay if that is over. Says whether anything ended.
    fn purge(&mut self, lock: Id<Lock>) -> bool {
        if !self.scratch.overdue {
            return false;
        }
        let record = self.locks.get(lock);
        let mut members: Vec<Id<Claim>> = Vec::new();
        if !self.planted(Bug::DeadHolderStays) {
            members.extend(record.holders.iter().map(|(_, claim)| *claim));
        }
        let holders = members.len();
        if !self.planted(Bug::DeadWaiterGranted) {
            members.extend(record.queue.values());
        }
        let mut ended = false;
        let mut gone = Vec::new();
        for (at, id) in members.into_iter().enumerate() {
            // A dead upgrade stands in both lists; its claim may be gone by the second.
            if at >= holders && gone.contains(&id) {
                continue;
            }
            match self.death(id) {
                Some(Death::Claim(reason, due)) => {
                    let (_, locks) = self.end_claim(id, reason, due, &Metadata::NONE);
                    gone.push(id);
                    for other in locks.as_slice() {
                        if *other != lock {
                            self.leave_for_later(*other);
                        }
                    }
                    ended = true;
                }
                Some(Death::Upgrade) if at >= holders => {
                    self.end_upgrade(id, EndReason::TimedOut);
                    self.leave_others_for_later(id, lock);
                    ended = true;
                }
                _ => {}
            }
        }
        // Looked at last: an end above may have prolonged it.
        let closure = self.locks.get(lock).closure.map(|closure| self.closures.get(closure).until);
        let closure_due = closure.is_some_and(|until| until <= self.now);
        if closure_due {
            self.open_lock(lock);
        }
        ended || closure_due
    }

    /// The first in the queue, if it may be granted in all its names.
    fn next_grantable(&mut self, lock: Id<Lock>) -> Option<Id<Claim>> {
        let first = |state: &State| {
            let queue = &state.locks.get(lock).queue;
            let entry = if state.planted(Bug::NewestWaiterFirst) {
                queue.last_key_value()
            } else {
                queue.first_key_value()
            };
            entry.map(|(_, claim)| *claim)
        };
        let claim = first(self)?;
        if self.scratch.overdue && self.claims.get(claim).locks.as_slice().len() > 1 {
            for other in self.claims.get(claim).locks.clone().as_slice() {
                if *other != lock && self.purge(*other) {
                    self.leave_for_later(*other);
                }
            }
        }
        self.may_grant(claim).then_some(claim)
    }

    /// Whether a queued claim is first in every queue and goes with every holder.
    fn may_grant(&self, id: Id<Claim>) -> bool {
        let claim = self.claims.get(id);
        let key = claim.queue_key();
        let names = if self.planted(Bug::SeveralNamesByFirst) { 1 } else { claim.locks.as_slice().len() };
        claim.locks.as_slice().iter().take(names).all(|lock| {
            let lock = self.locks.get(*lock);
            let first = lock.queue.first_key_value().is_some_and(|(first, _)| *first == key);
            (first || self.planted(Bug::NewestWaiterFirst))
                && !self.is_closed(lock)
                && self.goes_with(lock, claim)
        })
    }

    fn goes_with(&self, lock: &Lock, claim: &Claim) -> bool {
        match &claim.upgrade {
            Some(upgrade) => lock.held.goes_with_others(claim.mode, upgrade.mode),
            None => self.joins(lock, claim.mode),
        }
    }

    /// Whether the lock's holders leave room for one more in this mode.
    pub(super) fn joins(&self, lock: &Lock, mode: tollgate_types::Mode) -> bool {
        let mut held = lock.held;
        if self.planted(Bug::PermitsOverdrawn)
            && let tollgate_types::Mode::Permit { .. } = mode
            && let Some((_, any)) = lock.holders.first()
            && let one @ tollgate_types::Mode::Permit { n: 1, .. } = self.claims.get(*any).mode
        {
            held.remove(one);
        }
        held.goes_with(mode)
    }

    pub(super) fn is_closed(&self, lock: &Lock) -> bool {
        let until = lock.closure.map(|closure| self.closures.get(closure).until);
        until.is_some_and(|until| until > self.now) && !self.planted(Bug::LockDelayIgnored)
    }

    /// A lock that changed beside the one being settled: its queue is looked at when its turn comes.
    pub(super) fn leave_for_later(&mut self, lock: Id<Lock>) {
        let record = self.locks.get(lock);
        if record.queue.is_empty() {
            self.free_if_idle(lock);
        } else {
            self.dirty.insert(record.name.clone());
        }
    }

    pub(super) fn leave_others_for_later(&mut self, claim: Id<Claim>, current: Id<Lock>) {
        if let Locks::Many(locks) = self.claims.get(claim).locks.clone() {
            for other in locks.iter() {
                if *other != current {
                    self.leave_for_later(*other);
                }
            }
        }
    }

    /// A lock nobody holds, awaits or keeps closed takes no memory.
    pub(super) fn free_if_idle(&mut self, lock: Id<Lock>) {
        let record = self.locks.get(lock);
        if record.is_idle() {
            let hash = record.hash;
            assert!(self.lock_names.remove(hash, lock), "every lock is found by its name");
            self.locks.remove(lock);
        }
    }

    /// Ends a lock-delay.
    pub(super) fn open_lock(&mut self, lock: Id<Lock>) {
        let record = self.locks.get_mut(lock);
        let closure = record.closure.take().expect("a closed lock has a closure");
        let closure = self.closures.remove(closure);
        self.closure_ends.remove(&(closure.until, closure.name));
    }
}
