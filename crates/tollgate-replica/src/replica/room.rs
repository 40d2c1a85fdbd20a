//! Room on the members' disks: whether a leader can have anything written, and whether another could be elected.
//!
//! A node whose disk is full says so with every frame. A leader that can have nothing written, for lack of room on its
//! own disk or on those of too many others, takes no proposals and lets no log time pass: nobody could renew a lease.
//! It goes on leading, unless another can be elected and do better. To be elected takes votes, and votes are written
//! too: a leader that let go where too few can vote would leave nobody, and reads need a leader. Invariant: what stands
//! in the log is never said to have not happened. Not here: what a full disk keeps from leaving a node
//! (`Replica::hold`).

use super::Replica;
use crate::members::MemberRefusal;
use crate::moment::Moment;
use crate::output::{HostEvent, ProposeError};
use crate::turn::Turn;
use raft::eraftpb::{Message, MessageType};
use std::collections::BTreeSet;
use tollgate_core::Command;
use tollgate_types::{LeaseId, NodeId, Seq};

/// Entries may wait for this part of an election timeout until a leader looks whether the members have room for them.
const LOOK_AFTER: u64 = 4;

/// What a leader knows of room.
#[derive(Debug)]
pub(super) struct Room {
    /// What was committed when it last looked, and since when there is more than that in the log.
    committed: u64,
    waits_since: Moment,
    /// Too few members have room for what is in the log.
    pub(super) starved: bool,
    /// Nothing can be written, and nobody else could lead.
    pub(super) stuck: bool,
}

impl Default for Room {
    fn default() -> Room {
        Room { committed: 0, waits_since: Moment::NEVER, starved: false, stuck: false }
    }
}

impl Replica {
    /// Whether proposals have no chance for now.
    pub(super) fn lacks_room(&self, turn: &Turn) -> bool {
        turn.disk_full || self.room.starved
    }

    /// What to tell callers then, whose requests are not in the log.
    pub(super) fn no_room(&self, turn: &Turn) -> ProposeError {
        // Otherwise another node is about to take over.
        let alone = turn.disk_full && !self.room.stuck;
        if alone { ProposeError::DiskFull } else { ProposeError::NoRoom { group: self.group } }
    }

    /// The refusal of a command that this call has not put into the log. A numbered one may be there by an
    /// earlier attempt: waiting in line, carried out, or in what was not committed yet. Then nobody may be told that it
    /// never happened.
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

    /// Looks after room, as a leader.
    pub(super) fn look_for_room(&mut self, turn: &mut Turn) {
        let (committed, last) = {
            let log = &self.raw.raft.raft_log;
            (log.committed, log.last_index())
        };
        if committed == last {
            self.room.waits_since = Moment::NEVER;
        } else if committed != self.room.committed || self.room.waits_since == Moment::NEVER {
            self.room.waits_since = turn.now;
        }
        self.room.committed = committed;
        let look_at = self.room.waits_since.after_ms(turn.config.election_timeout_ms / LOOK_AFTER);
        self.room.starved = turn.now >= look_at && self.too_few_have_room(turn);
        let stuck = self.is_stuck(turn);
        let was_stuck = std::mem::replace(&mut self.room.stuck, stuck);
        if self.lacks_room(turn) {
            // What was gathered when there was room could not be written now.
            self.gathered_from = Moment::NEVER;
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

    fn is_stuck(&self, turn: &Turn) -> bool {
        self.room.starved || (turn.disk_full && !self.may_give_way(turn))
    }

    /// Whether leadership is handed on, or another node could be elected and do better.
    fn may_give_way(&self, turn: &Turn) -> bool {
        let could = || self.best_successor(turn).is_some() && self.could_elect_another(turn);
        self.hands_on() || (self.raw.raft.commit_to_current_term() && could())
    }

    /// Whether so many answer that more could be committed, if only they had room.
    fn too_few_have_room(&self, turn: &Turn) -> bool {
        let there = |node| self.is_active(node, turn) && turn.is_active(node);
        self.is_quorum(there) && !self.is_quorum(|node| there(node) && self.has_room(node, turn))
    }

    /// Whether a node could be elected in the place of this one: so many can write down whom they vote for.
    pub(super) fn could_elect_another(&self, turn: &Turn) -> bool {
        let there = |node| node == self.node || self.answers(node, turn);
        self.is_quorum(|node| there(node) && self.has_room(node, turn))
    }

    /// One that is about to stop says the same of itself; of those that do there is no telling which it is.
    fn has_room(&self, node: NodeId, turn: &Turn) -> bool {
        if node == self.node { !turn.disk_full } else { !turn.is_unfit(node) }
    }

    fn is_quorum(&self, counts: impl Fn(NodeId) -> bool) -> bool {
        let most = |voters: &BTreeSet<NodeId>| {
            voters.iter().filter(|voter| counts(**voter)).count() > voters.len() / 2
        };
        most(&self.members.voters) && (!self.members.is_joint() || most(&self.members.outgoing))
    }

    /// Why leadership can't be handed to `to`, or to anybody if nobody is named; none if it can, or is not had.
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

    /// Whether there is nothing to be made of a message without room on this node's disk.
    pub(super) fn asks_for_room(&self, message: &Message) -> bool {
        match message.get_msg_type() {
            // What could not be written must not pile up.
            MessageType::MsgAppend => !message.entries.is_empty(),
            MessageType::MsgHeartbeat | MessageType::MsgSnapshot => false,
            MessageType::MsgTimeoutNow => true,
            // Neither a vote nor the new term could be written. Who leads in it, if anybody, says so itself.
            _ => message.term > self.raw.raft.term,
        }
    }

    /// Whether a message says nothing that this node's disk must know first. On a full disk such messages wait for
    /// nothing: a leader that is still heard from by a quorum can go on to lead, and be read from.
    pub(super) fn needs_no_disk(&self, message: &Message) -> bool {
        match message.get_msg_type() {
            // It knows the leader of this term; that it does is no promise beyond the term.
            MessageType::MsgHeartbeatResponse => message.term <= self.durable_term,
            MessageType::MsgReadIndex => true,
            _ => false,
        }
    }
}
