//! The thread that takes turns with the host: all decisions of this node are made here.
//!
//! A turn takes all inputs that have arrived, and gives out its results in the order that the host's contract requires.
//! Not here: waiting for disks (`disk`), sockets (`peers`), and permissions of clients (`tollgate_server`).

use crate::ask::{Ask, Consistency, Look, Sight};
use crate::caller::{Answer, Caller, Sink};
use crate::clock::Clock;
use crate::fault::Fault;
use crate::inbox::Inbox;
use crate::lock_log::LockLog;
use crate::meter::Meter;
use crate::peer_registry::PeerRegistry;
use crate::peers::Peers;
use crate::planted::{Bug, planted};
use crate::status::NodeStatus;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tollgate_core::Renewed;
use tollgate_replica::{
    Dispatcher, Done, Host, HostEvent, Job, MonotonicTime, Output, ReadError, Write, WriteNumber,
};
use tollgate_types::{GroupId, LeaseId, NodeId, WallTime};

/// Input of a driver.
#[derive(Debug)]
pub(crate) enum Input {
    Asked(Caller, Ask),
    /// Requests of a sink, by the numbers that it gave its operations.
    AskedAll(Asking, Vec<(u64, Ask)>),
    /// A frame, and the permit for the memory that it takes until it is processed.
    Frame(NodeId, Vec<u8>, OwnedSemaphorePermit),
    Lost(NodeId),
    Regained(NodeId),
    /// Every first member knows this node's disk.
    TakePart,
    /// A peer says that this node was removed from the cluster.
    Removed(NodeId),
    Persisted(WriteNumber),
    DiskFull(bool),
    JobDone(Box<Done>),
    JobDropped(GroupId),
    /// Hand leadership over and take no more proposals.
    Retire,
    /// Stop.
    Stop,
    Fault(Fault),
}

/// A sink that makes requests.
pub(crate) struct Asking(pub(crate) Arc<dyn Sink>);

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0.stream())
    }
}

/// Receivers of a driver's output.
pub(crate) struct PeerWriters {
    pub(crate) peers: Peers,
    pub(crate) writes: Sender<Write>,
    pub(crate) jobs: Sender<Job>,
    pub(crate) status: watch::Sender<NodeStatus>,
    pub(crate) meter: Arc<dyn Meter>,
    /// None if no notes on locks are taken.
    pub(crate) lock_log: Option<LockLog>,
}

pub(crate) struct Driver {
    host: Host,
    dispatcher: Dispatcher<Caller, Look>,
    inbox: Arc<Inbox<Input>>,
    peer_writers: PeerWriters,
    peer_registry: PeerRegistry,
    clock: Arc<dyn Clock>,
    retiring: bool,
    disk_full: bool,
    /// Sinks that were answered in this turn.
    touched: Vec<Arc<dyn Sink>>,
    /// The sink that was answered last, and its answers: most answers of a turn go to few sinks, one after the other.
    same: Option<Arc<dyn Sink>>,
    for_same: Vec<(u64, Answer)>,
    counted: (u64, u64),
}

/// Returns the time of day according to this machine.
fn wall_time() -> WallTime {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_ms(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX))
}

/// Result of a driver's thread.
pub(crate) type Ending = Result<(), Fault>;

/// Maximum sleep: the status is updated at least that often.
const SLEEP_MAX: Duration = Duration::from_secs(1);

impl Driver {
    pub(crate) fn new(
        host: Host,
        inbox: Arc<Inbox<Input>>,
        peer_writers: PeerWriters,
        peer_registry: PeerRegistry,
        clock: Arc<dyn Clock>,
    ) -> Driver {
        Driver {
            host,
            dispatcher: Dispatcher::new(0),
            inbox,
            peer_writers,
            peer_registry,
            clock,
            retiring: false,
            disk_full: false,
            touched: Vec::new(),
            same: None,
            for_same: Vec::new(),
            counted: (0, 0),
        }
    }

    /// Takes turns until it is told to stop, or can't go on.
    pub(crate) fn run(mut self) -> Ending {
        let mut inputs = Vec::new();
        let mut answers = Vec::new();
        loop {
            let patience = self.patience();
            let count = self.inbox.take(&mut inputs, patience);
            self.peer_writers.meter.turn(count);
            self.host.wall_time(wall_time());
            self.host.begin_turn(self.moment());
            let mut stop = false;
            for input in inputs.drain(..) {
                match input {
                    Input::Fault(fault) => return Err(fault),
                    Input::Stop => stop = true,
                    input => self.take(input),
                }
            }
            self.dispatcher.before_end_turn(&mut self.host);
            let output = self.host.end_turn();
            let diverged = output.events.iter().find_map(divergence);
            self.give_out(output, &mut answers);
            if let Some(fault) = diverged {
                return Err(fault);
            }
            if stop {
                return Ok(());
            }
        }
    }

    /// Returns the time that the driver may sleep if nothing arrives.
    fn patience(&self) -> Duration {
        if self.dispatcher.wants_turn() {
            return Duration::ZERO;
        }
        let us = self.host.next_turn().us().saturating_sub(self.moment().us());
        Duration::from_micros(us).min(SLEEP_MAX)
    }

    fn moment(&self) -> MonotonicTime {
        self.clock.now()
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Asked(caller, ask) => self.asked(caller, ask),
            Input::AskedAll(Asking(sink), asks) => {
                for (operation, ask) in asks {
                    self.asked(Caller::Of(Arc::clone(&sink), operation), ask);
                }
            }
            Input::Frame(from, bytes, _room) => {
                if let Err(error) = self.host.receive(&bytes) {
                    tracing::warn!(%from, %error, "a frame was refused");
                }
            }
            Input::Lost(peer) => self.host.connection_lost(peer),
            Input::Regained(peer) => self.host.connection_regained(peer),
            Input::TakePart => self.host.take_part(!self.peer_registry.is_removed()),
            Input::Removed(by) => self.removed(Some(by)),
            Input::Persisted(number) => self.host.persisted(number),
            Input::DiskFull(full) => {
                self.disk_full = full;
                self.host.disk_full(full);
            }
            Input::JobDone(done) => self.host.job_done(*done),
            Input::JobDropped(group) => self.host.job_dropped(group),
            Input::Retire => {
                self.retiring = true;
                self.host.begin_shutdown();
            }
            Input::Stop | Input::Fault(_) => unreachable!("dealt with by the turn itself"),
        }
    }

    fn asked(&mut self, caller: Caller, ask: Ask) {
        let ask = match ask {
            Ask::Read { group, look, .. } if planted(Bug::StaleReads) => {
                Ask::Read { group, consistency: Consistency::Stale, look }
            }
            Ask::KeepAlive { group, renewal } if planted(Bug::KeepaliveAtOnce) => {
                return self.renewed_at_once(caller, group, renewal.lease);
            }
            ask => ask,
        };
        let (dispatcher, host) = (&mut self.dispatcher, &mut self.host);
        match ask {
            Ask::Command { group, command, fast } => dispatcher.command(caller, group, command, fast, host),
            Ask::HangUp(caller) => dispatcher.hang_up(caller, host),
            Ask::StreamLost { stream } => dispatcher.stream_lost(stream),
            Ask::KeepAlive { group, renewal } => dispatcher.keep_alive(caller, group, renewal),
            Ask::Read { group, consistency: Consistency::Linearizable, look } => {
                dispatcher.read(caller, group, look, host);
            }
            Ask::Read { group, consistency, look } => look(at_once(host, group, consistency)),
            Ask::Inspect(look) => look(host),
            Ask::Watch { watch, group, from, filter, credit } => {
                dispatcher.watch(caller, watch, group, from, *filter, credit);
            }
            Ask::WatchCredit { watch, events } => dispatcher.give_credit(watch, events),
            Ask::Unwatch { watch } => dispatcher.unwatch(watch),
            Ask::ChangeMembers { group, change } => dispatcher.change_members(caller, group, &change, host),
            Ask::TransferLeadership { group, to } => host.transfer_leadership(group, to),
            Ask::TakeSnapshot { group } => host.take_snapshot(group),
        }
    }

    /// Implements a planted bug: renews a lease without a log entry.
    fn renewed_at_once(&mut self, caller: Caller, group: GroupId, lease: LeaseId) {
        let Some(state) = self.host.state(group) else { return };
        let result = state.lease(lease).map(|found| (found.ttl, state.now()));
        let (revision, renewed) = (state.revision(), Renewed { lease, result, home: None });
        self.answer(caller, Answer::Renewed { revision, renewed });
    }

    /// Gives out the results of a turn, in the order of the host's contract.
    fn give_out(&mut self, mut output: Output, answers: &mut Vec<(Caller, Answer)>) {
        for (peer, frame) in output.frames.drain(..) {
            self.peer_writers.peers.send(peer, &frame);
        }
        if let Some(write) = output.write.take() {
            // Fails only if the disk's thread has failed, and then its fault is on its way.
            let _ = self.peer_writers.writes.send(write);
        }
        for job in output.jobs.drain(..) {
            let _ = self.peer_writers.jobs.send(job);
        }
        self.dispatcher.after_turn(&mut output, &self.host, answers);
        // Counted before callers are answered: a caller that reads the metrics then finds itself counted.
        self.peer_writers.meter.waiting(self.dispatcher.pending_count(), self.dispatcher.watch_count());
        for (caller, answer) in answers.drain(..) {
            self.answer(caller, answer);
        }
        self.tell_same();
        for sink in self.touched.drain(..) {
            sink.flush();
        }
        self.tell_of(output);
    }

    fn answer(&mut self, caller: Caller, answer: Answer) {
        match answer {
            Answer::MayRead { group, what } => {
                what(Ok(sight(&self.host, group).expect("a confirmed read has a state to look at")));
            }
            Answer::NotRead { what: Some(look), error } => look(Err(error)),
            answer => {
                let Caller::Of(sink, operation) = caller else { return };
                if self.same.as_ref().is_none_or(|same| !Arc::ptr_eq(same, &sink)) {
                    self.tell_same();
                    self.same = Some(sink);
                }
                self.for_same.push((operation, answer));
            }
        }
    }

    /// Hands the gathered answers to their sink.
    fn tell_same(&mut self) {
        if let Some(sink) = self.same.take()
            && sink.answer_all(self.for_same.drain(..))
        {
            self.touched.push(sink);
        }
    }

    /// Handles the removal of this node from the cluster: it dials nobody and asks for no votes, and can't disturb the
    /// remaining members.
    fn removed(&mut self, by: Option<NodeId>) {
        if !self.peer_registry.remove() {
            return;
        }
        tracing::error!(
            says = by.map_or_else(|| "its own log".to_owned(), |by| format!("node {by}")),
            "this node was removed from the cluster and takes no part any more: stop it and wipe its data directory; \
             to bring the machine back, add it as a new member with `tollgate member add`"
        );
        self.host.take_part(false);
        self.peer_writers.peers.renew(self.peer_registry.renew(&self.host));
    }

    fn tell_of(&mut self, mut output: Output) {
        let mut members_changed = false;
        for event in &output.events {
            self.peer_writers.meter.event(event);
            members_changed |= matches!(event, HostEvent::MembersChanged { .. });
            log(event);
        }
        if members_changed {
            self.peer_writers.peers.renew(self.peer_registry.renew(&self.host));
        }
        if self.host.is_removed() {
            self.removed(None);
        }
        for entry in &mut output.applied {
            if let Some(took_us) = entry.took_us {
                self.peer_writers.meter.committed(entry.commands, Duration::from_micros(took_us));
            }
            let leads = !entry.ended_leases.is_empty() && self.host.leads(entry.group);
            for ended in entry.ended_leases.iter().filter(|_| leads) {
                self.peer_writers.meter.lease_ended(ended.reason);
            }
            if let Some(log) = self.peer_writers.lock_log.as_ref().filter(|_| !entry.notes.is_empty()) {
                log.add(entry.group, std::mem::take(&mut entry.notes));
            }
        }
        let counts = self.dispatcher.counts();
        let (hits, misses) = (counts.fast_answers - self.counted.0, counts.fast_misses - self.counted.1);
        if hits + misses > 0 {
            self.peer_writers.meter.fast_answers(hits, misses);
            self.counted = (counts.fast_answers, counts.fast_misses);
        }
        let status = NodeStatus::of(&self.host, &self.peer_registry, self.retiring, self.disk_full);
        self.peer_writers.status.send_if_modified(|known| {
            let changed = *known != status;
            *known = status;
            changed
        });
    }
}

/// Returns the state for a read that needs no quorum.
fn at_once(host: &Host, group: GroupId, consistency: Consistency) -> Result<Sight<'_>, ReadError> {
    let serves = host.status(group).is_some_and(|status| status.serves);
    if consistency == Consistency::Leader && !serves {
        return Err(ReadError::TimedOut { group });
    }
    sight(host, group).ok_or(ReadError::NoState { group })
}

fn sight(host: &Host, group: GroupId) -> Option<Sight<'_>> {
    let state = host.state(group)?;
    // A leader's time may be ahead of its last entry.
    let now = host.log_time(group).map_or(state.now(), |now| now.max(state.now()));
    let applied = host.status(group)?.applied;
    Some(Sight { state, now, applied })
}

/// Returns the fault of a follower whose state differs from the leader's: a replica that is wrong, or may be, must not
/// vote.
fn divergence(event: &HostEvent) -> Option<Fault> {
    match event {
        HostEvent::StateDiverged { group, index, leads: false, peer, .. } => {
            Some(Fault::Diverged { group: *group, index: *index, leader: *peer })
        }
        _ => None,
    }
}

/// Logs one line for each event that an operator wants to know.
fn log(event: &HostEvent) {
    match event {
        HostEvent::LeadershipGained { group, term } => tracing::info!(%group, term, "this node leads"),
        HostEvent::LeadershipLost { group, term } => tracing::info!(%group, term, "this node leads no more"),
        HostEvent::LeaderChanged { group, leader: Some(leader), term } => {
            tracing::info!(%group, %leader, term, "another leader");
        }
        HostEvent::LeaderChanged { group, leader: None, term } => {
            tracing::info!(%group, term, "no leader is known");
        }
        HostEvent::MembersChanged { group, members } => {
            let shown = |nodes: &BTreeSet<NodeId>| {
                nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            };
            tracing::info!(
                %group,
                voters = shown(&members.voters),
                outgoing = shown(&members.outgoing),
                learners = shown(&members.learners),
                witnesses = shown(&members.witnesses),
                "members changed"
            );
        }
        HostEvent::OutOfRoom { group } => tracing::error!(
            %group,
            "too few disks have room to write anything: make room, it goes on by itself then; who waits is told so"
        ),
        HostEvent::Removed { group } => tracing::warn!(%group, "this node was removed from the group"),
        HostEvent::SnapshotSaved { group, index } => tracing::debug!(%group, index, "snapshot saved"),
        HostEvent::SnapshotInstalled { group, index } => {
            tracing::info!(%group, index, "a peer's snapshot was installed");
        }
        HostEvent::SnapshotDamaged { group, what } => {
            tracing::warn!(%group, what, "a peer's snapshot arrived damaged; it comes again");
        }
        HostEvent::StateAgrees { group, index, peer } => {
            tracing::debug!(%group, index, %peer, "states agree");
        }
        HostEvent::StateDiverged { group, index, leads, ours, peer, theirs } => tracing::error!(
            %group, index, leads, %peer,
            ours = format!("{ours:016x}"), theirs = format!("{theirs:016x}"),
            "the same entries made another state here than on a peer: one of the two is wrong; whichever does not lead \
             stops"
        ),
        HostEvent::BlankVoterRefused { group, node } => tracing::error!(
            %group, %node,
            "a voter came back without its disk and is not listened to: remove it, and add it under a new id"
        ),
        HostEvent::DiskLost { group } => tracing::error!(
            %group,
            "this node once had a vote and its disk is empty: wipe it, and let it join under a new id"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p12_a_follower_whose_state_differs_stops_and_the_leader_goes_on() {
        let (group, index, peer) = (GroupId::new(0), 7, NodeId::new(2).unwrap());
        let diverged = |leads| HostEvent::StateDiverged { group, index, leads, ours: 1, peer, theirs: 2 };
        assert_eq!(divergence(&diverged(false)), Some(Fault::Diverged { group, index, leader: peer }));
        assert_eq!(divergence(&diverged(true)), None);
        assert_eq!(divergence(&HostEvent::StateAgrees { group, index, peer }), None);
    }
}
