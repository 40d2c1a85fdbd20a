//! Claims: holders and waiters, their deaths, and the changes that take a revision.

use super::identity::{Kept, Outcome};
use super::{Claim, Lease, Oracle, Place, Register, Upgrade};
use tollgate_core::{
    Change, ClaimState, EndReason, Event, LockChange, RegisterChange, RegisterState, Reply, Resolution,
    WaitOutcome,
};
use tollgate_types::{Key, LogTime, Mode, Name, Names, Reason, Revision, Token, Value};

impl Oracle {
    pub(super) fn claim(&self, id: Revision) -> &Claim {
        self.claims.iter().find(|claim| claim.create_revision == id).expect("the claim has not ended")
    }

    pub(super) fn claim_mut(&mut self, id: Revision) -> &mut Claim {
        self.claims.iter_mut().find(|claim| claim.create_revision == id).expect("the claim has not ended")
    }

    /// The record of a lease, due or not.
    pub(super) fn lease_of(&self, incarnation: Revision) -> &Lease {
        let found = self.leases.iter().find(|lease| lease.incarnation == incarnation);
        found.expect("a lease's record stays while something hangs on it")
    }

    pub(super) fn lease_of_mut(&mut self, incarnation: Revision) -> &mut Lease {
        let found = self.leases.iter_mut().find(|lease| lease.incarnation == incarnation);
        found.expect("a lease's record stays while something hangs on it")
    }

    /// The holders of a lock in order of token, dead ones included.
    pub(super) fn holders(&self, name: &Name) -> Vec<Revision> {
        let on_it = self.claims.iter().filter(|claim| claim.names.contains(name));
        let mut holders: Vec<_> =
            on_it.filter_map(|claim| Some((claim.token?, claim.create_revision))).collect();
        holders.sort_unstable();
        holders.into_iter().map(|(_, id)| id).collect()
    }

    /// The queue of a lock, dead waiters included: upgrades by `queued_at`, then the rest by `create_revision`.
    pub(super) fn queue(&self, name: &Name) -> Vec<Place> {
        let mut places = Vec::new();
        for claim in self.claims.iter().filter(|claim| claim.names.contains(name)) {
            let id = claim.create_revision;
            if let Some(upgrade) = &claim.upgrade {
                places.push((0, upgrade.queued_at, Place { claim: id, upgrade: true }));
            } else if claim.token.is_none() {
                places.push((1, id, Place { claim: id, upgrade: false }));
            }
        }
        places.sort_by_key(|(class, at, _)| (*class, *at));
        places.into_iter().map(|(_, _, place)| place).collect()
    }

    /// Reason for the claim's death, if it is dead.
    pub(super) fn claim_death(&self, claim: &Claim) -> Option<EndReason> {
        let lease = self.lease_of(claim.incarnation);
        let past = |at: Option<LogTime>| at.is_some_and(|at| at <= self.now);
        if lease.deadline <= self.now {
            Some(lease.revoked.unwrap_or(EndReason::LeaseExpired))
        } else if claim.token.is_some() && past(claim.hold_until) {
            Some(EndReason::MaxHold)
        } else if claim.token.is_none() && past(claim.wait_until) {
            Some(EndReason::TimedOut)
        } else {
            None
        }
    }

    /// Reason for the death of the claim's upgrade, if it has one and that is dead.
    pub(super) fn upgrade_death(&self, claim: &Claim) -> Option<EndReason> {
        let upgrade = claim.upgrade.as_ref()?;
        let timed_out = upgrade.wait_until.is_some_and(|at| at <= self.now);
        self.claim_death(claim).or(timed_out.then_some(EndReason::TimedOut))
    }

    pub(super) fn place_death(&self, place: Place) -> Option<EndReason> {
        let claim = self.claim(place.claim);
        if place.upgrade { self.upgrade_death(claim) } else { self.claim_death(claim) }
    }

    /// True if `mode` is compatible with all holders of a lock except `me`.
    pub(super) fn goes_with_holders(&self, name: &Name, mode: Mode, me: Option<Revision>) -> bool {
        let others = self.holders(name).into_iter().filter(|id| Some(*id) != me);
        goes_with(mode, others.map(|id| self.claim(id).mode))
    }

    /// Position in the queue, 1 for the next in line, counted over the living. Reading: in several queues, the place
    /// furthest back.
    pub(super) fn position(&self, place: Place) -> u64 {
        let names = &self.claim(place.claim).names;
        let in_queue = |name: &Name| {
            let queue = self.queue(name).into_iter();
            let ahead =
                queue.take_while(|other| *other != place).filter(|other| self.place_death(*other).is_none());
            ahead.count() as u64 + 1
        };
        names.as_slice().iter().map(in_queue).max().expect("a claim has a name")
    }

    /// Adds a claim, holding or waiting.
    pub(super) fn make_claim(&mut self, mut claim: Claim, granted: bool) -> Revision {
        let revision = self.next_revision();
        claim.create_revision = revision;
        claim.mod_revision = revision;
        claim.version = 1;
        claim.since = self.now;
        if granted {
            claim.token = Some(Token::of_grant(revision));
            claim.hold_until = claim.max_hold.map(|max_hold| self.now.after(max_hold));
            claim.value = claim.value.map(|(value, _)| (value, revision));
        }
        let now = Some(state_of(&claim));
        for name in claim.names.as_slice() {
            self.lock_event(&claim, name, LockChange { now, value: said_by(&claim), ..blank(&claim, name) });
        }
        self.claims.push(claim);
        revision
    }

    /// Changes a claim that stays in place. `end` is the reason for the end of its upgrade, if that is the change.
    fn change_claim(
        &mut self,
        id: Revision,
        end: Option<EndReason>,
        change: impl FnOnce(&mut Claim),
    ) -> Revision {
        let revision = self.next_revision();
        let prev = Some(state_of(self.claim(id)));
        let claim = self.claim_mut(id);
        change(claim);
        claim.mod_revision = revision;
        claim.version += 1;
        let claim = claim.clone();
        let now = Some(state_of(&claim));
        for name in claim.names.as_slice() {
            let change = LockChange { now, prev, end, value: said_by(&claim), ..blank(&claim, name) };
            self.lock_event(&claim, name, change);
        }
        revision
    }

    /// Grants the first in the queue.
    pub(super) fn grant(&mut self, place: Place) {
        if place.upgrade {
            let upgrade = self.claim(place.claim).upgrade.clone().expect("its place is an upgrade's");
            self.grant_upgrade(place.claim, upgrade.mode);
            self.resolve_grant(place.claim, upgrade.queued_at);
            return;
        }
        let (now, said_at) = (self.now, self.revision.next());
        let token = Token::of_grant(said_at);
        self.change_claim(place.claim, None, |claim| {
            claim.token = Some(token);
            claim.since = now;
            claim.hold_until = claim.max_hold.map(|max_hold| now.after(max_hold));
            claim.wait_until = None;
            claim.value = claim.value.take().map(|(value, _)| (value, said_at));
        });
        self.resolve_grant(place.claim, place.claim);
    }

    fn resolve_grant(&mut self, id: Revision, create_revision: Revision) {
        let claim = self.claim(id);
        let token = claim.token.expect("it was granted just now");
        let outcome = WaitOutcome::Granted { token, mode: claim.mode };
        let (lease, owner) = (claim.lease, claim.owner.clone());
        self.resolved.push(Resolution { create_revision, lease, owner, outcome });
    }

    pub(super) fn grant_upgrade(&mut self, id: Revision, mode: Mode) {
        let token = Token::of_grant(self.revision.next());
        self.change_claim(id, None, |claim| {
            claim.mode = mode;
            claim.token = Some(token);
            claim.upgrade = None;
        });
    }

    pub(super) fn say(&mut self, id: Revision, value: &Value) -> Revision {
        let revision = self.revision.next();
        self.change_claim(id, None, |claim| claim.value = Some((value.clone(), revision)))
    }

    pub(super) fn downgrade(&mut self, id: Revision, mode: Mode) {
        self.change_claim(id, None, |claim| claim.mode = mode);
    }

    pub(super) fn queue_upgrade(&mut self, id: Revision, mut upgrade: Upgrade) -> Revision {
        upgrade.queued_at = self.revision.next();
        self.change_claim(id, None, |claim| claim.upgrade = Some(upgrade))
    }

    /// Ends the wait for an upgrade; the claim goes on holding. Returns its names, to be settled.
    pub(super) fn end_upgrade(&mut self, id: Revision, reason: EndReason) -> Names {
        let claim = self.claim(id).clone();
        let queued_at = claim.upgrade.expect("only a pending upgrade ends").queued_at;
        self.change_claim(id, Some(reason), |claim| claim.upgrade = None);
        let outcome = WaitOutcome::Ended(reason);
        let (lease, owner) = (claim.lease, claim.owner);
        self.resolved.push(Resolution { create_revision: queued_at, lease, owner, outcome });
        // Reading: only the seqs of this upgrade, not those of an upgrade that the claim was granted before.
        let ended = Outcome::Reply(Reply::Ended { token: None, reason });
        self.replace_kept(claim.incarnation, &ended, |kept| {
            matches!(kept, Kept::Convert { claim, queued_at: Some(at) } if *claim == id && *at == queued_at)
        });
        claim.names
    }

    /// Ends a claim. Returns the names that it had, to be settled.
    pub(super) fn end_claim(&mut self, id: Revision, reason: EndReason) -> Names {
        self.end_claim_with_note(id, reason, &Reason::NONE)
    }

    fn end_claim_with_note(&mut self, id: Revision, reason: EndReason, note: &Reason) -> Names {
        self.next_revision();
        let claim = self.claim(id).clone();
        self.claims.retain(|other| other.create_revision != id);
        for name in claim.names.as_slice() {
            self.delete_event(&claim, name, reason, note);
            self.close(&claim, name, reason);
        }
        let wait = match &claim.upgrade {
            Some(upgrade) => Some(upgrade.queued_at),
            None => claim.token.is_none().then_some(id),
        };
        if let Some(create_revision) = wait {
            let (lease, owner, outcome) = (claim.lease, claim.owner.clone(), WaitOutcome::Ended(reason));
            self.resolved.push(Resolution { create_revision, lease, owner, outcome });
        }
        let ended = Outcome::Reply(Reply::Ended { token: claim.token, reason });
        self.replace_kept(claim.incarnation, &ended, |kept| match kept {
            Kept::Acquire(claim) | Kept::Convert { claim, .. } => *claim == id,
            Kept::Outcome(_) => false,
        });
        claim.names
    }

    /// Removes names from a holding claim, which ends if all are removed. Returns the names to be settled.
    pub(super) fn give_back(
        &mut self,
        id: Revision,
        names: &[Name],
        reason: EndReason,
        note: &Reason,
    ) -> Vec<Name> {
        let all = self.claim(id).names.clone();
        let rest: Vec<Name> = all.as_slice().iter().filter(|name| !names.contains(name)).cloned().collect();
        if rest.is_empty() {
            return self.end_claim_with_note(id, reason, note).as_slice().to_vec();
        }
        let upgrade = self.claim(id).upgrade.is_some();
        if upgrade {
            self.end_upgrade(id, reason);
        }
        self.next_revision();
        let claim = self.claim(id).clone();
        self.claim_mut(id).names = Names::new(rest).expect("part of the claim's names");
        for name in names {
            self.delete_event(&claim, name, reason, note);
            self.close(&claim, name, reason);
        }
        if upgrade { all.as_slice().to_vec() } else { names.to_vec() }
    }

    /// Starts the lock-delay after an involuntary end.
    fn close(&mut self, claim: &Claim, name: &Name, reason: EndReason) {
        if claim.token.is_none() || !reason.is_involuntary() || claim.lock_delay.ms() == 0 {
            return;
        }
        let due = match reason {
            EndReason::MaxHold => claim.hold_until.expect("it reached its max hold"),
            EndReason::Forced => self.now,
            _ => self.lease_of(claim.incarnation).deadline,
        };
        let until = due.after(claim.lock_delay);
        if until > self.now {
            let was = self.closures.get(name).copied().unwrap_or(until);
            self.closures.insert(name.clone(), was.max(until));
        }
    }

    fn lock_event(&mut self, claim: &Claim, name: &Name, change: LockChange) {
        debug_assert!(change.name == *name && change.lease == claim.lease);
        self.events.push(Event { revision: self.revision, change: Change::Lock(change) });
    }

    fn delete_event(&mut self, claim: &Claim, name: &Name, end: EndReason, note: &Reason) {
        let vacant = !self.claims.iter().any(|other| other.names.contains(name));
        let (prev, end, note) = (Some(state_of(claim)), Some(end), note.clone());
        self.lock_event(claim, name, LockChange { prev, end, note, vacant, ..blank(claim, name) });
    }

    /// Ends a register with its lease, at a revision of its own.
    pub(super) fn end_register(&mut self, key: &Key) {
        let revision = self.next_revision();
        let register = self.registers.remove(key).expect("only a register that is there ends");
        let change = RegisterChange { key: key.clone(), now: None, prev: Some(register_state(&register)) };
        self.events.push(Event { revision, change: Change::Register(change) });
    }
}

/// True if `mode` is compatible with all of `others`.
pub(super) fn goes_with(mode: Mode, others: impl Iterator<Item = Mode>) -> bool {
    let Mode::Permit { n, of } = mode else {
        return others.into_iter().all(|other| mode.compatible(other));
    };
    let taken = |other| if let Mode::Permit { n, .. } = other { n } else { of };
    others.map(taken).sum::<u32>() + n <= of
}

pub(super) fn register_state(register: &Register) -> RegisterState {
    RegisterState {
        value: register.value.clone(),
        lease: register.lease.map(|(id, _)| id),
        create_revision: register.create_revision,
        mod_revision: register.mod_revision,
        version: register.version,
    }
}

fn state_of(claim: &Claim) -> ClaimState {
    ClaimState {
        mode: claim.mode,
        token: claim.token,
        wants: claim.upgrade.as_ref().map(|upgrade| upgrade.mode),
        mod_revision: claim.mod_revision,
        version: claim.version,
    }
}

/// Value that a claim proclaims, if it holds.
fn said_by(claim: &Claim) -> Option<Value> {
    let (value, _) = claim.value.as_ref().filter(|_| claim.token.is_some())?;
    Some(value.clone())
}

/// A change with the claim's identity and nothing else yet.
fn blank(claim: &Claim, name: &Name) -> LockChange {
    LockChange {
        name: name.clone(),
        lease: claim.lease,
        owner: claim.owner.clone(),
        metadata: claim.metadata.clone(),
        create_revision: claim.create_revision,
        now: None,
        prev: None,
        end: None,
        note: Reason::NONE,
        value: None,
        vacant: false,
    }
}
