//! The oracle: the rules of `docs/semantics.md`, implemented as slowly and plainly as possible.
//!
//! Written from that page alone, never from the state machine it is compared with. Nothing is indexed, cached or kept
//! up to date: holders, waiters and due claims are found by scanning all claims, each time. Where the page leaves a
//! choice, a comment that begins with "Reading:" says which one was taken.
//!
//! Not here: the bound on a deadlock search, and the choice of the cycle that a search reports (`Oracle::check_cycle`
//! judges the core's).

mod blockers;
mod claims;
mod deadlock;
mod identity;
mod leases;
mod locks;
mod placement;
mod registers;
mod resume;
mod stubs;
mod views;

use deadlock::Impasse;
use identity::{About, Kept};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tollgate_core::{
    Applied, Change, Command, EndReason, EndedLease, Entry, Event, LeaseEnd, RegisterState, Rejection, Reply,
    Resolution,
};
use tollgate_types::{
    Address, ClientId, DurationMs, GroupId, GroupMap, Key, LeaseId, Limits, Lineage, LogTime, Metadata, Mode,
    Name, Names, Owner, Revision, SeqRanges, Token, Value,
};

/// The newest version of the rules on the page.
const VERSION: u32 = 3;

/// The whole state. Claims and leases are in the order of their creation.
pub(crate) struct Oracle {
    version: u32,
    lineage: Option<Lineage>,
    limits: Limits,
    group: GroupId,
    map: Arc<GroupMap>,
    now: LogTime,
    revision: Revision,
    leases: Vec<Lease>,
    /// Ended leases by id and incarnation, each with the groups that must be told.
    unacked: BTreeMap<(LeaseId, Revision), (LeaseEnd, BTreeSet<GroupId>)>,
    claims: Vec<Claim>,
    closures: BTreeMap<Name, LogTime>,
    /// Log time until which nothing is granted, after a restore.
    closed_until: LogTime,
    registers: BTreeMap<Key, Register>,
    dirty: BTreeSet<Name>,
    /// All events since the beginning; those before `ring_start` would have left the ring.
    events: Vec<Event>,
    ring_start: usize,
    /// Rest of this entry's budget; below 0 once the last step overdrew it.
    budget: i64,
    /// True while work is being done, which the budget bounds.
    bounded: bool,
    ended_leases: Vec<EndedLease>,
    resolved: Vec<Resolution>,
    /// The claims at the moment of the last deadlock found, to judge the core's cycle by.
    impasse: Option<Impasse>,
}

/// A lease's record, identified by its incarnation, because ids repeat. The record of a stub has its `added` revision
/// as its incarnation.
struct Lease {
    id: LeaseId,
    incarnation: Revision,
    ttl: DurationMs,
    deadline: LogTime,
    client_id: ClientId,
    address: Address,
    last_seen: LogTime,
    revoke_on_disconnect: bool,
    /// Reason for the lease's end; none if the lease expired.
    revoked: Option<EndReason>,
    seen: SeqRanges,
    kept: BTreeMap<u64, Kept>,
    /// Content of the kept requests, as far as it is known.
    about: BTreeMap<u64, About>,
    seqs_from: u64,
    /// Kept requests that were answered `Queued`.
    waited: BTreeSet<u64>,
    /// The registered groups.
    groups: BTreeSet<GroupId>,
    stub: Option<Stub>,
}

/// The fields that only a stub has.
#[derive(Clone, Copy)]
struct Stub {
    home: GroupId,
    /// Incarnation of the lease in its home.
    incarnation: Revision,
    pending: bool,
}

/// The claim that one Acquire made, identified by its create revision. It holds if it has a token, else it waits.
#[derive(Clone)]
struct Claim {
    names: Names,
    lease: LeaseId,
    incarnation: Revision,
    owner: Owner,
    mode: Mode,
    metadata: Metadata,
    /// Value that the claim proclaims, and the revision that set it once the claim holds.
    value: Option<(Value, Revision)>,
    lock_delay: DurationMs,
    max_hold: Option<DurationMs>,
    create_revision: Revision,
    mod_revision: Revision,
    version: u64,
    token: Option<Token>,
    /// Log time since which the claim waits or, once it holds, holds.
    since: LogTime,
    hold_until: Option<LogTime>,
    wait_until: Option<LogTime>,
    asked_without_seq: bool,
    attended: bool,
    asks: u32,
    upgrade: Option<Upgrade>,
}

/// The stronger mode that a holding claim waits for.
#[derive(Clone)]
struct Upgrade {
    mode: Mode,
    queued_at: Revision,
    since: LogTime,
    wait_until: Option<LogTime>,
    asked_without_seq: bool,
    attended: bool,
}

/// A place in a queue, of a waiting claim or of a holding claim's upgrade.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    claim: Revision,
    upgrade: bool,
}

struct Register {
    value: Value,
    /// The lease's id and incarnation.
    lease: Option<(LeaseId, Revision)>,
    create_revision: Revision,
    mod_revision: Revision,
    version: u64,
}

/// Result of a purge.
struct Purged {
    /// True if something ended, a closure included.
    changed: bool,
    /// True if the budget lasted.
    finished: bool,
}

impl Oracle {
    /// Version of the rules that the oracle applies.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    pub(crate) fn of_group(limits: Limits, group: GroupId, map: Arc<GroupMap>) -> Oracle {
        Oracle {
            version: 1,
            lineage: None,
            limits,
            group,
            map,
            now: LogTime::ZERO,
            revision: Revision::ZERO,
            leases: Vec::new(),
            unacked: BTreeMap::new(),
            claims: Vec::new(),
            closures: BTreeMap::new(),
            closed_until: LogTime::ZERO,
            registers: BTreeMap::new(),
            dirty: BTreeSet::new(),
            events: Vec::new(),
            ring_start: 0,
            budget: 0,
            bounded: false,
            ended_leases: Vec::new(),
            resolved: Vec::new(),
            impasse: None,
        }
    }

    /// Applies one entry: "One entry" of the page.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Applied {
        assert!(entry.at >= self.now, "log time never falls");
        self.drop_old_events();
        self.now = entry.at;
        self.budget = signed(self.limits.reaps_per_entry_max);
        self.impasse = None;
        let events_before = self.events.len();
        self.work();
        let reply = self.run(&entry.command);
        self.work();
        Applied {
            revision: self.revision,
            reply,
            resolved: std::mem::take(&mut self.resolved),
            ended_leases: std::mem::take(&mut self.ended_leases),
            events_from: self.events.get(events_before).map(|event| event.revision),
        }
    }

    fn run(&mut self, command: &Command) -> Reply {
        if let Some(rejection) = self.misplaced(command) {
            return Reply::Rejected(rejection);
        }
        match command {
            Command::Tick => Reply::Done,
            Command::GrantLease(grant) => self.grant_lease(grant),
            Command::RenewLeases(renew) => self.renew_leases(renew),
            Command::RevokeLease(revoke) => self.revoke_lease(revoke),
            Command::AcquireLock(acquire) => self.acquire_lock(acquire),
            Command::ReleaseLock(release) => self.release_lock(release),
            Command::ConvertLock(convert) => self.convert_lock(convert),
            Command::CancelWait(cancel) => self.cancel_wait(cancel),
            Command::ForceRelease(force) => self.force_release(force),
            Command::Proclaim(proclaim) => self.proclaim(proclaim),
            Command::Txn(txn) => self.txn(txn),
            Command::AddStub(add) => self.add_stub(add),
            Command::ConfirmStub(confirm) => self.confirm_stub(*confirm),
            Command::EndStub(end) => self.end_stub(*end),
            Command::RegisterStub(register) => self.register_stub(*register),
            Command::AckLeaseEnd(ack) => self.ack_lease_end(*ack),
            Command::EndDeadlock(end) => self.end_deadlock(end),
            Command::SetLimits(limits) => match limits.validate() {
                Ok(()) => {
                    self.limits = (**limits).clone();
                    Reply::Done
                }
                Err(invalid) => Reply::Rejected(Rejection::InvalidLimits(invalid)),
            },
            Command::RaiseApplyVersion(asked) => {
                assert!(*asked <= VERSION, "a version that this binary lacks is a fault");
                if *asked > self.version {
                    self.version = *asked;
                    return Reply::Done;
                }
                Reply::Rejected(Rejection::ApplyVersionNotRaised { current: self.version, asked: *asked })
            }
            Command::SetLineage(lineage) => {
                if self.version >= 2 {
                    self.lineage.get_or_insert(*lineage);
                }
                Reply::Done
            }
        }
    }

    fn drop_old_events(&mut self) {
        let bytes = |events: &[Event]| events.iter().map(ring_bytes).sum::<u64>();
        while bytes(&self.events[self.ring_start..]) > self.limits.ring_bytes_max {
            let oldest = self.events[self.ring_start].revision;
            while self.events.get(self.ring_start).is_some_and(|event| event.revision == oldest) {
                self.ring_start += 1;
            }
        }
    }

    fn next_revision(&mut self) -> Revision {
        self.revision = self.revision.next();
        self.revision
    }

    fn work(&mut self) {
        self.bounded = true;
        while self.budget > 0 && self.work_step() {}
        self.bounded = false;
    }

    /// True if settling must stop: only in work, and only when the budget is spent.
    fn is_spent(&self) -> bool {
        self.bounded && self.budget <= 0
    }

    /// Spends the cost of one end or grant, which counts in work only.
    fn spend(&mut self) {
        self.budget -= i64::from(self.bounded);
    }

    /// Does the first of the four kinds of work that applies; false if none does.
    fn work_step(&mut self) -> bool {
        if let Some(name) = self.dirty.first().cloned() {
            self.settle(&name);
        } else if let Some(incarnation) = self.first_due_lease() {
            self.reap_lease(incarnation);
        } else if let Some(place) = self.first_due_deadline() {
            self.reap_deadline(place);
        } else if let Some(name) = self.first_due_closure() {
            self.closures.remove(&name);
            self.budget -= 1;
            self.settle(&name);
        } else {
            return false;
        }
        true
    }

    fn first_due_lease(&self) -> Option<Revision> {
        let due = self.leases.iter().filter(|lease| lease.deadline <= self.now);
        due.min_by_key(|lease| (lease.deadline, lease.incarnation)).map(|lease| lease.incarnation)
    }

    fn reap_lease(&mut self, incarnation: Revision) {
        self.budget -= 1;
        self.owe_end(incarnation);
        let claims = self.claims.iter().filter(|claim| claim.incarnation == incarnation);
        if let Some(id) = claims.map(|claim| claim.create_revision).min() {
            let reason = self.claim_death(self.claim(id)).expect("its lease is due");
            let names = self.end_claim(id, reason);
            self.settle_reaped(&names);
            return;
        }
        let hangs = |register: &Register| register.lease.is_some_and(|(_, on)| on == incarnation);
        match self.registers.iter().find(|(_, register)| hangs(register)).map(|(key, _)| key.clone()) {
            Some(key) => self.end_register(&key),
            None => self.forget_lease(incarnation),
        }
    }

    fn forget_lease(&mut self, incarnation: Revision) {
        let gone = self.leases.iter().position(|lease| lease.incarnation == incarnation).expect("it is due");
        let lease = self.leases.remove(gone);
        let reason = lease.revoked.unwrap_or(EndReason::LeaseExpired);
        let incarnation = lease.stub.map_or(incarnation, |stub| stub.incarnation);
        self.ended_leases.push(EndedLease { lease: lease.id, incarnation, reason });
    }

    /// Every wait deadline and max hold, with the revision that orders those of the same time.
    fn deadlines(&self) -> Vec<(LogTime, Revision, Place)> {
        let mut all = Vec::new();
        for claim in &self.claims {
            let id = claim.create_revision;
            let own = if claim.token.is_some() { claim.hold_until } else { claim.wait_until };
            all.extend(own.map(|at| (at, id, Place { claim: id, upgrade: false })));
            if let Some(Upgrade { wait_until: Some(at), queued_at, .. }) = claim.upgrade {
                all.push((at, queued_at, Place { claim: id, upgrade: true }));
            }
        }
        all
    }

    fn first_due_deadline(&self) -> Option<Place> {
        let due = self.deadlines().into_iter().filter(|(at, ..)| *at <= self.now);
        due.min_by_key(|(at, revision, _)| (*at, *revision)).map(|(_, _, place)| place)
    }

    fn reap_deadline(&mut self, place: Place) {
        self.budget -= 1;
        let names = if place.upgrade {
            self.end_upgrade(place.claim, EndReason::TimedOut)
        } else {
            let reason = self.claim_death(self.claim(place.claim)).expect("its deadline is due");
            self.end_claim(place.claim, reason)
        };
        self.settle_reaped(&names);
    }

    fn first_due_closure(&self) -> Option<Name> {
        let due = self.closures.iter().filter(|(_, until)| **until <= self.now);
        due.min_by_key(|(name, until)| (**until, (*name).clone())).map(|(name, _)| name.clone())
    }

    fn settle_reaped(&mut self, names: &Names) {
        for name in names.as_slice() {
            self.settle(name);
        }
    }

    /// Settles the names of a command: in order, then the least unsettled one around them while there is one.
    fn settle_all(&mut self, names: &[Name]) {
        for name in names {
            self.settle(name);
        }
        while let Some(name) = self.around(names).into_iter().find(|name| self.is_unsettled(name)) {
            self.settle(&name);
        }
    }

    /// True if a name is dirty, or something on it is dead.
    fn is_unsettled(&self, name: &Name) -> bool {
        let holders = self.holders(name).into_iter().any(|id| self.claim_death(self.claim(id)).is_some());
        let queue = self.queue(name).into_iter().any(|place| self.place_death(place).is_some());
        let closure = self.closures.get(name).is_some_and(|until| *until <= self.now);
        self.dirty.contains(name) || holders || queue || closure
    }

    /// These names, and all names reached by going from a name to the names of the first claim in its queue.
    fn around(&self, names: &[Name]) -> BTreeSet<Name> {
        let mut around: BTreeSet<Name> = names.iter().cloned().collect();
        loop {
            let firsts = around.iter().filter_map(|name| self.queue(name).first().copied());
            let reached = firsts.flat_map(|first| self.claim(first.claim).names.as_slice().to_vec());
            let wider: BTreeSet<Name> = around.iter().cloned().chain(reached).collect();
            if wider.len() == around.len() {
                return around;
            }
            around = wider;
        }
    }

    /// Settles a name: "Settle a name" of the page.
    fn settle(&mut self, name: &Name) {
        self.dirty.remove(name);
        if self.is_spent() {
            return self.make_dirty(name);
        }
        let (before, queued) = (self.budget, !self.queue(name).is_empty());
        if !self.settle_in_budget(name) {
            self.make_dirty(name);
        }
        if queued && self.budget == before {
            self.spend();
        }
    }

    /// Settles a name within the budget. False if the budget was spent before all was done.
    fn settle_in_budget(&mut self, name: &Name) -> bool {
        if !self.purge(name).finished {
            return false;
        }
        while let Some(first) = self.queue(name).first().copied() {
            if !self.purge_others(name, first) {
                return false;
            }
            let Some(first) = self.queue(name).first().copied() else { break };
            if !self.may_be_granted(first) {
                break;
            }
            if self.is_spent() {
                return false;
            }
            self.grant(first);
            self.spend();
            self.dirty_others(name, &self.claim(first.claim).names.clone());
        }
        true
    }

    /// Purges the other names of the first in the queue. False if the budget was spent before all was done.
    fn purge_others(&mut self, name: &Name, first: Place) -> bool {
        let names = self.claim(first.claim).names.clone();
        for other in names.as_slice().iter().filter(|other| *other != name) {
            let purged = self.purge(other);
            if purged.changed {
                self.make_dirty(other);
            }
            if !purged.finished {
                return false;
            }
        }
        true
    }

    fn purge(&mut self, name: &Name) -> Purged {
        let mut changed = false;
        let dead_holder = |oracle: &Oracle| {
            let holders = oracle.holders(name);
            holders.into_iter().find_map(|id| Some((id, oracle.claim_death(oracle.claim(id))?)))
        };
        while let Some((id, reason)) = dead_holder(self) {
            if self.is_spent() {
                return Purged { changed, finished: false };
            }
            let names = self.end_claim(id, reason);
            self.spend();
            self.dirty_others(name, &names);
            changed = true;
        }
        let dead_place = |oracle: &Oracle| {
            let queue = oracle.queue(name);
            queue.into_iter().find_map(|place| Some((place, oracle.place_death(place)?)))
        };
        while let Some((place, reason)) = dead_place(self) {
            if self.is_spent() {
                return Purged { changed, finished: false };
            }
            let id = place.claim;
            let names = if place.upgrade { self.end_upgrade(id, reason) } else { self.end_claim(id, reason) };
            self.spend();
            self.dirty_others(name, &names);
            changed = true;
        }
        let closure_due = self.closures.get(name).is_some_and(|until| *until <= self.now);
        if closure_due {
            self.closures.remove(name);
        }
        Purged { changed: changed || closure_due, finished: true }
    }

    /// Makes the other names dirty that have a queue.
    fn dirty_others(&mut self, name: &Name, names: &Names) {
        for other in names.as_slice().iter().filter(|other| *other != name) {
            self.make_dirty(other);
        }
    }

    /// Makes a name dirty, unless its queue is empty: then it needs no settling.
    fn make_dirty(&mut self, name: &Name) {
        if !self.queue(name).is_empty() {
            self.dirty.insert(name.clone());
        }
    }

    fn may_be_granted(&self, place: Place) -> bool {
        let claim = self.claim(place.claim);
        let mode = claim.upgrade.as_ref().map_or(claim.mode, |upgrade| upgrade.mode);
        claim.names.as_slice().iter().all(|name| {
            self.queue(name).first() == Some(&place)
                && !self.is_closed(name)
                && self.goes_with_holders(name, mode, Some(place.claim))
        })
    }

    fn is_closed(&self, name: &Name) -> bool {
        self.closed_until > self.now || self.closures.get(name).is_some_and(|until| *until > self.now)
    }
}

/// Bytes of an event in the count against the ring's bound, by the rule of `event.rs`.
fn ring_bytes(event: &Event) -> u64 {
    let value = |state: &Option<RegisterState>| state.as_ref().map_or(0, |state| state.value.len());
    let variable = match &event.change {
        Change::Lock(lock) => {
            let value = lock.value.as_ref().map_or(0, Value::len);
            lock.name.len() + lock.owner.len() + lock.metadata.len() + lock.note.len() + value
        }
        Change::Register(register) => register.key.len() + value(&register.now) + value(&register.prev),
    };
    128 + variable as u64
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).expect("limits are small")
}
