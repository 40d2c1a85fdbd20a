//! Blockers of waits: "Deadlocks over groups" of the page.

use super::{Oracle, Place};
use std::collections::BTreeSet;
use tollgate_core::{EndDeadlock, EndReason, Rejection, Reply};
use tollgate_types::{Mode, Revision, Token};

impl Oracle {
    pub(super) fn end_deadlock(&mut self, end: &EndDeadlock) -> Reply {
        self.settle_all(std::slice::from_ref(&end.name));
        let mut queue = self.queue(&end.name).into_iter();
        let Some(place) = queue.find(|place| self.wait_number(*place) == end.create_revision) else {
            return Reply::Rejected(Rejection::NotWaiting { name: end.name.clone() });
        };
        if !self.blocking(place).iter().any(|(_, token)| *token == end.blocker) {
            return Reply::Rejected(Rejection::NotHeld { name: end.name.clone() });
        }
        self.end_wait(place, EndReason::Deadlock);
        Reply::Done
    }

    /// The revision that identifies a wait.
    pub(super) fn wait_number(&self, place: Place) -> Revision {
        let upgrade = self.claim(place.claim).upgrade.as_ref().filter(|_| place.upgrade);
        upgrade.map_or(place.claim, |upgrade| upgrade.queued_at)
    }

    /// The grants that block a wait, by claim and token: those that keep it out, and those that block a wait ahead of
    /// it.
    fn blocking(&self, place: Place) -> BTreeSet<(Revision, Token)> {
        let mut waits: Vec<Place> = vec![place];
        let mut found = BTreeSet::new();
        let mut at = 0;
        while at < waits.len() {
            let (place, wanted) = (waits[at], self.wanted(waits[at]));
            at += 1;
            for name in self.claim(place.claim).names.clone().as_slice() {
                for id in self.holders(name).into_iter().filter(|id| *id != place.claim) {
                    let holder = self.claim(id);
                    if self.claim_death(holder).is_none() && keeps_out(holder.mode, wanted) {
                        found.insert((id, holder.token.expect("it holds")));
                    }
                }
                let queue = self.queue(name);
                let ahead = queue.into_iter().take_while(|other| *other != place);
                for other in ahead.filter(|other| self.place_death(*other).is_none()) {
                    if !waits.contains(&other) {
                        waits.push(other);
                    }
                }
            }
        }
        found
    }

    fn wanted(&self, place: Place) -> Mode {
        let claim = self.claim(place.claim);
        claim.upgrade.as_ref().filter(|_| place.upgrade).map_or(claim.mode, |upgrade| upgrade.mode)
    }

    /// The waits that a search over groups begins with, each with the tokens of named owners that block it.
    pub(crate) fn blocked_waits(&self) -> Vec<(Revision, BTreeSet<Token>)> {
        let mut waits = Vec::new();
        for claim in self.claims.iter().filter(|claim| !claim.owner.is_empty()) {
            let lease = self.lease_of(claim.incarnation);
            let place = Place { claim: claim.create_revision, upgrade: claim.upgrade.is_some() };
            let queued = claim.token.is_none() || place.upgrade;
            let over_groups = lease.stub.is_some() || !lease.groups.is_empty();
            if queued && over_groups && self.place_death(place).is_none() {
                let named = |id: Revision| !self.claim(id).owner.is_empty();
                let tokens = self.blocking(place).into_iter().filter(|(id, _)| named(*id));
                waits.push((self.wait_number(place), tokens.map(|(_, token)| token).collect()));
            }
        }
        waits.sort();
        waits
    }
}

/// True if one holder alone, in mode `held`, keeps out a claim that wants mode `wanted`.
fn keeps_out(held: Mode, wanted: Mode) -> bool {
    if let (Mode::Permit { n: out, .. }, Mode::Permit { n, of }) = (held, wanted) {
        return out + n > of;
    }
    !held.compatible(wanted)
}
