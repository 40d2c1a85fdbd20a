//! Brings a lock up to date: ends its dead claims, then grants its living waiters in order.

use super::State;
use crate::claim::{Claim, Death, Locks};
use crate::lock::Lock;
use crate::planted::Bug;
use crate::reply::EndReason;
use crate::slab::Id;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use tollgate_types::{Name, Reason};
use xxhash_rust::xxh3::xxh3_64;

/// Result of ending the dead claims of a lock.
struct Purged {
    /// True if anything ended.
    changed: bool,
    /// True if no dead claim is left.
    finished: bool,
}

/// The next waiter to grant.
enum Next {
    /// The first in line, which may be granted.
    Claim(Id<Claim>),
    /// No waiter may be granted.
    Nobody,
    /// Unknown, because the budget ran out first.
    Unknown,
}

/// Hash of a name, and its lock if there is one.
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
        self.settle_around(names);
        // Settling can free a lock: the lock being settled, or another one.
        if self.scratch.overdue || places.len() > 1 {
            return names.iter().map(|name| self.find_lock(name)).collect();
        }
        places
    }

    /// Settles the other names that the names of a command depend on.
    pub(super) fn settle_around(&mut self, names: &[Name]) {
        while let Some(name) = self.unsettled_around(names) {
            self.settle(&name);
        }
    }

    /// The least unsettled name on which the answer to a command may depend: one of the command's names, or a name that
    /// is reached from them by going from a name to all names of the claim that is first in its queue.
    fn unsettled_around(&mut self, names: &[Name]) -> Option<Name> {
        if self.dirty.is_empty() && !self.scratch.overdue {
            return None;
        }
        let mut around: BTreeSet<&Name> = names.iter().collect();
        let mut next: Vec<&Name> = around.iter().copied().collect();
        while let Some(name) = next.pop() {
            let Some(lock) = self.find_lock(name).1 else { continue };
            let Some((_, first)) = self.locks.get(lock).queue.first_key_value() else { continue };
            for other in self.claims.get(*first).names.as_slice() {
                if around.insert(other) {
                    next.push(other);
                }
            }
        }
        let around: Vec<Name> = around.into_iter().cloned().collect();
        around.into_iter().find(|name| self.is_unsettled(name))
    }

    /// True if a name is dirty or has something dead on it.
    fn is_unsettled(&mut self, name: &Name) -> bool {
        if self.dirty.contains(name) {
            return true;
        }
        let Some(id) = self.find_lock(name).1.filter(|_| self.scratch.overdue) else { return false };
        let lock = self.locks.get(id);
        if lock.purged_at == self.scratch.moment {
            return false;
        }
        let closure = lock.closure.is_some_and(|closure| self.closures.get(closure).until <= self.now);
        if closure || lock.members().any(|member| self.death(member).is_some()) {
            return true;
        }
        self.locks.get_mut(id).purged_at = self.scratch.moment;
        false
    }

    pub(super) fn settle(&mut self, name: &Name) {
        match self.find_lock(name).1 {
            Some(lock) => self.settle_lock(lock),
            None => _ = self.dirty.remove(name),
        }
    }

    /// Ends the dead claims of a lock and grants the waiters that may be granted; frees the lock if it is idle then. If
    /// the budget runs out on the way, the name becomes dirty, and the rest is done later.
    pub(super) fn settle_lock(&mut self, lock: Id<Lock>) {
        if !self.dirty.is_empty() {
            self.dirty.remove(&self.locks.get(lock).name);
        }
        if self.is_spent() {
            return self.leave_for_later(lock);
        }
        let (before, queued) = (self.scratch.cost, !self.locks.get(lock).queue.is_empty());
        let finished = self.purge(lock).finished && self.grant_in_order(lock);
        if queued && self.scratch.cost == before {
            // Nothing ended and nothing was granted, but a queue was looked at.
            self.scratch.cost += 1;
        }
        if finished {
            self.free_if_idle(lock);
        } else {
            self.leave_for_later(lock);
        }
    }

    /// Grants the first in line while that is possible. False if the budget ran out first.
    fn grant_in_order(&mut self, lock: Id<Lock>) -> bool {
        loop {
            match self.next_grantable(lock) {
                Next::Nobody => return true,
                Next::Unknown => return false,
                Next::Claim(_) if self.is_spent() => return false,
                Next::Claim(claim) => self.grant_queued(claim, lock),
            }
            if self.planted(Bug::BatchGrantStops) {
                return true;
            }
        }
    }

    /// Ends every dead holder and waiter of a lock, and its lock-delay if that is over, within the budget.
    fn purge(&mut self, lock: Id<Lock>) -> Purged {
        let mut purged = Purged { changed: false, finished: true };
        if !self.scratch.overdue || self.locks.get(lock).purged_at == self.scratch.moment {
            return purged;
        }
        if !self.planted(Bug::DeadHolderStays) {
            let holders: Vec<Id<Claim>> = self.locks.get(lock).holders.iter().map(|(_, id)| *id).collect();
            self.end_dead(lock, &holders, true, &mut purged);
        }
        if !self.planted(Bug::DeadWaiterGranted) {
            let queue: Vec<Id<Claim>> = self.locks.get(lock).queue.values().copied().collect();
            self.end_dead(lock, &queue, false, &mut purged);
        }
        // Checked last: an end above may have prolonged the closure.
        let closure = self.locks.get(lock).closure.map(|closure| self.closures.get(closure).until);
        if purged.finished && closure.is_some_and(|until| until <= self.now) {
            self.open_lock(lock);
            purged.changed = true;
        }
        if purged.finished {
            self.locks.get_mut(lock).purged_at = self.scratch.moment;
        }
        purged
    }

    /// Ends the dead ones among these members. A dead upgrade of a living holder is ended in its place in the queue.
    fn end_dead(&mut self, lock: Id<Lock>, members: &[Id<Claim>], holders: bool, purged: &mut Purged) {
        for id in members {
            let Some(death) = self.death(*id).filter(|death| !holders || *death != Death::Upgrade) else {
                continue;
            };
            if self.is_spent() {
                purged.finished = false;
                return;
            }
            match death {
                Death::Claim(reason, due) => {
                    let (_, locks) = self.end_claim(*id, reason, due, &Reason::NONE);
                    for other in locks.as_slice().iter().filter(|other| **other != lock) {
                        self.leave_for_later(*other);
                    }
                }
                Death::Upgrade => {
                    self.end_upgrade(*id, EndReason::TimedOut);
                    self.leave_others_for_later(*id, lock);
                }
            }
            purged.changed = true;
        }
    }

    /// The first in the queue, if it may be granted on all its names.
    fn next_grantable(&mut self, lock: Id<Lock>) -> Next {
        let queue = &self.locks.get(lock).queue;
        let newest = self.planted(Bug::NewestWaiterFirst);
        let first = if newest { queue.last_key_value() } else { queue.first_key_value() };
        let Some((_, &claim)) = first else { return Next::Nobody };
        if self.scratch.overdue
            && let Locks::Many(locks) = self.claims.get(claim).locks.clone()
        {
            for other in locks.iter().filter(|other| **other != lock) {
                let purged = self.purge(*other);
                if purged.changed {
                    self.leave_for_later(*other);
                }
                if !purged.finished {
                    return Next::Unknown;
                }
            }
        }
        if self.may_grant(claim) { Next::Claim(claim) } else { Next::Nobody }
    }

    /// True if a queued claim is first in every queue and compatible with every holder.
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

    /// True if the lock's holders leave room for one more in this mode.
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
        let delayed = until.is_some_and(|until| until > self.now) && !self.planted(Bug::LockDelayIgnored);
        delayed || self.is_all_closed()
    }

    /// Leaves a lock that changed beside the one being settled for later: its name becomes dirty if it has a queue, and
    /// it is freed if it is idle.
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

    /// Frees a lock that has no holder, no waiter and no closure, so that it takes no memory.
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
