//! A tiny world: clients, a network that delays and loses answers, and one server that handles one request at a time.
//!
//! The server here is a third statement of the rules, as short as can be: no deadlocks, no queue for upgrades, one name
//! per request. Everything is drawn from a seed.

use std::collections::{BTreeMap, BTreeSet};
use tollgate_check::{
    At, CallId, Change, ChangeKind, EndReason, Event, Filter, FinalLock, History, Holder, LeaseEnd, Op,
    Outcome, Settings, Wait,
};
use tollgate_types::{GroupId, LeaseId, Mode, Name, Owner, Revision, Token};

pub(crate) const GROUP: GroupId = GroupId::new(1);
const TTL_MS: u64 = 5_000;
const WATCH: u32 = 1;

/// Seeded generator of pseudo-random numbers.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Parameters of a run.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) calls: u64,
    pub(crate) names: u64,
    pub(crate) clients: u64,
    /// One in this many calls gets no answer.
    pub(crate) lost_one_in: u64,
}

#[derive(Clone)]
struct Claim {
    call: CallId,
    lease: LeaseId,
    mode: Mode,
    queued: Revision,
    token: Option<Token>,
}

#[derive(Default)]
struct Lock {
    holders: Vec<Claim>,
    queue: Vec<Claim>,
}

struct Lease {
    incarnation: Revision,
    deadline: At,
}

#[derive(Default)]
struct Client {
    lease: Option<LeaseId>,
    renewed: At,
    /// Locks that the client may hold, with the token if the client was told.
    names: BTreeMap<u64, Option<Token>>,
    waits_for: Option<CallId>,
    /// Request that the client gave up on and means to cancel.
    in_doubt: Option<CallId>,
}

enum Action {
    Act(u32),
    Arrive(CallId, u32, Op),
    Answer(CallId, u32, Op, Outcome),
    GiveUp(CallId, u32),
    Expire(LeaseId),
    Deliver,
}

pub(crate) struct World {
    rng: Rng,
    shape: Shape,
    now: At,
    agenda: BTreeMap<(At, u64), Action>,
    made: u64,
    calls: u64,
    clients: BTreeMap<u32, Client>,
    clients_made: u32,
    revision: Revision,
    locks: BTreeMap<Name, Lock>,
    leases: BTreeMap<LeaseId, Lease>,
    lost: BTreeSet<CallId>,
    /// Requests that the server has seen, or will not accept any more.
    arrived: BTreeSet<CallId>,
    changes: Vec<Change>,
    history: History,
}

pub(crate) fn name(number: u64) -> Name {
    Name::new(format!("lock/{number}")).unwrap()
}

/// Draws a mode. Each name is used in its own way: exclusive, shared and exclusive, or as a semaphore.
fn mode(rng: &mut Rng, number: u64) -> Mode {
    match number % 3 {
        0 => Mode::Exclusive,
        1 if rng.one_in(3) => Mode::Exclusive,
        1 => Mode::Shared,
        _ => Mode::permit(1 + u32::try_from(rng.below(2)).unwrap(), 3).unwrap(),
    }
}

impl World {
    pub(crate) fn run(seed: u64, shape: Shape) -> History {
        let mut world = World {
            rng: Rng::new(seed),
            shape,
            now: At::ZERO,
            agenda: BTreeMap::new(),
            made: 0,
            calls: 0,
            clients: BTreeMap::new(),
            clients_made: 0,
            revision: Revision::ZERO,
            locks: BTreeMap::new(),
            leases: BTreeMap::new(),
            lost: BTreeSet::new(),
            arrived: BTreeSet::new(),
            changes: Vec::new(),
            history: History::new(Settings::with_rho_ppm(10_000)),
        };
        world.record(Event::Watch {
            watch: WATCH,
            group: GROUP,
            from: Some(Revision::ZERO.next()),
            filter: Filter::All,
        });
        world.after_us(100_000, Action::Deliver);
        for _ in 0..shape.clients {
            world.new_client();
        }
        while world.calls < shape.calls {
            let ((at, _), action) = world.agenda.pop_first().expect("clients always have plans");
            world.now = at;
            world.act(action);
        }
        world.deliver();
        world.final_state();
        world.history
    }

    fn record(&mut self, event: Event) {
        self.history.record(self.now, event);
    }

    fn after_us(&mut self, us: u64, action: Action) {
        self.made += 1;
        self.agenda.insert((self.now.after_us(us), self.made), action);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Act(client) => self.client_acts(client),
            Action::Arrive(call, client, op) => self.arrive(call, client, op),
            Action::Answer(call, client, op, outcome) => self.answer(call, client, &op, outcome),
            Action::GiveUp(call, client) => self.give_up(call, client),
            Action::Expire(lease) => self.expire(lease),
            Action::Deliver => {
                self.deliver();
                self.after_us(100_000, Action::Deliver);
            }
        }
    }

    fn new_client(&mut self) {
        self.clients_made += 1;
        let client = self.clients_made;
        self.clients.insert(client, Client::default());
        self.think(client);
    }

    fn think(&mut self, client: u32) {
        let us = 1_000 + self.rng.below(20_000);
        self.after_us(us, Action::Act(client));
    }

    fn client_acts(&mut self, client: u32) {
        if self.rng.one_in(200) {
            self.clients.remove(&client);
            self.record(Event::ClientGone { client });
            self.new_client();
            return;
        }
        let op = self.next_op(client);
        if let Op::Cancel { .. } = op {
            self.clients.get_mut(&client).unwrap().in_doubt = None;
        }
        self.calls += 1;
        let call = CallId(self.calls);
        self.record(Event::Invoke { call, client, group: GROUP, op: op.clone() });
        let lost = self.rng.one_in(self.shape.lost_one_in);
        if lost {
            self.lost.insert(call);
            self.after_us(50_000, Action::GiveUp(call, client));
        }
        self.clients.get_mut(&client).unwrap().waits_for = Some(call);
        // A call that is lost may never arrive, or arrive late.
        if !lost || !self.rng.one_in(3) {
            let us = 100 + self.rng.below(if lost { 200_000 } else { 3_000 });
            self.after_us(us, Action::Arrive(call, client, op));
        }
    }

    fn next_op(&mut self, client: u32) -> Op {
        let (now, number, chosen) = (self.now, self.rng.below(self.shape.names), self.rng.below(10));
        let state = &self.clients[&client];
        let Some(lease) = state.lease else {
            let id = LeaseId::new(u64::from(client)).unwrap();
            return Op::GrantLease { lease: Some(id), ttl_ms: TTL_MS };
        };
        if now.since(state.renewed) > 1_500_000 {
            return Op::KeepAlive { lease };
        }
        let held = state.names.first_key_value().map(|(number, token)| (*number, *token));
        if let Some(of) = state.in_doubt {
            return Op::Cancel { of, release_if_granted: true };
        }
        if self.rng.one_in(150) {
            return Op::RevokeLease { lease };
        }
        if let Some(op) = self.operate() {
            return op;
        }
        match (chosen, held) {
            (7..=8, Some((number, _))) if number % 3 == 1 => {
                let mode = if self.rng.one_in(2) { Mode::Exclusive } else { Mode::Shared };
                let (names, owner, wait) = (name(number).into(), Owner::LEASE, Wait::No);
                Op::Convert { names, lease, owner, mode, wait }
            }
            (0..=1, _) => Op::ReadLock { name: name(number) },
            (2..=6, Some((number, token))) => {
                let (names, owner) = (name(number).into(), Owner::LEASE);
                Op::Unlock { names, lease, owner, token }
            }
            _ => {
                let wait = if self.rng.one_in(2) && held.is_none() { Wait::Forever } else { Wait::No };
                let (mode, names, owner) = (mode(&mut self.rng, number), name(number).into(), Owner::LEASE);
                Op::Lock { names, lease, owner, mode, wait, max_hold_ms: None }
            }
        }
    }

    /// Now and then returns a forced release of a lock, whoever holds it.
    fn operate(&mut self) -> Option<Op> {
        let number = self.rng.below(self.shape.names);
        let token = self.locks.get(&name(number))?.holders.first()?.token?;
        self.rng.one_in(30).then(|| Op::ForceRelease { name: name(number), token })
    }

    /// Carries out an operation on the server.
    fn arrive(&mut self, call: CallId, client: u32, op: Op) {
        let outcome = match &op {
            Op::GrantLease { lease: Some(lease), .. } => {
                self.record(Event::Received { call });
                self.grant_lease(*lease)
            }
            Op::KeepAlive { lease } => {
                self.record(Event::Received { call });
                self.renew(*lease)
            }
            Op::Lock { .. } if !self.arrived.insert(call) => {
                Outcome::Ended { token: None, reason: EndReason::Cancelled }
            }
            Op::Lock { names, lease, mode, wait, .. } => {
                match self.lock(call, &names.as_slice()[0].clone(), *lease, *mode, *wait) {
                    Some(outcome) => outcome,
                    None => return,
                }
            }
            Op::Convert { names, lease, mode, .. } => {
                self.convert(&names.as_slice()[0].clone(), *lease, *mode)
            }
            Op::RevokeLease { lease } => self.revoke(*lease),
            Op::Cancel { of, .. } => self.cancel(*of),
            Op::ForceRelease { name, token } => self.force_release(&name.clone(), *token),
            Op::Unlock { names, lease, token, .. } => {
                self.unlock(&names.as_slice()[0].clone(), *lease, *token)
            }
            Op::ReadLock { name } => {
                let holders = self.locks.get(name).map_or(Vec::new(), |lock| shown(&lock.holders));
                Outcome::Lock { revision: self.revision, holders }
            }
            _ => unreachable!("clients ask nothing else"),
        };
        self.reply(call, client, op, outcome);
    }

    fn reply(&mut self, call: CallId, client: u32, op: Op, outcome: Outcome) {
        if !self.lost.contains(&call) {
            let us = 100 + self.rng.below(3_000);
            self.after_us(us, Action::Answer(call, client, op, outcome));
        }
    }

    fn answer(&mut self, call: CallId, client: u32, op: &Op, outcome: Outcome) {
        let sent = self.history.events().iter().rev().find_map(|(at, event)| {
            matches!(event, Event::Invoke { call: made, .. } if *made == call).then_some(*at)
        });
        let Some(state) = self.clients.get_mut(&client) else { return };
        match (op, &outcome) {
            (Op::GrantLease { .. }, Outcome::LeaseGranted { lease, .. }) => {
                state.lease = Some(*lease);
                state.renewed = sent.unwrap();
            }
            (Op::KeepAlive { .. }, Outcome::Renewed { .. }) => state.renewed = sent.unwrap(),
            (Op::Lock { names, .. } | Op::Convert { names, .. }, Outcome::Granted { token, .. }) => {
                state.names.insert(number_of(&names.as_slice()[0]), Some(*token));
            }
            (Op::Unlock { names, .. }, _) => {
                state.names.remove(&number_of(&names.as_slice()[0]));
            }
            _ => {}
        }
        let waited = state.waits_for == Some(call);
        self.record(Event::Return { call, outcome });
        if waited {
            self.think(client);
        }
    }

    /// Makes a client give up on a call whose outcome it does not know, and go on.
    fn give_up(&mut self, call: CallId, client: u32) {
        let made = self.history.events().iter().rev().find_map(|(_, event)| match event {
            Event::Invoke { call: made, op: Op::Lock { names, .. }, .. } if *made == call => {
                Some(number_of(&names.as_slice()[0]))
            }
            _ => None,
        });
        if let Some(state) = self.clients.get_mut(&client) {
            if made.is_some() && call.0.is_multiple_of(2) {
                state.in_doubt = Some(call);
            } else {
                state.names.extend(made.map(|number| (number, None)));
            }
            self.think(client);
        }
    }

    fn convert(&mut self, name: &Name, lease: LeaseId, mode: Mode) -> Outcome {
        if !self.leases.contains_key(&lease) {
            return Outcome::LeaseNotFound;
        }
        let Some(lock) = self.locks.get_mut(name) else { return Outcome::NotHeld };
        let Some(at) = lock.holders.iter().position(|claim| claim.lease == lease) else {
            return Outcome::NotHeld;
        };
        let mut claim = lock.holders.remove(at);
        let (weaker, free) = (claim.mode.covers(mode), fits(&lock.holders, mode));
        if !weaker && !free {
            lock.holders.push(claim);
            return Outcome::Busy { holders: shown(&lock.holders) };
        }
        if claim.mode != mode {
            let revision = self.next_revision();
            let token = if weaker { claim.token.unwrap() } else { Token::of_grant(revision) };
            (claim.token, claim.mode) = (Some(token), mode);
            let kind = if weaker { ChangeKind::Changed } else { ChangeKind::Granted { token, mode } };
            self.change(revision, name, lease, kind);
        }
        let (token, create_revision) = (claim.token.unwrap(), Some(claim.queued));
        self.locks.get_mut(name).unwrap().holders.push(claim);
        self.settle(name);
        Outcome::Granted { token, create_revision, mode }
    }

    fn revoke(&mut self, lease: LeaseId) -> Outcome {
        if !self.leases.contains_key(&lease) {
            return Outcome::LeaseNotFound;
        }
        self.end_lease(lease, LeaseEnd::Revoked, EndReason::LeaseRevoked);
        Outcome::LeaseRevoked
    }

    fn cancel(&mut self, of: CallId) -> Outcome {
        if self.arrived.insert(of) {
            return Outcome::Cancelled;
        }
        let with = |claims: &[Claim]| claims.iter().find(|claim| claim.call == of).map(|claim| claim.lease);
        let waiting = self.locks.iter().find_map(|(name, lock)| Some((name.clone(), with(&lock.queue)?)));
        if let Some((name, lease)) = waiting {
            self.end(&name, lease, EndReason::Cancelled);
            self.settle(&name);
            return Outcome::Cancelled;
        }
        let holding = self.locks.iter().find_map(|(name, lock)| Some((name.clone(), with(&lock.holders)?)));
        let Some((name, lease)) = holding else { return Outcome::Refused };
        let revision = self.end(&name, lease, EndReason::Released).unwrap();
        self.settle(&name);
        Outcome::Released { revision }
    }

    fn force_release(&mut self, name: &Name, token: Token) -> Outcome {
        let Some(lock) = self.locks.get(name).filter(|lock| !lock.holders.is_empty()) else {
            return Outcome::NotHeld;
        };
        let Some(claim) = lock.holders.iter().find(|claim| claim.token == Some(token)) else {
            let held = lock.holders.iter().filter_map(|claim| claim.token).max().unwrap();
            return Outcome::StaleToken { held };
        };
        let lease = claim.lease;
        let revision = self.end(name, lease, EndReason::Forced).unwrap();
        self.settle(name);
        Outcome::Released { revision }
    }

    fn next_revision(&mut self) -> Revision {
        self.revision = self.revision.next();
        self.revision
    }

    fn grant_lease(&mut self, lease: LeaseId) -> Outcome {
        let deadline = self.now.after_ms(TTL_MS);
        let renewed = self.leases.contains_key(&lease);
        let incarnation = if let Some(found) = self.leases.get_mut(&lease) {
            found.deadline = deadline;
            found.incarnation
        } else {
            let incarnation = self.next_revision();
            self.leases.insert(lease, Lease { incarnation, deadline });
            incarnation
        };
        self.after_us(TTL_MS * 1_000 + self.now.us() % 90_000, Action::Expire(lease));
        Outcome::LeaseGranted { lease, incarnation, ttl_ms: TTL_MS, renewed }
    }

    fn renew(&mut self, lease: LeaseId) -> Outcome {
        let Some(found) = self.leases.get_mut(&lease) else { return Outcome::LeaseNotFound };
        found.deadline = self.now.after_ms(TTL_MS);
        self.after_us(TTL_MS * 1_000 + self.now.us() % 90_000, Action::Expire(lease));
        Outcome::Renewed { ttl_ms: TTL_MS }
    }

    fn expire(&mut self, lease: LeaseId) {
        if self.leases.get(&lease).is_none_or(|found| found.deadline > self.now) {
            return;
        }
        self.end_lease(lease, LeaseEnd::Expired, EndReason::LeaseExpired);
    }

    fn end_lease(&mut self, lease: LeaseId, reason: LeaseEnd, of_claims: EndReason) {
        let found = self.leases.remove(&lease).unwrap();
        let names: Vec<Name> = self.locks.keys().cloned().collect();
        for name in names {
            self.end(&name, lease, of_claims);
            self.settle(&name);
        }
        let (incarnation, revision) = (found.incarnation, self.revision);
        let (stub, carried_us) = (false, 0);
        self.record(Event::LeaseEnded {
            group: GROUP,
            lease,
            incarnation,
            reason,
            revision,
            stub,
            carried_us,
        });
        for state in self.clients.values_mut().filter(|state| state.lease == Some(lease)) {
            *state = Client { waits_for: state.waits_for, ..Client::default() };
        }
    }

    /// Ends the claim of a lease on a lock; returns the revision of the end.
    fn end(&mut self, name: &Name, lease: LeaseId, reason: EndReason) -> Option<Revision> {
        let lock = self.locks.get_mut(name)?;
        let holder =
            lock.holders.iter().position(|claim| claim.lease == lease).map(|at| lock.holders.remove(at));
        let waiter = lock.queue.iter().position(|claim| claim.lease == lease).map(|at| lock.queue.remove(at));
        let claim = holder.or(waiter)?;
        let revision = self.next_revision();
        self.change(revision, name, lease, ChangeKind::Ended { token: claim.token, reason });
        if claim.token.is_none() {
            self.resolve(&claim, Outcome::Ended { token: None, reason });
        }
        Some(revision)
    }

    fn lock(&mut self, call: CallId, name: &Name, lease: LeaseId, mode: Mode, wait: Wait) -> Option<Outcome> {
        if !self.leases.contains_key(&lease) {
            return Some(Outcome::LeaseNotFound);
        }
        let lock = self.locks.entry(name.clone()).or_default();
        if let Some(own) = lock.holders.iter().find(|claim| claim.lease == lease) {
            let (token, create_revision) = (own.token.unwrap(), Some(own.queued));
            let covers = own.mode.covers(mode);
            return Some(if covers {
                Outcome::Granted { token, create_revision, mode: own.mode }
            } else {
                Outcome::Refused
            });
        }
        if lock.queue.iter().any(|claim| claim.lease == lease) {
            return Some(Outcome::Refused);
        }
        let free = lock.queue.is_empty() && fits(&lock.holders, mode);
        if !free && wait == Wait::No {
            let holders = shown(&lock.holders);
            return Some(Outcome::Busy { holders });
        }
        let queued = self.next_revision();
        let token = free.then(|| Token::of_grant(queued));
        let claim = Claim { call, lease, mode, queued, token };
        let lock = self.locks.get_mut(name).unwrap();
        if let Some(token) = token {
            lock.holders.push(claim);
            self.change(queued, name, lease, ChangeKind::Granted { token, mode });
            return Some(Outcome::Granted { token, create_revision: Some(queued), mode });
        }
        lock.queue.push(claim);
        self.change(queued, name, lease, ChangeKind::Queued);
        None
    }

    fn unlock(&mut self, name: &Name, lease: LeaseId, token: Option<Token>) -> Outcome {
        if !self.leases.contains_key(&lease) {
            return Outcome::LeaseNotFound;
        }
        let lock = self.locks.get(name);
        let held = lock.and_then(|lock| lock.holders.iter().find(|claim| claim.lease == lease)?.token);
        let Some(held) = held else { return Outcome::NotHeld };
        if token.is_some_and(|token| token != held) {
            return Outcome::StaleToken { held };
        }
        let revision = self.end(name, lease, EndReason::Released).unwrap();
        self.settle(name);
        Outcome::Released { revision }
    }

    fn settle(&mut self, name: &Name) {
        loop {
            let Some(lock) = self.locks.get_mut(name) else { return };
            let Some(first) = lock.queue.first() else { return };
            if !fits(&lock.holders, first.mode) {
                return;
            }
            let mut claim = lock.queue.remove(0);
            let revision = self.next_revision();
            let token = Token::of_grant(revision);
            claim.token = Some(token);
            self.locks.get_mut(name).unwrap().holders.push(claim.clone());
            self.change(revision, name, claim.lease, ChangeKind::Granted { token, mode: claim.mode });
            let (create_revision, mode) = (Some(claim.queued), claim.mode);
            self.resolve(&claim, Outcome::Granted { token, create_revision, mode });
        }
    }

    /// Answers a call that waited.
    fn resolve(&mut self, claim: &Claim, outcome: Outcome) {
        let made = self.history.events().iter().find_map(|(_, event)| match event {
            Event::Invoke { call, client, op, .. } if *call == claim.call => Some((*client, op.clone())),
            _ => None,
        });
        let (client, op) = made.unwrap();
        self.reply(claim.call, client, op, outcome);
    }

    fn change(&mut self, revision: Revision, name: &Name, lease: LeaseId, kind: ChangeKind) {
        self.changes.push(Change { revision, name: name.clone(), lease, owner: Owner::LEASE, kind });
    }

    fn deliver(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        self.record(Event::WatchEvents { watch: WATCH, changes, next: self.revision.next() });
    }

    fn final_state(&mut self) {
        let locks = self.locks.iter().map(|(name, lock)| FinalLock {
            name: name.clone(),
            holders: shown(&lock.holders),
            waiters: lock.queue.iter().map(|claim| (claim.lease, Owner::LEASE)).collect(),
        });
        let (group, asked, revision, locks) = (GROUP, self.now, self.revision, locks.collect());
        let leases = self.leases.iter().map(|(lease, found)| (*lease, found.incarnation)).collect();
        self.record(Event::FinalState { group, asked, revision, locks, leases });
        self.record(Event::Applied { node: 1, group, index: 9, hash: 1 });
        self.record(Event::Applied { node: 2, group, index: 9, hash: 1 });
        self.record(Event::End);
    }
}

fn number_of(name: &Name) -> u64 {
    name.to_string().strip_prefix("lock/").unwrap().parse().unwrap()
}

fn shown(claims: &[Claim]) -> Vec<Holder> {
    let holder = |claim: &Claim| Holder {
        lease: claim.lease,
        owner: Owner::LEASE,
        token: claim.token.unwrap(),
        mode: claim.mode,
    };
    claims.iter().map(holder).collect()
}

fn fits(holders: &[Claim], mode: Mode) -> bool {
    if let Mode::Permit { n, of } = mode {
        let taken = holders.iter().map(|claim| if let Mode::Permit { n, .. } = claim.mode { n } else { of });
        return taken.sum::<u32>() + n <= of;
    }
    holders.iter().all(|claim| claim.mode.compatible(mode))
}
