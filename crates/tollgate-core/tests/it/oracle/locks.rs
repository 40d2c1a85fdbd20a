//! The commands on locks: acquire, convert, release, cancel, force.

use super::deadlock::Wish;
use super::identity::{About, Answer, Kept, Outcome, about};
use super::{Claim, Oracle, Place, Upgrade};
use std::collections::BTreeSet;
use tollgate_core::{
    AcquireLock, CancelTarget, CancelWait, ConvertLock, EndReason, ForceRelease, Kind, Proclaim, Rejection,
    ReleaseBy, ReleaseLock, Reply, Wait,
};
use tollgate_types::{
    DurationMs, LeaseId, Limit, LogTime, Mode, Name, Names, Owner, Reason, Revision, Seq, Token, Value,
};

fn about_acquire(acquire: &AcquireLock) -> Option<About> {
    let AcquireLock { owner, mode, lock_delay, max_hold, value, .. } = acquire;
    let max_hold = max_hold.unwrap_or_default();
    about(
        Some(&acquire.names),
        acquire.request.as_ref(),
        &("acquire", owner, mode, lock_delay, max_hold, value),
    )
}

impl Oracle {
    pub(super) fn acquire_lock(&mut self, acquire: &AcquireLock) -> Reply {
        let names = acquire.names.as_slice();
        self.settle_all(names);
        let before = self.revision;
        let reply = self.identified(
            acquire.lease,
            acquire.request.as_ref(),
            (Some(&acquire.names), about_acquire(acquire)),
            acquire.attended,
            |oracle, incarnation| oracle.acquire(acquire, incarnation),
        );
        self.settle_changed(before, names);
        reply
    }

    /// Settles the names of a command again if the command changed anything.
    fn settle_changed(&mut self, before: Revision, names: &[Name]) {
        if self.revision > before {
            self.settle_all(names);
        }
    }

    fn acquire(&mut self, acquire: &AcquireLock, incarnation: Revision) -> Result<Answer, Rejection> {
        self.check_request(acquire)?;
        let names = acquire.names.as_slice();
        let found: Vec<Option<Revision>> =
            names.iter().map(|name| self.claim_of(incarnation, &acquire.owner, name)).collect();
        let Some(at) = found.iter().position(Option::is_some) else {
            return self.acquire_anew(acquire, incarnation);
        };
        if found.iter().any(|claim| *claim != found[at]) {
            return Err(Rejection::Overlap { name: names[at].clone() });
        }
        let id = found[at].expect("position found it");
        if self.claim(id).token.is_none() {
            self.acquire_awaited(acquire, id)
        } else {
            self.acquire_held(acquire, id)
        }
    }

    fn check_request(&self, acquire: &AcquireLock) -> Result<(), Rejection> {
        let names = acquire.names.as_slice();
        self.check_limit(Limit::NamesPerRequest, names.len() as u64)?;
        for name in names {
            self.check_limit(Limit::NameBytes, name.len() as u64)?;
        }
        self.check_limit(Limit::MetadataBytes, acquire.metadata.len() as u64)?;
        self.check_limit(Limit::ValueBytes, acquire.value.as_ref().map_or(0, Value::len) as u64)?;
        self.check_limit(Limit::LockDelay, acquire.lock_delay.ms())
    }

    /// The claim of an owner on a name, if it has one.
    fn claim_of(&self, incarnation: Revision, owner: &Owner, name: &Name) -> Option<Revision> {
        let mine = |claim: &&Claim| claim.incarnation == incarnation && claim.owner == *owner;
        let mut found = self.claims.iter().filter(mine).filter(|claim| claim.names.contains(name));
        let first = found.next().map(|claim| claim.create_revision);
        assert!(found.next().is_none(), "a lock has at most one claim per who");
        first
    }

    fn acquire_awaited(&mut self, acquire: &AcquireLock, id: Revision) -> Result<Answer, Rejection> {
        let claim = self.claim_mut(id);
        if claim.names != acquire.names || claim.mode != acquire.mode {
            return Err(Rejection::AlreadyWaiting { name: acquire.names.as_slice()[0].clone() });
        }
        if wait_for(acquire.wait).is_none() {
            return Ok(self.busy_answer(&acquire.names));
        }
        let incarnation = claim.incarnation;
        self.check_waits(incarnation, acquire.request.is_some())?;
        self.claim_mut(id).asked_without_seq |= acquire.request.is_none();
        let reply = self.queued(Place { claim: id, upgrade: false });
        Ok(Answer { reply, kept: Kept::Acquire(id) })
    }

    fn acquire_held(&mut self, acquire: &AcquireLock, id: Revision) -> Result<Answer, Rejection> {
        let first = &acquire.names.as_slice()[0];
        self.check_kind_held(first, id, acquire.mode)?;
        let claim = self.claim(id);
        if claim.mode.covers(acquire.mode) {
            return Ok(self.has(id));
        }
        if claim.names != acquire.names {
            return Err(Rejection::Overlap { name: first.clone() });
        }
        let mode = claim.mode.join(acquire.mode).expect("permits were dealt with");
        self.convert(id, mode, acquire.wait, acquire.request.is_some())
    }

    /// Refuses to change the kind of a grant, or its number of permits.
    fn check_kind_held(&self, first: &Name, id: Revision, mode: Mode) -> Result<(), Rejection> {
        let held = self.claim(id).mode;
        if Kind::of(mode) != Kind::of(held) {
            return Err(Rejection::OtherKind { name: first.clone(), in_use: Kind::of(held) });
        }
        if matches!(held, Mode::Permit { .. }) && held != mode {
            return Err(Rejection::PermitsFixed { name: first.clone(), held });
        }
        Ok(())
    }

    /// An Acquire by an owner that has no claim on any of the names.
    fn acquire_anew(&mut self, acquire: &AcquireLock, incarnation: Revision) -> Result<Answer, Rejection> {
        let (names, mode) = (acquire.names.as_slice(), acquire.mode);
        for name in names {
            let member = self.claims.iter().find(|claim| claim.names.contains(name));
            if let Some(in_use) =
                member.map(|claim| Kind::of(claim.mode)).filter(|kind| *kind != Kind::of(mode))
            {
                return Err(Rejection::OtherKind { name: name.clone(), in_use });
            }
        }
        let records = self.lock_records();
        let new = names.iter().filter(|name| !records.contains(name)).count();
        if new > 0 {
            self.check_limit(Limit::Locks, (records.len() + new) as u64)?;
        }
        let claims = self.claims.iter().filter(|claim| claim.incarnation == incarnation).count();
        self.check_limit(Limit::ClaimsPerLease, claims as u64 + 1)?;
        if acquire.value.is_some() {
            self.check_values()?;
        }
        let claim = new_claim(acquire, incarnation);
        let free = |name: &Name| {
            self.queue(name).is_empty() && !self.is_closed(name) && self.goes_with_holders(name, mode, None)
        };
        if names.iter().all(free) {
            for name in names {
                self.check_limit(Limit::HoldersPerLock, self.holders(name).len() as u64 + 1)?;
            }
            let id = self.make_claim(claim, true);
            return Ok(Answer { reply: self.acquired(id), kept: Kept::Acquire(id) });
        }
        self.join_queues(acquire, claim)
    }

    fn join_queues(&mut self, acquire: &AcquireLock, mut claim: Claim) -> Result<Answer, Rejection> {
        let Some(wait) = wait_for(acquire.wait) else {
            return Ok(self.busy_answer(&acquire.names));
        };
        for name in acquire.names.as_slice().iter().filter(|_| acquire.mode != Mode::Exclusive) {
            let members = self.holders(name).len() + self.queue(name).len();
            self.check_limit(Limit::HoldersPerLock, members as u64 + 1)?;
        }
        self.check_waiters(&acquire.names)?;
        self.check_waits(claim.incarnation, acquire.request.is_some())?;
        let wish = Wish {
            claim: None,
            lease: claim.lease,
            owner: &claim.owner,
            names: &claim.names,
            mode: claim.mode,
        };
        self.check_deadlock(&wish)?;
        claim.wait_until = self.end_of(wait);
        let id = self.make_claim(claim, false);
        self.close_with_all(&acquire.names);
        let reply = self.queued(Place { claim: id, upgrade: false });
        Ok(Answer { reply, kept: Kept::Acquire(id) })
    }

    fn check_waiters(&self, names: &Names) -> Result<(), Rejection> {
        for name in names.as_slice() {
            self.check_limit(Limit::WaitersPerLock, self.queue(name).len() as u64 + 1)?;
        }
        Ok(())
    }

    fn end_of(&self, wait: Patience) -> Option<LogTime> {
        match wait {
            Patience::Until(duration) => Some(self.now.after(duration)),
            Patience::Endless => None,
        }
    }

    fn busy_answer(&self, names: &Names) -> Answer {
        Answer { reply: self.busy(names), kept: Kept::Outcome(Outcome::Busy) }
    }

    /// The answer to an owner that has the claim already: the claim's state, until it ends.
    fn has(&self, id: Revision) -> Answer {
        Answer { reply: self.acquired(id), kept: Kept::Convert { claim: id, queued_at: None } }
    }

    /// "Convert C to mode m" of the page.
    fn convert(&mut self, id: Revision, mode: Mode, wait: Wait, has_seq: bool) -> Result<Answer, Rejection> {
        let claim = self.claim(id).clone();
        let first = &claim.names.as_slice()[0];
        if let Some(upgrade) = &claim.upgrade {
            if upgrade.mode != mode {
                return Err(Rejection::AlreadyWaiting { name: first.clone() });
            }
            return self.reattach_upgrade(id, upgrade.queued_at, wait, has_seq);
        }
        if claim.mode == mode {
            return Ok(self.has(id));
        }
        if claim.mode.covers(mode) {
            self.downgrade(id, mode);
            return Ok(self.has(id));
        }
        let free = |name: &Name| {
            !self.queue(name).iter().any(|place| place.upgrade)
                && !self.is_closed(name)
                && self.goes_with_holders(name, mode, Some(id))
        };
        if claim.names.as_slice().iter().all(free) {
            if self.waits_for_something(&claim) {
                let wish = Wish {
                    claim: Some(id),
                    lease: claim.lease,
                    owner: &claim.owner,
                    names: &claim.names,
                    mode,
                };
                self.check_deadlock(&wish)?;
            }
            self.grant_upgrade(id, mode);
            return Ok(Answer {
                reply: self.acquired(id),
                kept: Kept::Convert { claim: id, queued_at: None },
            });
        }
        self.join_upgrades(&claim, mode, wait, has_seq)
    }

    /// True if a named owner waits for anything.
    fn waits_for_something(&self, claim: &Claim) -> bool {
        let same = |other: &&Claim| other.incarnation == claim.incarnation && other.owner == claim.owner;
        let waits = |other: &Claim| other.token.is_none() || other.upgrade.is_some();
        !claim.owner.is_empty() && self.claims.iter().filter(same).any(waits)
    }

    fn reattach_upgrade(
        &mut self,
        id: Revision,
        queued_at: Revision,
        wait: Wait,
        has_seq: bool,
    ) -> Result<Answer, Rejection> {
        if wait_for(wait).is_none() {
            return Ok(self.busy_answer(&self.claim(id).names));
        }
        self.check_waits(self.claim(id).incarnation, has_seq)?;
        let upgrade = self.claim_mut(id).upgrade.as_mut().expect("it is pending");
        upgrade.asked_without_seq |= !has_seq;
        let reply = self.queued(Place { claim: id, upgrade: true });
        Ok(Answer { reply, kept: Kept::Convert { claim: id, queued_at: Some(queued_at) } })
    }

    fn join_upgrades(
        &mut self,
        claim: &Claim,
        mode: Mode,
        wait: Wait,
        has_seq: bool,
    ) -> Result<Answer, Rejection> {
        let id = claim.create_revision;
        let Some(wait) = wait_for(wait) else {
            return Ok(self.busy_answer(&claim.names));
        };
        self.check_waiters(&claim.names)?;
        self.check_waits(claim.incarnation, has_seq)?;
        let wish =
            Wish { claim: Some(id), lease: claim.lease, owner: &claim.owner, names: &claim.names, mode };
        self.check_deadlock(&wish)?;
        let wait_until = self.end_of(wait);
        // `queue_upgrade` fills in `queued_at`. `attended` is true until a caller asks that does not stand by: `asked`
        // sees to that, for the first caller as well.
        let (queued_at, since, asked_without_seq, attended) = (Revision::ZERO, self.now, !has_seq, true);
        let upgrade = Upgrade { mode, queued_at, since, wait_until, asked_without_seq, attended };
        let queued_at = self.queue_upgrade(id, upgrade);
        self.close_with_all(&claim.names);
        let reply = self.queued(Place { claim: id, upgrade: true });
        Ok(Answer { reply, kept: Kept::Convert { claim: id, queued_at: Some(queued_at) } })
    }

    pub(super) fn convert_lock(&mut self, convert: &ConvertLock) -> Reply {
        let names = convert.names.as_slice();
        self.settle_all(names);
        let before = self.revision;
        let reply = self.identified(
            convert.lease,
            convert.request.as_ref(),
            (
                Some(&convert.names),
                about(
                    Some(&convert.names),
                    convert.request.as_ref(),
                    &("convert", &convert.owner, convert.mode),
                ),
            ),
            convert.attended,
            |oracle, incarnation| {
                let held = oracle.held_by(incarnation, &convert.owner, names)?;
                if held.iter().any(|id| *id != held[0]) || oracle.claim(held[0]).names != convert.names {
                    return Err(Rejection::Overlap { name: names[0].clone() });
                }
                oracle.check_kind_held(&names[0], held[0], convert.mode)?;
                if matches!(convert.mode, Mode::Permit { .. }) {
                    return Ok(oracle.has(held[0]));
                }
                oracle.convert(held[0], convert.mode, convert.wait, convert.request.is_some())
            },
        );
        self.settle_changed(before, names);
        reply
    }

    /// The holding claim of an owner on each name.
    fn held_by(
        &self,
        incarnation: Revision,
        owner: &Owner,
        names: &[Name],
    ) -> Result<Vec<Revision>, Rejection> {
        let held = |name: &Name| {
            let claim = self.claim_of(incarnation, owner, name).filter(|id| self.claim(*id).token.is_some());
            claim.ok_or_else(|| Rejection::NotHeld { name: name.clone() })
        };
        names.iter().map(held).collect()
    }

    pub(super) fn release_lock(&mut self, release: &ReleaseLock) -> Reply {
        let names = release.names.as_slice();
        self.settle_all(names);
        let before = self.revision;
        let mut changed: BTreeSet<Name> = names.iter().cloned().collect();
        let reply = match &release.by {
            ReleaseBy::Token(token) => self.release_by_token(names, *token, &mut changed),
            ReleaseBy::Holder { lease, owner, token, request } => self.identified(
                *lease,
                request.as_ref(),
                (
                    Some(&release.names),
                    about(Some(&release.names), request.as_ref(), &("release", owner, token)),
                ),
                true,
                |oracle, incarnation| {
                    let ids = oracle.find_held(incarnation, owner, names, *token)?;
                    Ok(Answer::outcome(oracle.release(names, &ids, &mut changed)))
                },
            ),
        };
        self.settle_changed(before, &Vec::from_iter(changed));
        reply
    }

    /// Reading: each name is checked for both rules before the next name is looked at.
    fn find_held(
        &self,
        incarnation: Revision,
        owner: &Owner,
        names: &[Name],
        token: Option<Token>,
    ) -> Result<Vec<Revision>, Rejection> {
        let mut ids = Vec::new();
        for name in names {
            let id = self.held_by(incarnation, owner, std::slice::from_ref(name))?[0];
            let held = self.claim(id).token.expect("it holds");
            if let Some(given) = token.filter(|token| *token != held) {
                return Err(Rejection::StaleToken { name: name.clone(), given, held });
            }
            ids.push(id);
        }
        Ok(ids)
    }

    fn release_by_token(&mut self, names: &[Name], token: Token, changed: &mut BTreeSet<Name>) -> Reply {
        let ids: Result<Vec<Revision>, Rejection> =
            names.iter().map(|name| self.holder_with_token(name, token)).collect();
        match ids {
            Ok(ids) => self.release(names, &ids, changed),
            Err(rejection) => Reply::Rejected(rejection),
        }
    }

    fn holder_with_token(&self, name: &Name, token: Token) -> Result<Revision, Rejection> {
        let holders = self.holders(name);
        if let Some(id) = holders.iter().find(|id| self.claim(**id).token == Some(token)) {
            return Ok(*id);
        }
        Err(match holders.last() {
            Some(highest) => {
                let held = self.claim(*highest).token.expect("it holds");
                Rejection::StaleToken { name: name.clone(), given: token, held }
            }
            None => Rejection::NotHeld { name: name.clone() },
        })
    }

    /// Reading: claims in order of the first of their names that is given back; the revision in the answer is that of
    /// the last of them, before anyone else is granted the names that were given back.
    fn release(&mut self, names: &[Name], ids: &[Revision], changed: &mut BTreeSet<Name>) -> Reply {
        let mut done: Vec<Revision> = Vec::new();
        for id in ids {
            if done.contains(id) {
                continue;
            }
            done.push(*id);
            let of_claim =
                names.iter().zip(ids).filter(|(_, other)| *other == id).map(|(name, _)| name.clone());
            let of_claim: Vec<Name> = of_claim.collect();
            changed.extend(self.give_back(*id, &of_claim, EndReason::Released, &Reason::NONE));
        }
        Reply::Released { revision: self.revision }
    }

    pub(super) fn force_release(&mut self, force: &ForceRelease) -> Reply {
        self.settle_all(std::slice::from_ref(&force.name));
        self.try_force_release(force).unwrap_or_else(Reply::Rejected)
    }

    fn try_force_release(&mut self, force: &ForceRelease) -> Result<Reply, Rejection> {
        self.check_limit(Limit::MetadataBytes, force.reason.len() as u64)?;
        let id = self.holder_with_token(&force.name, force.token)?;
        let changed = self.give_back(id, std::slice::from_ref(&force.name), EndReason::Forced, &force.reason);
        let reply = Reply::Released { revision: self.revision };
        self.settle_all(&changed);
        Ok(reply)
    }

    /// Refuses one more claim with a value if there are too many.
    fn check_values(&self) -> Result<(), Rejection> {
        let values = self.claims.iter().filter(|claim| claim.value.is_some()).count();
        self.check_limit(Limit::ClaimValues, values as u64 + 1)
    }

    pub(super) fn proclaim(&mut self, proclaim: &Proclaim) -> Reply {
        let names = std::slice::from_ref(&proclaim.name);
        self.settle_all(names);
        let Proclaim { name, owner, token, value, request, .. } = proclaim;
        let about = about(None, request.as_ref(), &("proclaim", name, owner, token, value));
        self.identified(proclaim.lease, request.as_ref(), (None, about), true, |oracle, incarnation| {
            oracle.check_limit(Limit::ValueBytes, proclaim.value.len() as u64)?;
            let id = oracle.find_held(incarnation, &proclaim.owner, names, Some(proclaim.token))?[0];
            if oracle.claim(id).value.is_none() {
                oracle.check_values()?;
            }
            let revision = oracle.say(id, &proclaim.value);
            Ok(Answer::outcome(Reply::Proclaimed { revision }))
        })
    }

    pub(super) fn cancel_wait(&mut self, cancel: &CancelWait) -> Reply {
        if let CancelTarget::Waiter { name, .. } | CancelTarget::Wait { name, .. } = &cancel.target {
            self.settle_all(std::slice::from_ref(name));
        }
        self.try_cancel_wait(cancel).unwrap_or_else(Reply::Rejected)
    }

    fn try_cancel_wait(&mut self, cancel: &CancelWait) -> Result<Reply, Rejection> {
        let incarnation = self.living(cancel.lease)?;
        self.take_acks(incarnation, &cancel.acked)?;
        match &cancel.target {
            CancelTarget::Seq(seq) => self.cancel_seq(incarnation, *seq, cancel),
            CancelTarget::SeqOn { seq, name } => {
                if let Some(Kept::Acquire(claim) | Kept::Convert { claim, .. }) = self.kept(incarnation, *seq)
                    && self.version >= 2
                    && !self.claim(*claim).names.contains(name)
                {
                    return Err(Rejection::SeqReused { seq: *seq });
                }
                self.cancel_seq(incarnation, *seq, cancel)
            }
            CancelTarget::Wait { name, create_revision } => {
                let mut queue = self.queue(name).into_iter();
                let place = queue.find(|place| self.wait_number(*place) == *create_revision);
                let place = place.filter(|place| self.claim(place.claim).incarnation == incarnation);
                let place = place.ok_or_else(|| Rejection::NotWaiting { name: name.clone() })?;
                if cancel.asks_max.is_some_and(|max| self.claim(place.claim).asks > max) {
                    return Ok(Reply::Done);
                }
                self.end_wait(place, EndReason::Cancelled);
                Ok(Reply::Cancelled)
            }
            CancelTarget::Waiter { name, owner } => {
                let claim = self.claim_of(incarnation, owner, name);
                let id = claim.ok_or_else(|| Rejection::NotWaiting { name: name.clone() })?;
                let claim = self.claim(id);
                if cancel.asks_max.is_some_and(|max| claim.asks > max) {
                    return Ok(Reply::Done);
                }
                if claim.token.is_none() || claim.upgrade.is_some() {
                    let place = Place { claim: id, upgrade: claim.upgrade.is_some() };
                    self.end_wait(place, EndReason::Cancelled);
                    return Ok(Reply::Cancelled);
                }
                Ok(self.cancel_granted(id, cancel.release_if_granted))
            }
        }
    }

    /// Reading: all names of the claim are settled, not only the name in the command.
    pub(super) fn end_wait(&mut self, place: Place, reason: EndReason) {
        let names = if place.upgrade {
            self.end_upgrade(place.claim, reason)
        } else {
            self.end_claim(place.claim, reason)
        };
        self.settle_all(names.as_slice());
    }

    fn cancel_granted(&mut self, id: Revision, release: bool) -> Reply {
        if !release {
            return self.acquired(id);
        }
        let names = self.end_claim(id, EndReason::Released);
        let reply = Reply::Released { revision: self.revision };
        self.settle_all(names.as_slice());
        reply
    }

    fn cancel_seq(
        &mut self,
        incarnation: Revision,
        seq: Seq,
        cancel: &CancelWait,
    ) -> Result<Reply, Rejection> {
        if !self.lease_of(incarnation).seen.contains(seq) {
            self.check_room(incarnation)?;
            self.keep(incarnation, seq, Kept::Outcome(Outcome::cancelled()));
            return Ok(Reply::Cancelled);
        }
        if let Some(Kept::Acquire(claim) | Kept::Convert { claim, .. }) = self.kept(incarnation, seq) {
            let names = self.claim(*claim).names.clone();
            self.settle_all(names.as_slice());
        }
        let place = match self.kept(incarnation, seq) {
            Some(Kept::Acquire(claim)) => Place { claim: *claim, upgrade: false },
            Some(Kept::Convert { claim, .. }) => Place { claim: *claim, upgrade: true },
            Some(Kept::Outcome(_)) | None => return Ok(self.cancel_outcome(incarnation, seq)),
        };
        if cancel.asks_max.is_some_and(|max| self.claim(place.claim).asks > max) {
            return Ok(Reply::Done);
        }
        if !self.is_on_wait(self.kept(incarnation, seq), place) {
            return Ok(self.cancel_granted(place.claim, cancel.release_if_granted && !place.upgrade));
        }
        self.keep(incarnation, seq, Kept::Outcome(Outcome::cancelled()));
        let claim = self.claim(place.claim);
        let without_seq = claim.upgrade.as_ref().map_or(claim.asked_without_seq, |it| it.asked_without_seq);
        // Reading: a seq that was acked is on no wait any more.
        let kept = self.lease_of(incarnation).kept.values();
        let shared = kept.into_iter().any(|other| self.is_on_wait(Some(other), place));
        if !shared && !without_seq {
            self.end_wait(place, EndReason::Cancelled);
        }
        Ok(Reply::Cancelled)
    }

    fn kept(&self, incarnation: Revision, seq: Seq) -> Option<&Kept> {
        self.lease_of(incarnation).kept.get(&seq.get())
    }

    /// True if the record kept for a seq is this wait, and the wait still goes on.
    fn is_on_wait(&self, kept: Option<&Kept>, place: Place) -> bool {
        match kept {
            Some(Kept::Acquire(claim)) => {
                !place.upgrade && *claim == place.claim && self.claim(*claim).token.is_none()
            }
            Some(Kept::Convert { claim, queued_at }) if place.upgrade && *claim == place.claim => {
                let pending = self.claim(*claim).upgrade.as_ref().map(|upgrade| upgrade.queued_at);
                pending.is_some() && pending == *queued_at
            }
            _ => false,
        }
    }

    fn cancel_outcome(&self, incarnation: Revision, seq: Seq) -> Reply {
        match self.answer_repeat(incarnation, seq, None) {
            Reply::Ended { token: None, reason: EndReason::Cancelled } => Reply::Cancelled,
            other => other,
        }
    }

    /// The names with a record: a holder, a waiter or a closure, dead and due ones included.
    pub(super) fn lock_records(&self) -> BTreeSet<Name> {
        let claimed = self.claims.iter().flat_map(|claim| claim.names.as_slice());
        claimed.chain(self.closures.keys()).cloned().collect()
    }
}

/// Longest wait of a request that waits.
#[derive(Clone, Copy)]
enum Patience {
    Until(DurationMs),
    Endless,
}

/// The longest wait of a request; none if it does not wait.
fn wait_for(wait: Wait) -> Option<Patience> {
    match wait {
        Wait::No => None,
        Wait::For(duration) if duration.ms() == 0 => None,
        Wait::For(duration) => Some(Patience::Until(duration)),
        Wait::Forever => Some(Patience::Endless),
    }
}

/// A claim with the fields of the request; `make_claim` fills in its revisions and token.
fn new_claim(acquire: &AcquireLock, incarnation: Revision) -> Claim {
    let lease: LeaseId = acquire.lease;
    Claim {
        names: acquire.names.clone(),
        lease,
        incarnation,
        owner: acquire.owner.clone(),
        mode: acquire.mode,
        metadata: acquire.metadata.clone(),
        value: acquire.value.clone().map(|value| (value, Revision::ZERO)),
        lock_delay: acquire.lock_delay,
        max_hold: acquire.max_hold.filter(|max_hold| max_hold.ms() > 0),
        create_revision: Revision::ZERO,
        mod_revision: Revision::ZERO,
        version: 0,
        token: None,
        since: LogTime::ZERO,
        hold_until: None,
        wait_until: None,
        asked_without_seq: acquire.request.is_none(),
        attended: true,
        asks: 0,
        upgrade: None,
    }
}
