//! Shared data of all replicas of a host during a turn: the time, the settings, and the output.

use crate::balance::LEFT_ALONE_MS;
use crate::config::HostConfig;
use crate::frame::{FrameWriter, Header, Part};
use crate::group_message::GroupMessage;
use crate::monotonic_time::MonotonicTime;
use crate::output::{HostEvent, Output, ProposalId, ProposalReply, ProposeError};
use crate::planted::Planted;
use crate::randomness::Randomness;
use crate::storage::{TransferId, WriteNumber};
use std::collections::BTreeMap;
use tollgate_types::{GroupId, NodeId, WallTime};

/// Size at which a frame is closed and another begun, so that a peer's backlog can't delay its heartbeats.
const FRAME_BYTES_MAX: usize = 2 << 20;

pub(crate) struct Turn {
    pub(crate) config: HostConfig,
    pub(crate) randomness: Box<dyn Randomness + Send>,
    pub(crate) now: MonotonicTime,
    /// Time of day, which entries carry; no decision depends on it.
    pub(crate) wall: WallTime,
    pub(crate) out: Output,
    /// Number of this turn's write, if there is one.
    pub(crate) number: WriteNumber,
    pub(crate) peers: BTreeMap<NodeId, Peer>,
    pub(crate) disk_full: bool,
    /// Time since which the disk is full.
    pub(crate) full_since: MonotonicTime,
    pub(crate) shutting_down: bool,
    /// True if the replicas send and accept messages at all.
    pub(crate) takes_part: bool,
    pub(crate) planted: Planted,
    /// Nodes that did not take over a group handed to them for balance, with the time until which they get no other.
    left_alone: BTreeMap<NodeId, MonotonicTime>,
    /// Group messages of this turn, with the groups whose leaders receive them.
    group_messages: Vec<(GroupId, GroupMessage)>,
    frames: BTreeMap<NodeId, FrameWriter>,
    transfers: u64,
}

/// A host's view of another node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) heard: MonotonicTime,
    pub(crate) apply_version: u32,
    pub(crate) fit_to_lead: bool,
}

impl Turn {
    pub(crate) fn new(
        config: HostConfig,
        mut randomness: Box<dyn Randomness + Send>,
        now: MonotonicTime,
    ) -> Turn {
        // Transfers from before a restart of this node must not be taken for current ones.
        let transfers = randomness.next_u64() >> 16;
        Turn {
            config,
            randomness,
            now,
            wall: WallTime::UNKNOWN,
            out: Output::default(),
            number: WriteNumber(1),
            peers: BTreeMap::new(),
            disk_full: false,
            full_since: MonotonicTime::NEVER,
            shutting_down: false,
            takes_part: true,
            planted: Planted::default(),
            left_alone: BTreeMap::new(),
            group_messages: Vec::new(),
            frames: BTreeMap::new(),
            transfers,
        }
    }

    fn header(&self, to: NodeId) -> Header {
        Header {
            cluster: self.config.cluster,
            from: self.config.node,
            to,
            apply_version: self.config.apply_version,
            fit_to_lead: !self.shutting_down && !self.disk_full,
        }
    }

    pub(crate) fn send(&mut self, to: NodeId, part: &Part) {
        let header = self.header(to);
        let frame = self.frames.entry(to).or_insert_with(|| FrameWriter::new(header));
        frame.push(part);
        if frame.len() >= FRAME_BYTES_MAX {
            let full = std::mem::replace(frame, FrameWriter::new(header));
            self.frames.remove(&to);
            self.out.frames.push((to, full.finish()));
        }
    }

    pub(crate) fn post(&mut self, group: GroupId, group_message: GroupMessage) {
        self.group_messages.push((group, group_message));
    }

    pub(crate) fn take_group_messages(&mut self) -> Vec<(GroupId, GroupMessage)> {
        std::mem::take(&mut self.group_messages)
    }

    pub(crate) fn take_output(&mut self) -> Output {
        self.close_frames();
        std::mem::take(&mut self.out)
    }

    fn close_frames(&mut self) {
        for (to, frame) in std::mem::take(&mut self.frames) {
            self.out.frames.push((to, frame.finish()));
        }
    }

    /// Sends every peer a frame with a new header at once, because this node's properties in the header have changed.
    pub(crate) fn announce(&mut self) {
        self.close_frames();
        for to in self.peers.keys().copied().collect::<Vec<_>>() {
            let frame = FrameWriter::new(self.header(to));
            self.frames.insert(to, frame);
        }
    }

    pub(crate) fn next_transfer(&mut self) -> TransferId {
        self.transfers += 1;
        TransferId(self.transfers)
    }

    pub(crate) fn refuse(&mut self, group: GroupId, proposal: ProposalId, error: ProposeError) {
        self.out.replies.push(ProposalReply { proposal, group, result: Err(error) });
    }

    pub(crate) fn event(&mut self, event: HostEvent) {
        self.out.events.push(event);
    }

    /// Excludes a node from balancing for a while, because it did not take over a group handed to it for balance.
    pub(crate) fn leave_alone(&mut self, node: NodeId) {
        let now = self.now;
        self.left_alone.retain(|_, until| now < *until);
        self.left_alone.insert(node, now.after_ms(LEFT_ALONE_MS));
    }

    /// True while the node gets no groups for balance.
    pub(crate) fn is_left_alone(&self, node: NodeId) -> bool {
        self.left_alone.get(&node).is_some_and(|until| self.now < *until)
    }

    /// True if the node's last frame said that it is about to stop, or can't write.
    pub(crate) fn is_unfit(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| !peer.fit_to_lead)
    }

    /// True if the node has been heard from within an election timeout.
    pub(crate) fn is_active(&self, node: NodeId) -> bool {
        let limit_ms = self.config.election_timeout_ms;
        node == self.config.node
            || self.peers.get(&node).is_some_and(|peer| self.now < peer.heard.after_ms(limit_ms))
    }
}
