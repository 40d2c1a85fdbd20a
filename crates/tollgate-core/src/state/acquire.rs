//! Acquire: takes one lock or several together, or joins their queues.

use super::State;
use super::identity::{Answer, over};
use super::settle::Place;
use crate::claim::Claim;
use crate::command::{AcquireLock, Wait};
use crate::fingerprint::Asks;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::planted::Bug;
use crate::reply::{Kind, Rejection, Reply};
use crate::requests::Part;
use crate::slab::Id;
use smallvec::SmallVec;
use tollgate_types::{Limit, LogTime, Metadata, Mode, Name, Names, Owner, Value};

impl State {
    pub(super) fn acquire_lock(&mut self, acquire: &AcquireLock) -> Reply {
        let places = self.settle_names(acquire.names.as_slice());
        let lease = match self.living_lease(acquire.lease) {
            Ok(lease) => lease,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let asks = Asks::Acquire(acquire);
        let asked = match self.begin(lease, acquire.request.as_ref(), &asks, acquire.attended) {
            Ok(asked) => asked,
            Err(reply) => return reply,
        };
        let result = self.acquire(acquire, lease, &places);
        self.finish(asked, result)
    }

    fn acquire(
        &mut self,
        acquire: &AcquireLock,
        lease: Id<Lease>,
        places: &[Place],
    ) -> Result<Answer, Rejection> {
        self.check_acquire(acquire)?;
        match self.claim_on_all(&acquire.names, places, lease, &acquire.owner)? {
            Some(claim) if self.claims.get(claim).holds() => self.acquire_again(claim, acquire),
            Some(claim) => self.attach_to_waiter(claim, acquire),
            None => self.acquire_fresh(acquire, lease, places),
        }
    }

    fn check_sizes(&self, names: &Names, metadata: &Metadata) -> Result<(), Rejection> {
        self.check(Limit::NamesPerRequest, names.as_slice().len() as u64)?;
        for name in names.as_slice() {
            self.check(Limit::NameBytes, name.len() as u64)?;
        }
        self.check(Limit::MetadataBytes, metadata.len() as u64)
    }

    /// Refuses more than a limit allows.
    pub(super) fn check(&self, limit: Limit, got: u64) -> Result<(), Rejection> {
        let max = self.limits.get(limit);
        let got = if self.planted(Bug::LimitOneTooMany) { got.saturating_sub(1) } else { got };
        if got > max { Err(over(limit, max, got)) } else { Ok(()) }
    }

    /// The claim of an owner on a name.
    pub(super) fn claim_on(&self, place: Place, lease: Id<Lease>, owner: &Owner) -> Option<Id<Claim>> {
        self.locks.get(place.1?).find_member(lease, owner, |id| self.claims.get(id))
    }

    /// The one claim of an owner on all these names; none if the owner has no claim on any of them.
    fn claim_on_all(
        &self,
        names: &Names,
        places: &[Place],
        lease: Id<Lease>,
        owner: &Owner,
    ) -> Result<Option<Id<Claim>>, Rejection> {
        if let [place] = places {
            return Ok(self.claim_on(*place, lease, owner));
        }
        let claims: SmallVec<[Option<Id<Claim>>; 1]> =
            places.iter().map(|place| self.claim_on(*place, lease, owner)).collect();
        let Some(first) = claims.iter().position(Option::is_some) else { return Ok(None) };
        if claims.iter().any(|claim| *claim != claims[first]) {
            return Err(Rejection::Overlap { name: names.as_slice()[first].clone() });
        }
        Ok(claims[first])
    }

    /// Answers an owner that holds the names already: with the present grant if its mode suffices, else by an upgrade.
    fn acquire_again(&mut self, id: Id<Claim>, acquire: &AcquireLock) -> Result<Answer, Rejection> {
        let claim = self.claims.get(id);
        check_kind(&acquire.names.as_slice()[0], claim.mode, acquire.mode)?;
        let weak = self.planted(Bug::UpgradeReturnsWeakGrant);
        if claim.mode.covers(acquire.mode) || weak {
            return Ok(Answer::Has(id));
        }
        if claim.names != acquire.names {
            return Err(Rejection::Overlap { name: acquire.names.as_slice()[0].clone() });
        }
        let stronger = claim.mode.join(acquire.mode).expect("permits were dealt with above");
        self.convert(id, stronger, (acquire.wait, acquire.attended), acquire.request.as_ref())
    }

    /// Answers an owner that waits for the names already.
    fn attach_to_waiter(&mut self, id: Id<Claim>, acquire: &AcquireLock) -> Result<Answer, Rejection> {
        let claim = self.claims.get(id);
        if claim.names != acquire.names || claim.mode != acquire.mode {
            return Err(Rejection::AlreadyWaiting { name: acquire.names.as_slice()[0].clone() });
        }
        if self.wait_until(acquire.wait).is_none() {
            return Ok(self.busy(&acquire.names).into());
        }
        self.room_to_wait(claim.lease, acquire.request.as_ref())?;
        Ok(Answer::Claim(id, Part::Acquire))
    }

    fn acquire_fresh(
        &mut self,
        acquire: &AcquireLock,
        lease: Id<Lease>,
        places: &[Place],
    ) -> Result<Answer, Rejection> {
        self.check_fresh(acquire, lease, places)?;
        if places.iter().all(|place| self.is_free(*place, acquire.mode)) {
            for (_, lock) in places {
                let holders = lock.map_or(0, |lock| self.locks.get(lock).holders.len());
                self.check(Limit::HoldersPerLock, holders as u64 + 1)?;
            }
            return Ok(Answer::Made(self.make_claim(acquire, lease, places, true, LogTime::NEVER)));
        }
        let Some(wait_until) = self.wait_until(acquire.wait) else {
            return Ok(self.busy(&acquire.names).into());
        };
        for (_, lock) in places.iter().filter(|_| acquire.mode != Mode::Exclusive) {
            // All of these waiters may come to hold the lock together.
            let members =
                lock.map(|lock| self.locks.get(lock)).map_or(0, |l| l.holders.len() + l.queue.len());
            self.check(Limit::HoldersPerLock, members as u64 + 1)?;
        }
        self.check_queues(places.iter().map(|(_, lock)| *lock))?;
        self.room_to_wait(lease, acquire.request.as_ref())?;
        self.check_deadlock_of_waiter(acquire, lease, places)?;
        Ok(Answer::Made(self.make_claim(acquire, lease, places, false, wait_until)))
    }

    /// Checks that refuse a newcomer, whether or not the names are free.
    #[inline]
    fn check_fresh(
        &self,
        acquire: &AcquireLock,
        lease: Id<Lease>,
        places: &[Place],
    ) -> Result<(), Rejection> {
        let names = acquire.names.as_slice();
        for (name, (_, lock)) in names.iter().zip(places) {
            let members = lock.map(|lock| self.locks.get(lock)).filter(|lock| lock.has_members());
            if let Some(lock) = members.filter(|lock| lock.kind != Kind::of(acquire.mode)) {
                return Err(Rejection::OtherKind { name: name.clone(), in_use: lock.kind });
            }
        }
        let new = places.iter().filter(|(_, lock)| lock.is_none()).count();
        // Joining a lock that exists is never refused for the number of locks, even if the limit was lowered below it.
        if new > 0 {
            self.check(Limit::Locks, (self.locks.len() + new) as u64)?;
        }
        self.check(Limit::ClaimsPerLease, u64::from(self.leases.get(lease).claims) + 1)?;
        acquire.value.as_ref().map_or(Ok(()), |_| self.check(Limit::ClaimValues, self.claim_values + 1))
    }

    /// Returns true if this acquire, as the next entry and stamped `at`, would certainly be answered `Busy`, so that a
    /// leader can answer it without an entry. False if finding out takes more than a look: if anything is due by then
    /// or left to settle, if the acquire is a repeat, if its owner has a claim on the names, or if it would be refused.
    pub fn would_be_busy(&self, acquire: &AcquireLock, at: LogTime) -> bool {
        let waits = self.wait_until(acquire.wait).is_some();
        if waits || self.next_deadline().is_some_and(|next| next <= at.max(self.now)) {
            return false;
        }
        if self.placement.check_names(acquire.names.as_slice()).is_err() {
            return false;
        }
        let Ok(lease) = self.living_lease(acquire.lease) else { return false };
        let runs = acquire.request.as_ref().is_none_or(|request| self.would_run(lease, request));
        let places: SmallVec<[Place; 1]> =
            acquire.names.as_slice().iter().map(|name| self.find_lock(name)).collect();
        runs && self.check_acquire(acquire).is_ok()
            && places.iter().all(|place| self.claim_on(*place, lease, &acquire.owner).is_none())
            && self.check_fresh(acquire, lease, &places).is_ok()
            && !places.iter().all(|place| self.is_free(*place, acquire.mode))
    }

    #[inline]
    fn check_acquire(&self, acquire: &AcquireLock) -> Result<(), Rejection> {
        self.check_sizes(&acquire.names, &acquire.metadata)?;
        self.check(Limit::ValueBytes, acquire.value.as_ref().map_or(0, Value::len) as u64)?;
        self.check(Limit::LockDelay, acquire.lock_delay.ms())
    }

    /// True if a newcomer gets the lock at once: it has no queue, and its holders leave room.
    fn is_free(&self, (_, lock): Place, mode: Mode) -> bool {
        let Some(lock) = lock.map(|lock| self.locks.get(lock)) else { return !self.is_all_closed() };
        let overtakes = self.planted(Bug::ReaderOvertakesWriter) && mode == Mode::Shared;
        (lock.queue.is_empty() || overtakes) && !self.is_closed(lock) && self.joins(lock, mode)
    }

    /// Log time at which a wait that begins now ends; none if the request does not wait.
    pub(super) fn wait_until(&self, wait: Wait) -> Option<LogTime> {
        match wait {
            Wait::No => None,
            Wait::For(duration) if duration.ms() == 0 => None,
            Wait::For(duration) => Some(self.now.after(duration)),
            Wait::Forever => Some(LogTime::NEVER),
        }
    }

    pub(super) fn check_queues(
        &self,
        locks: impl Iterator<Item = Option<Id<Lock>>>,
    ) -> Result<(), Rejection> {
        for lock in locks {
            let queue = lock.map_or(0, |lock| self.locks.get(lock).queue.len());
            self.check(Limit::WaitersPerLock, queue as u64 + 1)?;
        }
        Ok(())
    }
}

/// Refuses to turn a lock into a semaphore, or one number of permits into another.
pub(super) fn check_kind(name: &Name, held: Mode, asked: Mode) -> Result<(), Rejection> {
    if Kind::of(held) != Kind::of(asked) {
        return Err(Rejection::OtherKind { name: name.clone(), in_use: Kind::of(held) });
    }
    match held {
        Mode::Permit { .. } if held != asked => Err(Rejection::PermitsFixed { name: name.clone(), held }),
        _ => Ok(()),
    }
}
