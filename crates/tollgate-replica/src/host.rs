//! This node's replicas of all groups, driven turn by turn. The crate's header lists the caller's duties.
//!
//! The groups are independent of each other; they share the turn: one frame per peer, one write, one clock. Raft's
//! ticks of all groups coincide, so the heartbeats of idle groups are sent in one frame.

use crate::balance;
use crate::config::{HostConfig, InvalidConfig};
use crate::frame::{self, FrameError, Part};
use crate::group_message::GroupMessage;
use crate::members::{MemberChange, MemberRefusal, Members};
use crate::monotonic_time::MonotonicTime;
use crate::output::{HostEvent, Output, ProposalId, ProposeError, ReadError, ReadId, ReadReply};
#[cfg(feature = "planted-bugs")]
use crate::planted::{Bug, Planted};
use crate::randomness::Randomness;
use crate::replica::{Brief, MemberProgress, Replica, Status};
use crate::storage::{
    Done, GroupWrite, Job, LoadedGroup, ReplicaKind, SnapshotMark, SnapshotMeta, Storage, StorageError, Vote,
    Write, WriteNumber,
};
use crate::turn::{Peer, Turn};
use std::collections::BTreeMap;
use std::sync::Arc;
use tollgate_core::{Command, State};
use tollgate_types::{GroupId, GroupMap, Limits, LogTime, NodeId, WallTime};

/// The most heartbeat intervals that count after a pause: input that arrived during the pause must be read before any
/// replica concludes that a leader is silent.
const TICKS_PER_TURN_MAX: u64 = 2;

/// The most nodes that are remembered; groups have far fewer members.
const PEERS_MAX: usize = 1_024;

/// This node's replicas of all groups.
pub struct Host {
    replicas: BTreeMap<GroupId, Replica>,
    turn: Turn,
    in_turn: bool,
    /// Group messages between groups that are both led by this node.
    group_messages: Vec<(GroupId, GroupMessage)>,
    next_tick: MonotonicTime,
    /// Time of the next check whether another node should lead one of the groups.
    balance_at: MonotonicTime,
    /// The newest write handed out.
    written: WriteNumber,
    /// The newest write that is known to be durable.
    persisted: WriteNumber,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("node", &self.turn.config.node)
            .field("groups", &self.replicas.len())
            .finish_non_exhaustive()
    }
}

impl Host {
    /// Makes a host from the result of [`Storage::load`]. Entries known to be committed are applied in the first turn.
    pub fn open(
        config: HostConfig,
        groups: Vec<LoadedGroup>,
        randomness: Box<dyn Randomness + Send>,
        now: MonotonicTime,
    ) -> Result<Host, InvalidConfig> {
        config.validate()?;
        let mut turn = Turn::new(config, randomness, now);
        // Nodes that start together should not tick together: their elections would collide.
        let offset_us = turn.randomness.between(0, turn.config.heartbeat_ms * 1_000);
        let mut replicas = BTreeMap::new();
        for loaded in groups {
            let before = replicas.insert(loaded.group, Replica::open(loaded, &mut turn));
            assert!(before.is_none(), "a group has one replica on a node");
        }
        Ok(Host {
            replicas,
            turn,
            in_turn: false,
            group_messages: Vec::new(),
            next_tick: MonotonicTime::from_us(now.us() + offset_us),
            balance_at: now,
            written: WriteNumber(0),
            persisted: WriteNumber(0),
        })
    }

    /// Begins a turn: advances the time of all groups.
    pub fn begin_turn(&mut self, now: MonotonicTime) {
        assert!(!self.in_turn, "a turn ends before the next begins");
        self.in_turn = true;
        self.turn.now = now.max(self.turn.now);
        for replica in self.replicas.values_mut() {
            replica.begin_turn(&mut self.turn);
        }
        self.pass_ticks();
        for (group, group_message) in std::mem::take(&mut self.group_messages) {
            self.receive_part(self.turn.config.node, Part::GroupMessage { group, group_message });
        }
    }

    fn pass_ticks(&mut self) {
        let interval_us = self.turn.config.heartbeat_ms * 1_000;
        let mut ticks = 0;
        while self.next_tick <= self.turn.now {
            if ticks == TICKS_PER_TURN_MAX {
                self.next_tick = self.turn.now.after_ms(self.turn.config.heartbeat_ms);
                break;
            }
            ticks += 1;
            self.next_tick = MonotonicTime::from_us(self.next_tick.us() + interval_us);
            for replica in self.replicas.values_mut() {
                replica.tick(&mut self.turn);
            }
        }
        if ticks > 0 && self.turn.now >= self.balance_at {
            self.balance();
        }
    }

    /// Hands over a group, if another node leads at least two groups fewer.
    fn balance(&mut self) {
        let every_ms = self.turn.config.balance_ms;
        if every_ms == 0 || self.replicas.len() < 2 {
            return;
        }
        // The interval is random, because nodes that check at the same time choose the same successor.
        self.balance_at = self.turn.now.after_ms(self.turn.randomness.between(every_ms, 2 * every_ms));
        let mut leads: BTreeMap<NodeId, usize> = BTreeMap::new();
        for leader in self.replicas.values().filter_map(Replica::leader) {
            *leads.entry(leader).or_default() += 1;
        }
        let led: Vec<_> =
            self.replicas.values().filter_map(|replica| replica.may_hand_on(&self.turn)).collect();
        let members = self.replicas.values().next().map(Replica::members);
        let found = members.into_iter().flat_map(|members| &members.node_addresses);
        let zones = found.map(|(node, found)| (*node, found.zone.clone())).collect();
        let own = self.turn.config.node;
        if let Some((group, to)) = balance::next_move(own, &led, &leads, &zones)
            && let Some(replica) = self.replicas.get_mut(&group)
        {
            replica.balance(to, &self.turn);
        }
    }

    /// Handles a frame from a peer, as received from the network.
    pub fn receive(&mut self, frame: &[u8]) -> Result<(), FrameError> {
        self.assert_in_turn();
        let (header, parts) = frame::decode(frame)?;
        let config = &self.turn.config;
        if header.cluster != config.cluster {
            return Err(FrameError::OtherCluster { theirs: header.cluster, ours: config.cluster });
        }
        if header.to != config.node || header.from == config.node {
            return Err(FrameError::OtherNode { to: header.to, here: config.node });
        }
        if !self.turn.takes_part {
            return Ok(());
        }
        let frame::Header { apply_version, fit_to_lead, .. } = header;
        let peer = Peer { heard: self.turn.now, apply_version, fit_to_lead };
        if self.turn.peers.len() < PEERS_MAX || self.turn.peers.contains_key(&header.from) {
            self.turn.peers.insert(header.from, peer);
        }
        for part in parts {
            self.receive_part(header.from, part);
        }
        Ok(())
    }

    fn receive_part(&mut self, from: NodeId, part: Part) {
        let group = match &part {
            Part::Raft { group, .. }
            | Part::ChunkAck { group, .. }
            | Part::GroupMessage { group, .. }
            | Part::CompareAt { group, .. }
            | Part::StateHash { group, .. }
            | Part::DiskLost { group } => *group,
            Part::Chunk(chunk) => chunk.group,
        };
        let turn = &mut self.turn;
        let Some(replica) = self.replicas.get_mut(&group) else { return };
        match part {
            Part::Raft { blank, message, .. } => replica.step(from, blank, message, turn),
            Part::Chunk(chunk) => replica.chunk_arrived(from, chunk, turn),
            Part::ChunkAck { transfer, status, .. } => replica.chunk_acked(from, transfer, status, turn),
            Part::GroupMessage { group_message, .. } => match replica.passes_on(from) {
                Some(leader) => turn.send(leader, &Part::GroupMessage { group, group_message }),
                None => replica.group_message(group_message, turn),
            },
            Part::CompareAt { index, .. } => replica.compare_at(from, index),
            Part::StateHash { index, hash, .. } => replica.peer_hashed(from, index, hash, turn),
            Part::DiskLost { .. } if replica.is_blank() => turn.event(HostEvent::DiskLost { group }),
            // The part was meant for an earlier incarnation of this node.
            Part::DiskLost { .. } => {}
        }
    }

    /// Handles a connection from `peer` that broke and could not be reopened at once.
    pub fn connection_lost(&mut self, peer: NodeId) {
        self.assert_in_turn();
        // The peer may come back with another binary: the versions that it supports count once it announces them again.
        self.turn.peers.remove(&peer);
        for replica in self.replicas.values_mut() {
            replica.connection_lost(peer, &mut self.turn);
        }
    }

    /// Handles a connection to `peer` that works again. Lost messages are sent again without further action.
    pub fn connection_regained(&mut self, peer: NodeId) {
        self.assert_in_turn();
        for replica in self.replicas.values_mut() {
            replica.connection_regained(peer);
        }
    }

    /// Proposes a command. The answer comes in [`Output::replies`], of this turn or a later one.
    ///
    /// Within a turn keepalives go first.
    pub fn propose(&mut self, group: GroupId, proposal: ProposalId, command: impl Into<Box<Command>>) {
        self.assert_in_turn();
        match self.replicas.get_mut(&group) {
            Some(replica) => replica.propose(proposal, command.into(), &mut self.turn),
            None => self.turn.refuse(group, proposal, ProposeError::NoSuchGroup { group }),
        }
    }

    /// Proposes a change of membership. The answer comes in [`Output::replies`].
    pub fn change_members(&mut self, group: GroupId, proposal: ProposalId, change: &MemberChange) {
        self.assert_in_turn();
        match self.replicas.get_mut(&group) {
            Some(replica) => replica.change_members(proposal, change, &mut self.turn),
            None => self.turn.refuse(group, proposal, ProposeError::NoSuchGroup { group }),
        }
    }

    /// Requests a linearizable read, on any node that keeps state. Once it is answered in [`Output::reads`],
    /// [`Host::state`] is at least as new as when this was called. Ids from 2^63 on are reserved for the host.
    pub fn read(&mut self, group: GroupId, read: ReadId) {
        self.assert_in_turn();
        assert!(read.0 >> 63 == 0, "{read:?} is one of the host's own");
        if let Some(replica) = self.replicas.get_mut(&group) {
            return replica.read(read, &mut self.turn);
        }
        let result = Err(ReadError::NoState { group });
        self.turn.out.reads.push(ReadReply { read, group, result });
    }

    /// Hands leadership of the group to `to`, or to the best voter. No effect on a replica that does not lead.
    pub fn transfer_leadership(&mut self, group: GroupId, to: Option<NodeId>) {
        self.assert_in_turn();
        if let Some(replica) = self.replicas.get_mut(&group) {
            replica.transfer_leadership(to, &self.turn);
        }
    }

    /// The reason why leadership of the group can't be handed to `to`, or to any node if `to` is none; none if it can,
    /// and none on a replica that does not lead.
    pub fn transfer_refusal(&self, group: GroupId, to: Option<NodeId>) -> Option<MemberRefusal> {
        self.replicas.get(&group)?.transfer_refusal(to, &self.turn)
    }

    /// True if this node leads the group, and is handing leadership over.
    pub fn hands_on(&self, group: GroupId) -> bool {
        self.replicas.get(&group).is_some_and(Replica::hands_on)
    }

    /// Requests a snapshot soon, regardless of the log's size.
    pub fn take_snapshot(&mut self, group: GroupId) {
        self.assert_in_turn();
        if let Some(replica) = self.replicas.get_mut(&group) {
            replica.ask_snapshot();
        }
    }

    /// Reports that all writes up to `number` are durable.
    pub fn persisted(&mut self, number: WriteNumber) {
        self.assert_in_turn();
        assert!(number <= self.written, "{number:?} was never handed out");
        assert!(number >= self.persisted, "writes become durable in order");
        self.persisted = number;
        for replica in self.replicas.values_mut() {
            replica.persisted(number, &mut self.turn);
        }
    }

    /// Reports the result of a job on snapshot files.
    pub fn job_done(&mut self, done: Done) {
        self.assert_in_turn();
        let group = match &done {
            Done::Saved { group, .. }
            | Done::Read { group, .. }
            | Done::Received { group, .. }
            | Done::Completed { group, .. }
            | Done::Hashed { group, .. }
            | Done::Removed { group } => *group,
        };
        if let Some(replica) = self.replicas.get_mut(&group) {
            replica.job_done(done, &mut self.turn);
        }
    }

    /// Reports that a job of the group failed for lack of space. Jobs that still matter are requested again.
    pub fn job_dropped(&mut self, group: GroupId) {
        self.assert_in_turn();
        if let Some(replica) = self.replicas.get_mut(&group) {
            replica.job_dropped(&self.turn);
        }
    }

    /// Reports that writes fail for lack of space, or work again. While they fail, nothing is proposed, and leadership
    /// is handed over if another node can be elected. May also be called between turns.
    pub fn disk_full(&mut self, full: bool) {
        if full != self.turn.disk_full {
            self.turn.full_since = if full { self.turn.now } else { MonotonicTime::NEVER };
        }
        self.turn.disk_full = full;
        self.turn.announce();
    }

    /// Sets the time of day, for people who read the log: entries carry it, and no decision depends on it. Without a
    /// call, entries carry none. May also be called between turns.
    pub fn wall_time(&mut self, wall: WallTime) {
        self.turn.wall = wall;
    }

    /// Sets whether this node takes part in its groups. While it does not, it ignores all messages, gives no vote and
    /// asks for none: it may not take part until the other first members know its disk ([`crate::PeerDisks`]). A host
    /// takes part by default. May also be called between turns.
    pub fn take_part(&mut self, takes_part: bool) {
        self.turn.takes_part = takes_part;
    }

    /// Prepares for the end of the process: leadership is handed over, nothing more is proposed, and peers are told not
    /// to make this node a leader. May also be called between turns.
    pub fn begin_shutdown(&mut self) {
        self.turn.shutting_down = true;
        self.turn.announce();
    }

    /// Ends the turn. The caller must handle the output as the crate's header says.
    pub fn end_turn(&mut self) -> Output {
        self.assert_in_turn();
        self.in_turn = false;
        let mut groups = Vec::new();
        self.give_lineage();
        for replica in self.replicas.values_mut() {
            groups.extend(replica.end_turn(&mut self.turn));
        }
        self.send_group_messages();
        let mut output = self.turn.take_output();
        if !groups.is_empty() {
            let number = self.turn.number;
            self.written = number;
            self.turn.number = WriteNumber(number.0 + 1);
            output.write = Some(Write { number, groups });
        }
        output
    }

    /// Gives the lineage to groups that lack it: all groups of a cluster are of one lineage. A leader without a replica
    /// of the map's group gives none; the next leader may have one.
    fn give_lineage(&mut self) {
        let known = self.replicas.get(&GroupId::MAP).and_then(Replica::state).and_then(State::lineage);
        for replica in self.replicas.values_mut().filter(|replica| replica.lacks_lineage()) {
            replica.give_lineage(known, &mut self.turn);
        }
    }

    fn send_group_messages(&mut self) {
        for (group, group_message) in self.turn.take_group_messages() {
            let replica = self.replicas.get(&group);
            match replica.and_then(|replica| replica.takes_group_messages(self.turn.now)) {
                Some(leader) if leader == self.turn.config.node => {
                    self.group_messages.push((group, group_message));
                }
                Some(other) => self.turn.send(other, &Part::GroupMessage { group, group_message }),
                // The group message is written again, when there may be a leader.
                None => {}
            }
        }
    }

    /// The latest time at which the next turn must begin.
    pub fn next_turn(&self) -> MonotonicTime {
        if !self.group_messages.is_empty() {
            return self.turn.now;
        }
        let own = self.replicas.values().map(|replica| replica.next_turn(&self.turn)).min();
        self.next_tick.min(own.unwrap_or(MonotonicTime::NEVER))
    }

    /// The moment of the current turn, or of the last one.
    pub fn now(&self) -> MonotonicTime {
        self.turn.now
    }

    /// The groups that have a replica on this node.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.replicas.keys().copied()
    }

    /// Status of a group's replica.
    pub fn status(&self, group: GroupId) -> Option<Status> {
        self.replicas.get(&group).map(Replica::status)
    }

    /// Short status of a group's replica, cheap enough to be read in each turn.
    pub fn brief(&self, group: GroupId) -> Option<Brief> {
        self.replicas.get(&group).map(Replica::brief)
    }

    /// The members of a group in this replica's applied state; empty while the replica is blank.
    pub fn members(&self, group: GroupId) -> Option<&Members> {
        self.replicas.get(&group).map(Replica::members)
    }

    /// Number of entries for which a group's replica keeps room though it has none to write, for tests of bounds.
    #[doc(hidden)]
    pub fn entries_room(&self, group: GroupId) -> Option<usize> {
        self.replicas.get(&group).map(Replica::entries_room)
    }

    /// Replication progress of the other members; none unless this node's replica leads.
    pub fn progress(&self, group: GroupId) -> Option<Vec<MemberProgress>> {
        self.replicas.get(&group)?.progress(&self.turn)
    }

    /// True if none of this node's replicas keeps lock state.
    pub fn is_witness(&self) -> bool {
        self.replicas.values().all(|replica| replica.kind() == ReplicaKind::Witness)
    }

    /// True if this node was removed from all its groups, and knows it.
    pub fn is_removed(&self) -> bool {
        !self.replicas.is_empty() && self.replicas.values().all(Replica::is_removed)
    }

    /// True if this node's replica leads the group.
    pub fn leads(&self, group: GroupId) -> bool {
        self.replicas.get(&group).is_some_and(Replica::leads)
    }

    /// Returns the leader of the group, as far as this node knows.
    pub fn leader(&self, group: GroupId) -> Option<NodeId> {
        self.replicas.get(&group).and_then(Replica::leader)
    }

    /// True if a node has been heard from within an election timeout; always true for this node.
    pub fn hears(&self, node: NodeId) -> bool {
        self.turn.is_active(node)
    }

    /// The log time that the next entry would carry; none on a replica that may not serve clients.
    pub fn log_time(&self, group: GroupId) -> Option<LogTime> {
        self.replicas.get(&group).and_then(Replica::log_time)
    }

    /// The applied state of this node's replica. None on a witness, and before the first snapshot arrives.
    pub fn state(&self, group: GroupId) -> Option<&State> {
        self.replicas.get(&group)?.state()
    }

    /// The settings.
    pub fn config(&self) -> &HostConfig {
        &self.turn.config
    }

    /// Plants a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Bug) {
        self.turn.planted = Planted::some(bug);
    }

    /// Plants a bug in the state of every group on this node.
    #[cfg(feature = "planted-bugs")]
    pub fn plant_in_states(&mut self, bug: tollgate_core::Bug) {
        for replica in self.replicas.values_mut() {
            replica.plant_in_state(bug);
        }
    }

    fn assert_in_turn(&self) {
        assert!(self.in_turn, "input comes between begin_turn and end_turn");
    }
}

/// Makes a group's first replica on a node of a new cluster, whose groups are the groups of the map. Each first member
/// calls this once, with equal arguments.
///
/// The log begins after a snapshot of the empty state at index 1: a member that joins later has nothing before that
/// index and so always begins with a snapshot, which contains the members.
pub fn bootstrap(
    storage: &mut dyn Storage,
    node: NodeId,
    group: GroupId,
    map: &Arc<GroupMap>,
    members: &Members,
    limits: Limits,
) -> Result<(), StorageError> {
    bootstrap_from(storage, node, group, members, &State::of_group(limits, group, Arc::clone(map)))
}

/// Like [`bootstrap`], with an initial state from a backup.
pub fn bootstrap_from(
    storage: &mut dyn Storage,
    node: NodeId,
    group: GroupId,
    members: &Members,
    state: &State,
) -> Result<(), StorageError> {
    assert!(members.voters.contains(&node), "a first replica is one of the first members");
    let witness = members.witnesses.contains(&node);
    let meta = SnapshotMeta { index: 1, term: 1, members: members.clone() };
    let snapshot = Box::new(state.snapshot());
    let Done::Saved { file, .. } = storage.perform(Job::Save { group, meta, snapshot })? else {
        unreachable!("a save answers that it saved")
    };
    let mut part = GroupWrite::new(group);
    part.create = Some(if witness { ReplicaKind::Witness } else { ReplicaKind::Full });
    part.snapshot = Some(SnapshotMark { file, restart: true });
    part.vote = Some(Vote { term: 1, voted_for: None, commit: 1 });
    storage.write(&[Write { number: WriteNumber(0), groups: vec![part] }])
}

/// Makes a blank replica on a node that was, or is about to be, added to the group as a learner.
pub fn join(storage: &mut dyn Storage, group: GroupId, kind: ReplicaKind) -> Result<(), StorageError> {
    let mut part = GroupWrite::new(group);
    part.create = Some(kind);
    storage.write(&[Write { number: WriteNumber(0), groups: vec![part] }])
}
