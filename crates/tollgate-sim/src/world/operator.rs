//! The operator of the cluster: adds, removes and replaces nodes, one step at a time, until the members are the wanted
//! ones.
//!
//! Invariant: a node id is used once, and ids are added in order. Faults only change the wanted members; the next step
//! is derived from the members of each group, so a step that failed or was forgotten is simply taken again. Not here:
//! when a disk may be lost (`faults`).

use super::{Happening, World};
use crate::node::{Input, Node};
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::types::At;
use std::collections::BTreeMap;
use tollgate_core::Command;
use tollgate_replica::{
    MemberChange, Members, NodeAddresses, ProposalId, ProposalOutcome, ProposalReply, ReplicaKind,
};
use tollgate_types::{GroupId, NodeId};

const OPERATE_US: At = 200_000;
/// Time after which a step without an answer is taken again.
const FORGET_US: At = 3_000_000;
/// First of the ids for proposals and reads of the world itself: no front ever uses them, and the highest bit is the
/// host's own.
pub(super) const IDS_FROM: u64 = 0x7f_ffff << 40;
const VOTERS_MAX: usize = 6;

/// Role that a node is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    witness: bool,
    voter: bool,
}

/// Goals of the operator, and the steps under way.
pub(super) struct Operator {
    rng: Rng,
    wanted: BTreeMap<u64, Wanted>,
    next_node: u64,
    next_proposal: u64,
    /// Per group, the step under way and the moment at which it began.
    waiting: BTreeMap<GroupId, (ProposalId, At)>,
    raise_at: At,
}

impl Operator {
    pub(super) fn new(rng: Rng, scenario: &Scenario) -> Operator {
        let full = scenario.nodes - scenario.witnesses;
        let wanted =
            (1..=scenario.nodes).map(|node| (node, Wanted { witness: node > full, voter: true })).collect();
        Operator {
            rng,
            wanted,
            next_node: scenario.nodes + 1,
            next_proposal: IDS_FROM,
            waiting: BTreeMap::new(),
            raise_at: At::MAX,
        }
    }

    pub(super) fn voters_wanted(&self) -> usize {
        self.wanted.values().filter(|wanted| wanted.voter).count()
    }

    fn full_voters_wanted(&self) -> usize {
        self.wanted.values().filter(|wanted| wanted.voter && !wanted.witness).count()
    }

    fn fresh_proposal(&mut self) -> ProposalId {
        self.next_proposal += 1;
        ProposalId(self.next_proposal)
    }

    /// Returns the next step from these members towards the wanted ones, if there is one.
    fn step(&mut self, members: &Members, leader: u64) -> Option<Step> {
        if members.is_joint() {
            return None;
        }
        let missing = self.wanted.iter().find(|(node, _)| !members.contains(id(**node)));
        if let Some((&node, wanted)) = missing {
            return Some(Step::Change(MemberChange::AddLearner {
                node: id(node),
                witness: wanted.witness,
                node_addresses: NodeAddresses::UNKNOWN,
            }));
        }
        let surplus = members.all().into_iter().find(|node| !self.wanted.contains_key(&node.number()));
        let is_learner =
            |(node, wanted): &(&u64, &Wanted)| wanted.voter && members.learners.contains(&id(**node));
        if let Some((&node, _)) = self.wanted.iter().find(is_learner) {
            let by = id(node);
            return Some(match surplus.filter(|out| members.is_voter(*out) && out.number() != leader) {
                Some(out) if self.rng.percent(70) => Step::Change(MemberChange::Replace { out, by }),
                _ => Step::Change(MemberChange::Promote { node: by }),
            });
        }
        surplus.map(|node| {
            if node.number() == leader { Step::HandOn } else { Step::Change(MemberChange::Remove { node }) }
        })
    }

    fn is_content(&self, members: &Members) -> bool {
        !members.is_joint()
            && members.all().len() == self.wanted.len()
            && self.wanted.iter().all(|(&node, wanted)| {
                let set = if wanted.voter { &members.voters } else { &members.learners };
                set.contains(&id(node))
            })
    }
}

enum Step {
    Change(MemberChange),
    /// The leader is not wanted, and must hand its leadership on before it goes.
    HandOn,
}

fn id(number: u64) -> NodeId {
    NodeId::new(number).expect("nodes are numbered from 1")
}

impl World {
    pub(super) fn operate(&mut self) {
        self.plan(self.now + OPERATE_US, Happening::Operate);
        for group in self.groups() {
            let now = self.now;
            if self.operator.waiting.get(&group).is_some_and(|(_, since)| now < since + FORGET_US) {
                continue;
            }
            let Some((leader, status)) = self.leader_of(group) else { continue };
            match self.operator.step(&status.members, leader) {
                Some(Step::Change(MemberChange::AddLearner { node, .. })) if self.upgrades(node.number()) => {
                }
                Some(Step::Change(change)) => {
                    let proposal = self.operator.fresh_proposal();
                    self.operator.waiting.insert(group, (proposal, now));
                    self.say(|| format!("operator: group {group} at n{leader}: {change:?}"));
                    self.give(leader, Input::Change(group, proposal, change));
                }
                Some(Step::HandOn) => {
                    self.hands_on(group);
                    self.give(leader, Input::Transfer(group, None));
                }
                None => {}
            }
        }
        self.raise_version();
        if self.members_settled() {
            self.retire_the_unwanted();
        }
    }

    /// Starts a node that is still to be added with a newer binary, if others have one by now: members may have moved
    /// on to a newer version since, and nobody adds a node that would have to stop at once. Returns true if the node is
    /// started again.
    fn upgrades(&mut self, number: u64) -> bool {
        let newest = self.newest_binary();
        if self.nodes[&number].apply_version >= newest {
            return false;
        }
        self.kill(number);
        self.node(number).apply_version = newest;
        self.plan(self.now + 50_000, Happening::Boot(number));
        true
    }

    /// Returns the newest version that any node's binary knows, but none that does not exist: some nodes announce such
    /// a version.
    fn newest_binary(&self) -> u32 {
        let newest = tollgate_core::APPLY_VERSION_SUPPORTED;
        self.nodes.values().map(|node| node.apply_version).max().unwrap_or(newest).min(newest)
    }

    pub(super) fn operator_replies(&mut self, replies: Vec<ProposalReply>) {
        for reply in replies {
            self.say(|| format!("operator: {reply:?}"));
            if matches!(reply.result, Ok(ProposalOutcome::Members(_))) {
                self.stats.membership_changes += 1;
            }
            let waits_for = self.operator.waiting.get(&reply.group).map(|(proposal, _)| *proposal);
            if waits_for == Some(reply.proposal) {
                self.operator.waiting.remove(&reply.group);
            }
        }
    }

    /// Returns true if every group is led and has the members that the operator wants.
    pub(super) fn members_settled(&self) -> bool {
        self.groups().all(|group| {
            self.leader_of(group).is_some_and(|(_, status)| self.operator.is_content(&status.members))
        })
    }

    /// Switches off the nodes that no group has as a member any more.
    fn retire_the_unwanted(&mut self) {
        let unwanted: Vec<u64> = self
            .present()
            .map(|node| node.id.number())
            .filter(|number| !self.operator.wanted.contains_key(number))
            .collect();
        for number in unwanted {
            self.say(|| format!("n{number} is switched off for good"));
            self.kill(number);
            self.node(number).retired = true;
        }
    }

    /// Adds a node with an empty disk, which joins all groups.
    fn add_node(&mut self, witness: bool, voter: bool) {
        let number = self.operator.next_node;
        self.operator.next_node += 1;
        let mut node = Node::new(id(number), witness, &self.scenario, self.now);
        // A node that is added later has no older binary than the present nodes.
        node.apply_version = self.newest_binary();
        join_all(&mut node, self.groups());
        self.nodes.insert(number, node);
        self.operator.wanted.insert(number, Wanted { witness, voter });
        self.say(|| format!("operator: n{number} is to be added"));
        self.boot(number);
    }

    pub(super) fn ask_for_a_node(&mut self, voter: bool) -> bool {
        if self.operator.wanted.len() >= VOTERS_MAX {
            return false;
        }
        self.add_node(false, voter);
        true
    }

    pub(super) fn ask_to_remove(&mut self, number: u64) -> bool {
        let Some(wanted) = self.operator.wanted.get(&number).copied() else { return false };
        let spare =
            self.operator.voters_wanted() > 3 && (wanted.witness || self.operator.full_voters_wanted() > 2);
        if !spare {
            return false;
        }
        self.operator.wanted.remove(&number);
        true
    }

    pub(super) fn ask_to_replace(&mut self, number: u64) -> bool {
        if !self.members_settled() {
            return false;
        }
        let Some(wanted) = self.operator.wanted.remove(&number) else { return false };
        self.add_node(wanted.witness, wanted.voter);
        true
    }

    pub(super) fn dismiss_learners(&mut self) {
        self.operator.wanted.retain(|_, wanted| wanted.voter);
    }

    /// Destroys the disk of a node for good, and replaces the node. With `blank`, somebody first starts the node again
    /// as if it were new.
    pub(super) fn lose_disk(&mut self, number: u64, blank: bool) {
        self.say(|| format!("n{number} has lost its disk"));
        self.stats.disks_lost += 1;
        self.kill(number);
        let planted = self.scenario.planted;
        let groups = self.groups();
        let node = self.node(number);
        node.rotten = false;
        node.disk = crate::disk::SimDisk::new(planted);
        if blank {
            join_all(node, groups);
            self.boot(number);
        }
        self.node(number).disk_lost = true;
        if let Some(wanted) = self.operator.wanted.remove(&number) {
            self.add_node(wanted.witness, wanted.voter);
        }
    }

    /// Stops a node that came back without its disk and was told that the disk is lost.
    pub(super) fn blank_refused(&mut self, number: u64) {
        assert!(self.nodes[&number].disk_lost, "n{number} is told that it lost its disk, and has it");
        self.kill(number);
    }

    pub(super) fn raise_version_at(&mut self, at: At) {
        self.operator.raise_at = at;
    }

    /// Asks for a version that not every node knows: it must be refused.
    fn raise_version(&mut self) {
        if self.now < self.operator.raise_at {
            return;
        }
        self.operator.raise_at = At::MAX;
        let known = self.nodes.values().filter(|node| !node.retired).map(|node| node.apply_version).min();
        let Some(known) = known else { return };
        let group = GroupId::MAP;
        let Some((leader, status)) = self.leader_of(group) else { return };
        let is_old = |node: &NodeId| self.nodes[&node.number()].apply_version == known;
        if status.members.all().iter().any(is_old) {
            let proposal = self.operator.fresh_proposal();
            self.give(leader, Input::Propose(group, proposal, Command::RaiseApplyVersion(known + 1)));
        }
    }
}

fn join_all(node: &mut Node, groups: impl Iterator<Item = GroupId>) {
    let kind = if node.witness { ReplicaKind::Witness } else { ReplicaKind::Full };
    for group in groups {
        tollgate_replica::join(&mut node.disk, group, kind)
            .expect("an empty simulated disk takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator() -> Operator {
        Operator {
            rng: Rng::new(1),
            wanted: (1..=3).map(|node| (node, Wanted { witness: false, voter: true })).collect(),
            next_node: 4,
            next_proposal: IDS_FROM,
            waiting: BTreeMap::new(),
            raise_at: At::MAX,
        }
    }

    #[test]
    fn a_replacement_takes_the_steps_that_raft_allows() {
        let mut operator = operator();
        let mut members = Members::first((1..=3).map(id), []);
        assert!(operator.is_content(&members) && operator.step(&members, 1).is_none());
        operator.wanted.remove(&2);
        operator.wanted.insert(4, Wanted { witness: false, voter: true });
        let Some(Step::Change(MemberChange::AddLearner { node, .. })) = operator.step(&members, 1) else {
            panic!("a new node comes as a learner")
        };
        assert_eq!(node, id(4));
        members.learners.insert(id(4));
        for _ in 0..20 {
            let Some(Step::Change(change)) = operator.step(&members, 1) else { panic!("not done yet") };
            let replace = MemberChange::Replace { out: id(2), by: id(4) };
            assert!(change == replace || change == MemberChange::Promote { node: id(4) }, "{change:?}");
        }
        members.learners.clear();
        members.voters.insert(id(4));
        assert!(matches!(operator.step(&members, 2), Some(Step::HandOn)), "a leader can't remove itself");
        let Some(Step::Change(change)) = operator.step(&members, 1) else { panic!("one is too many") };
        assert_eq!(change, MemberChange::Remove { node: id(2) });
        members.voters.remove(&id(2));
        assert!(operator.is_content(&members));
    }
}
