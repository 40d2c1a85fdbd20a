//! Proclaim: changes the value that a holder proclaims.
//!
//! Invariant: the value is a part of the claim, so that it begins, changes and ends with the grant, each time in one
//! entry.

use super::State;
use super::identity::Answer;
use super::settle::Place;
use crate::claim::Said;
use crate::command::Proclaim;
use crate::fingerprint::Asks;
use crate::lease::Lease;
use crate::planted::Bug;
use crate::reply::{Rejection, Reply};
use crate::slab::Id;
use tollgate_types::Limit;

impl State {
    pub(super) fn proclaim(&mut self, proclaim: &Proclaim) -> Reply {
        let place = self.settle_names(std::slice::from_ref(&proclaim.name))[0];
        let lease = match self.living_lease(proclaim.lease) {
            Ok(lease) => lease,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let asks = Asks::Proclaim(proclaim);
        let asked = match self.begin(lease, proclaim.request.as_ref(), &asks, true) {
            Ok(asked) => asked,
            Err(reply) => return reply,
        };
        let result = self.say(proclaim, lease, place);
        self.finish(asked, result.map(Answer::from))
    }

    fn say(&mut self, proclaim: &Proclaim, lease: Id<Lease>, place: Place) -> Result<Reply, Rejection> {
        self.check(Limit::ValueBytes, proclaim.value.len() as u64)?;
        let claim = self.claim_on(place, lease, &proclaim.owner);
        let token = (!self.planted(Bug::StaleProclaimAccepted)).then_some(proclaim.token);
        let id = self.check_holder(&proclaim.name, claim, token)?;
        if self.claims.get(id).said().is_none() {
            self.check(Limit::ClaimValues, self.claim_values + 1)?;
            self.claim_values += 1;
        }
        let revision = self.bump();
        let prev = self.claims.get(id).state();
        let claim = self.claims.get_mut(id);
        claim.extras.get_or_insert_default().said = Some(Said { value: proclaim.value.clone(), revision });
        claim.mod_revision = revision;
        claim.version += 1;
        let now = claim.state();
        self.emit_claim(id, Some(now), Some(prev), None);
        Ok(Reply::Proclaimed { revision })
    }
}
