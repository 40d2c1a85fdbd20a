//! Makes claims and grants them: the only place where a token is given.

use super::State;
use super::settle::Place;
use crate::claim::{Claim, Extras, Locks, QueueKey, Said, Upgrade};
use crate::command::AcquireLock;
use crate::event::ClaimState;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::planted::Bug;
use crate::reply::{EndReason, Kind, Resolution, WaitOutcome};
use crate::requests::Part;
use crate::slab::Id;
use smallvec::SmallVec;
use tollgate_types::{DurationMs, LogTime, Mode, Name, Names, Reason, Revision, Token};

impl State {
    /// Makes a new claim: holding if `granted`, else in the queues until `wait_until`.
    pub(super) fn make_claim(
        &mut self,
        acquire: &AcquireLock,
        lease: Id<Lease>,
        places: &[Place],
        granted: bool,
        wait_until: LogTime,
    ) -> Id<Claim> {
        let revision = self.bump();
        let max_hold = acquire.max_hold.unwrap_or_default();
        let locks = self.locks_for(acquire, places);
        let said_at = if granted { revision } else { Revision::ZERO };
        let said = acquire.value.clone().map(|value| Said { value, revision: said_at });
        let claim = Claim {
            names: acquire.names.clone(),
            lease_id: acquire.lease,
            owner: acquire.owner.clone(),
            metadata: acquire.metadata.clone(),
            mode: acquire.mode,
            token: granted.then(|| Token::of_grant(revision)),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            until: if granted { self.hold_until(max_hold) } else { wait_until },
            since: self.now,
            extras: Extras { max_hold, lock_delay: acquire.lock_delay, said }.packed(),
            seqs: acquire.request.iter().map(|request| (request.seq, Part::Acquire)).collect(),
            anonymous: acquire.request.is_none(),
            attended: acquire.attended,
            asks: 1,
            upgrade: None,
            locks,
            lease,
            older: None,
            younger: None,
        };
        let id = self.insert_claim(claim);
        if !granted {
            self.close_with_all(id);
        }
        let state = self.claims.get(id).state();
        self.emit_claim(id, Some(state), None, None);
        self.note_made(id);
        id
    }

    fn hold_until(&self, max_hold: DurationMs) -> LogTime {
        if max_hold.ms() == 0 { LogTime::NEVER } else { self.now.after(max_hold) }
    }

    /// The locks of a request, created where they don't exist.
    fn locks_for(&mut self, acquire: &AcquireLock, places: &[Place]) -> Locks {
        let kind = Kind::of(acquire.mode);
        if let (Names::One(name), [place]) = (&acquire.names, places) {
            return Locks::One(self.lock_for(name, *place, kind));
        }
        let pairs = acquire.names.as_slice().iter().zip(places);
        Locks::new(pairs.map(|(name, place)| self.lock_for(name, *place, kind)).collect())
    }

    fn lock_for(&mut self, name: &Name, (hash, found): Place, kind: Kind) -> Id<Lock> {
        let Some(lock) = found else { return self.make_lock(name, hash, kind) };
        if !self.locks.get(lock).has_members() {
            self.locks.get_mut(lock).kind = kind;
        }
        lock
    }

    pub(super) fn make_lock(&mut self, name: &Name, hash: u64, kind: Kind) -> Id<Lock> {
        let lock = self.locks.insert(Lock::new(name.clone(), hash, kind));
        self.lock_names.insert(hash, lock);
        lock
    }

    /// Adds a claim to every table. Its locks exist, and it is the youngest of its lease.
    #[inline]
    pub(super) fn insert_claim(&mut self, mut claim: Claim) -> Id<Claim> {
        let lease_id = claim.lease;
        claim.older = self.leases.get(lease_id).youngest;
        let older = claim.older;
        self.claim_values += u64::from(claim.said().is_some());
        let id = self.claims.insert(claim);
        let lease = self.leases.get_mut(lease_id);
        lease.youngest = Some(id);
        lease.oldest.get_or_insert(id);
        lease.claims += 1;
        if let Some(older) = older {
            self.claims.get_mut(older).younger = Some(id);
        }
        self.start_timers(id);
        let claim = self.claims.get(id);
        for lock in claim.locks.as_slice() {
            let lock = self.locks.get_mut(*lock);
            if let Some(token) = claim.token {
                lock.add_holder(token, claim.mode, id);
            }
            if claim.is_queued() {
                lock.queue.insert(claim.queue_key(), id);
            }
            lock.note_member(claim.lease, &claim.owner, id, |id| self.claims.get(id));
        }
        self.count_claim(id);
        id
    }

    /// Sets the present deadlines of a claim.
    pub(super) fn start_timers(&mut self, id: Id<Claim>) {
        let claim = self.claims.get(id);
        for (at, revision) in timers(claim).into_iter().flatten() {
            let skip = if claim.holds() && revision == claim.create_revision {
                self.planted(Bug::MaxHoldForgotten)
            } else {
                self.planted(Bug::WaitDeadlineForgotten)
            };
            if !skip {
                self.claim_deadlines.insert((at, revision), id);
            }
        }
    }

    pub(super) fn stop_timers(&mut self, claim: &Claim) {
        for (at, revision) in timers(claim).into_iter().flatten() {
            self.claim_deadlines.remove(&(at, revision));
        }
    }

    /// Grants a claim that stands first in its queues: a waiter, or an upgrade.
    pub(super) fn grant_queued(&mut self, id: Id<Claim>, current: Id<Lock>) {
        self.scratch.cost += 1;
        let wait_revision = self.claims.get(id).wait_revision();
        if self.claims.get(id).upgrade.is_some() {
            self.leave_queues(id);
            let prev = self.claims.get(id).state();
            let upgrade = self.take_upgrade(id);
            self.change_mode(id, upgrade.mode, true, prev);
            let claim = self.claims.get_mut(id);
            claim.seqs.extend(upgrade.seqs.iter().map(|seq| (*seq, Part::Convert)));
        } else {
            self.grant_waiter(id);
        }
        let claim = self.claims.get(id);
        let token = claim.token.expect("just granted");
        let outcome = WaitOutcome::Granted { token, mode: claim.mode };
        self.resolve(id, wait_revision, outcome);
        self.leave_others_for_later(id, current);
    }

    fn grant_waiter(&mut self, id: Id<Claim>) {
        self.leave_queues(id);
        let revision = self.bump();
        let prev = self.claims.get(id).state();
        let (at, create) = (self.claims.get(id).until, self.claims.get(id).create_revision);
        if at != LogTime::NEVER {
            self.claim_deadlines.remove(&(at, create));
        }
        let hold_until = self.hold_until(self.claims.get(id).max_hold());
        let now = self.now;
        let claim = self.claims.get_mut(id);
        claim.token = Some(Token::of_grant(revision));
        let waited_since = std::mem::replace(&mut claim.since, now);
        if let Some(said) = claim.extras.as_mut().and_then(|extras| extras.said.as_mut()) {
            said.revision = revision;
        }
        claim.until = hold_until;
        claim.mod_revision = revision;
        claim.version += 1;
        self.start_timers(id);
        let claim = self.claims.get(id);
        for lock in claim.locks.as_slice() {
            self.locks.get_mut(*lock).add_holder(Token::of_grant(revision), claim.mode, id);
        }
        let state = claim.state();
        self.count_hold(id);
        self.emit_claim(id, Some(state), Some(prev), None);
        self.note_granted(id, waited_since);
    }

    /// Changes a holder's mode: with a new token, or with the present one. `prev` is the state before, for the event.
    pub(super) fn change_mode(&mut self, id: Id<Claim>, mode: Mode, new_token: bool, prev: ClaimState) {
        let revision = self.bump();
        let before = self.claims.get(id);
        let old_mode = before.mode;
        let old_token = before.token.expect("only holders change their mode");
        let token = if new_token { Token::of_grant(revision) } else { old_token };
        for lock in before.locks.as_slice() {
            let lock = self.locks.get_mut(*lock);
            lock.remove_holder(old_token, old_mode);
            lock.add_holder(token, mode, id);
        }
        let claim = self.claims.get_mut(id);
        claim.mode = mode;
        claim.token = Some(token);
        claim.mod_revision = revision;
        claim.version += 1;
        let state = claim.state();
        self.emit_claim(id, Some(state), Some(prev), None);
        self.note_mode(id);
    }

    /// Lets a holder wait for a stronger mode, ahead of the queue.
    pub(super) fn queue_upgrade(
        &mut self,
        id: Id<Claim>,
        mode: Mode,
        (wait_until, attended): (LogTime, bool),
    ) {
        let revision = self.bump();
        let prev = self.claims.get(id).state();
        let (since, seqs, anonymous) = (self.now, SmallVec::new(), false);
        let upgrade = Upgrade { mode, queued_at: revision, since, wait_until, seqs, anonymous, attended };
        let claim = self.claims.get_mut(id);
        claim.upgrade = Some(Box::new(upgrade));
        claim.mod_revision = revision;
        claim.version += 1;
        self.start_timers(id);
        let claim = self.claims.get(id);
        let key = if self.planted(Bug::UpgradeBehindQueue) {
            QueueKey::waiter(revision)
        } else {
            claim.queue_key()
        };
        let state = claim.state();
        for lock in claim.locks.as_slice() {
            self.locks.get_mut(*lock).queue.insert(key, id);
        }
        self.close_with_all(id);
        self.count_wait(id);
        self.emit_claim(id, Some(state), Some(prev), None);
        self.note_mode(id);
    }

    /// While all names are closed, gives each name of a waiter a closure of its own: so each is settled when that time
    /// is over, in bounded steps.
    fn close_with_all(&mut self, id: Id<Claim>) {
        if self.closed_until > self.now {
            for lock in self.claims.get(id).locks.clone().as_slice() {
                self.close_until(*lock, self.closed_until);
            }
        }
    }

    /// Removes a claim from the queues of its names.
    pub(super) fn leave_queues(&mut self, id: Id<Claim>) {
        let claim = self.claims.get(id);
        let key = claim.queue_key();
        for lock in claim.locks.as_slice() {
            self.locks.get_mut(*lock).queue.remove(&key);
        }
        self.uncount_wait(id);
    }

    /// Removes the pending upgrade of a claim that is out of the queues already.
    pub(super) fn take_upgrade(&mut self, id: Id<Claim>) -> Upgrade {
        let upgrade = self.claims.get_mut(id).upgrade.take().expect("the caller saw an upgrade");
        self.claim_deadlines.remove(&(upgrade.wait_until, upgrade.queued_at));
        *upgrade
    }

    pub(super) fn resolve(&mut self, id: Id<Claim>, create_revision: Revision, outcome: WaitOutcome) {
        let claim = self.claims.get(id);
        let (lease, owner) = (claim.lease_id, claim.owner.clone());
        self.scratch.resolved.push(Resolution { create_revision, lease, owner, outcome });
    }

    /// Emits one event per name of a claim that stays, at the present revision.
    pub(super) fn emit_claim(
        &mut self,
        id: Id<Claim>,
        now: Option<ClaimState>,
        prev: Option<ClaimState>,
        end: Option<EndReason>,
    ) {
        let claim = self.claims.get(id);
        for name in claim.names.as_slice() {
            self.ring.push_lock(self.revision, &claim.changed(name, now, prev, end, &Reason::NONE));
        }
        self.scratch.events_from.get_or_insert(self.revision);
    }
}

/// The deadlines of a claim, each with the revision that identifies it.
pub(super) fn timers(claim: &Claim) -> [Option<(LogTime, Revision)>; 2] {
    let own = (claim.until != LogTime::NEVER).then_some((claim.until, claim.create_revision));
    let upgrade = claim.upgrade.as_ref().filter(|upgrade| upgrade.wait_until != LogTime::NEVER);
    [own, upgrade.map(|upgrade| (upgrade.wait_until, upgrade.queued_at))]
}
