//! Ends claims and upgrades: the only place where a holder stops holding or a waiter stops waiting without a grant.

use super::State;
use crate::claim::{Claim, Locks};
use crate::format::LockChanged;
use crate::lock::{Closure, Lock};
use crate::planted::Bug;
use crate::reply::{EndReason, WaitOutcome};
use crate::requests::{Kept, Outcome};
use crate::slab::Id;
use tollgate_types::{LogTime, Name, Names, Reason, Revision};

impl State {
    /// Ends a claim on all its names, at one revision. `due` is the log time at which the end was due, from which a
    /// lock-delay counts. The caller settles the names, or leaves them for later.
    pub(super) fn end_claim(
        &mut self,
        id: Id<Claim>,
        reason: EndReason,
        due: LogTime,
        note: &Reason,
    ) -> (Names, Locks) {
        self.scratch.cost += 1;
        self.note_end(id, reason, note);
        let revision = self.bump();
        let claim = self.claims.get(id);
        let (wait_revision, queued) = (claim.wait_revision(), claim.is_queued());
        if queued {
            let lease = claim.lease;
            self.leave_queues(id);
            if !(self.planted(Bug::StubEndForgetsWaiters) && self.leases.get(lease).stub().is_some()) {
                self.resolve(id, wait_revision, WaitOutcome::Ended(reason));
            }
        }
        let claim = self.claims.remove(id);
        self.claim_values -= u64::from(claim.said().is_some());
        self.stop_timers(&claim);
        if claim.holds()
            && let Some(hash) = self.counted_hash(&claim)
        {
            self.owners.unhold(hash);
        }
        self.unlink(&claim, reason);
        for (name, lock) in claim.names.as_slice().iter().zip(claim.locks.as_slice()) {
            self.leave_lock(&claim, *lock);
            self.emit_end(&claim, name, *lock, revision, reason, note);
            self.close_after(&claim, *lock, reason, due);
        }
        if self.planted(Bug::TokenReusedAfterSelfDeletion)
            && claim.locks.as_slice().iter().all(|lock| self.locks.get(*lock).is_idle())
            && let Some(token) = claim.token
            && token.get() + 1 == revision.get()
        {
            self.revision = Revision::new(token.get() - 1).expect("below a revision");
        }
        (claim.names, claim.locks)
    }

    /// Gives back some of a holder's names; the holder keeps the others. A pending upgrade ends first: it is for all of
    /// the names, and if it were granted for the rest, its caller would be told of names that others may hold by then.
    pub(super) fn give_back(&mut self, id: Id<Claim>, given: &[Name], reason: EndReason, note: &Reason) {
        if self.claims.get(id).upgrade.is_some() && !self.planted(Bug::UpgradeSurvivesLostName) {
            self.end_upgrade(id, reason);
        }
        self.scratch.cost += 1;
        self.note_given_back(id, given, reason, note);
        let revision = self.bump();
        let now = self.now;
        for name in given {
            let claim = self.claims.get(id).clone();
            let at =
                claim.names.as_slice().iter().position(|n| n == name).expect("the caller found it there");
            let lock = claim.locks.as_slice()[at];
            if self.planted(Bug::UpgradeSurvivesLostName) && claim.upgrade.is_some() {
                self.locks.get_mut(lock).queue.remove(&claim.queue_key());
            }
            self.leave_lock(&claim, lock);
            self.emit_end(&claim, name, lock, revision, reason, note);
            self.close_after(&claim, lock, reason, now);
            let kept = self.claims.get_mut(id);
            kept.names = claim.names.without(name).expect("the caller ends a claim that gives back all");
            let others = claim.locks.as_slice().iter().filter(|other| **other != lock);
            kept.locks = Locks::new(others.copied().collect());
        }
    }

    /// Ends a holder's wait for a stronger mode; its grant stays as it is.
    pub(super) fn end_upgrade(&mut self, id: Id<Claim>, reason: EndReason) {
        self.scratch.cost += 1;
        self.note_upgrade_end(id, reason);
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

    /// Removes a claim that is out of the queue from one lock.
    fn leave_lock(&mut self, claim: &Claim, lock: Id<Lock>) {
        let record = self.locks.get_mut(lock);
        if let Some(token) = claim.token {
            record.remove_holder(token, claim.mode);
        }
        record.forget_member(claim.lease, &claim.owner);
    }

    /// Removes a claim from its lease's list. The requests that the claim answered keep its end as their outcome.
    fn unlink(&mut self, claim: &Claim, reason: EndReason) {
        if let Some(older) = claim.older {
            self.claims.get_mut(older).younger = claim.younger;
        }
        if let Some(younger) = claim.younger {
            self.claims.get_mut(younger).older = claim.older;
        }
        let now_past = self.is_past(self.leases.get(claim.lease).deadline);
        let lease = self.leases.get_mut(claim.lease);
        if claim.older.is_none() {
            lease.oldest = claim.younger;
        }
        if claim.younger.is_none() {
            lease.youngest = claim.older;
        }
        lease.claims -= 1;
        lease.counted &= lease.claims > 0;
        // The requests of an ended lease are never answered again.
        if now_past {
            return;
        }
        let upgrades = claim.upgrade.iter().flat_map(|upgrade| upgrade.seqs.iter());
        for seq in claim.seqs.iter().map(|(seq, _)| seq).chain(upgrades) {
            lease.requests.keep(*seq, Kept::Outcome(Outcome::Ended { token: claim.token, reason }));
        }
    }

    fn emit_end(
        &mut self,
        claim: &Claim,
        name: &Name,
        lock: Id<Lock>,
        revision: Revision,
        reason: EndReason,
        note: &Reason,
    ) {
        let vacant = !self.locks.get(lock).has_members();
        let (now, prev, end) = (None, Some(claim.state()), Some(reason));
        let changed = LockChanged { vacant, ..claim.changed(name, now, prev, end, note) };
        self.ring.push_lock(revision, &changed);
        self.scratch.events_from.get_or_insert(revision);
    }

    /// Starts the lock-delay of a lock whose former holder may still believe that it holds.
    fn close_after(&mut self, claim: &Claim, lock: Id<Lock>, reason: EndReason, due: LogTime) {
        let involuntary = reason.is_involuntary() || self.planted(Bug::LockDelayAfterRelease);
        if !claim.holds() || !involuntary || claim.lock_delay().ms() == 0 {
            return;
        }
        let due = if self.planted(Bug::LockDelayFromReaping) { self.now } else { due };
        self.close_until(lock, due.after(claim.lock_delay()));
    }

    /// Keeps a lock closed at least until the log time `until`.
    pub(super) fn close_until(&mut self, lock: Id<Lock>, until: LogTime) {
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
