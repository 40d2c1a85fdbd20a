//! Who belongs to a group, and how that changes.
//!
//! The sets are Raft's: voters, learners, and during a joint change the outgoing voters too. Beside them stands who
//! is a witness, where each is found, and the lowest node id that was never used: a node that comes back without its
//! disk must come under a new one. All of it changes with entries of the log and travels with snapshots.

use crate::whereabouts::Whereabouts;
use raft::eraftpb::{self, ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};
use std::collections::{BTreeMap, BTreeSet};
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
    /// Where each is found, if that is known.
    pub whereabouts: BTreeMap<NodeId, Whereabouts>,
    /// No node with this id or a higher one was ever a member.
    pub next_node: u64,
}

/// Most members that a group can have, in each set.
pub const MEMBERS_MAX: usize = 64;

const VARINT_BYTES_MAX: usize = 10;

/// A change of membership, as an operator asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberChange {
    /// Adds a node that receives the log but has no vote yet.
    AddLearner {
        /// A node id that this group has never seen.
        node: NodeId,
        /// Whether it keeps the log only.
        witness: bool,
        /// Where it is found.
        whereabouts: Whereabouts,
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
    /// Nobody who remains has the locks.
    #[error(
        "no voter that keeps locks would be left: add a full member, promote it once it has caught up, and try again"
    )]
    NobodyKeepsLocks,
    /// It can't be handed leadership.
    #[error("node {node} can't lead: {why}")]
    CantLead {
        /// The node.
        node: NodeId,
        /// Why.
        why: &'static str,
    },
    /// Nobody can be handed leadership.
    #[error(
        "no other node can lead: each one that votes and keeps locks is away, about to stop, or has a full disk"
    )]
    NoSuccessor,
    /// Whoever was handed leadership would not be elected.
    #[error(
        "too few voters could elect another leader: bring back those that are away, and make room on full disks"
    )]
    TooFewCanVote,
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

    /// The same members, found there. What is said of others is left out.
    #[must_use]
    pub fn found_at(self, whereabouts: impl IntoIterator<Item = (NodeId, Whereabouts)>) -> Members {
        let known =
            |(node, found): &(NodeId, Whereabouts)| self.contains(*node) && *found != Whereabouts::UNKNOWN;
        let whereabouts = whereabouts.into_iter().filter(known).collect();
        Members { whereabouts, ..self }
    }

    /// Where a member is found, as far as its group knows.
    pub fn whereabouts_of(&self, node: NodeId) -> &Whereabouts {
        self.whereabouts.get(&node).unwrap_or(&Whereabouts::UNKNOWN)
    }

    /// Whether the id was a member's and is none's any more; or was passed over, and can't become one's.
    pub fn is_past(&self, node: NodeId) -> bool {
        node.number() < self.next_node && !self.contains(node)
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
    pub(crate) fn after(&self, conf: &eraftpb::ConfState, added: Option<Added>) -> Members {
        let mut members = Members {
            voters: nodes(&conf.voters),
            outgoing: nodes(&conf.voters_outgoing),
            learners: nodes(&conf.learners),
            learners_next: nodes(&conf.learners_next),
            witnesses: self.witnesses.clone(),
            whereabouts: self.whereabouts.clone(),
            next_node: self.next_node,
        };
        if let Some(Added { node, witness, whereabouts }) = added {
            members.witnesses.extend(witness.then_some(node));
            if whereabouts != Whereabouts::UNKNOWN {
                members.whereabouts.insert(node, whereabouts);
            }
        }
        let all = members.all();
        members.witnesses.retain(|node| all.contains(node));
        members.whereabouts.retain(|node, _| all.contains(node));
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
        writer.count("whereabouts", self.whereabouts.len(), MEMBERS_MAX);
        for (node, whereabouts) in &self.whereabouts {
            writer.varint(node.number());
            whereabouts.encode(writer);
        }
    }

    /// The most bytes that members take: five sets and the whereabouts of a full group.
    pub(crate) const BYTES_MAX: usize = 5 * (1 + MEMBERS_MAX * VARINT_BYTES_MAX)
        + VARINT_BYTES_MAX
        + 1
        + MEMBERS_MAX * (VARINT_BYTES_MAX + Whereabouts::BYTES_MAX);

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Members, DecodeError> {
        Ok(Members {
            voters: decode_nodes(reader)?,
            outgoing: decode_nodes(reader)?,
            learners: decode_nodes(reader)?,
            learners_next: decode_nodes(reader)?,
            witnesses: decode_nodes(reader)?,
            next_node: reader.varint()?,
            whereabouts: decode_whereabouts(reader)?,
        })
    }
}

fn decode_whereabouts(reader: &mut Reader<'_>) -> Result<BTreeMap<NodeId, Whereabouts>, DecodeError> {
    let one = |reader: &mut Reader<'_>| Ok((decode_node(reader)?, Whereabouts::decode(reader)?));
    Ok(reader.list("whereabouts", MEMBERS_MAX, 4, one)?.into_iter().collect())
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
    pub(crate) fn removes(&self, node: NodeId) -> bool {
        matches!(self, MemberChange::Remove { node: out } | MemberChange::Replace { out, .. } if *out == node)
    }

    /// The change as Raft's, with what Raft does not ask about in its context.
    pub(crate) fn to_raft(&self) -> ConfChangeV2 {
        let mut change = ConfChangeV2::default();
        let mut add = |kind, node: NodeId| {
            let mut single = ConfChangeSingle::default();
            single.set_change_type(kind);
            single.node_id = node.number();
            change.mut_changes().push(single);
        };
        match self {
            MemberChange::AddLearner { node, .. } => add(ConfChangeType::AddLearnerNode, *node),
            MemberChange::Promote { node } => add(ConfChangeType::AddNode, *node),
            MemberChange::Remove { node } => add(ConfChangeType::RemoveNode, *node),
            MemberChange::Replace { out, by } => {
                add(ConfChangeType::RemoveNode, *out);
                add(ConfChangeType::AddNode, *by);
            }
        }
        if let MemberChange::AddLearner { node, witness, whereabouts } = self {
            let mut context = Vec::new();
            let mut writer = Writer::new(&mut context);
            writer.varint(node.number());
            writer.bool(*witness);
            whereabouts.encode(&mut writer);
            change.context = context.into();
        }
        change.set_transition(ConfChangeTransition::Auto);
        change
    }
}

/// Whom a change adds, and what is told of it beside its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) node: NodeId,
    pub(crate) witness: bool,
    pub(crate) whereabouts: Whereabouts,
}

impl Added {
    pub(crate) const BYTES_MAX: usize = VARINT_BYTES_MAX + 1 + Whereabouts::BYTES_MAX;
}

/// Whom a change adds, if it adds somebody.
pub(crate) fn added(change: &ConfChangeV2) -> Result<Option<Added>, DecodeError> {
    if change.context.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader::new(&change.context);
    let node = decode_node(&mut reader)?;
    let witness = reader.bool("kind of member")?;
    let whereabouts = Whereabouts::decode(&mut reader)?;
    reader.finish()?;
    Ok(Some(Added { node, witness, whereabouts }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::{HostPort, Zone};

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn at(peer: &str) -> Whereabouts {
        let (peer, client) = (HostPort::new(peer).unwrap(), HostPort::new("c:1").unwrap());
        Whereabouts { peer, client, zone: Zone::new("west").unwrap() }
    }

    fn decoded(members: &Members) -> Members {
        let mut bytes = Vec::new();
        members.encode(&mut Writer::new(&mut bytes));
        assert!(bytes.len() <= Members::BYTES_MAX);
        let mut reader = Reader::new(&bytes);
        let read = Members::decode(&mut reader).unwrap();
        reader.finish().unwrap();
        read
    }

    #[test]
    fn members_are_decoded_as_they_were_encoded() {
        let plain = Members::first([node(1), node(2), node(3)], [node(3)]);
        assert_eq!(decoded(&plain), plain);
        let found = plain.found_at([(node(1), at("a:1")), (node(3), at("b:1")), (node(9), at("x:1"))]);
        assert_eq!(found.whereabouts.len(), 2, "strangers are nowhere");
        assert_eq!(decoded(&found), found);
    }

    #[test]
    fn a_full_group_whose_every_address_is_as_long_as_can_be_fits() {
        let long = || HostPort::new(format!("{}:65535", "h".repeat(253))).unwrap();
        let zone = Zone::new("z".repeat(64)).unwrap();
        let ids = (1..=MEMBERS_MAX as u64).map(|number| node(u64::MAX - number));
        let full = Members::first(ids.clone(), []);
        let everywhere = ids.map(|id| (id, Whereabouts { peer: long(), client: long(), zone: zone.clone() }));
        let full = full.found_at(everywhere);
        assert_eq!(full.whereabouts.len(), MEMBERS_MAX);
        assert_eq!(decoded(&full), full);
    }

    #[test]
    fn what_a_change_tells_of_a_new_member_arrives_and_goes_with_it() {
        let change = MemberChange::AddLearner { node: node(4), witness: true, whereabouts: at("d:1") };
        let told = added(&change.to_raft()).unwrap();
        assert_eq!(told, Some(Added { node: node(4), witness: true, whereabouts: at("d:1") }));
        assert_eq!(added(&MemberChange::Promote { node: node(4) }.to_raft()), Ok(None));
        let first = Members::first([node(1)], []).found_at([(node(1), at("a:1"))]);
        let conf = |learners: &[u64]| eraftpb::ConfState {
            voters: vec![1],
            learners: learners.to_vec(),
            ..eraftpb::ConfState::default()
        };
        let grown = first.after(&conf(&[4]), told);
        assert_eq!((grown.whereabouts_of(node(4)), grown.next_node), (&at("d:1"), 5));
        assert!(grown.witnesses.contains(&node(4)) && !grown.is_past(node(4)) && !grown.is_past(node(5)));
        let shrunk = grown.after(&conf(&[]), None);
        assert_eq!((shrunk.whereabouts_of(node(4)), shrunk.next_node), (&Whereabouts::UNKNOWN, 5));
        assert!(shrunk.is_past(node(4)) && shrunk.witnesses.is_empty());
        assert_eq!(shrunk.whereabouts_of(node(1)), &at("a:1"));
    }
}
