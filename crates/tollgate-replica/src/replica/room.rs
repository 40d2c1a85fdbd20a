//! Room on the members' disks: whether a leader can have anything written, and whether another could be elected.
//!
//! A node whose disk is full says so in every frame. A leader that can have nothing written, for lack of room on its
//! own disk or on the disks of too many others, takes no proposals and lets no log time pass, because no client could
//! renew a lease. It continues to lead, unless another node can be elected and do better. An election takes votes, and
//! votes are written too: a leader that stepped down where too few can vote would leave no leader, and reads need one.
//! Invariant: a caller is never told that an entry in the log did not happen. Not here: the messages that a full disk
//! holds back (`Replica::hold`).

use super::Replica;
use crate::members::MemberRefusal;
use crate::monotonic_time::MonotonicTime;
use crate::output::{HostEvent, ProposeError};
use crate::turn::Turn;
use raft::eraftpb::{Message, MessageType};
use std::collections::BTreeSet;
use tollgate_core::Command;
use tollgate_types::{LeaseId, NodeId, Seq};

/// Divisor of the election timeout: entries may wait for this part of it until a leader checks whether the members have
/// room.
const LOOK_AFTER: u64 = 4;

/// A leader's view of the room on disks.
#[derive(Debug)]
pub(super) struct Room {
    /// Commit index at the last check.
    committed: u64,
    /// Time since which the log has had entries after `committed` and `committed` has not advanced.
    waits_since: MonotonicTime,
    /// True if too few members have room for the entries in the log.
    pub(super) starved: bool,
    /// True if nothing can be written, and no other node could lead.
    pub(super) stuck: bool,
    /// True while leadership is handed over for lack of room.
    pub(super) gives_way: bool,
}

impl Default for Room {
    fn default() -> Room {
        Room {
            committed: 0,
            waits_since: MonotonicTime::NEVER,
            starved: false,
            stuck: false,
            gives_way: false,
        }
    }
}

impl Replica {
    /// True if no proposal can be written for now.
    pub(super) fn lacks_room(&self, turn: &Turn) -> bool {
        turn.disk_full || self.room.starved
    }

    /// The error for callers whose requests are not in the log because there is no room.
    pub(super) fn no_room(&self, turn: &Turn) -> ProposeError {
        // Otherwise another node is about to take over.
        let alone = turn.disk_full && !self.room.stuck;
        if alone { ProposeError::DiskFull } else { ProposeError::NoRoom { group: self.group } }
    }

    /// The refusal of a command that this call has not put into the log. A command with a seq may be in the log by an
    /// earlier attempt: waiting in a queue, carried out, or not committed yet. Then no caller may be told that it never
    /// happened.
    pub(super) fn no_room_for(&self, turn: &Turn, command: &Command) -> ProposeError {
        let (error, log) = (self.no_room(turn), &self.raw.raft.raft_log);
        let is_certain = |(lease, seq): (LeaseId, Seq)| {
            let seen = self.state.as_ref().is_none_or(|state| state.has_seen(lease, seq));
            !seen && log.applied == log.last_index()
        };
        match (&error, command.identity()) {
            (ProposeError::NoRoom { group }, Some(identity)) if !is_certain(identity) => {
                ProposeError::NoRoomMidway { group: *group }
            }
            _ => error,
        }
    }

    /// Checks the room on disks, as a leader, and refuses proposals without room.
    pub(super) fn look_for_room(&mut self, turn: &mut Turn) {
        let (committed, last) = {
            let log = &self.raw.raft.raft_log;
            (log.committed, log.last_index())
        };
        if committed == last {
            self.room.waits_since = MonotonicTime::NEVER;
        } else if committed != self.room.committed || self.room.waits_since == MonotonicTime::NEVER {
            self.room.waits_since = turn.now;
        }
        self.room.committed = committed;
        let look_at = self.room.waits_since.after_ms(turn.config.election_timeout_ms / LOOK_AFTER);
        self.room.starved = turn.now >= look_at && self.too_few_have_room(turn);
        let stuck = self.is_stuck(turn);
        let was_stuck = std::mem::replace(&mut self.room.stuck, stuck);
        if self.lacks_room(turn) {
            // Commands that were gathered while there was room could not be written now.
            self.gathered_from = MonotonicTime::NEVER;
            let queue = std::mem::take(&mut self.queue);
            for (asker, command) in queue {
                let error = self.no_room_for(turn, &command);
                self.refuse_all([asker], &error, turn);
            }
        }
        if self.room.stuck && !was_stuck {
            turn.event(HostEvent::OutOfRoom { group: self.group });
            let error = ProposeError::NoRoomMidway { group: self.group };
            for proposal in self.proposals.take_callers() {
                turn.refuse(self.group, proposal, error.clone());
            }
        }
    }

    /// Keeps the leadership if it is handed over for lack of room, and there is room again. Nothing would be proposed,
    /// and no lease end, until the successor leads or Raft gives up, an election timeout later.
    pub(super) fn stay_with_room(&mut self, turn: &Turn) {
        self.room.gives_way &= self.raw.raft.lead_transferee.is_some();
        if self.room.gives_way && !turn.disk_full && !turn.shutting_down {
            self.room.gives_way = false;
            self.raw.raft.abort_leader_transfer();
        }
    }

    fn is_stuck(&self, turn: &Turn) -> bool {
        self.room.starved || (turn.disk_full && !self.may_give_way(turn))
    }

    /// True if leadership is being handed over, or another node could be elected and do better.
    fn may_give_way(&self, turn: &Turn) -> bool {
        let could = || self.best_successor(turn).is_some() && self.could_elect_another(turn);
        self.hands_on() || (self.raw.raft.commit_to_current_term() && could())
    }

    /// True if enough members are reachable for a commit, but too few of them have room.
    fn too_few_have_room(&self, turn: &Turn) -> bool {
        let there = |node| self.is_active(node, turn) && turn.is_active(node);
        self.is_quorum(there) && !self.is_quorum(|node| there(node) && self.has_room(node, turn))
    }

    /// True if another node could be elected: a quorum can write a vote.
    pub(super) fn could_elect_another(&self, turn: &Turn) -> bool {
        let there = |node| node == self.node || self.answers(node, turn);
        self.is_quorum(|node| there(node) && self.has_room(node, turn))
    }

    /// True if a node has room. A node that is about to stop announces itself in the same way as one without room; the
    /// two can't be told apart.
    fn has_room(&self, node: NodeId, turn: &Turn) -> bool {
        if node == self.node { !turn.disk_full } else { !turn.is_unfit(node) }
    }

    fn is_quorum(&self, counts: impl Fn(NodeId) -> bool) -> bool {
        let most = |voters: &BTreeSet<NodeId>| {
            voters.iter().filter(|voter| counts(**voter)).count() > voters.len() / 2
        };
        most(&self.members.voters) && (!self.members.is_joint() || most(&self.members.outgoing))
    }

    /// The reason why leadership can't be handed to `to`, or to any node if `to` is none; none if it can, or if this
    /// replica does not lead.
    pub(crate) fn transfer_refusal(&self, to: Option<NodeId>, turn: &Turn) -> Option<MemberRefusal> {
        if !self.leads() || to == Some(self.node) {
            return None;
        }
        if let Some(node) = to {
            let cant = |why| Some(MemberRefusal::CantLead { node, why });
            if !self.members.contains(node) {
                return Some(MemberRefusal::NotMember { node });
            } else if !self.members.is_voter(node) {
                return cant("it has no vote yet: promote it first");
            } else if self.members.witnesses.contains(&node) {
                return cant("it is a witness, which keeps no locks");
            } else if turn.is_unfit(node) {
                return cant("it is about to stop, or its disk is full");
            } else if !self.answers(node, turn) {
                return cant("it does not answer");
            }
        } else if self.best_successor(turn).is_none() {
            return Some(MemberRefusal::NoSuccessor);
        }
        (!self.could_elect_another(turn)).then_some(MemberRefusal::TooFewCanVote)
    }

    /// True if a message can't be handled without room on this node's disk.
    pub(super) fn asks_for_room(&self, message: &Message) -> bool {
        match message.get_msg_type() {
            // Entries that can't be written must not pile up.
            MessageType::MsgAppend => !message.entries.is_empty(),
            MessageType::MsgHeartbeat | MessageType::MsgSnapshot => false,
            MessageType::MsgTimeoutNow => true,
            // Neither a vote nor the new term could be written. A leader of the new term announces itself.
            _ => message.term > self.raw.raft.term,
        }
    }

    /// True if a message promises nothing that must be durable first. On a full disk such messages are not held back: a
    /// leader that still hears from a quorum can continue to lead, and serve reads.
    pub(super) fn needs_no_disk(&self, message: &Message) -> bool {
        match message.get_msg_type() {
            // The sender knows the leader of this term; that is no promise beyond the term.
            MessageType::MsgHeartbeatResponse => message.term <= self.durable_term,
            MessageType::MsgReadIndex => true,
            _ => false,
        }
    }
}
