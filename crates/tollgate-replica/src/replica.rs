//! One group's member on this node: Raft, the log in memory, and the state that results from the committed entries.
//!
//! Raft decides; this file keeps its bookkeeping in order. The safety of the whole depends on the order in which one
//! round of Raft's output is handled, which is in one place, `drain`: a leader's messages are sent at once, if its disk
//! knows the term in which it leads; messages of other replicas wait until the disk has what they promise; entries are
//! applied only when they are committed and on this disk.
//!
//! The parts are `lead` (stamping, proposing, membership), `room`, `apply`, `snapshots`, `failover`, `comparison` and
//! `group_messaging` (group messages).

mod apply;
mod comparison;
mod failover;
mod group_messaging;
mod lead;
mod room;
mod snapshots;

use crate::frame::{Part, travels};
use crate::log::Log;
use crate::log_entry::LogEntry;
use crate::log_time::LogClock;
use crate::members::Members;
use crate::monotonic_time::MonotonicTime;
use crate::output::{HostEvent, ProposeError, ReadError, ReadId, ReadReply};
use crate::planted::Bug;
use crate::proposals::{Asker, Proposals};
use crate::reads::Reads;
use crate::storage::{GroupWrite, LoadedGroup, ReplicaKind, SnapshotFile, SnapshotMark, Vote, WriteNumber};
use crate::transfer::{Receiving, Sending};
use crate::turn::Turn;
use comparison::Comparison;
use failover::Failover;
use group_messaging::GroupMessaging;
use raft::eraftpb::{HardState, Message, MessageType};
use raft::{RawNode, ReadState, StateRole};
use room::Room;
use snapshots::Pin;
use std::collections::{BTreeMap, VecDeque};
use tollgate_core::{Command, State};
use tollgate_types::{GroupId, LogTime, NodeId};

/// Maximum number of entries for which Raft keeps room between rounds: more than a busy turn appends.
const ENTRIES_ROOM_MAX: usize = 64;

/// The most messages of one replica that wait for the disk.
const PARTS_HELD_MAX: usize = 1_024;

/// Role of a replica in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Leads the group.
    Leader,
}

/// Public status of a replica.
#[derive(Debug, Clone)]
pub struct Status {
    /// Role of the replica.
    pub role: Role,
    /// Raft's term.
    pub term: u64,
    /// The leader, as far as the replica knows.
    pub leader: Option<NodeId>,
    /// Index of the last applied entry.
    pub applied: u64,
    /// Index of the last committed entry, as far as the replica knows.
    pub committed: u64,
    /// Index of the last entry of the log in memory.
    pub last_index: u64,
    /// Index of the first entry of the log in memory.
    pub first_index: u64,
    /// Index of the newest snapshot, 0 if there is none.
    pub snapshot_index: u64,
    /// The members of the group.
    pub members: Members,
    /// Kind of the replica.
    pub kind: ReplicaKind,
    /// True if the replica leads, has applied an entry of its own term, and keeps state: then it may serve clients.
    pub serves: bool,
}

/// Short status of a replica, for routing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brief {
    /// Role of the replica.
    pub role: Role,
    /// Raft's term.
    pub term: u64,
    /// The leader, as far as the replica knows.
    pub leader: Option<NodeId>,
    /// See [`Status::serves`].
    pub serves: bool,
    /// True if the replica leads, can have nothing written for lack of room on disks, and no other member could do
    /// better.
    pub stuck: bool,
}

/// Replication progress of a member, as the leader knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberProgress {
    /// The member.
    pub node: NodeId,
    /// Index up to which the member has the leader's log.
    pub matched: u64,
    /// Number of entries of the leader's log that the member lacks.
    pub behind: u64,
    /// True if the member has recently sent a message in this group, has its disk, and is connected.
    pub active: bool,
    /// True if the member is close enough to the end of the log to get a vote.
    pub caught_up: bool,
    /// True if the member's node has recently been heard from: a new member is blank, and so not active, until its
    /// first snapshot is complete.
    pub connected: bool,
    /// Bytes that the member has received of a snapshot in transfer.
    pub snapshot_received_bytes: u64,
    /// Size of the snapshot in transfer; 0 if there is none.
    pub snapshot_bytes: u64,
}

pub(crate) struct Replica {
    group: GroupId,
    node: NodeId,
    kind: ReplicaKind,
    raw: RawNode<Log>,
    state: Option<State>,
    members: Members,
    applied: u64,
    seen: Seen,
    election_ticks: usize,
    /// Clock of log time; runs while this replica leads, and keeps state.
    clock: Option<LogClock>,
    /// The stamp of the newest stamped entry in the log; kept while leading.
    last_stamp: LogTime,
    /// Apply version of an entry appended after all entries in the log: the log may have a raise that is not applied
    /// yet. Kept while leading.
    log_version: u32,
    /// Commands to be proposed. Boxed, because a command is big and is moved many times.
    queue: Vec<(Asker, Box<Command>)>,
    /// Time since which proposals wait for more.
    gathered_from: MonotonicTime,
    /// Node to which leadership is handed at the end of this turn.
    hand_on_to: Option<NodeId>,
    /// Commit index that the followers were told.
    told_commit: u64,
    /// Time since which there is a newer commit index to tell.
    untold_since: MonotonicTime,
    /// Value of `told_commit` at `untold_since`.
    untold_behind: u64,
    proposals: Proposals,
    reads: Reads,
    outstanding: VecDeque<Outstanding>,
    /// Group write of this turn.
    write: GroupWrite,
    /// The vote as Raft has it. Its commit index, which need not be durable, may be newer than on disk.
    vote: Vote,
    /// The newest term that the disk knows of.
    durable_term: u64,
    sending: BTreeMap<NodeId, Sending>,
    /// Time of each member's last message in this group, sent while it had its disk.
    heard: BTreeMap<NodeId, MonotonicTime>,
    pins: BTreeMap<NodeId, Pin>,
    receiving: Option<Receiving>,
    /// A complete snapshot that is being handed to Raft.
    arrived: Option<(SnapshotFile, Option<Box<State>>)>,
    saving: bool,
    snapshot_asked: bool,
    snapshot_at: MonotonicTime,
    /// Size of the log at which the next snapshot is taken, as this replica's random share of the limit.
    snapshot_part: u64,
    /// Earliest time of the next snapshot.
    save_from: MonotonicTime,
    /// Write after which older snapshots may be removed, and the index below which they go.
    remove_after: Option<(WriteNumber, u64)>,
    /// Index below which removal of the snapshots was already requested.
    removed_below: u64,
    failover: Failover,
    room: Room,
    group_messaging: GroupMessaging,
    comparison: Comparison,
    removed: bool,
    /// Time at which a transfer made for balance alone is given up.
    balanced_until: MonotonicTime,
    /// Earliest time of the next raise of the apply version.
    raise_from: MonotonicTime,
    /// Earliest time of the next proposal of a lineage.
    lineage_from: MonotonicTime,
    /// For a planted bug: the highest stamp ever seen, including truncated entries.
    highest_stamp: LogTime,
    /// For a planted bug: index of the last entry in the log when this replica started.
    replays_to: u64,
    /// For a planted bug: log time that the limit of a turn's step has cut off.
    cut_off_us: u64,
}

/// Last observed state of Raft, to detect changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    term: u64,
    role: StateRole,
    leader: Option<NodeId>,
}

/// A round of Raft's output that waits for the disk.
#[derive(Debug)]
struct Outstanding {
    write: WriteNumber,
    ready: u64,
    term: u64,
    since: MonotonicTime,
    parts: Vec<(NodeId, Part)>,
}

impl Replica {
    pub(crate) fn open(loaded: LoadedGroup, turn: &mut Turn) -> Replica {
        let LoadedGroup { group, kind, vote, snapshot, state, entries } = loaded;
        let config = &turn.config;
        let node = config.node;
        assert_eq!(
            state.is_some(),
            snapshot.is_some() && kind == ReplicaKind::Full,
            "a full replica has the state of its snapshot, a witness has none"
        );
        if let Some(state) = &state {
            apply::must_know(state.apply_version(), turn);
        }
        let election_tick = usize::try_from(config.election_timeout_ms / config.heartbeat_ms).expect("small");
        let members = snapshot.as_ref().map(|file| file.meta.members.clone()).unwrap_or_default();
        let applied = snapshot.as_ref().map_or(0, |file| file.meta.index);
        let entries: Vec<_> = entries.iter().map(LogEntry::to_raft).collect();
        let log = Log::new(vote, snapshot, &entries);
        let last = log.last();
        let settings = raft::Config {
            id: node.number(),
            election_tick,
            heartbeat_tick: 1,
            applied,
            max_size_per_msg: config.message_bytes_max,
            max_inflight_msgs: config.messages_in_flight_max,
            check_quorum: true,
            pre_vote: true,
            min_election_tick: election_tick,
            // A witness waits longer than full replicas, so the range is wider than Raft's usual one.
            max_election_tick: 3 * election_tick + 1,
            read_only_option: raft::ReadOnlyOption::Safe,
            // Never: raft-rs 0.7.0 adds entries to a waiting empty message without comparing indexes, so a follower can
            // be made to acknowledge entries that it does not have (docs/track-record.md).
            batch_append: false,
            skip_bcast_commit: true,
            max_uncommitted_size: config.uncommitted_bytes_max,
            max_committed_size_per_ready: config.message_bytes_max,
            ..raft::Config::default()
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&settings, log, &silent).expect("the settings were validated");
        let boot = turn.randomness.next_u64();
        let mut replica = Replica {
            group,
            node,
            kind,
            seen: Seen { term: raw.raft.term, role: StateRole::Follower, leader: None },
            raw,
            state: state.map(|state| *state),
            members,
            applied,
            election_ticks: election_tick,
            clock: None,
            last_stamp: LogTime::ZERO,
            log_version: 0,
            queue: Vec::new(),
            gathered_from: MonotonicTime::NEVER,
            hand_on_to: None,
            told_commit: 0,
            untold_since: MonotonicTime::NEVER,
            untold_behind: 0,
            proposals: Proposals::default(),
            reads: Reads::new(node, boot),
            outstanding: VecDeque::new(),
            write: GroupWrite::new(group),
            vote,
            durable_term: vote.term,
            sending: BTreeMap::new(),
            heard: BTreeMap::new(),
            pins: BTreeMap::new(),
            receiving: None,
            arrived: None,
            saving: false,
            snapshot_asked: false,
            snapshot_at: turn.now,
            snapshot_part: snapshots::draw_part(turn),
            save_from: turn.now,
            remove_after: None,
            removed_below: 0,
            failover: Failover::default(),
            room: Room::default(),
            group_messaging: GroupMessaging::default(),
            comparison: Comparison::default(),
            removed: false,
            balanced_until: MonotonicTime::NEVER,
            raise_from: turn.now,
            lineage_from: turn.now,
            highest_stamp: LogTime::ZERO,
            replays_to: last,
            cut_off_us: 0,
        };
        replica.draw_election_timeout(turn);
        replica.observe(turn);
        replica
    }

    pub(crate) fn brief(&self) -> Brief {
        let raft = &self.raw.raft;
        let role = match raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::PreCandidate | StateRole::Candidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        };
        let (leader, serves, stuck) = (NodeId::new(raft.leader_id), self.serves(), self.room.stuck);
        Brief { role, term: raft.term, leader, serves, stuck }
    }

    pub(crate) fn status(&self) -> Status {
        let raft = &self.raw.raft;
        let Brief { role, term, leader, serves, .. } = self.brief();
        Status {
            role,
            term,
            leader,
            applied: self.applied,
            committed: raft.raft_log.committed,
            last_index: raft.raft_log.last_index(),
            first_index: raft.raft_log.first_index(),
            snapshot_index: self.log().snapshot_index(),
            members: self.members.clone(),
            kind: self.kind,
            serves,
        }
    }

    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    pub(crate) fn kind(&self) -> ReplicaKind {
        self.kind
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed
    }

    pub(crate) fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) fn plant_in_state(&mut self, bug: tollgate_core::Bug) {
        if let Some(state) = &mut self.state {
            state.plant(bug);
        }
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.seen.leader
    }

    fn log(&self) -> &Log {
        self.raw.store()
    }

    pub(crate) fn leads(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// True if the replica leads, has applied an entry of its own term, and keeps state.
    fn serves(&self) -> bool {
        self.leads() && self.state.is_some() && self.raw.raft.apply_to_current_term()
    }

    /// The stamp of the next entry; none on a replica that may not serve clients.
    pub(crate) fn log_time(&self) -> Option<LogTime> {
        let clock = self.clock.as_ref().filter(|_| self.serves())?;
        Some(clock.now().max(self.last_stamp))
    }

    /// True without log and snapshot: on a member that nothing has reached yet, or that lost its disk.
    pub(crate) fn is_blank(&self) -> bool {
        self.log().snapshot_file().is_none()
    }

    /// Advances log time, once per turn and before anything is stamped.
    pub(crate) fn begin_turn(&mut self, turn: &mut Turn) {
        self.give_up_balancing(turn);
        // No client can renew while nothing can be written: such an outage must not consume leases either.
        let step_max_ms = if self.lacks_room(turn) { 0 } else { turn.config.log_time_step_max_ms };
        let Some(clock) = &mut self.clock else { return };
        if turn.planted.is(Bug::ClampCaughtUp) {
            clock.catch_up(&mut self.cut_off_us, turn.now, step_max_ms);
        }
        clock.advance(turn.now, step_max_ms);
    }

    /// Handles one heartbeat interval.
    pub(crate) fn tick(&mut self, turn: &mut Turn) {
        // One that was removed has no vote to campaign with, but must forget the leader that it last heard from: until
        // then it votes for nobody.
        if !turn.takes_part && !self.removed {
            return;
        }
        if self.leads() || self.may_campaign() || self.removed {
            self.raw.tick();
            self.observe(turn);
        }
    }

    /// Handles a message of Raft from a peer.
    pub(crate) fn step(&mut self, from: NodeId, from_blank: bool, mut message: Message, turn: &mut Turn) {
        if (self.removed && !still_answers(&message)) || !self.may_step(&message, turn) {
            return;
        }
        if from_blank && !self.accepts_blank(from, turn) {
            return;
        }
        if !from_blank && self.members.contains(from) {
            self.heard.insert(from, turn.now);
        }
        if self.is_blank() {
            // A leader that remembers this node's lost log may send a commit index past the end of the log, on which
            // Raft would stop the process; the answer, marked as blank, lets the leader report the problem.
            message.commit = message.commit.min(self.raw.raft.raft_log.last_index());
        }
        // Raft refuses responses of unknown nodes with an error that needs no handling.
        let _ = self.raw.step(message);
        self.observe(turn);
    }

    fn may_step(&self, message: &Message, turn: &Turn) -> bool {
        let kind = message.get_msg_type();
        // A blank replica has forgotten its vote, if it ever voted. It only accepts messages of a leader until the
        // leader has sent it a snapshot.
        let listens = matches!(kind, MessageType::MsgAppend | MessageType::MsgHeartbeat);
        if self.is_blank() && !listens && !turn.planted.is(Bug::BlankVotes) {
            return false;
        }
        if kind == MessageType::MsgTimeoutNow && !self.may_campaign() {
            return false;
        }
        !(turn.disk_full && self.asks_for_room(message))
    }

    /// Decides whether to accept a message of a blank member. A voter can't be blank, because it got its vote when it
    /// had caught up. A blank voter has lost its disk, and with it its promises; it may come back only as a new member.
    fn accepts_blank(&mut self, from: NodeId, turn: &mut Turn) -> bool {
        if turn.planted.is(Bug::BlankVotes) {
            return true;
        }
        if !self.leads() || !self.raw.raft.apply_to_current_term() {
            return false;
        }
        if self.members.is_voter(from) && !turn.planted.is(Bug::BlankVoterServed) {
            turn.send(from, &Part::DiskLost { group: self.group });
            // Messages that the voter sent before its first snapshot may arrive late; by then it is active.
            if !self.is_active(from, turn) {
                turn.event(HostEvent::BlankVoterRefused { group: self.group, node: from });
            }
            return false;
        }
        self.heard.remove(&from);
        if let Some(progress) =
            self.raw.raft.mut_prs().get_mut(from.number()).filter(|known| known.matched > 0)
        {
            // A learner that has lost its disk has nothing of what it once acknowledged.
            progress.snapshot_failure();
            progress.matched = 0;
            progress.become_probe();
        }
        true
    }

    /// True if the member has recently sent a message in this group, and has its disk.
    fn is_active(&self, node: NodeId, turn: &Turn) -> bool {
        let limit_ms = turn.config.election_timeout_ms;
        node == self.node || self.heard.get(&node).is_some_and(|at| turn.now < at.after_ms(limit_ms))
    }

    /// True if Raft may campaign. Before a campaign, Raft reads the entries after its applied index. While an installed
    /// snapshot is not durable, those entries are already gone.
    fn may_campaign(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        log.applied + 1 >= log.first_index()
    }

    /// Handles what the last call into Raft changed. Called after each call, so that no change in between is missed.
    fn observe(&mut self, turn: &mut Turn) {
        let raft = &self.raw.raft;
        let now = Seen { term: raft.term, role: raft.state, leader: NodeId::new(raft.leader_id) };
        let before = std::mem::replace(&mut self.seen, now);
        if (before.term, before.role) != (now.term, now.role) {
            self.draw_election_timeout(turn);
        }
        // Raft draws from the system's randomness whenever it resets itself; a simulation could not be repeated.
        self.raw.raft.set_randomized_election_timeout(self.election_ticks);
        if before == now {
            return;
        }
        let led = before.role == StateRole::Leader;
        let leads = now.role == StateRole::Leader;
        let group = self.group;
        if led && (!leads || before.term != now.term) {
            self.stop_leading(turn);
            turn.event(HostEvent::LeadershipLost { group, term: now.term });
        }
        if leads && (!led || before.term != now.term) {
            self.start_leading(turn);
            turn.event(HostEvent::LeadershipGained { group, term: now.term });
        }
        if before.leader != now.leader {
            turn.event(HostEvent::LeaderChanged { group, leader: now.leader, term: now.term });
            if now.leader.is_some() {
                self.failover = Failover::default();
            }
        }
    }

    fn draw_election_timeout(&mut self, turn: &mut Turn) {
        let ticks = self.raw.raft.election_timeout() as u64;
        let (low, high) = match self.kind {
            ReplicaKind::Full => (ticks, 2 * ticks),
            // A witness must be electable, because it may have the longest log, but full replicas are better leaders.
            ReplicaKind::Witness => (2 * ticks, 3 * ticks),
        };
        let drawn = turn.randomness.between(low, high);
        self.election_ticks = usize::try_from(drawn).expect("a few ticks");
        self.raw.raft.set_randomized_election_timeout(self.election_ticks);
    }

    /// Releases the messages that waited for the writes up to `number`, which are durable now.
    pub(crate) fn persisted(&mut self, number: WriteNumber, turn: &mut Turn) {
        while self.outstanding.front().is_some_and(|outstanding| outstanding.write <= number) {
            let done = self.outstanding.pop_front().expect("looked at above");
            self.raw.on_persist_ready(done.ready);
            self.durable_term = self.durable_term.max(done.term);
            for (to, part) in done.parts {
                turn.send(to, &part);
            }
        }
        self.tell_applied();
        self.observe(turn);
        if self.remove_after.is_some_and(|(write, _)| write <= number) {
            self.remove_old_snapshots(turn);
        }
    }

    /// Tells Raft the applied index. An installed snapshot counts once it is on disk.
    fn tell_applied(&mut self) {
        let log = &self.raw.raft.raft_log;
        if self.applied > log.applied && self.applied <= log.persisted.min(log.committed) {
            self.raw.advance_apply_to(self.applied);
        }
    }

    /// Ends the turn: handles everything that Raft has to send and do.
    pub(crate) fn end_turn(&mut self, turn: &mut Turn) -> Option<GroupWrite> {
        if self.has_more_on_its_way() && !self.queue.is_empty() {
            // Entries that are committed by now are no longer in flight.
            self.drain(turn);
        }
        if !self.removed {
            self.lead(turn);
            self.campaign_if_due(turn);
            self.ask_reads(turn);
            self.tell_commit_if_due(turn);
        }
        self.drain(turn);
        self.note_untold_commit(turn);
        self.answer_reads(turn);
        self.correspond(turn);
        self.carry_snapshots(turn);
        self.take_write(turn)
    }

    fn take_write(&mut self, turn: &mut Turn) -> Option<GroupWrite> {
        let write = std::mem::replace(&mut self.write, GroupWrite::new(self.group));
        if write == GroupWrite::new(self.group) {
            return None;
        }
        let mut write = write;
        // The commit index need not be durable, so it costs no write of its own, but it is added to every write.
        write.vote = Some(self.vote);
        if turn.planted.is(Bug::VoteNotPersisted) {
            write.vote = Some(Vote { voted_for: None, ..self.vote });
        }
        if turn.planted.is(Bug::TermNotPersisted) {
            write.vote = None;
        }
        Some(write)
    }

    /// Handles Raft's output, round by round, until there is none.
    fn drain(&mut self, turn: &mut Turn) {
        while self.raw.has_ready() {
            let mut ready = self.raw.ready();
            let at_once = ready.take_messages();
            if !ready.snapshot().is_empty() {
                self.install(ready.snapshot().get_metadata().index, turn);
            }
            let entries = ready.take_entries();
            self.append(&entries, turn);
            if let Some(hard) = ready.hs() {
                self.vote = vote_of(hard);
            }
            for read in ready.take_read_states() {
                self.read_confirmed(&read);
            }
            let committed = ready.take_committed_entries();
            let mut held = ready.take_persisted_messages();
            if self.speaks_for_lost_term(turn) {
                held.extend(at_once);
            } else {
                for message in at_once {
                    self.send(message, turn);
                }
            }
            let (number, must_sync) = (ready.number(), ready.must_sync());
            if must_sync {
                self.write.vote = Some(self.vote);
            }
            self.raw.advance_append_async(ready);
            self.give_back_room();
            self.hold(number, must_sync, held, turn);
            self.apply(&committed, turn);
            self.tell_applied();
            self.observe(turn);
        }
    }

    /// Frees the memory of a long list of entries. Raft has handed the entries over, but keeps room for as many as
    /// there ever were at once: after one long message to a follower that had been away, for ever.
    fn give_back_room(&mut self) {
        let entries = &mut self.raw.raft.raft_log.unstable.entries;
        if entries.capacity() > ENTRIES_ROOM_MAX {
            entries.shrink_to(ENTRIES_ROOM_MAX);
        }
    }

    /// Number of entries for which Raft keeps room between rounds.
    pub(crate) fn entries_room(&self) -> usize {
        self.raw.raft.raft_log.unstable.entries.capacity()
    }

    /// True if a leader's messages must wait because the disk does not know its term yet. A group's only voter leads
    /// the moment it campaigns, before its disk knows the term. Raft lets it send to learners at once; but after a
    /// crash it would lead in the same term again, and send them other entries under the same index and term.
    fn speaks_for_lost_term(&self, turn: &Turn) -> bool {
        self.vote.term > self.durable_term && !turn.planted.is(Bug::LeadsInLostTerm)
    }

    /// Holds a round's messages until the disk has what they promise.
    fn hold(&mut self, ready: u64, must_sync: bool, messages: Vec<Message>, turn: &mut Turn) {
        let eager = turn.planted.is(Bug::AckBeforeFsync)
            || (turn.planted.is(Bug::WitnessWithoutLog) && self.kind == ReplicaKind::Witness);
        let wait_for = match self.outstanding.back() {
            _ if eager => None,
            _ if must_sync => Some(turn.number),
            last => last.map(|last| last.write),
        };
        let Some(write) = wait_for else {
            for message in messages {
                self.send(message, turn);
            }
            self.raw.on_persist_ready(ready);
            self.durable_term = self.vote.term;
            return;
        };
        let (at_once, messages): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|message| turn.disk_full && self.needs_no_disk(message));
        for message in at_once {
            self.send(message, turn);
        }
        let mut parts: Vec<_> = messages.into_iter().filter_map(|message| self.part(message, turn)).collect();
        // Messages would pile up while a disk hangs; a dropped message is like a lost one.
        let held: usize = self.outstanding.iter().map(|outstanding| outstanding.parts.len()).sum();
        parts.truncate(PARTS_HELD_MAX.saturating_sub(held));
        let term = self.vote.term;
        match self.outstanding.back_mut().filter(|last| last.write == write) {
            Some(last) => {
                (last.ready, last.term) = (ready, term);
                last.parts.append(&mut parts);
            }
            None => self.outstanding.push_back(Outstanding { write, ready, term, since: turn.now, parts }),
        }
    }

    fn append(&mut self, entries: &[raft::eraftpb::Entry], turn: &Turn) {
        let Some(first) = entries.first() else { return };
        self.raw.mut_store().append(entries);
        if turn.planted.is(Bug::MembershipEarly) {
            self.apply_membership_early(entries);
        }
        while self.write.entries.last().is_some_and(|last| last.index >= first.index) {
            self.write.entries.pop();
        }
        self.write.entries.extend(entries.iter().map(LogEntry::from_raft));
        if turn.planted.is(Bug::LogTimeFromMemory) {
            let stamps = entries.iter().filter_map(crate::log_entry::last_stamp);
            self.highest_stamp = stamps.fold(self.highest_stamp, LogTime::max);
        }
    }

    fn send(&mut self, message: Message, turn: &mut Turn) {
        if let Some((to, part)) = self.part(message, turn) {
            turn.send(to, &part);
        }
    }

    /// Converts a message to a part of a frame. A snapshot becomes a transfer instead.
    fn part(&mut self, message: Message, turn: &mut Turn) -> Option<(NodeId, Part)> {
        let to = NodeId::new(message.to)?;
        if message.get_msg_type() == MessageType::MsgSnapshot {
            if !self.leads() {
                return None; // It stepped down in this very turn.
            }
            self.send_snapshot(to, true, turn);
            return None;
        }
        if let Some(first) =
            message.entries.first().filter(|_| message.get_msg_type() == MessageType::MsgAppend)
        {
            assert_eq!(first.index, message.index + 1, "entries follow the one that they are said to follow");
        }
        let sendable = travels(message.get_msg_type()) && to != self.node;
        sendable.then(|| (to, Part::Raft { group: self.group, blank: self.is_blank(), message }))
    }

    /// Requests a linearizable read.
    pub(crate) fn read(&mut self, read: ReadId, turn: &mut Turn) {
        let group = self.group;
        let error = if self.state.is_none() || self.removed {
            ReadError::NoState { group }
        } else if self.reads.len() >= turn.config.reads_max {
            ReadError::Overloaded { group }
        } else {
            return self.reads.ask(read, turn.now);
        };
        turn.out.reads.push(ReadReply { read, group, result: Err(error) });
    }

    fn ask_reads(&mut self, turn: &mut Turn) {
        if let Some(context) = self.reads.next_call(turn.now, turn.config.read_retry_ms) {
            if turn.planted.is(Bug::StaleRead) {
                let index = self.raw.raft.raft_log.committed;
                return self.reads.confirmed(&context, index);
            }
            self.raw.read_index(context);
        }
    }

    fn read_confirmed(&mut self, read: &ReadState) {
        self.reads.confirmed(&read.request_ctx, read.index);
    }

    fn answer_reads(&mut self, turn: &mut Turn) {
        let group = self.group;
        let applied = if turn.planted.is(Bug::ReadBeforeApplied) { u64::MAX } else { self.applied };
        let mut answered = Vec::new();
        self.reads.answered(applied, &mut answered);
        for read in answered {
            if !self.own_read(read, true, turn) {
                turn.out.reads.push(ReadReply { read, group, result: Ok(()) });
            }
        }
        let mut late = Vec::new();
        self.reads.timed_out(turn.now, turn.config.read_timeout_ms, &mut late);
        for read in late {
            if !self.own_read(read, false, turn) {
                turn.out.reads.push(ReadReply { read, group, result: Err(ReadError::TimedOut { group }) });
            }
        }
    }

    /// The latest time at which this replica needs a turn, apart from Raft's ticks.
    pub(crate) fn next_turn(&self, turn: &Turn) -> MonotonicTime {
        if self.removed {
            return MonotonicTime::NEVER;
        }
        let read = self.reads.next_turn(turn.config.read_retry_ms);
        let told = if self.queue.is_empty() {
            self.untold_since.after_ms(turn.config.commit_told_ms)
        } else {
            self.gathered_until(turn)
        };
        read.min(self.next_stamp(turn)).min(self.failover.next_turn()).min(told)
    }

    /// The error for proposals to a replica that does not lead.
    fn not_leader(&self) -> ProposeError {
        let leader = self.seen.leader.filter(|&leader| leader != self.node);
        ProposeError::NotLeader { group: self.group, leader }
    }

    fn mark(&mut self, file: SnapshotFile, restart: bool) {
        if restart {
            self.write.entries.clear();
        }
        self.write.snapshot = Some(SnapshotMark { file, restart });
    }
}

fn vote_of(hard: &HardState) -> Vote {
    Vote { term: hard.term, voted_for: NodeId::new(hard.vote), commit: hard.commit }
}

/// True if a replica that was removed from its group still answers a message. Members that have not learned of the
/// removal may need its vote and its acknowledgements to elect a leader and to learn of it: of two members, the one
/// that stays may have crashed before its disk knew that the removal was committed.
fn still_answers(message: &Message) -> bool {
    use MessageType as T;
    matches!(
        message.get_msg_type(),
        T::MsgRequestPreVote | T::MsgRequestVote | T::MsgAppend | T::MsgHeartbeat
    )
}
