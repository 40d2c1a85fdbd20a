//! Tests of clients against bare state machines: no replication, but every message may be lost, late, doubled or
//! overtaken.
//!
//! Each group is one `State` that applies at once. What the leaders of groups tell each other about leases is carried
//! over between any two moments.

use super::call::{Again, Calls, NewCall, Why};
use super::*;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use tollgate_check::{CallId, LeaseEnd, Op, Settings};
use tollgate_core::{
    AckLeaseEnd, Applied, Command, ConfirmStub, EndReason, EndStub, Entry, RegisterStub, RenewLeases, Reply,
    State,
};
use tollgate_replica::ProposeError;
use tollgate_types::{GroupId, GroupMap, LeaseId, Limits, LogTime, Owner, Revision, SeqRanges};

const RHO_PPM: u32 = 10_000;

#[derive(Clone)]
struct Pending {
    client: ClientNo,
    call: CallId,
    attempt: u32,
    lane: crate::front::Lane,
    key: (GroupId, LeaseId, Owner, Revision),
}

enum Message {
    Request(ClientNo, Box<Request>),
    Response(Box<Response>, ClientNo),
}

fn of_group(limits: &Limits, group: u32, groups: u32) -> State {
    State::of_group(limits.clone(), GroupId::new(group), Arc::new(GroupMap::even(groups).unwrap()))
}

struct World {
    at: At,
    groups: Vec<State>,
    clients: Vec<Client>,
    history: History,
    stores: FencedStores,
    stats: ClientStats,
    rng: Rng,
    parked: Vec<Pending>,
    /// Messages under way, with their arrival times.
    messages: VecDeque<(At, Message)>,
    lost_percent: u32,
    /// Clients that can't be heard, with the end of that time.
    cut: BTreeMap<ClientNo, At>,
    /// Requests without a seq that were accepted.
    taken: BTreeSet<(CallId, u32)>,
    sent: Vec<(ClientNo, Request)>,
}

impl World {
    fn new(seed: u64, groups: u32, clients: u32, lost_percent: u32) -> World {
        let mut rng = Rng::new(seed);
        let client = |no| {
            let mut settings = ClientSettings::new(2_000, RHO_PPM);
            settings.watch_percent = 50;
            settings.answers_lost_percent = 5;
            Client::new(ClientNo(no), settings, rng.split())
        };
        let clients = (0..clients).map(client).collect();
        let limits = Limits { ring_bytes_max: 4_096, ..Limits::DEFAULT };
        World {
            at: 0,
            groups: (0..groups).map(|group| of_group(&limits, group, groups)).collect(),
            clients,
            history: History::new(Settings::with_rho_ppm(RHO_PPM)),
            stores: FencedStores::new(),
            stats: ClientStats::default(),
            rng,
            parked: Vec::new(),
            messages: VecDeque::new(),
            lost_percent,
            cut: BTreeMap::new(),
            taken: BTreeSet::new(),
            sent: Vec::new(),
        }
    }

    fn nodes() -> [NodeId; 1] {
        [NodeId::new(1).unwrap()]
    }

    /// Returns the reading of a client's clock: off by less than rho, each client in its own way.
    fn local(no: ClientNo, at: At) -> u64 {
        1_000_000 + at + at / 1_000 * u64::from(no.0 % 9)
    }

    fn with_client(&mut self, index: usize, act: impl FnOnce(&mut Client, u64, At, &mut ClientContext<'_>)) {
        let nodes = World::nodes();
        let mut out = Vec::new();
        let client = &mut self.clients[index];
        let no = client.no;
        let mut ctx = ClientContext {
            history: &mut self.history,
            stores: &mut self.stores,
            out: &mut out,
            nodes: &nodes,
            groups: u32::try_from(self.groups.len()).unwrap(),
            raised: false,
            stats: &mut self.stats,
            // There is no dispatcher here that would know which callers stand by.
            violations: &mut Vec::new(),
        };
        act(client, World::local(no, self.at), self.at, &mut ctx);
        for (_, request) in out {
            self.sent.push((no, request.clone()));
            self.post(no, &|| Message::Request(no, Box::new(request.clone())));
        }
    }

    /// Sends a message: it may be lost, late or doubled.
    fn post(&mut self, client: ClientNo, message: &dyn Fn() -> Message) {
        if self.cut.get(&client).is_some_and(|until| self.at < *until) {
            return;
        }
        let copies = if self.rng.percent(3) { 2 } else { u32::from(!self.rng.percent(self.lost_percent)) };
        for _ in 0..copies {
            let slow = if self.rng.percent(5) { 800_000 } else { 20_000 };
            self.messages.push_back((self.at + 500 + self.rng.below(slow), message()));
        }
    }

    fn run(&mut self, until: At) {
        while self.at < until {
            self.at += 1_000;
            for group in 0..self.groups.len() {
                if self.at.is_multiple_of(100_000) {
                    self.apply(group, Command::Tick);
                }
            }
            if self.lost_percent > 0 && self.rng.below(2_000) == 0 {
                let client = ClientNo(u32::try_from(self.rng.index(self.clients.len())).unwrap());
                self.cut.insert(client, self.at + self.rng.below(6_000_000));
            }
            self.carry_between_groups();
            self.serve_watchers();
            let (due, rest): (Vec<_>, Vec<_>) = self.messages.drain(..).partition(|(at, _)| *at <= self.at);
            self.messages = rest.into();
            for (_, message) in due {
                match message {
                    Message::Request(client, request) => self.request(client, *request),
                    Message::Response(response, client) => {
                        let index = usize::try_from(client.0).unwrap();
                        self.with_client(index, |client, now, at, ctx| {
                            client.response(World::nodes()[0], *response, now, at, ctx);
                        });
                    }
                }
            }
            for index in 0..self.clients.len() {
                if self.clients[index].next_wake() <= World::local(self.clients[index].no, self.at) {
                    self.with_client(index, Client::wake);
                }
            }
        }
    }

    fn apply(&mut self, group: usize, command: Command) -> Applied {
        let now = LogTime::from_ms(self.at / 1_000);
        let applied = self.groups[group].apply(Entry::new(now, command));
        let id = GroupId::new(u32::try_from(group).unwrap());
        let count = u32::try_from(self.groups.len()).unwrap();
        for ended in &applied.ended_leases {
            let reason = match ended.reason {
                EndReason::LeaseExpired => LeaseEnd::Expired,
                EndReason::LeaseRevoked => LeaseEnd::Revoked,
                other => panic!("no lease ends so here: {other:?}"),
            };
            let stub = crate::types::group_of(ended.lease.slot(), count) != id;
            let (lease, incarnation, revision) = (ended.lease, ended.incarnation, applied.revision);
            let event =
                Event::LeaseEnded { group: id, lease, incarnation, reason, revision, stub, carried_us: 0 };
            self.history.record(tollgate_check::At::from_us(self.at), event);
        }
        for resolution in applied.resolved.clone() {
            let key = (id, resolution.lease, resolution.owner, resolution.create_revision);
            let parked = std::mem::take(&mut self.parked);
            let (over, rest): (Vec<_>, Vec<_>) = parked.into_iter().partition(|parked| parked.key == key);
            self.parked = rest;
            for Pending { client, call, attempt, lane, .. } in over {
                let create_revision = resolution.create_revision;
                let answer = Answer::Resolved { create_revision, outcome: resolution.outcome };
                self.respond(client, &Response { call, attempt, group: id, lane, answer });
            }
        }
        applied
    }

    fn respond(&mut self, client: ClientNo, response: &Response) {
        self.post(client, &|| Message::Response(Box::new(response.clone()), client));
    }

    fn request(&mut self, client: ClientNo, request: Request) {
        let Request { call, attempt, group, lane, ask, .. } = request;
        if !has_seq(&ask) && !self.taken.insert((call, attempt)) {
            return;
        }
        let index = usize::try_from(group.number()).unwrap();
        let at = tollgate_check::At::from_us(self.at);
        if self.rng.percent(5) {
            let answer = Answer::NotDone(ProposeError::NotLeader { group, leader: None });
            return self.respond(client, &Response { call, attempt, group, lane, answer });
        }
        let answer = match ask {
            Ask::Command(command) => {
                if matches!(*command, Command::GrantLease(_)) {
                    self.history.record(at, Event::Received { call });
                }
                let who = match &*command {
                    Command::AcquireLock(acquire) => Some((acquire.lease, acquire.owner.clone())),
                    Command::ConvertLock(convert) => Some((convert.lease, convert.owner.clone())),
                    _ => None,
                };
                let reply = self.apply(index, *command).reply;
                if self.rng.percent(5) {
                    Answer::NotDone(ProposeError::Indeterminate { group })
                } else if let Reply::Queued { create_revision, position } = reply {
                    let (lease, owner) = who.unwrap();
                    let key = (group, lease, owner, create_revision);
                    self.parked.push(Pending { client, call, attempt, lane, key });
                    Answer::Queued { position }
                } else {
                    Answer::Reply(Box::new(reply))
                }
            }
            Ask::KeepAlive(renewal) => {
                self.history.record(at, Event::Received { call });
                let renewals = vec![renewal];
                match self.apply(index, Command::RenewLeases(RenewLeases { renewals })).reply {
                    Reply::LeasesRenewed(renewed) => Answer::Renewed(renewed[0]),
                    other => panic!("{other:?}"),
                }
            }
            Ask::ReadLock(name) => {
                let state = &self.groups[index];
                let holders = state.lock(&name).map_or_else(Vec::new, |lock| lock.holders);
                let holders = holders.into_iter().map(crate::front::seen_holder).collect();
                Answer::Lock { revision: state.revision(), holders }
            }
            Ask::ReadRegister(key) => {
                let found =
                    self.groups[index].register(&key).map(|register| (register.value, register.mod_revision));
                Answer::Register { revision: self.groups[index].revision(), found }
            }
            Ask::HangUp { .. } | Ask::StreamLost => return,
            Ask::Watch { watch, from, filter } => {
                let from = from.unwrap_or(self.groups[index].revision().next());
                match self.groups[index].events_since(from, &filter, 50) {
                    Ok(batch) => Answer::Events { watch, from, events: batch.events, next: batch.next },
                    Err(gone) => Answer::Compacted { watch, from, min_revision: gone.min_revision },
                }
            }
        };
        self.respond(client, &Response { call, attempt, group, lane, answer });
    }

    /// Makes all watches due soon: a watch is answered only when it asks, and asking often is enough here.
    fn serve_watchers(&mut self) {
        for client in &mut self.clients {
            if let Some(watching) = &mut client.watching {
                watching.next_try = watching.next_try.min(World::local(client.no, self.at) + 100_000);
            }
        }
    }

    /// Does what the leaders of groups do for each other: registers stubs, and reports the ends of leases.
    fn carry_between_groups(&mut self) {
        for group in 0..self.groups.len() {
            let id = GroupId::new(u32::try_from(group).unwrap());
            for stub in self.groups[group].pending_stubs(None, 10) {
                let (lease, incarnation, added) = (stub.lease, stub.incarnation, stub.added);
                let home = usize::try_from(stub.home.number()).unwrap();
                let register = Command::RegisterStub(RegisterStub { lease, incarnation, group: id });
                match self.apply(home, register).reply {
                    Reply::StubRegistered => {
                        self.apply(group, Command::ConfirmStub(ConfirmStub { lease, incarnation, added }));
                    }
                    Reply::LeaseUnknown => {
                        let reason = tollgate_core::LeaseEnd::Expired;
                        self.apply(group, Command::EndStub(EndStub { lease, incarnation, reason }));
                    }
                    other => panic!("{other:?}"),
                }
            }
            for end in self.groups[group].unacked_ends(None, 10) {
                let (lease, incarnation, reason) = (end.lease, end.incarnation, end.reason);
                let there = usize::try_from(end.group.number()).unwrap();
                self.apply(there, Command::EndStub(EndStub { lease, incarnation, reason }));
                let group_of_stub = end.group;
                let ack = AckLeaseEnd { lease, incarnation, group: group_of_stub };
                self.apply(group, Command::AckLeaseEnd(ack));
            }
        }
    }
}

fn has_seq(ask: &Ask) -> bool {
    match ask {
        Ask::Command(command) => crate::front::has_seq(command),
        _ => false,
    }
}

/// Runs a world with faults, then heals it, and has the history judged.
fn judged(seed: u64, groups: u32, lost_percent: u32) -> World {
    let mut world = World::new(seed, groups, 6, lost_percent);
    world.run(40_000_000);
    world.history.record(tollgate_check::At::from_us(world.at), Event::Healed);
    world.lost_percent = 0;
    world.cut.clear();
    for client in &mut world.clients {
        client.heal();
    }
    world.run(52_000_000);
    for client in &world.clients {
        assert!(client.is_quiet(), "seed {seed}: {client:?}");
    }
    world.history.record(tollgate_check::At::from_us(world.at), Event::End);
    let report = world.history.judge();
    if let Some(violation) = report.violations.first() {
        for &event in &violation.events {
            println!("{event}: {:?}", world.history.events()[event]);
        }
        panic!("seed {seed}: {violation}");
    }
    world
}

#[test]
fn clients_keep_their_side_of_the_promises() {
    for seed in seeds() {
        judged(seed, 1, 5);
    }
}

#[test]
fn clients_use_their_lease_in_several_groups() {
    for seed in seeds() {
        let world = judged(1_000 + seed, 4, 5);
        assert!(world.stats.stubs > 0, "{:?}", world.stats);
    }
}

/// Returns a few seeds; `START=` and `SEEDS=` choose others and more.
fn seeds() -> std::ops::Range<u64> {
    let number =
        |name, otherwise| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let start = number("START", 0);
    start..start + number("SEEDS", 3)
}

#[test]
fn everything_that_can_happen_to_a_client_happens() {
    let counted = |stats: ClientStats| {
        [
            stats.retries,
            stats.answered_again,
            stats.indeterminate,
            stats.leases,
            stats.lapsed,
            stats.zombie_writes_refused,
            stats.forced,
            stats.renewals,
            stats.grants,
            stats.queued,
            stats.releases,
            stats.busy,
            stats.timeouts,
            stats.hang_ups,
            stats.moves,
            stats.vanished,
            stats.cancels,
            stats.converts,
            stats.writes,
            stats.puts,
            stats.reads,
            stats.watched,
            stats.watches_begun,
        ]
    };
    let seeds: Vec<_> = (7..10).map(|seed| counted(judged(seed, 1, 10).stats)).collect();
    let happened = |place: usize| seeds.iter().any(|counts| counts[place] > 0);
    assert!((0..seeds[0].len()).all(happened), "{seeds:?}");
}

#[test]
fn a_retry_keeps_its_call_and_seq() {
    let mut world = World::new(3, 1, 2, 60);
    world.run(20_000_000);
    let mut first: BTreeMap<CallId, String> = BTreeMap::new();
    let mut repeats = 0;
    for (_, request) in &world.sent {
        let Ask::Command(command) = &request.ask else { continue };
        let Command::AcquireLock(acquire) = &**command else { continue };
        let mut acquire = acquire.clone();
        acquire.request.as_mut().expect("every request for a lock has a seq").acked = SeqRanges::default();
        let text = format!("{acquire:?}");
        repeats += u32::from(request.attempt > 1);
        assert_eq!(*first.entry(request.call).or_insert_with(|| text.clone()), text);
    }
    assert!(repeats > 0);
}

#[test]
fn what_has_no_seq_is_another_call_at_each_attempt() {
    let mut calls = Calls::new(1);
    let mut rng = Rng::new(1);
    let lease = LeaseId::new(5).unwrap();
    let ask = Ask::KeepAlive(tollgate_core::Renewal { lease, address: None, acked: SeqRanges::default() });
    let op = Some(Op::RevokeLease { lease });
    let (group, seq, why, again, epoch) = (GroupId::new(0), None, Why::Revoke, Again::NewCall, 1);
    let first = calls.make(NewCall { group, ask, op, seq, why, again, epoch }, 0);
    calls.get_mut(first).unwrap().sent(0, &mut rng);
    let due = calls.next_try();
    let second = calls.make_again(calls.due(due).unwrap());
    assert_ne!(first, second);
    assert!(!calls.get(first).unwrap().is_open() && calls.get(second).unwrap().is_open());
    assert_eq!(calls.get(second).unwrap().attempts, 0);
}
