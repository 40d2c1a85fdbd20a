//! Convert: changes the mode of a grant. Weaker at once, stronger ahead of the queue.

use super::State;
use super::acquire::check_kind;
use super::identity::Answer;
use super::settle::Place;
use crate::claim::Claim;
use crate::command::{ConvertLock, Request, Wait};
use crate::fingerprint::Asks;
use crate::lease::Lease;
use crate::planted::Bug;
use crate::reply::{Rejection, Reply};
use crate::requests::Part;
use crate::slab::Id;
use tollgate_types::Mode;

impl State {
    pub(super) fn convert_lock(&mut self, convert: &ConvertLock) -> Reply {
        let places = self.settle_names(convert.names.as_slice());
        let lease = match self.living_lease(convert.lease) {
            Ok(lease) => lease,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let asks = Asks::Convert(convert);
        let asked = match self.begin(lease, convert.request.as_ref(), &asks, convert.attended) {
            Ok(asked) => asked,
            Err(reply) => return reply,
        };
        let result = self.convert_held(convert, lease, &places);
        let reply = self.finish(asked, result);
        if !self.planted(Bug::DowngradeWakesNobody) {
            self.settle_names(convert.names.as_slice());
        }
        reply
    }

    fn convert_held(
        &mut self,
        convert: &ConvertLock,
        lease: Id<Lease>,
        places: &[Place],
    ) -> Result<Answer, Rejection> {
        let names = convert.names.as_slice();
        let mut claims = Vec::with_capacity(names.len());
        for (name, place) in names.iter().zip(places) {
            let claim = self.claim_on(*place, lease, &convert.owner);
            let held = claim.filter(|claim| self.claims.get(*claim).holds());
            claims.push(held.ok_or_else(|| Rejection::NotHeld { name: name.clone() })?);
        }
        let claim = self.claims.get(claims[0]);
        if claims.iter().any(|other| *other != claims[0]) || claim.names != convert.names {
            return Err(Rejection::Overlap { name: names[0].clone() });
        }
        check_kind(&names[0], claim.mode, convert.mode)?;
        self.convert(claims[0], convert.mode, (convert.wait, convert.attended), convert.request.as_ref())
    }

    /// Changes a holder's mode, or lets it wait for the new one; `attended`: for a caller that stands by.
    pub(super) fn convert(
        &mut self,
        id: Id<Claim>,
        mode: Mode,
        (wait, attended): (Wait, bool),
        request: Option<&Request>,
    ) -> Result<Answer, Rejection> {
        let wait_until = self.wait_until(wait);
        let claim = self.claims.get(id);
        let (names, prev) = (claim.names.clone(), claim.state());
        if let Some(upgrade) = &claim.upgrade {
            if upgrade.mode != mode {
                return Err(Rejection::AlreadyWaiting { name: names.as_slice()[0].clone() });
            }
            if wait_until.is_none() {
                return Ok(self.busy(&names).into());
            }
            self.room_to_wait(claim.lease, request)?;
            return Ok(Answer::Claim(id, Part::Convert));
        }
        if claim.mode.covers(mode) {
            if claim.mode != mode {
                self.change_mode(id, mode, false, prev);
            }
            return Ok(Answer::Has(id));
        }
        if self.may_upgrade(claim, mode) {
            // The upgrade overtakes the waits in the queue: they may come to wait for an owner that waits for them.
            let waits = !claim.owner.is_empty() && !self.owner_waits(claim.lease, &claim.owner).is_empty();
            if waits {
                self.check_deadlock_of_upgrade(id, mode)?;
            }
            self.change_mode(id, mode, true, prev);
            return Ok(Answer::Claim(id, Part::Convert));
        }
        let Some(wait_until) = wait_until else { return Ok(self.busy(&names).into()) };
        self.check_queues(claim.locks.as_slice().iter().map(|lock| Some(*lock)))?;
        self.room_to_wait(claim.lease, request)?;
        self.check_deadlock_of_upgrade(id, mode)?;
        self.queue_upgrade(id, mode, (wait_until, attended));
        Ok(Answer::Claim(id, Part::Convert))
    }

    /// True if a holder gets a stronger mode at once: no other upgrade waits, and the other holders leave room.
    fn may_upgrade(&self, claim: &Claim, mode: Mode) -> bool {
        claim.locks.as_slice().iter().all(|lock| {
            let lock = self.locks.get(*lock);
            let upgrades = lock.queue.first_key_value().is_some_and(|(key, _)| key.is_upgrade());
            !upgrades && !self.is_closed(lock) && lock.held.goes_with_others(claim.mode, mode)
        })
    }
}
