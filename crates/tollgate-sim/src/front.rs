//! A node's side of the client protocol: the real dispatcher, between the simulated network and the host.
//!
//! Invariant: of a request that is only safe once, one copy is accepted, as an ordered connection would ensure. Not
//! here: what is proposed, read and answered when (`tollgate_replica::Dispatcher`), when clients repeat requests
//! (`client`), and the ends of leases, which the world records for all nodes.

mod wire;

pub(crate) use wire::Lane;
pub use wire::{Answer, Ask, Request, Response};

use crate::types::{At, ClientNo};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tollgate_check::{CallId, Event, History, Holder};
use tollgate_core::{Command, ReleaseBy, State, Wait, WaitView};
use tollgate_replica::{CallerKey, Dispatcher, Host, Output, ProposeError, WatchNumber};
use tollgate_types::{GroupId, Key, LeaseId, Name, Revision};

/// Origin of a request, and what the answer must carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Caller {
    client: ClientNo,
    call: CallId,
    attempt: u32,
    group: GroupId,
    lane: Lane,
}

impl tollgate_replica::Caller for Caller {
    fn key(&self) -> CallerKey {
        CallerKey { stream: stream(self.client, self.lane), call: self.call.0 }
    }
}

/// A caller that has asked for a lock and has not hung up.
#[derive(Debug)]
struct Standing {
    group: GroupId,
    lease: LeaseId,
    name: Name,
    heard: Heard,
}

/// The last answer to such a caller. A caller may be told that it waits after it was told something final, if two
/// copies of its request were under way, and the second was answered first.
#[derive(Debug)]
enum Heard {
    Nothing,
    Waits(Revision),
    Final,
}

/// Subject of a read.
#[derive(Debug)]
enum Reading {
    Lock(Name),
    Register(Key),
}

/// Time for which a subscription is served, in microseconds.
const SERVED_FOR_US: u64 = 5_000_000;

/// Credit of a watch, in events: so few that watches run out of it all the time.
const WATCH_CREDIT: u64 = 3;

/// The server around one node's host, from its start to its crash.
#[derive(Debug)]
pub struct Front {
    dispatcher: Dispatcher<Caller, Reading>,
    /// Watches that were told of this many events, and may be told of as many more in the next turn.
    credit: Vec<(WatchNumber, u64)>,
    /// Keepalives of this turn.
    renewing: Vec<(GroupId, CallId)>,
    /// Time until which each subscription is served.
    watches: BTreeMap<WatchNumber, At>,
    taken: Taken,
    /// Callers that stand by here, each with the wait that it was told of: kept apart from the dispatcher, to judge the
    /// dispatcher.
    standing: BTreeMap<CallerKey, Standing>,
}

/// Number of low bits for ids within one start, so that the ids of one start are below those of the next.
const IDS_PER_BOOT_BITS: u32 = 40;

impl Front {
    /// Creates a server that has just started. `boot` is a different number at each start of any node: ids of proposals
    /// and reads begin with it, so the world's own ids must begin with another number.
    pub fn new(boot: u64) -> Front {
        assert!(boot < 1 << (u64::BITS - IDS_PER_BOOT_BITS), "boot {boot} leaves no room for ids");
        Front {
            dispatcher: Dispatcher::new(boot << IDS_PER_BOOT_BITS),
            credit: Vec::new(),
            renewing: Vec::new(),
            watches: BTreeMap::new(),
            taken: Taken::default(),
            standing: BTreeMap::new(),
        }
    }

    /// Plants a bug in the dispatcher.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: tollgate_replica::Bug) {
        self.dispatcher.plant(bug);
    }

    /// Returns true if the front wants another turn at once.
    pub fn wants_turn(&self) -> bool {
        self.dispatcher.wants_turn() || !self.credit.is_empty()
    }

    /// Returns the number of callers that have hung up and whose waits have yet to end.
    pub fn leaving_count(&self) -> usize {
        self.dispatcher.leaving_count()
    }

    /// Returns the counts of the dispatcher.
    pub fn counts(&self) -> tollgate_replica::DispatcherCounts {
        self.dispatcher.counts()
    }

    /// Handles a request. To be called between the begin and the end of a host's turn.
    pub fn request(
        &mut self,
        from: ClientNo,
        request: Request,
        host: &mut Host,
        at: At,
        history: &mut History,
    ) {
        let Request { call, attempt, group, alone, lane, ask } = request;
        let caller = Caller { client: from, call, attempt, group, lane };
        match ask {
            Ask::Command(command) => self.command(caller, *command, alone, host, at, history),
            Ask::KeepAlive(renewal) => {
                if self.taken.is_new(caller) {
                    self.renewing.push((group, call));
                    self.dispatcher.keep_alive(caller, group, renewal);
                }
            }
            Ask::HangUp { of } => {
                let who = CallerKey { stream: stream(from, lane), call: of.0 };
                self.standing.remove(&who);
                self.dispatcher.hang_up(who, host);
            }
            Ask::StreamLost => {
                let stream = stream(from, lane);
                self.standing.retain(|who, _| who.stream != stream);
                self.dispatcher.stream_lost(stream);
            }
            Ask::ReadLock(name) => self.dispatcher.read(caller, group, Reading::Lock(name), host),
            Ask::ReadRegister(key) => self.dispatcher.read(caller, group, Reading::Register(key), host),
            Ask::Watch { watch, from: revision, filter } => {
                let number = watch_number(from, watch);
                self.watches.insert(number, at.saturating_add(SERVED_FOR_US));
                self.dispatcher.watch(caller, number, group, revision, filter, WATCH_CREDIT);
            }
        }
    }

    fn command(
        &mut self,
        caller: Caller,
        command: Command,
        alone: bool,
        host: &mut Host,
        at: At,
        history: &mut History,
    ) {
        // A first attempt without another copy may be answered without the log: no copy may follow it.
        let tries = matches!(&command, Command::AcquireLock(acquire) if acquire.wait == Wait::No);
        let fast = alone && tries && caller.attempt == 1;
        if (fast || !has_seq(&command)) && !self.taken.is_new(caller) {
            return;
        }
        if matches!(command, Command::GrantLease(_)) && host.leads(caller.group) {
            received(caller.call, at, history);
        }
        if let (true, Some((lease, name))) = (caller.lane != Lane::Session, asked_for(&command)) {
            let standing = Standing { group: caller.group, lease, name, heard: Heard::Nothing };
            let known = self.standing.entry(tollgate_replica::Caller::key(&caller)).or_insert(standing);
            if matches!(known.heard, Heard::Final) {
                known.heard = Heard::Nothing;
            }
        }
        self.dispatcher.command(caller, caller.group, command, fast, host);
    }

    /// Finishes the inputs of a turn that is about to end.
    pub fn before_end_turn(&mut self, host: &mut Host, at: At, history: &mut History) {
        for (group, call) in self.renewing.drain(..) {
            if host.leads(group) {
                received(call, at, history);
            }
        }
        let over: Vec<WatchNumber> =
            self.watches.iter().filter(|(_, until)| **until <= at).map(|(watch, _)| *watch).collect();
        for watch in over {
            self.watches.remove(&watch);
            self.dispatcher.unwatch(watch);
        }
        for (watch, events) in self.credit.drain(..) {
            self.dispatcher.give_credit(watch, events);
        }
        self.dispatcher.before_end_turn(host);
    }

    /// Collects the answers after a turn has ended.
    pub fn output(&mut self, output: &mut Output, host: &Host, out: &mut Vec<(ClientNo, Response)>) {
        let mut answers = Vec::new();
        self.dispatcher.after_turn(output, host, &mut answers);
        for (caller, answer) in answers {
            self.note(&caller, &answer);
            let Caller { client, call, attempt, group, lane } = caller;
            if let tollgate_replica::Answer::Events { watch, events, .. } = &answer {
                self.credit.push((*watch, events.len() as u64));
            }
            let answer = said(answer, host);
            out.push((client, Response { call, attempt, group, lane, answer }));
        }
    }

    /// Notes what a caller was told, to know who stands by.
    fn note(&mut self, caller: &Caller, answer: &tollgate_replica::Answer<Reading>) {
        if let Some(standing) = self.standing.get_mut(&tollgate_replica::Caller::key(caller)) {
            standing.heard = match answer {
                tollgate_replica::Answer::Queued { create_revision, .. } => Heard::Waits(*create_revision),
                _ => Heard::Final,
            };
        }
    }

    /// Returns true if a caller stands by a wait here, or may: a request that is not answered yet may be for this wait.
    pub fn stands_by(&self, group: GroupId, wait: &WaitView) -> bool {
        self.standing.values().any(|standing| match standing.heard {
            Heard::Waits(on) => (standing.group, on) == (group, wait.create_revision),
            Heard::Nothing => {
                (standing.group, standing.lease, &standing.name) == (group, wait.lease, &wait.name)
            }
            Heard::Final => false,
        })
    }
}

/// Returns the number of a client's connection to this node.
fn stream(client: ClientNo, lane: Lane) -> u64 {
    u64::from(client.0) << 8 | lane as u64
}

fn watch_number(client: ClientNo, watch: u32) -> WatchNumber {
    u64::from(client.0) << 32 | u64::from(watch)
}

/// Converts an answer of the dispatcher to one of the simulated network.
fn said(answer: tollgate_replica::Answer<Reading>, host: &Host) -> Answer {
    use tollgate_replica::Answer as Dispatcher;
    match answer {
        Dispatcher::Left => Answer::Left,
        // The caller may be told when the others are, by another attempt.
        Dispatcher::Crowded { group } => Answer::NotDone(ProposeError::Indeterminate { group }),
        Dispatcher::Replied { reply, .. } => Answer::Reply(Box::new(reply)),
        Dispatcher::Busy { reply, .. } => Answer::Busy(Box::new(reply)),
        Dispatcher::Queued { position, .. } => Answer::Queued { position },
        Dispatcher::Resolved { create_revision, outcome, .. } => {
            Answer::Resolved { create_revision, outcome }
        }
        Dispatcher::Renewed { renewed, .. } => Answer::Renewed(renewed),
        Dispatcher::MayRead { group, what } => {
            let state = host.state(group).expect("a confirmed read has a state to look at");
            look(state, &what)
        }
        Dispatcher::NotRead { error, .. } => Answer::NotRead(error),
        Dispatcher::AskAgain { group, leader } => Answer::NotDone(ProposeError::NotLeader { group, leader }),
        Dispatcher::NotDone(error) => Answer::NotDone(error),
        Dispatcher::Members(members) => unreachable!("clients don't change members: {members:?}"),
        Dispatcher::Events { watch, from, events, next } => {
            Answer::Events { watch: client_watch(watch), from, events, next }
        }
        Dispatcher::Compacted { watch, from, min_revision } => {
            Answer::Compacted { watch: client_watch(watch), from, min_revision }
        }
    }
}

/// Returns the client's own number for a watch.
fn client_watch(watch: WatchNumber) -> u32 {
    u32::try_from(watch & u64::from(u32::MAX)).expect("the low half")
}

/// Requests without a seq that were accepted already: a copy of one would have an effect of its own.
#[derive(Debug, Default)]
struct Taken {
    set: BTreeSet<(CallId, u32)>,
    order: VecDeque<(CallId, u32)>,
}

/// Maximum number of remembered requests: far more than the network can hold copies of.
const TAKEN_MAX: usize = 10_000;

impl Taken {
    fn is_new(&mut self, caller: Caller) -> bool {
        let key = (caller.call, caller.attempt);
        if !self.set.insert(key) {
            return false;
        }
        self.order.push_back(key);
        if self.order.len() > TAKEN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
        true
    }
}

fn received(call: CallId, at: At, history: &mut History) {
    history.record(tollgate_check::At::from_us(at), Event::Received { call });
}

/// Returns the lease and the name, the first of several, of a request for locks; none for a command that does not wait.
fn asked_for(command: &Command) -> Option<(LeaseId, Name)> {
    let (lease, names) = match command {
        Command::AcquireLock(acquire) => (acquire.lease, &acquire.names),
        Command::ConvertLock(convert) => (convert.lease, &convert.names),
        _ => return None,
    };
    Some((lease, names.as_slice()[0].clone()))
}

/// Returns true if a repeat of the command is recognized as a repeat.
pub(crate) fn has_seq(command: &Command) -> bool {
    match command {
        Command::AcquireLock(acquire) => acquire.request.is_some(),
        Command::ConvertLock(convert) => convert.request.is_some(),
        Command::Proclaim(proclaim) => proclaim.request.is_some(),
        Command::ReleaseLock(release) => {
            matches!(&release.by, ReleaseBy::Holder { request: Some(_), .. })
        }
        Command::Txn(txn) => txn.request.is_some(),
        _ => false,
    }
}

fn look(state: &State, reading: &Reading) -> Answer {
    let revision = state.revision();
    match reading {
        Reading::Lock(name) => {
            let view = state.lock(name);
            let holders = view.map_or_else(Vec::new, |view| view.holders);
            Answer::Lock { revision, holders: holders.into_iter().map(seen_holder).collect() }
        }
        Reading::Register(key) => {
            let found = state.register(key).map(|register| (register.value, register.mod_revision));
            Answer::Register { revision, found }
        }
    }
}

/// Converts a holder to the form of the history.
pub(crate) fn seen_holder(holder: tollgate_core::HolderView) -> Holder {
    Holder { lease: holder.lease, owner: holder.owner, token: holder.token, mode: holder.mode }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_stands_by_if_it_was_told_last_that_it_waits() {
        type Told = tollgate_replica::Answer<Reading>;
        let (group, lease) = (GroupId::new(0), LeaseId::new(9).unwrap());
        let (name, create_revision) = (Name::new("jobs").unwrap(), Revision::new(7).unwrap());
        let caller = Caller { client: ClientNo(1), call: CallId(1), attempt: 1, group, lane: Lane::Single };
        let wait = WaitView { name: name.clone(), create_revision, lease, attended: true, asks: 1 };
        let mut front = Front::new(1);
        let standing = Standing { group, lease, name, heard: Heard::Nothing };
        front.standing.insert(tollgate_replica::Caller::key(&caller), standing);
        assert!(front.stands_by(group, &wait), "its request is not answered yet");
        // The second copy of the request was refused before the first was answered.
        front.note(&caller, &Told::NotDone(ProposeError::Overloaded { group }));
        assert!(!front.stands_by(group, &wait));
        front.note(&caller, &Told::Queued { create_revision, position: 1 });
        assert!(front.stands_by(group, &wait));
        front.note(&caller, &Told::AskAgain { group, leader: None });
        assert!(!front.stands_by(group, &wait));
    }

    #[test]
    fn a_copy_of_a_request_without_seq_is_taken_once() {
        let mut taken = Taken::default();
        let caller = |call, attempt| Caller {
            client: ClientNo(1),
            call: CallId(call),
            attempt,
            group: GroupId::new(0),
            lane: Lane::Session,
        };
        assert!(taken.is_new(caller(1, 1)));
        assert!(!taken.is_new(caller(1, 1)));
        assert!(taken.is_new(caller(1, 2)));
        for call in 2..20_000 {
            assert!(taken.is_new(caller(call, 1)));
        }
        assert_eq!(taken.set.len(), TAKEN_MAX);
    }
}
