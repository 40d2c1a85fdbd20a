//! Snapshots: when a replica takes one, how it is sent to a peer, and how a peer's snapshot is installed.
//!
//! A replica takes snapshots of its own state, leader or not, and then shortens its log whether or not any follower
//! still needs the head. A follower that does gets the snapshot. A received snapshot is stored, checked and loaded
//! before Raft is told, so installing it is one step. A witness can't take snapshots: the leader sends it each of its
//! own, and the witness shortens its log by them without loading them.

use super::Replica;
use super::apply::must_know;
use crate::config::HostConfig;
use crate::frame::{Chunk, ChunkStatus, Part};
use crate::log::{Keep, to_raft};
use crate::monotonic_time::MonotonicTime;
use crate::output::HostEvent;
use crate::planted::Bug;
use crate::storage::{Completion, Done, Job, ReplicaKind, SnapshotFile, SnapshotMeta, TransferId};
use crate::transfer::{Arrival, Receiving, Sending};
use crate::turn::Turn;
use bytes::Bytes;
use raft::SnapshotStatus;
use raft::eraftpb::{Message, MessageType};
use tollgate_types::NodeId;

/// Factor by which the log may exceed its usual size for peers that are being sent a snapshot.
const LOG_PINNED_FACTOR: u64 = 4;

/// Protection of the entries after a snapshot that a peer has received; they stay for a while.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pin {
    index: u64,
    until: MonotonicTime,
}

/// Delay of the next attempt after a snapshot that found no room.
const SAVE_AGAIN_MS: u64 = 5_000;

/// Draws the share of the log limit that causes a snapshot, in units of 1 / [`PARTS`]. Replicas have logs of the same
/// length: each draws another share, or all nodes would be busy with snapshots at the same time.
pub(super) fn draw_part(turn: &mut Turn) -> u64 {
    turn.randomness.between(PARTS * 3 / 4, PARTS)
}

const PARTS: u64 = 256;

/// Factor by which the log may exceed the size that usually causes a snapshot, after a large snapshot.
const LOG_GROWTH_MAX: u64 = 2;

fn log_bytes_max(config: &HostConfig) -> u64 {
    config.snapshot_log_bytes.saturating_mul(LOG_GROWTH_MAX)
}

impl Replica {
    /// Requests a snapshot.
    pub(crate) fn ask_snapshot(&mut self) {
        self.snapshot_asked = true;
    }

    /// Takes a snapshot if it is due, and continues transfers. Called at the end of a turn.
    pub(super) fn carry_snapshots(&mut self, turn: &mut Turn) {
        self.take_snapshot_if_due(turn);
        let mut lost = Vec::new();
        for (&peer, sending) in &mut self.sending {
            if sending.is_alive(turn.now, &turn.config) {
                sending.jobs(self.group, peer, &turn.config, &mut turn.out.jobs);
            } else {
                lost.push(peer);
            }
        }
        for peer in lost {
            self.end_sending(peer, SnapshotStatus::Failure, turn);
        }
        let timeout_ms = turn.config.transfer_timeout_ms;
        if self.receiving.as_ref().is_some_and(|receiving| !receiving.is_alive(turn.now, timeout_ms)) {
            self.receiving = None;
        }
    }

    fn take_snapshot_if_due(&mut self, turn: &mut Turn) {
        self.snapshot_asked |= self.log().take_snapshot_wanted();
        let Some(state) = &self.state else { return };
        let config = &turn.config;
        let log = self.log();
        let is_long = log.bytes_since_snapshot() > self.snapshot_log_bytes(config);
        let old = turn.now >= self.snapshot_at.after_ms(config.snapshot_age_ms);
        let news = self.applied > log.snapshot_index();
        let can = !self.saving && !self.removed && !turn.disk_full && turn.now >= self.save_from;
        if !can || !news || !(self.snapshot_asked || is_long || old) {
            return;
        }
        let term = log.term_of(self.applied).expect("the log reaches back to what is applied");
        let mut index = self.applied;
        if turn.planted.is(Bug::SnapshotIndexAhead) && log.term_of(index + 1) == Some(term) {
            index += 1;
        }
        let meta = SnapshotMeta { index, term, members: self.members.clone() };
        let snapshot = Box::new(state.snapshot());
        turn.out.jobs.push(Job::Save { group: self.group, meta, snapshot });
        self.saving = true;
        self.snapshot_asked = false;
        self.snapshot_at = turn.now;
        self.snapshot_part = draw_part(turn);
    }

    /// Size of the log since the last snapshot that causes the next one. A snapshot is written whole: if it was larger
    /// than that log, most of the disk's writes would be snapshots. So a large snapshot waits for more log, but only up
    /// to a bound: the log is in memory.
    fn snapshot_log_bytes(&self, config: &HostConfig) -> u64 {
        let last_bytes = self.log().snapshot_file().map_or(0, |file| file.size);
        let (least, most) = (config.snapshot_log_bytes, log_bytes_max(config));
        last_bytes.clamp(least, most).saturating_mul(self.snapshot_part) / PARTS
    }

    /// Handles the result of a job.
    pub(crate) fn job_done(&mut self, done: Done, turn: &mut Turn) {
        match done {
            Done::Saved { file, .. } => self.saved(file, turn),
            Done::Read { transfer, peer, offset, bytes, .. } => {
                self.piece_read(transfer, peer, offset, bytes, turn);
            }
            Done::Received { transfer, peer, next, .. } => self.piece_stored(transfer, peer, next, turn),
            Done::Completed { transfer, outcome, .. } => self.completed(transfer, outcome, turn),
            Done::Removed { .. } => {}
            Done::Hashed { index, hash, .. } => self.hashed(index, hash, turn),
        }
    }

    /// Handles a dropped job: a snapshot is taken later, and a transfer begins again. Pieces to be sent are read again
    /// anyway.
    pub(crate) fn job_dropped(&mut self, turn: &Turn) {
        self.saving = false;
        self.receiving = None;
        self.sending.values_mut().for_each(Sending::forget_reads);
        // Otherwise snapshots would be tried without a pause for as long as there is no room.
        self.save_from = turn.now.after_ms(SAVE_AGAIN_MS);
    }

    fn saved(&mut self, file: SnapshotFile, turn: &mut Turn) {
        self.saving = false;
        let index = file.meta.index;
        if index <= self.log().snapshot_index() {
            return; // Meanwhile a newer one was installed.
        }
        self.adopt(file, turn);
        turn.event(HostEvent::SnapshotSaved { group: self.group, index });
        if self.leads() {
            for witness in self.members.witnesses.clone() {
                if witness != self.node && !self.sending.contains_key(&witness) {
                    self.send_snapshot(witness, false, turn);
                }
            }
        }
    }

    /// Makes a complete snapshot of applied state the one after which the log begins.
    fn adopt(&mut self, file: SnapshotFile, turn: &Turn) {
        let index = file.meta.index;
        let keep = self.what_to_keep(turn);
        self.raw.mut_store().saved(file.clone(), keep);
        self.mark(file, false);
        self.remove_after = Some((turn.number, index));
    }

    /// The part of the log to keep. A peer that is being sent a snapshot needs the entries after it next. If they were
    /// removed in the meantime it would need a newer snapshot, and so on for ever, where snapshots are taken faster
    /// than they are sent. So they stay until the peer has caught up, for a time and up to a size, so that no peer can
    /// keep the log from shrinking.
    fn what_to_keep(&mut self, turn: &Turn) -> Keep {
        let config = &turn.config;
        let prs = self.raw.raft.prs();
        self.pins.retain(|peer, pin| {
            let matched = prs.get(peer.number()).map_or(u64::MAX, |progress| progress.matched);
            turn.now < pin.until && matched <= pin.index
        });
        let sent = self.sending.values().map(|sending| sending.file.meta.index);
        let behind = sent.chain(self.pins.values().map(|pin| pin.index)).min();
        Keep {
            bytes: config.log_kept_bytes,
            behind: behind.unwrap_or(u64::MAX),
            bytes_max: LOG_PINNED_FACTOR * (log_bytes_max(config) + config.log_kept_bytes),
        }
    }

    /// Removes older snapshots once the mark of the newer one is durable; a snapshot that is being sent stays.
    pub(super) fn remove_old_snapshots(&mut self, turn: &mut Turn) {
        let Some((_, index)) = self.remove_after else { return };
        let sent = self.sending.values().map(|sending| sending.file.meta.index).min();
        let below = sent.map_or(index, |sent| sent.min(index));
        // While a transfer holds an older snapshot back, the same removal would be requested with every write.
        if below > self.removed_below {
            turn.out.jobs.push(Job::Remove { group: self.group, below });
            self.removed_below = below;
        }
        if below == index {
            self.remove_after = None;
        }
    }

    pub(super) fn send_snapshot(&mut self, to: NodeId, for_raft: bool, turn: &mut Turn) {
        let Some(file) = self.log().snapshot_file().cloned() else { return };
        let same = |sending: &Sending| {
            sending.file.meta.index == file.meta.index && sending.term == self.raw.raft.term
        };
        if let Some(sending) = self.sending.get_mut(&to).filter(|sending| same(sending)) {
            sending.for_raft |= for_raft;
            return;
        }
        let term = self.raw.raft.term;
        let sending = Sending::new(turn.next_transfer(), file, term, for_raft, turn.now);
        self.sending.insert(to, sending);
    }

    fn end_sending(&mut self, peer: NodeId, status: SnapshotStatus, turn: &mut Turn) {
        let ended = self.sending.remove(&peer);
        if let (Some(sending), SnapshotStatus::Finish) = (&ended, status) {
            let until = turn.now.after_ms(turn.config.transfer_timeout_ms);
            self.pins.insert(peer, Pin { index: sending.file.meta.index, until });
        }
        if ended.is_some_and(|sending| sending.for_raft) {
            self.raw.report_snapshot(peer.number(), status);
            self.observe(turn);
        }
    }

    fn piece_read(
        &mut self,
        transfer: TransferId,
        peer: NodeId,
        offset: u64,
        bytes: Option<Bytes>,
        turn: &mut Turn,
    ) {
        let of_transfer = |sending: &&mut Sending| sending.transfer == transfer;
        let Some(sending) = self.sending.get_mut(&peer).filter(of_transfer) else { return };
        sending.was_read(turn.now);
        if let Some(bytes) = bytes {
            turn.send(peer, &Part::Chunk(sending.chunk(self.group, offset, bytes)));
        } else {
            // The file on this node is gone or damaged; a new snapshot replaces it.
            self.snapshot_asked = true;
            self.end_sending(peer, SnapshotStatus::Failure, turn);
        }
    }

    /// Handles a peer's progress report.
    pub(crate) fn chunk_acked(
        &mut self,
        peer: NodeId,
        transfer: TransferId,
        status: ChunkStatus,
        turn: &mut Turn,
    ) {
        let Some(sending) = self.sending.get_mut(&peer) else { return };
        if sending.transfer != transfer {
            return;
        }
        match status {
            ChunkStatus::Next(next) => sending.acked(next, turn.now),
            ChunkStatus::Done => self.end_sending(peer, SnapshotStatus::Finish, turn),
            ChunkStatus::Failed => self.end_sending(peer, SnapshotStatus::Failure, turn),
        }
    }

    /// Handles a piece of a peer's snapshot.
    pub(crate) fn chunk_arrived(&mut self, peer: NodeId, chunk: Chunk, turn: &mut Turn) {
        if self.removed || turn.disk_full {
            return;
        }
        let (transfer, group) = (chunk.transfer, self.group);
        let ack = |status| Part::ChunkAck { group, transfer, status };
        if chunk.file.meta.index <= self.log().snapshot_index() {
            return turn.send(peer, &ack(ChunkStatus::Done));
        }
        if !self.receiving.as_ref().is_some_and(|receiving| receiving.is(peer, transfer)) {
            if chunk.offset != 0 {
                return turn.send(peer, &ack(ChunkStatus::Failed));
            }
            self.receiving = Some(Receiving::new(peer, &chunk, turn.now));
        }
        let receiving = self.receiving.as_mut().expect("just made sure of");
        match receiving.arrived(chunk, turn.now) {
            Arrival::Store { offset, bytes } => {
                turn.out.jobs.push(Job::Receive { group, transfer, peer, offset, bytes });
            }
            Arrival::Repeat(status) => turn.send(peer, &ack(status)),
            Arrival::Ignore => {}
        }
    }

    fn piece_stored(&mut self, transfer: TransferId, peer: NodeId, next: u64, turn: &mut Turn) {
        let load = self.kind == ReplicaKind::Full;
        let Some(receiving) = self.receiving.as_mut().filter(|receiving| receiving.is(peer, transfer)) else {
            return;
        };
        if receiving.stored(next) {
            let file = receiving.file.clone();
            turn.out.jobs.push(Job::Complete { group: self.group, transfer, file, load });
        } else {
            let status = ChunkStatus::Next(next);
            turn.send(peer, &Part::ChunkAck { group: self.group, transfer, status });
        }
    }

    fn completed(&mut self, transfer: TransferId, outcome: Completion, turn: &mut Turn) {
        let Some(receiving) = self.receiving.take_if(|receiving| receiving.transfer == transfer) else {
            return;
        };
        let group = self.group;
        let ack = |status| Part::ChunkAck { group, transfer, status };
        let (file, state) = match outcome {
            Completion::Loaded(file, state) => {
                must_know(state.apply_version(), turn);
                (file, Some(state))
            }
            Completion::Kept(file) => (file, None),
            Completion::Damaged(what) => {
                turn.event(HostEvent::SnapshotDamaged { group, what });
                return turn.send(receiving.peer, &ack(ChunkStatus::Failed));
            }
        };
        turn.send(receiving.peer, &ack(ChunkStatus::Done));
        if file.meta.index <= self.applied {
            if file.meta.index > self.log().snapshot_index() {
                self.adopt(file, turn);
            }
            return;
        }
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgSnapshot);
        message.from = receiving.peer.number();
        message.to = self.node.number();
        message.term = receiving.term;
        message.set_snapshot(to_raft(&file));
        self.arrived = Some((file, state));
        // Raft takes the snapshot or not (it may be of an old term, or no longer needed); `install` is called only if
        // it does.
        let _ = self.raw.step(message);
        self.observe(turn);
        self.drain(turn);
        self.arrived = None;
    }

    /// Installs the received snapshot, which Raft has taken: it replaces log, members and state.
    pub(super) fn install(&mut self, index: u64, turn: &mut Turn) {
        let (file, state) = self.arrived.take().expect("a snapshot is complete before Raft hears of it");
        assert_eq!(file.meta.index, index, "Raft installs the snapshot that it was given");
        self.raw.mut_store().restart(file.clone());
        self.members = file.meta.members.clone();
        self.applied = index;
        if !turn.planted.is(Bug::SnapshotNotInstalled) || self.state.is_none() {
            self.state = state.map(|state| *state);
        }
        self.snapshot_at = turn.now;
        self.remove_after = Some((turn.number, index));
        self.mark(file, true);
        turn.event(HostEvent::SnapshotInstalled { group: self.group, index });
        turn.event(HostEvent::MembersChanged { group: self.group, members: self.members.clone() });
    }
}
