//! The members of a group, and changes of membership.
//!
//! The sets are Raft's: voters, learners, and during a joint change the outgoing voters too. Besides them, `Members`
//! has the witnesses, the addresses of the members, and the lowest node id that was never used: a node that comes back
//! without its disk must come under a new id. All of this changes with log entries and is part of snapshots.

use crate::node_addresses::NodeAddresses;
use raft::eraftpb::{self, ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};
use std::collections::{BTreeMap, BTreeSet};
use tollgate_core::{DecodeError, Reader, Writer};
use tollgate_types::NodeId;

/// The members of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// Members that vote and count for a quorum.
    pub voters: BTreeSet<NodeId>,
    /// Voters before a joint change, whose quorum is needed too while the change is under way.
    pub outgoing: BTreeSet<NodeId>,
    /// Members that receive the log and do not vote.
    pub learners: BTreeSet<NodeId>,
    /// Outgoing voters that become learners when the joint change ends.
    pub learners_next: BTreeSet<NodeId>,
    /// Members that keep no lock state.
    pub witnesses: BTreeSet<NodeId>,
    /// Addresses and zone of each member, where known.
    pub node_addresses: BTreeMap<NodeId, NodeAddresses>,
    /// No node with this id or a higher one was ever a member.
    pub next_node: u64,
}

/// The most members of a group, in each set.
pub const MEMBERS_MAX: usize = 64;

const VARINT_BYTES_MAX: usize = 10;

/// A change of membership, as requested by an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberChange {
    /// Adds a node that receives the log but has no vote yet.
    AddLearner {
        /// A node id that this group has never used.
        node: NodeId,
        /// True if the node keeps the log only.
        witness: bool,
        /// Addresses and zone of the node.
        node_addresses: NodeAddresses,
    },
    /// Gives a learner a vote, once it has caught up.
    Promote {
        /// The learner.
        node: NodeId,
    },
    /// Removes a member. The leader can't remove itself: it hands over leadership first, and the new leader removes it.
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

/// Reasons for which a change of membership is refused. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemberRefusal {
    /// The id belongs to a member, or once did.
    #[error(
        "node id {node} was used before: give the node an id from {next} on (one that lost its disk is new)"
    )]
    IdUsed {
        /// The id.
        node: NodeId,
        /// The lowest free id.
        next: u64,
    },
    /// The node is not a member.
    #[error("node {node} is not a member of this group: list the members and check the id")]
    NotMember {
        /// The node.
        node: NodeId,
    },
    /// The node is not a learner: only learners are promoted.
    #[error("node {node} is not a learner: it votes already")]
    NotLearner {
        /// The node.
        node: NodeId,
    },
    /// The node is not a voter: only a voter can be replaced.
    #[error("node {node} is not a voter: remove it instead")]
    NotVoter {
        /// The node.
        node: NodeId,
    },
    /// The learner lacks too many entries.
    #[error("node {node} is {behind} entries behind: wait until it has caught up and promote it then")]
    NotCaughtUp {
        /// The learner.
        node: NodeId,
        /// Number of entries that the learner lacks.
        behind: u64,
    },
    /// Too few of the remaining voters are reachable.
    #[error("only {active} of the {voters} voters that would remain answer: bring more of them back first")]
    WouldLoseQuorum {
        /// Number of remaining voters that are reachable.
        active: usize,
        /// Number of voters that would remain.
        voters: usize,
    },
    /// None of the remaining voters keeps the lock state.
    #[error(
        "no voter that keeps locks would be left: add a full member, promote it once it has caught up, and try again"
    )]
    NobodyKeepsLocks,
    /// The node can't be given leadership.
    #[error("node {node} can't lead: {why}")]
    CantLead {
        /// The node.
        node: NodeId,
        /// Reason, in words.
        why: &'static str,
    },
    /// There is no node that can be given leadership.
    #[error(
        "no other node can lead: each one that votes and keeps locks is away, about to stop, or has a full disk"
    )]
    NoSuccessor,
    /// A successor would not be elected.
    #[error(
        "too few voters could elect another leader: bring back those that are away, and make room on full disks"
    )]
    TooFewCanVote,
    /// Another change is under way.
    #[error("another change of membership is under way: wait until it is done")]
    Busy,
    /// The group has the greatest number of members already.
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

    /// The same members with the given addresses. Entries for nodes that are not members are ignored.
    #[must_use]
    pub fn found_at(self, node_addresses: impl IntoIterator<Item = (NodeId, NodeAddresses)>) -> Members {
        let known = |(node, found): &(NodeId, NodeAddresses)| {
            self.contains(*node) && *found != NodeAddresses::UNKNOWN
        };
        let node_addresses = node_addresses.into_iter().filter(known).collect();
        Members { node_addresses, ..self }
    }

    /// Addresses and zone of a member, as far as its group knows.
    pub fn addresses_of(&self, node: NodeId) -> &NodeAddresses {
        self.node_addresses.get(&node).unwrap_or(&NodeAddresses::UNKNOWN)
    }

    /// True if the id belonged to a member and no longer does; or was skipped, and can't be used any more.
    pub fn is_past(&self, node: NodeId) -> bool {
        node.number() < self.next_node && !self.contains(node)
    }

    /// All members, in order.
    pub fn all(&self) -> BTreeSet<NodeId> {
        let mut all = self.voters.clone();
        all.extend(&self.outgoing);
        all.extend(&self.learners);
        all
    }

    /// True if the node is a member.
    pub fn contains(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.outgoing.contains(&node) || self.learners.contains(&node)
    }

    /// True if the node has a vote.
    pub fn is_voter(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.outgoing.contains(&node)
    }

    /// True while a joint change is under way.
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
            node_addresses: self.node_addresses.clone(),
            next_node: self.next_node,
        };
        if let Some(Added { node, witness, node_addresses }) = added {
            members.witnesses.extend(witness.then_some(node));
            if node_addresses != NodeAddresses::UNKNOWN {
                members.node_addresses.insert(node, node_addresses);
            }
        }
        let all = members.all();
        members.witnesses.retain(|node| all.contains(node));
        members.node_addresses.retain(|node, _| all.contains(node));
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
        writer.count("node addresses", self.node_addresses.len(), MEMBERS_MAX);
        for (node, node_addresses) in &self.node_addresses {
            writer.varint(node.number());
            node_addresses.encode(writer);
        }
    }

    /// The most bytes of encoded members: five sets and the addresses of a full group.
    pub(crate) const BYTES_MAX: usize = 5 * (1 + MEMBERS_MAX * VARINT_BYTES_MAX)
        + VARINT_BYTES_MAX
        + 1
        + MEMBERS_MAX * (VARINT_BYTES_MAX + NodeAddresses::BYTES_MAX);

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Members, DecodeError> {
        Ok(Members {
            voters: decode_nodes(reader)?,
            outgoing: decode_nodes(reader)?,
            learners: decode_nodes(reader)?,
            learners_next: decode_nodes(reader)?,
            witnesses: decode_nodes(reader)?,
            next_node: reader.varint()?,
            node_addresses: decode_node_addresses(reader)?,
        })
    }
}

fn decode_node_addresses(reader: &mut Reader<'_>) -> Result<BTreeMap<NodeId, NodeAddresses>, DecodeError> {
    let one = |reader: &mut Reader<'_>| Ok((decode_node(reader)?, NodeAddresses::decode(reader)?));
    Ok(reader.list("node addresses", MEMBERS_MAX, 4, one)?.into_iter().collect())
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
    /// True if the change removes the node.
    pub(crate) fn removes(&self, node: NodeId) -> bool {
        matches!(self, MemberChange::Remove { node: out } | MemberChange::Replace { out, .. } if *out == node)
    }

    /// The change in Raft's form; its context has the details that Raft does not need.
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
        if let MemberChange::AddLearner { node, witness, node_addresses } = self {
            let mut context = Vec::new();
            let mut writer = Writer::new(&mut context);
            writer.varint(node.number());
            writer.bool(*witness);
            node_addresses.encode(&mut writer);
            change.context = context.into();
        }
        change.set_transition(ConfChangeTransition::Auto);
        change
    }
}

/// The member that a change adds, with the details beside its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) node: NodeId,
    pub(crate) witness: bool,
    pub(crate) node_addresses: NodeAddresses,
}

impl Added {
    pub(crate) const BYTES_MAX: usize = VARINT_BYTES_MAX + 1 + NodeAddresses::BYTES_MAX;
}

/// Decodes the member that a change adds, if it adds one.
pub(crate) fn added(change: &ConfChangeV2) -> Result<Option<Added>, DecodeError> {
    if change.context.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader::new(&change.context);
    let node = decode_node(&mut reader)?;
    let witness = reader.bool("kind of member")?;
    let node_addresses = NodeAddresses::decode(&mut reader)?;
    reader.finish()?;
    Ok(Some(Added { node, witness, node_addresses }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::{HostPort, Zone};

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn at(peer: &str) -> NodeAddresses {
        let (peer, client) = (HostPort::new(peer).unwrap(), HostPort::new("c:1").unwrap());
        NodeAddresses { peer, client, zone: Zone::new("west").unwrap() }
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
        assert_eq!(found.node_addresses.len(), 2, "strangers are nowhere");
        assert_eq!(decoded(&found), found);
    }

    #[test]
    fn a_full_group_whose_every_address_is_as_long_as_can_be_fits() {
        let long = || HostPort::new(format!("{}:65535", "h".repeat(253))).unwrap();
        let zone = Zone::new("z".repeat(64)).unwrap();
        let ids = (1..=MEMBERS_MAX as u64).map(|number| node(u64::MAX - number));
        let full = Members::first(ids.clone(), []);
        let everywhere =
            ids.map(|id| (id, NodeAddresses { peer: long(), client: long(), zone: zone.clone() }));
        let full = full.found_at(everywhere);
        assert_eq!(full.node_addresses.len(), MEMBERS_MAX);
        assert_eq!(decoded(&full), full);
    }

    #[test]
    fn what_a_change_tells_of_a_new_member_arrives_and_goes_with_it() {
        let change = MemberChange::AddLearner { node: node(4), witness: true, node_addresses: at("d:1") };
        let told = added(&change.to_raft()).unwrap();
        assert_eq!(told, Some(Added { node: node(4), witness: true, node_addresses: at("d:1") }));
        assert_eq!(added(&MemberChange::Promote { node: node(4) }.to_raft()), Ok(None));
        let first = Members::first([node(1)], []).found_at([(node(1), at("a:1"))]);
        let conf = |learners: &[u64]| eraftpb::ConfState {
            voters: vec![1],
            learners: learners.to_vec(),
            ..eraftpb::ConfState::default()
        };
        let grown = first.after(&conf(&[4]), told);
        assert_eq!((grown.addresses_of(node(4)), grown.next_node), (&at("d:1"), 5));
        assert!(grown.witnesses.contains(&node(4)) && !grown.is_past(node(4)) && !grown.is_past(node(5)));
        let shrunk = grown.after(&conf(&[]), None);
        assert_eq!((shrunk.addresses_of(node(4)), shrunk.next_node), (&NodeAddresses::UNKNOWN, 5));
        assert!(shrunk.is_past(node(4)) && shrunk.witnesses.is_empty());
        assert_eq!(shrunk.addresses_of(node(1)), &at("a:1"));
    }
}
