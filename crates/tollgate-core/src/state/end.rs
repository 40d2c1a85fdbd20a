//! Ends claims and upgrades: the only place where a holder stops holding or a waiter stops waiting without a grant.

use super::State;
use crate::claim::Claim;
use crate::event::{Change, ClaimState, Event, LockChange};
use crate::lock::{Closure, Lock};
use crate::planted::Bug;
use crate::reply::{EndReason, WaitOutcome};
use crate::requests::{Kept, Outcome};
use crate::slab::Id;
use smallvec::SmallVec;
use tollgate_types::{LogTime, Metadata, Name, Names, Revision, Seq};

impl State {
    /// Ends a claim in all its names, at one revision. `due` is when the end was due, from which a lock-delay counts.
    /// The caller settles the names, or leaves them for later.
    pub(super) fn end_claim(
        &mut self,
        id: Id<Claim>,
        reason: EndReason,
        due: LogTime,
        note: Metadata,
    ) -> (Names, SmallVec<[Id<Lock>; 1]>) {
        self.scratch.cost += 1;
        let revision = self.bump();
        let claim = self.claims.get(id);
        let (wait_revision, queued) = (claim.wait_revision(), claim.is_queued());
        if queued {
            self.leave_queues(id);
            self.resolve(id, wait_revision, WaitOutcome::Ended(reason));
        }
        let claim = self.claims.remove(id);
        self.stop_timers(&claim);
        self.unlink(&claim);
        if claim.holds() {
            self.owners.unhold(claim.lease, &claim.owner);
        }
        self.keep_ends(&claim, reason);
        for (name, lock) in claim.names.as_slice().iter().zip(&claim.locks) {
            self.leave_lock(&claim, *lock);
            self.emit_end(&claim, name, *lock, revision, reason, note.clone());
            self.close_after(&claim, *lock, reason, due);
        }
        if self.planted(Bug::TokenReusedAfterSelfDeletion)
            && claim.locks.iter().all(|lock| self.locks.get(*lock).is_idle())
            && let Some(token) = claim.token
            && token.get() + 1 == revision.get()
        {
            self.revision = Revision::new(token.get() - 1).expect("below a revision");
        }
        (claim.names, claim.locks)
    }

    /// Gives back some of a holder's names; it keeps the others.
    pub(super) fn give_back(&mut self, id: Id<Claim>, given: &[Name], reason: EndReason, note: &Metadata) {
        self.scratch.cost += 1;
        let revision = self.bump();
        let now = self.now;
        for name in given {
            let claim = self.claims.get(id).clone();
            let at =
                claim.names.as_slice().iter().position(|n| n == name).expect("the caller found it there");
            let lock = claim.locks[at];
            if claim.upgrade.is_some() {
                self.locks.get_mut(lock).queue.remove(&claim.queue_key());
            }
            self.leave_lock(&claim, lock);
            self.emit_end(&claim, name, lock, revision, reason, note.clone());
            self.close_after(&claim, lock, reason, now);
            let kept = self.claims.get_mut(id);
            kept.names = claim.names.without(name).expect("the caller ends a claim that gives back all");
            kept.locks.remove(at);
        }
    }

    /// Ends a holder's wait for a stronger mode; it holds what it held.
    pub(super) fn end_upgrade(&mut self, id: Id<Claim>, reason: EndReason) {
        self.scratch.cost += 1;
        self.leave_queues(id);
        let prev = self.claims.get(id).state();
        let upgrade = self.take_upgrade(id);
        let revision = self.bump();
        let claim = self.claims.get_mut(id);
        claim.mod_revision = revision;
        claim.version += 1;
        let state = claim.state();
        self.emit_claim(id, Some(state), Some(prev), Some(reason));
        self.resolve(id, upgrade.queued_at, WaitOutcome::Ended(reason));
        let lease = self.claims.get(id).lease;
        let requests = &mut self.leases.get_mut(lease).requests;
        for seq in upgrade.seqs {
            requests.keep(seq, Kept::Outcome(Outcome::Ended { token: None, reason }));
        }
    }

    /// What is kept for the requests of a claim becomes how it ended.
    fn keep_ends(&mut self, claim: &Claim, reason: EndReason) {
        // The requests of an ended lease are never answered again.
        if self.is_past(self.leases.get(claim.lease).deadline) {
            return;
        }
        let upgrades = claim.upgrade.iter().flat_map(|upgrade| upgrade.seqs.iter().copied());
        let seqs: SmallVec<[Seq; 4]> = claim.seqs.iter().map(|(seq, _)| *seq).chain(upgrades).collect();
        if seqs.is_empty() {
            return;
        }
        let requests = &mut self.leases.get_mut(claim.lease).requests;
        for seq in seqs {
            requests.keep(seq, Kept::Outcome(Outcome::Ended { token: claim.token, reason }));
        }
    }

    /// Takes a claim that is out of the queue off one lock.
    fn leave_lock(&mut self, claim: &Claim, lock: Id<Lock>) {
        let record = self.locks.get_mut(lock);
        if let Some(token) = claim.token {
            record.remove_holder(token, claim.mode);
        }
        record.forget_member(claim.lease, &claim.owner);
    }

    /// Takes a claim out of its lease's list.
    fn unlink(&mut self, claim: &Claim) {
        match claim.older {
            Some(older) => self.claims.get_mut(older).younger = claim.younger,
            None => self.leases.get_mut(claim.lease).oldest = claim.younger,
        }
        match claim.younger {
            Some(younger) => self.claims.get_mut(younger).older = claim.older,
            None => self.leases.get_mut(claim.lease).youngest = claim.older,
        }
        self.leases.get_mut(claim.lease).claims -= 1;
    }

    fn emit_end(
        &mut self,
        claim: &Claim,
        name: &Name,
        lock: Id<Lock>,
        revision: Revision,
        reason: EndReason,
        note: Metadata,
    ) {
        let prev: ClaimState = claim.state();
        let change = LockChange {
            name: name.clone(),
            lease: claim.lease_id,
            owner: claim.owner.clone(),
            metadata: claim.metadata.clone(),
            create_revision: claim.create_revision,
            now: None,
            prev: Some(prev),
            end: Some(reason),
            note,
            vacant: !self.locks.get(lock).has_members(),
        };
        self.ring.push(Event { revision, change: Change::Lock(change) });
        self.scratch.events_from.get_or_insert(revision);
    }

    /// Closes a lock whose holder may still believe that it holds.
    fn close_after(&mut self, claim: &Claim, lock: Id<Lock>, reason: EndReason, due: LogTime) {
        let involuntary = reason.is_involuntary() || self.planted(Bug::LockDelayAfterRelease);
        if !claim.holds() || !involuntary || claim.lock_delay.ms() == 0 {
            return;
        }
        let due = if self.planted(Bug::LockDelayFromReaping) { self.now } else { due };
        let until = due.after(claim.lock_delay);
        let present = self.locks.get(lock).closure.map(|closure| self.closures.get(closure).until);
        if until <= self.now || present.is_some_and(|present| present >= until) {
            return;
        }
        if present.is_some() {
            self.open_lock(lock);
        }
        self.close_lock(lock, until);
    }

    pub(super) fn close_lock(&mut self, lock: Id<Lock>, until: LogTime) {
        let name = self.locks.get(lock).name.clone();
        self.closure_ends.insert((until, name.clone()), lock);
        let closure = self.closures.insert(Closure { name, until });
        self.locks.get_mut(lock).closure = Some(closure);
    }
}
