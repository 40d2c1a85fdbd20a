//! Who belongs to a group, and how that changes.
//!
//! The sets are Raft's: voters, learners, and during a joint change the outgoing voters too. Beside them stands who
//! is a witness, and the lowest node id that was never used: a node that comes back without its disk must come under
//! a new one. All of it changes with entries of the log and travels with snapshots.

use raft::eraftpb::{self, ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};
use std::collections::BTreeSet;
use tollgate_core::{DecodeError, Reader, Writer};
use tollgate_types::NodeId;

/// The members of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// Who votes and counts for a quorum.
    pub voters: BTreeSet<NodeId>,
    /// During a joint change: the voters before it, whose quorum is needed too.
    pub outgoing: BTreeSet<NodeId>,
    /// Who receives the log and does not vote.
    pub learners: BTreeSet<NodeId>,
    /// Outgoing voters that become learners when the joint change ends.
    pub learners_next: BTreeSet<NodeId>,
    /// Which of them keep no lock state.
    pub witnesses: BTreeSet<NodeId>,
    /// No node with this id or a higher one was ever a member.
    pub next_node: u64,
}

/// Most members that a group can have, in each set.
pub const MEMBERS_MAX: usize = 64;

/// A change of membership, as an operator asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberChange {
    /// Adds a node that receives the log but has no vote yet.
    AddLearner {
        /// A node id that this group has never seen.
        node: NodeId,
        /// Whether it keeps the log only.
        witness: bool,
    },
    /// Gives a learner a vote, once it has caught up.
    Promote {
        /// The learner.
        node: NodeId,
    },
    /// Removes a member. The leader cannot remove itself: it hands leadership on first, and the new leader does it.
    Remove {
        /// The member.
        node: NodeId,
    },
    /// Removes a voter and promotes a learner in its place, in one joint step.
    Replace {
        /// The voter that goes.
        out: NodeId,
        /// The learner that takes its place.
        by: NodeId,
    },
}

/// Why a change of membership was refused. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemberRefusal {
    /// It is a member, or once was.
    #[error(
        "node id {node} was used before: give the node an id from {next} on (one that lost its disk is new)"
    )]
    IdUsed {
        /// The id.
        node: NodeId,
        /// The first that is free.
        next: u64,
    },
    /// It is no member.
    #[error("node {node} is not a member of this group: list the members and check the id")]
    NotMember {
        /// The node.
        node: NodeId,
    },
    /// Only learners are promoted.
    #[error("node {node} is not a learner: it votes already")]
    NotLearner {
        /// The node.
        node: NodeId,
    },
    /// Only a voter can be replaced.
    #[error("node {node} is not a voter: remove it instead")]
    NotVoter {
        /// The node.
        node: NodeId,
    },
    /// The learner lacks entries.
    #[error("node {node} is {behind} entries behind: wait until it has caught up and promote it then")]
    NotCaughtUp {
        /// The learner.
        node: NodeId,
        /// How many entries it lacks.
        behind: u64,
    },
    /// Too few of those who remain answer.
    #[error("only {active} of the {voters} voters that would remain answer: bring more of them back first")]
    WouldLoseQuorum {
        /// How many would answer.
        active: usize,
        /// How many would remain.
        voters: usize,
    },
    /// A change is under way.
    #[error("another change of membership is under way: wait until it is done")]
    Busy,
    /// Too many.
    #[error("a group has at most {MEMBERS_MAX} members: remove one first")]
    TooMany,
}

impl Members {
    /// A group's first members.
    pub fn first(
        voters: impl IntoIterator<Item = NodeId>,
        witnesses: impl IntoIterator<Item = NodeId>,
    ) -> Members {
        let voters: BTreeSet<NodeId> = voters.into_iter().collect();
        let witnesses: BTreeSet<NodeId> = witnesses.into_iter().collect();
        assert!(
            !voters.is_empty() && voters.len() <= MEMBERS_MAX,
            "a group has from 1 to {MEMBERS_MAX} voters"
        );
        assert!(witnesses.is_subset(&voters), "a first witness is a voter");
        assert!(witnesses.len() < voters.len(), "somebody must keep the lock state");
        let next_node = voters.iter().next_back().map_or(1, |node| node.number().saturating_add(1));
        Members { voters, witnesses, next_node, ..Members::default() }
    }

    /// Everybody, in order.
    pub fn all(&self) -> BTreeSet<NodeId> {
        let mut all = self.voters.clone();
        all.extend(&self.outgoing);
        all.extend(&self.learners);
        all
    }

    /// Whether the node is one of them.
    pub fn contains(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.outgoing.contains(&node) || self.learners.contains(&node)
    }

    /// Whether the node has a vote.
    pub fn is_voter(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.outgoing.contains(&node)
    }

    /// Whether a joint change is under way.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    pub(crate) fn to_conf_state(&self) -> eraftpb::ConfState {
        eraftpb::ConfState {
            voters: numbers(&self.voters),
            voters_outgoing: numbers(&self.outgoing),
            learners: numbers(&self.learners),
            learners_next: numbers(&self.learners_next),
            auto_leave: self.is_joint(),
            ..eraftpb::ConfState::default()
        }
    }

    /// The members after a change that Raft has applied.
    pub(crate) fn after(&self, conf: &eraftpb::ConfState, added_witness: Option<NodeId>) -> Members {
        let mut members = Members {
            voters: nodes(&conf.voters),
            outgoing: nodes(&conf.voters_outgoing),
            learners: nodes(&conf.learners),
            learners_next: nodes(&conf.learners_next),
            witnesses: self.witnesses.clone(),
            next_node: self.next_node,
        };
        members.witnesses.extend(added_witness);
        let all = members.all();
        members.witnesses.retain(|node| all.contains(node));
        let highest = all.iter().next_back().map_or(0, |node| node.number());
        members.next_node = members.next_node.max(highest.saturating_add(1));
        members
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) {
        for set in [&self.voters, &self.outgoing, &self.learners, &self.learners_next, &self.witnesses] {
            writer.count("members", set.len(), MEMBERS_MAX);
            for node in set {
                writer.varint(node.number());
            }
        }
        writer.varint(self.next_node);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Members, DecodeError> {
        Ok(Members {
            voters: decode_nodes(reader)?,
            outgoing: decode_nodes(reader)?,
            learners: decode_nodes(reader)?,
            learners_next: decode_nodes(reader)?,
            witnesses: decode_nodes(reader)?,
            next_node: reader.varint()?,
        })
    }
}

fn decode_nodes(reader: &mut Reader<'_>) -> Result<BTreeSet<NodeId>, DecodeError> {
    let mut nodes = BTreeSet::new();
    for node in reader.list("members", MEMBERS_MAX, 1, decode_node)? {
        nodes.insert(node);
    }
    Ok(nodes)
}

pub(crate) fn decode_node(reader: &mut Reader<'_>) -> Result<NodeId, DecodeError> {
    let at = reader.at();
    NodeId::new(reader.varint()?).ok_or(DecodeError::UnknownTag { at, what: "node id", tag: 0 })
}

fn numbers(nodes: &BTreeSet<NodeId>) -> Vec<u64> {
    nodes.iter().map(|node| node.number()).collect()
}

fn nodes(numbers: &[u64]) -> BTreeSet<NodeId> {
    numbers.iter().map(|&number| NodeId::new(number).expect("Raft knows no node 0")).collect()
}

impl MemberChange {
    /// Whether the node would be gone.
    pub(crate) fn removes(self, node: NodeId) -> bool {
        matches!(self, MemberChange::Remove { node: out } | MemberChange::Replace { out, .. } if out == node)
    }

    /// The change as Raft's, with the witness in its context.
    pub(crate) fn to_raft(self) -> ConfChangeV2 {
        let mut change = ConfChangeV2::default();
        let mut add = |kind, node: NodeId| {
            let mut single = ConfChangeSingle::default();
            single.set_change_type(kind);
            single.node_id = node.number();
            change.mut_changes().push(single);
        };
        match self {
            MemberChange::AddLearner { node, .. } => add(ConfChangeType::AddLearnerNode, node),
            MemberChange::Promote { node } => add(ConfChangeType::AddNode, node),
            MemberChange::Remove { node } => add(ConfChangeType::RemoveNode, node),
            MemberChange::Replace { out, by } => {
                add(ConfChangeType::RemoveNode, out);
                add(ConfChangeType::AddNode, by);
            }
        }
        if let MemberChange::AddLearner { node, witness: true } = self {
            let mut context = Vec::new();
            Writer::new(&mut context).varint(node.number());
            change.context = context.into();
        }
        change.set_transition(ConfChangeTransition::Auto);
        change
    }
}

/// The witness that a change adds.
pub(crate) fn added_witness(change: &ConfChangeV2) -> Result<Option<NodeId>, DecodeError> {
    if change.context.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader::new(&change.context);
    let node = decode_node(&mut reader)?;
    reader.finish()?;
    Ok(Some(node))
}
