//! Turns of nodes: gives a process its inputs, lets it work, and carries out its outputs.
//!
//! This is the driver that a server has as well, with the caller's duties in the order that `tollgate-replica` asks
//! for. Not here: what clients do with their answers (`clients`).

use super::commits::Heard;
use super::{Happening, World};
use crate::disk_queue::DiskNews;
use crate::network::End;
use crate::node::{Input, Process};
use crate::types::{At, ClientNo, group_of};
use tollgate_check::{Event, History, LeaseEnd};
use tollgate_core::EndReason;
use tollgate_replica::{AppliedEntry, HostEvent, MonotonicTime, Output, acknowledgements};
use tollgate_types::{GroupId, NodeId, WallTime};

/// A state is hashed whenever its applied index crosses a multiple of this.
const HASH_EVERY: u64 = 32;
/// Invariants are checked whenever the applied index crosses a multiple of this: seldom, because the check walks the
/// whole state.
const INVARIANTS_EVERY: u64 = 512;
/// Maximum number of consecutive idle turns: a host that asks for turns again and again and does nothing in them would
/// keep a processor busy.
const IDLE_TURNS_MAX: u32 = 2_000;

impl World {
    /// Puts an input into a node's inbox, and plans a turn. Inputs for a dead process are lost.
    pub(super) fn give(&mut self, number: u64, input: Input) {
        let turn_us_max = self.scenario.turn_us_max;
        let now = self.now;
        let node = self.node(number);
        let Some(process) = &mut node.process else { return };
        process.inbox.push(input);
        let at = now + 1 + node.rng.below(turn_us_max);
        self.plan_turn(number, at);
    }

    /// Plans the next turn of a node at `at`, unless it is sooner anyway.
    pub(super) fn plan_turn(&mut self, number: u64, at: At) {
        let node = self.node(number);
        let at = at.max(node.paused_until);
        if at >= node.turn_at {
            return;
        }
        node.turn_at = at;
        node.turn_ticket += 1;
        let ticket = node.turn_ticket;
        if at != At::MAX {
            self.plan(at, Happening::Turn { node: number, ticket });
        }
    }

    pub(super) fn turn(&mut self, number: u64, ticket: u64) {
        let now = self.now;
        let node = self.nodes.get_mut(&number).expect("nodes are never forgotten");
        if node.turn_ticket != ticket {
            return;
        }
        node.turn_at = At::MAX;
        if node.paused_until > now {
            let until = node.paused_until;
            self.plan_turn(number, until);
            return;
        }
        let Some(process) = &mut node.process else { return };
        self.stats.turns += 1;
        let moment = node.clock.moment(now);
        let inputs = process.inbox.len();
        self.trace.mix([number, now, inputs as u64]);
        let matters = self.commits.leads_any(number);
        let frames = process.inbox.iter().filter(|_| matters);
        self.commits.turn(frames.flat_map(|input| heard(number, input)).collect());
        process.host.wall_time(wall_time(number, moment));
        process.host.begin_turn(moment);
        for input in std::mem::take(&mut process.inbox) {
            take(process, input, now, &mut self.history);
        }
        process.front.before_end_turn(&mut process.host, now, &mut self.history);
        let output = process.host.end_turn();
        node.idle_turns = if inputs == 0 && is_empty(&output) { node.idle_turns + 1 } else { 0 };
        if node.idle_turns == IDLE_TURNS_MAX && !self.spun {
            self.spun = true;
            self.violation(format!("n{number} took {IDLE_TURNS_MAX} turns on end in which nothing happened"));
        }
        self.give_out(number, output);
        if self.trace.echo {
            self.say_status(number);
        }
    }

    /// Adds the status of a node's groups to the trace, where it has changed since it was last added.
    fn say_status(&mut self, number: u64) {
        for group in self.groups() {
            let Some(status) = self.nodes[&number].status(group) else { continue };
            let says = format!(
                "n{number} group {group} {:?} term {} leader {:?} log {} to {} committed {} applied {}",
                status.role,
                status.term,
                status.leader.map(NodeId::number),
                status.first_index,
                status.last_index,
                status.committed,
                status.applied
            );
            let last = self.said.entry((number, group)).or_default();
            if *last != says {
                last.clone_from(&says);
                self.say(|| says);
            }
        }
    }

    /// Carries out the output of a turn, in the order of the replica's contract.
    fn give_out(&mut self, number: u64, mut output: Output) {
        let now = self.now;
        for (peer, bytes) in std::mem::take(&mut output.frames) {
            self.send_frame(number, peer.number(), bytes);
        }
        let node = self.nodes.get_mut(&number).expect("nodes are never forgotten");
        let mut votes = false;
        if let Some(write) = output.write.take() {
            let term = write.groups.iter().filter_map(|group| group.vote).map(|vote| vote.term).max();
            votes = term.is_some_and(|term| term > node.term_seen);
            node.term_seen = node.term_seen.max(term.unwrap_or(0));
            node.queue.push_write(write);
        }
        node.queue.push_jobs(std::mem::take(&mut output.jobs));
        self.plan_disk(number);
        if votes {
            self.votes(number);
        }
        self.note_proposed(number);
        self.record_ends(number, &output.applied);
        let node = self.nodes.get_mut(&number).expect("nodes are never forgotten");
        let process = node.process.as_mut().expect("it just took a turn");
        let mut answers = Vec::new();
        let before = process.front.counts().fast_answers;
        process.front.output(&mut output, &process.host, &mut answers);
        self.stats.fast_answers += process.front.counts().fast_answers - before;
        let next = node.clock.when(now, process.host.next_turn().us());
        let next = if process.front.wants_turn() { now } else { next };
        // A host that wants to go on at once still takes a moment.
        self.plan_turn(number, next.max(now + 10));
        for (client, response) in answers {
            self.send_response(number, client, response);
        }
        self.look_at_applied(number, &output.applied);
        for event in std::mem::take(&mut output.events) {
            self.host_event(number, &event);
        }
        self.operator_replies(output.replies);
        self.waits_read(number, &output.reads);
        self.final_reads(number, output.reads);
    }

    fn send_frame(&mut self, from: u64, to: u64, bytes: Vec<u8>) {
        self.trace.mix_bytes(&bytes);
        let (arrivals, epoch) = self.network.send(self.now, End::Node(from), End::Node(to));
        let sent = self.now;
        if let Some(at) = arrivals[1] {
            self.plan(at, Happening::Frame { from, to, epoch, sent, bytes: bytes.clone() });
        }
        if let Some(at) = arrivals[0] {
            self.commits.sent(sent, from, to, at - sent);
            self.plan(at, Happening::Frame { from, to, epoch, sent, bytes });
        }
    }

    pub(super) fn frame_arrives(&mut self, from: u64, to: u64, epoch: u32, sent: At, bytes: Vec<u8>) {
        if self.nodes.contains_key(&to) && self.network.is_current(End::Node(from), End::Node(to), epoch) {
            let way_us = self.now - sent;
            self.give(to, Input::Frame { from, way_us, bytes });
        }
    }

    pub(super) fn plan_disk(&mut self, number: u64) {
        let now = self.now;
        let node = self.node(number);
        let Some(at) = node.queue.start(now) else { return };
        if at < node.disk_at
            && let Some(process) = &node.process
        {
            let boot = process.boot;
            node.disk_at = at;
            self.plan(at, Happening::Disk { node: number, boot });
        }
    }

    pub(super) fn disk_works(&mut self, number: u64, boot: u64) {
        let now = self.now;
        let node = self.node(number);
        if node.process.as_ref().is_none_or(|process| process.boot != boot) {
            return;
        }
        if node.disk_at <= now {
            node.disk_at = At::MAX;
        }
        let mut news = Vec::new();
        node.queue.run(now, &mut node.disk, &mut news);
        for item in news {
            if matches!(item, DiskNews::Failed) {
                self.fsync_failed(number);
                return;
            }
            self.give(number, Input::Disk(item));
        }
        self.plan_disk(number);
    }

    /// Records the ends of leases when the first node applies them.
    fn record_ends(&mut self, number: u64, applied: &[AppliedEntry]) {
        self.stats.entries_applied += applied.len() as u64;
        for entry in applied {
            let recorded = &mut self.recorded[entry.group.number() as usize];
            if entry.index <= *recorded {
                continue;
            }
            *recorded = entry.index;
            if entry.ended_leases.is_empty() {
                continue;
            }
            let carried_us = self.carried_us(number, entry.group, entry.index);
            for ended in &entry.ended_leases {
                let stub = group_of(ended.lease.slot(), self.scenario.groups) != entry.group;
                let event = Event::LeaseEnded {
                    group: entry.group,
                    lease: ended.lease,
                    incarnation: ended.incarnation,
                    reason: lease_end(ended.reason),
                    revision: entry.revision,
                    stub,
                    carried_us,
                };
                self.history.record(tollgate_check::At::from_us(self.now), event);
            }
        }
    }

    /// Hashes the states that have come far enough since the last time (P12), and now and then checks their invariants.
    fn look_at_applied(&mut self, number: u64, applied: &[AppliedEntry]) {
        let mut last: Option<(GroupId, u64)> = None;
        for entry in applied {
            match last {
                Some((group, _)) if group == entry.group => last = Some((group, entry.index)),
                Some((group, index)) => {
                    self.hash_state(number, group, index);
                    last = Some((entry.group, entry.index));
                }
                None => last = Some((entry.group, entry.index)),
            }
        }
        if let Some((group, index)) = last {
            self.hash_state(number, group, index);
        }
    }

    fn hash_state(&mut self, number: u64, group: GroupId, index: u64) {
        let process =
            self.nodes.get_mut(&number).and_then(|node| node.process.as_mut()).expect("it took a turn");
        let before = std::mem::replace(&mut process.hashed[group.number() as usize], index);
        if before / HASH_EVERY == index / HASH_EVERY {
            return;
        }
        let Some(state) = process.host.state(group) else { return };
        let hash = state.snapshot().hash();
        if before / INVARIANTS_EVERY != index / INVARIANTS_EVERY {
            state.assert_invariants();
        }
        self.stats.hashes += 1;
        self.trace.mix([number, index, hash]);
        let node = u32::try_from(number).expect("few nodes");
        self.record(Event::Applied { node, group, index, hash });
    }

    fn host_event(&mut self, number: u64, event: &HostEvent) {
        self.say(|| format!("n{number} {event:?}"));
        match event {
            HostEvent::LeadershipGained { group, .. } => {
                self.stats.elections += 1;
                self.elected(number, *group);
                self.look_at_leaders();
            }
            HostEvent::LeadershipLost { .. } => self.look_at_leaders(),
            HostEvent::SnapshotSaved { .. } => self.stats.snapshots_saved += 1,
            HostEvent::SnapshotInstalled { group, index } => {
                self.stats.snapshots_installed += 1;
                if let Some(process) = &mut self.node(number).process {
                    process.hashed[group.number() as usize] = index.saturating_sub(HASH_EVERY);
                }
            }
            HostEvent::SnapshotDamaged { .. } => self.stats.snapshots_damaged += 1,
            HostEvent::BlankVoterRefused { .. } => self.stats.blank_voters_refused += 1,
            HostEvent::DiskLost { .. } => self.blank_refused(number),
            HostEvent::StateAgrees { .. } => self.stats.states_agreed += 1,
            HostEvent::StateDiverged { group, index, peer, .. } => {
                self.violation(format!("P12: n{number} and n{peer} differ in group {group} at {index}"));
            }
            HostEvent::LeaderChanged { .. }
            | HostEvent::MembersChanged { .. }
            | HostEvent::OutOfRoom { .. }
            | HostEvent::Removed { .. } => {}
        }
    }
}

/// Returns the time of day that a node believes in: a different one on each node, and none at all on some.
fn wall_time(node: u64, moment: MonotonicTime) -> WallTime {
    let off_ms = (node % 4) * 86_400_000 * 365;
    if node % 4 == 3 { WallTime::UNKNOWN } else { WallTime::from_unix_ms(off_ms + moment.us() / 700) }
}

fn is_empty(output: &Output) -> bool {
    let Output { frames, write, jobs, replies, reads, applied, events } = output;
    frames.is_empty()
        && write.is_none()
        && (jobs.is_empty() && replies.is_empty() && reads.is_empty())
        && (applied.is_empty() && events.is_empty())
}

/// Returns the acknowledgements in a frame to a node, with the time that the frame was under way.
fn heard(to: u64, input: &Input) -> Vec<Heard> {
    let Input::Frame { from, way_us, bytes } = input else { return Vec::new() };
    let (from, way_us) = (*from, *way_us);
    let acknowledged =
        acknowledgements(bytes).expect("frames are whole, and nobody here speaks another language");
    acknowledged.into_iter().map(|acknowledged| Heard { from, to, way_us, acknowledged }).collect()
}

/// Hands one input to the host or the front.
fn take(process: &mut Process, input: Input, now: At, history: &mut History) {
    let host = &mut process.host;
    match input {
        Input::Frame { bytes, .. } => {
            host.receive(&bytes).expect("frames are whole, and nobody here speaks another language");
        }
        Input::Request(client, request) => process.front.request(client, *request, host, now, history),
        Input::Lost(peer) => host.connection_lost(peer),
        Input::Regained(peer) => host.connection_regained(peer),
        Input::Disk(DiskNews::Persisted(number)) => host.persisted(number),
        Input::Disk(DiskNews::Done(done)) => host.job_done(*done),
        Input::Disk(DiskNews::Dropped(group)) => host.job_dropped(group),
        Input::Disk(DiskNews::Full(full)) => host.disk_full(full),
        Input::Disk(DiskNews::Failed) => unreachable!("the process is gone by then"),
        Input::Change(group, proposal, change) => host.change_members(group, proposal, &change),
        Input::Propose(group, proposal, command) => host.propose(group, proposal, command),
        Input::Read(group, read) => host.read(group, read),
        Input::Transfer(group, to) => host.transfer_leadership(group, to),
        Input::Snapshot(group) => host.take_snapshot(group),
        Input::Stop => host.begin_shutdown(),
    }
}

fn lease_end(reason: EndReason) -> LeaseEnd {
    match reason {
        EndReason::LeaseRevoked => LeaseEnd::Revoked,
        EndReason::Disconnected => LeaseEnd::Disconnected,
        _ => LeaseEnd::Expired,
    }
}

impl World {
    fn send_response(&mut self, from: u64, to: ClientNo, response: crate::front::Response) {
        let (arrivals, epoch) = self.network.send(self.now, End::Node(from), End::Client(to.0));
        if let Some(at) = arrivals[1] {
            let response = Box::new(response.clone());
            self.plan(at, Happening::Response { from, to, epoch, response });
        }
        if let Some(at) = arrivals[0] {
            self.plan(at, Happening::Response { from, to, epoch, response: Box::new(response) });
        }
    }

    pub(super) fn request_arrives(
        &mut self,
        from: ClientNo,
        to: u64,
        epoch: u32,
        request: Box<crate::front::Request>,
    ) {
        if self.nodes.contains_key(&to) && self.network.is_current(End::Client(from.0), End::Node(to), epoch)
        {
            self.give(to, Input::Request(from, request));
        }
    }
}
