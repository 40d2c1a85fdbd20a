//! Does what time brings, in bounded steps: reaps what is due and grants the locks that become free.
//!
//! Invariant: an entry works off at most a budget; while work is left, `next_deadline` is now and the leader ticks
//! again at once.

use super::State;
use crate::claim::{Claim, Death, Locks};
use crate::lease::Lease;
use crate::lock::Lock;
use crate::planted::Bug;
use crate::reply::EndReason;
use crate::slab::Id;
use tollgate_types::{DurationMs, LogTime, Names, Reason, Revision};

impl State {
    /// Works until nothing is due or the budget is spent; returns the rest of the budget. `scratch.overdue` must be up
    /// to date before, and is afterwards.
    pub(super) fn work(&mut self, budget: u64) -> u64 {
        if !self.scratch.overdue && self.dirty.is_empty() {
            return budget;
        }
        let start = self.scratch.cost;
        self.scratch.cost_max = start + budget;
        while !self.is_spent() && self.work_step() {}
        self.scratch.cost_max = u64::MAX;
        self.scratch.overdue = self.is_due();
        budget - (self.scratch.cost - start)
    }

    /// True if the present work has used up its budget; never for a command's own settling.
    pub(super) fn is_spent(&self) -> bool {
        self.scratch.cost >= self.scratch.cost_max
    }

    fn work_step(&mut self) -> bool {
        if let Some(name) = self.dirty.pop_first() {
            self.settle(&name);
        } else if let Some(lease) = self.due_lease() {
            self.reap_lease(lease);
        } else if let Some((at, revision, claim)) = self.due_claim() {
            self.reap_claim(claim, at, revision);
        } else if let Some(lock) = self.due_closure() {
            self.scratch.cost += 1;
            self.open_lock(lock);
            self.settle_lock(lock);
        } else {
            return false;
        }
        true
    }

    /// True if a lease, wait, hold or closure has reached its end and is not reaped.
    pub(super) fn is_due(&self) -> bool {
        self.due_lease().is_some() || self.due_claim().is_some() || self.due_closure().is_some()
    }

    /// Returns the log time of the next event that time brings: now, while work is left; none, while no deadline is
    /// pending.
    pub fn next_deadline(&self) -> Option<LogTime> {
        let lease = self.lease_deadlines.first_key_value().map(|((at, _), _)| *at);
        let claim = self.claim_deadlines.first_key_value().map(|((at, _), _)| *at);
        let closure = self.closure_ends.first_key_value().map(|((at, _), _)| *at);
        // The deadline of a stub is never: no time brings it about.
        let lease = lease.filter(|at| *at != LogTime::NEVER);
        let first = [lease, claim, closure, self.closed_until()].into_iter().flatten().min();
        if self.dirty.is_empty() { first.map(|at| at.max(self.now)) } else { Some(self.now) }
    }

    fn due_lease(&self) -> Option<Id<Lease>> {
        let ((deadline, _), lease) = self.lease_deadlines.first_key_value()?;
        self.is_past(*deadline).then_some(*lease)
    }

    fn due_claim(&self) -> Option<(LogTime, Revision, Id<Claim>)> {
        let ((at, revision), claim) = self.claim_deadlines.first_key_value()?;
        (*at <= self.now).then_some((*at, *revision, *claim))
    }

    fn due_closure(&self) -> Option<Id<Lock>> {
        let ((until, _), lock) = self.closure_ends.first_key_value()?;
        (*until <= self.now).then_some(*lock)
    }

    /// True if a lease with this deadline has ended.
    pub(super) fn is_past(&self, deadline: LogTime) -> bool {
        if self.planted(Bug::ExpiryOneEarly) {
            return deadline <= self.now.after(DurationMs::from_ms(1));
        }
        if self.planted(Bug::ExpiryOneLate) { deadline < self.now } else { deadline <= self.now }
    }

    /// One step of reaping an ended lease: a claim, a register, or the lease itself.
    fn reap_lease(&mut self, id: Id<Lease>) {
        self.owe_ends(id);
        let lease = self.leases.get(id);
        if let Some(claim) = lease.oldest {
            let (reason, due) = (lease.end_reason, lease.deadline);
            let (names, locks) = self.end_claim(claim, reason, due, &Reason::NONE);
            self.settle_ended(&names, &locks);
        } else if let Some(key) = self.first_register_of(lease.incarnation) {
            self.scratch.cost += 1;
            self.end_register(&key);
        } else {
            self.scratch.cost += 1;
            self.forget_lease(id);
        }
    }

    /// Ends the thing whose deadline came: a wait, a hold, or the wait of an upgrade.
    fn reap_claim(&mut self, id: Id<Claim>, due: LogTime, revision: Revision) {
        let claim = self.claims.get(id);
        if claim.upgrade.as_ref().is_some_and(|upgrade| upgrade.queued_at == revision) {
            let (names, locks) = (claim.names.clone(), claim.locks.clone());
            self.end_upgrade(id, EndReason::TimedOut);
            self.settle_ended(&names, &locks);
        } else {
            let reason = if claim.holds() { EndReason::MaxHold } else { EndReason::TimedOut };
            let (names, locks) = self.end_claim(id, reason, due, &Reason::NONE);
            self.settle_ended(&names, &locks);
        }
    }

    /// Settles the names of a claim that just ended.
    fn settle_ended(&mut self, names: &Names, locks: &Locks) {
        match names {
            // Nothing came between the end and this, so the record is still there.
            Names::One(_) => self.settle_lock(locks.as_slice()[0]),
            Names::Many(names) => {
                for name in names.iter() {
                    self.settle(name);
                }
            }
        }
    }

    /// Cause of death of a claim, if it is dead: decided by deadlines alone, so that a backlog changes nobody's answer.
    pub(super) fn death(&self, id: Id<Claim>) -> Option<Death> {
        if !self.scratch.overdue {
            return None;
        }
        let claim = self.claims.get(id);
        let lease = self.leases.get(claim.lease);
        claim.death(lease, self.is_past(lease.deadline), self.now)
    }
}
