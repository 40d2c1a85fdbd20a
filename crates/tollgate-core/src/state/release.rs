//! Release and forced release: give locks back by holder or by token.

use super::State;
use super::identity::Answer;
use crate::claim::Claim;
use crate::command::{ForceRelease, ReleaseBy, ReleaseLock};
use crate::fingerprint::Asks;
use crate::lock::Lock;
use crate::planted::Bug;
use crate::reply::{EndReason, Rejection, Reply};
use crate::slab::Id;
use smallvec::SmallVec;
use tollgate_types::{Limit, Name, Names, Reason, Token};

impl State {
    pub(super) fn release_lock(&mut self, release: &ReleaseLock) -> Reply {
        let names = release.names.as_slice();
        let places = self.settle_names(names);
        match &release.by {
            ReleaseBy::Token(token) => {
                let pairs = names.iter().zip(&places);
                let claims =
                    pairs.map(|(name, (_, lock))| self.holder_by_token(name, *lock, *token)).collect();
                self.release_claims(names, claims).unwrap_or_else(Reply::Rejected)
            }
            ReleaseBy::Holder { lease, owner, token, request } => {
                let lease = match self.living_lease(*lease) {
                    Ok(lease) => lease,
                    Err(rejection) => return Reply::Rejected(rejection),
                };
                let asks = Asks::Release { names: &release.names, owner, token: *token };
                let asked = match self.begin(lease, request.as_ref(), &asks, true) {
                    Ok(asked) => asked,
                    Err(reply) => return reply,
                };
                let pairs = names.iter().zip(&places);
                let claims = pairs
                    .map(|(name, place)| self.check_holder(name, self.claim_on(*place, lease, owner), *token))
                    .collect();
                let result = self.release_claims(names, claims).map(Answer::from);
                self.finish(asked, result)
            }
        }
    }

    pub(super) fn check_holder(
        &self,
        name: &Name,
        claim: Option<Id<Claim>>,
        given: Option<Token>,
    ) -> Result<Id<Claim>, Rejection> {
        let held = claim.and_then(|claim| self.claims.get(claim).token.map(|token| (claim, token)));
        let Some((claim, held)) = held else { return Err(Rejection::NotHeld { name: name.clone() }) };
        match given {
            Some(given) if given != held && !self.planted(Bug::StaleReleaseAccepted) => {
                Err(Rejection::StaleToken { name: name.clone(), given, held })
            }
            _ => Ok(claim),
        }
    }

    fn holder_by_token(
        &self,
        name: &Name,
        lock: Option<Id<Lock>>,
        given: Token,
    ) -> Result<Id<Claim>, Rejection> {
        let lock = lock.map(|lock| self.locks.get(lock));
        if let Some(claim) = lock.and_then(|lock| lock.holder(given)) {
            return Ok(claim);
        }
        match lock.and_then(|lock| lock.holders.last()) {
            Some((held, _)) => Err(Rejection::StaleToken { name: name.clone(), given, held: *held }),
            None => Err(Rejection::NotHeld { name: name.clone() }),
        }
    }

    /// Gives the names back, claim by claim, if all are held. `claims` are the claims on `names`, one per name.
    fn release_claims(
        &mut self,
        names: &[Name],
        claims: Result<SmallVec<[Id<Claim>; 1]>, Rejection>,
    ) -> Result<Reply, Rejection> {
        let claims = claims?;
        if let ([_], Names::One(_)) = (names, &self.claims.get(claims[0]).names) {
            let (_, locks) = self.end_claim(claims[0], EndReason::Released, self.now, &Reason::NONE);
            let reply = Reply::Released { revision: self.revision };
            self.settle_lock(locks.as_slice()[0]);
            self.settle_around(names);
            return Ok(reply);
        }
        let mut changed = names.to_vec();
        for (at, claim) in claims.iter().enumerate() {
            if !claims[..at].contains(claim) {
                let of_claim = names.iter().zip(&claims).filter(|(_, c)| *c == claim);
                let given: SmallVec<[Name; 1]> = of_claim.map(|(name, _)| name.clone()).collect();
                self.release_names(*claim, &given, EndReason::Released, &Reason::NONE, &mut changed);
            }
        }
        let reply = Reply::Released { revision: self.revision };
        self.settle_changed(changed);
        Ok(reply)
    }

    /// Ends a claim, or removes some of its names. Adds to `changed` the other names that may be grantable now.
    fn release_names(
        &mut self,
        id: Id<Claim>,
        given: &[Name],
        reason: EndReason,
        note: &Reason,
        changed: &mut Vec<Name>,
    ) {
        let claim = self.claims.get(id);
        if claim.names.as_slice().len() == given.len() {
            self.end_claim(id, reason, self.now, note);
            return;
        }
        if claim.upgrade.is_some() {
            // The claim's upgrade ends, and others may have waited behind it on the names that the claim keeps.
            changed.extend_from_slice(claim.names.as_slice());
        }
        self.give_back(id, given, reason, note);
    }

    fn settle_changed(&mut self, mut changed: Vec<Name>) {
        changed.sort();
        changed.dedup();
        self.settle_names(&changed);
    }

    pub(super) fn force_release(&mut self, force: &ForceRelease) -> Reply {
        let names = std::slice::from_ref(&force.name);
        let place = self.settle_names(names)[0];
        if let Err(rejection) = self.check(Limit::MetadataBytes, force.reason.len() as u64) {
            return Reply::Rejected(rejection);
        }
        let found = match self.holder_by_token(&force.name, place.1, force.token) {
            Err(Rejection::StaleToken { held, .. }) if self.planted(Bug::ForceTakesAnyHolder) => {
                self.holder_by_token(&force.name, place.1, held)
            }
            found => found,
        };
        let claim = match found {
            Ok(claim) => claim,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let mut changed = names.to_vec();
        self.release_names(claim, names, EndReason::Forced, &force.reason, &mut changed);
        let reply = Reply::Released { revision: self.revision };
        self.settle_changed(changed);
        reply
    }
}
