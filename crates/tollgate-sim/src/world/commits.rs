//! Measures for how long messages are under way until an entry is committed: an allowance for the check of lateness.
//!
//! An entry goes to the members in the turn in which its leader appends it to the log, and the answer of one member
//! completes its quorum. The network times of these two messages are counted, as the network made them. Not counted:
//! the time that members take in between, messages that are sent late, and messages that are lost and sent again. The
//! frames show which answer acknowledges which entry. Invariant: nothing here asks a host how long anything took, and
//! no more is allowed than the fastest members that could complete the quorum took. Not here: disks; while they stall,
//! the world counts a group as leaderless (`leadership`).

use super::World;
use crate::types::At;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tollgate_replica::{Acknowledgement, Role, Status};
use tollgate_types::{GroupId, NodeId};

/// Time for which entries and messages are remembered: nobody waits longer for a commit, because an election comes
/// first.
const REMEMBERED_US: At = 10_000_000;

/// Entries and messages under way.
pub(super) struct Commits {
    /// Per pair of nodes, the moment at which each message was sent and the time that it takes.
    ways: BTreeMap<(u64, u64), VecDeque<(At, At)>>,
    groups: Vec<Proposed>,
    /// Acknowledgements that the node whose turn it is received in this turn.
    heard: Vec<Heard>,
}

/// An acknowledgement that has reached a node.
#[derive(Clone, Copy)]
pub(super) struct Heard {
    pub(super) from: u64,
    pub(super) to: u64,
    /// Time that the acknowledgement was under way, in microseconds.
    pub(super) way_us: At,
    pub(super) acknowledged: Acknowledgement,
}

/// The newest entries of a group's leader, with the moment at which it appended each of them to its log.
#[derive(Clone, Default)]
struct Proposed {
    leader: u64,
    boot: u64,
    term: u64,
    entries: BTreeMap<u64, At>,
    last: u64,
    /// The last entry that each member had acknowledged before the present turn.
    acknowledged: BTreeMap<u64, u64>,
}

impl Commits {
    pub(super) fn new(groups: usize) -> Commits {
        Commits { ways: BTreeMap::new(), groups: vec![Proposed::default(); groups], heard: Vec::new() }
    }

    /// Notes that a message was sent, and will arrive `way_us` later.
    pub(super) fn sent(&mut self, now: At, from: u64, to: u64, way_us: At) {
        let ways = self.ways.entry((from, to)).or_default();
        ways.push_back((now, way_us));
        while ways.front().is_some_and(|(sent, _)| sent + REMEMBERED_US < now) {
            ways.pop_front();
        }
    }

    /// Returns true if a node led a group at the end of its last turn: then acknowledgements to it matter.
    pub(super) fn leads_any(&self, node: u64) -> bool {
        self.groups.iter().any(|known| known.leader == node)
    }

    /// Begins a node's turn with these acknowledgements.
    pub(super) fn turn(&mut self, heard: Vec<Heard>) {
        for Heard { from, to, acknowledged, .. } in std::mem::replace(&mut self.heard, heard) {
            let known = &mut self.groups[acknowledged.group.number() as usize];
            if (known.leader, known.term) == (to, acknowledged.term) {
                let last = known.acknowledged.entry(from).or_default();
                *last = acknowledged.index.max(*last);
            }
        }
    }

    /// Notes the entries that a leader appended in the turn that has ended.
    fn proposed(&mut self, now: At, group: GroupId, node: u64, boot: u64, status: &Status) {
        let known = &mut self.groups[group.number() as usize];
        if (known.leader, known.boot, known.term) != (node, boot, status.term) {
            // Entries that a new leader found in its log were not proposed by it.
            let (term, last) = (status.term, status.last_index);
            *known = Proposed { leader: node, boot, term, last, ..Proposed::default() };
        }
        known.entries.extend((known.last + 1..=status.last_index).map(|index| (index, now)));
        known.last = status.last_index;
        known.entries.retain(|_, at| *at + REMEMBERED_US >= now);
    }

    /// Returns the time that messages were under way for an entry which a node applies in its present turn.
    fn carried_us(&self, now: At, group: GroupId, node: u64, index: u64, status: &Status) -> At {
        let known = &self.groups[group.number() as usize];
        let Some(proposed) = known.entries.get(&index).filter(|_| known.leader == node) else { return 0 };
        let there = |to: u64| {
            let ways = self.ways.get(&(node, to)).into_iter().flatten();
            ways.filter(|(sent, _)| sent == proposed).map(|(_, way_us)| *way_us).max().unwrap_or(0)
        };
        let has =
            |told: &Acknowledgement| (told.group, told.term) == (group, known.term) && told.index >= index;
        // None if the voter has not acknowledged the entry, 0 if no message of this turn was needed for that.
        let way_us = |voter: &NodeId| {
            let voter = voter.number();
            if voter == node || known.acknowledged.get(&voter).is_some_and(|last| *last >= index) {
                return Some(0);
            }
            let answers = self.heard.iter().filter(|heard| heard.from == voter && has(&heard.acknowledged));
            answers.map(|heard| there(voter) + heard.way_us).min()
        };
        let quorum_us = |voters: &BTreeSet<NodeId>| {
            let mut ways: Vec<At> = voters.iter().filter_map(way_us).collect();
            ways.sort_unstable();
            ways.get(voters.len() / 2).copied().unwrap_or(0)
        };
        let members = &status.members;
        quorum_us(&members.voters).max(quorum_us(&members.outgoing)).min(now - proposed)
    }
}

impl World {
    /// Notes the entries that a node has just appended to its groups' logs.
    pub(super) fn note_proposed(&mut self, number: u64) {
        let (now, node) = (self.now, &self.nodes[&number]);
        let Some(process) = &node.process else { return };
        for group in (0..self.scenario.groups).map(GroupId::new) {
            if let Some(status) = node.status(group).filter(|status| status.role == Role::Leader) {
                self.commits.proposed(now, group, number, process.boot, &status);
            }
        }
    }

    /// Returns the time that messages were under way for an entry that a node has just applied.
    pub(super) fn carried_us(&self, number: u64, group: GroupId, index: u64) -> At {
        let status = self.nodes[&number].status(group);
        status.map_or(0, |status| self.commits.carried_us(self.now, group, number, index, &status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_replica::{Members, ReplicaKind};

    fn status(last_index: u64) -> Status {
        let node = |number| NodeId::new(number).unwrap();
        Status {
            role: Role::Leader,
            term: 3,
            leader: NodeId::new(1),
            applied: 0,
            committed: 0,
            last_index,
            first_index: 1,
            snapshot_index: 0,
            members: Members::first((1..=3).map(node), []),
            kind: ReplicaKind::Full,
            serves: true,
        }
    }

    fn commits() -> Commits {
        let mut commits = Commits::new(1);
        commits.proposed(500, GroupId::MAP, 1, 7, &status(4));
        commits.sent(1_000, 1, 2, 300);
        commits.sent(1_000, 1, 3, 20);
        commits.proposed(1_000, GroupId::MAP, 1, 7, &status(5));
        // Sent later: this message does not bring the entry.
        commits.sent(1_100, 1, 2, 9_000);
        commits
    }

    fn heard(from: u64, way_us: At, index: u64) -> Heard {
        let acknowledged = Acknowledgement { group: GroupId::MAP, term: 3, index };
        Heard { from, to: 1, way_us, acknowledged }
    }

    fn carried_us(commits: &Commits, now: At, node: u64, index: u64) -> At {
        commits.carried_us(now, GroupId::MAP, node, index, &status(5))
    }

    #[test]
    fn the_way_there_and_the_way_back_count_and_what_is_between_them_does_not() {
        let mut commits = commits();
        commits.turn(vec![heard(2, 150, 5)]);
        assert_eq!(carried_us(&commits, 5_000, 1, 5), 450);
        commits.turn(vec![heard(4, 9_000, 5)]);
        assert_eq!(carried_us(&commits, 5_000, 1, 5), 0, "4 has no vote, and 2 was there before");
    }

    #[test]
    fn p6_of_a_slow_and_a_fast_answer_in_one_turn_the_fast_one_completes_the_quorum() {
        let mut commits = commits();
        commits.turn(vec![heard(2, 150, 5), heard(3, 50, 5)]);
        assert_eq!(carried_us(&commits, 5_000, 1, 5), 70);
    }

    #[test]
    fn p6_answers_that_acknowledge_something_else_do_not_count() {
        let mut commits = commits();
        let other_term = Acknowledgement { group: GroupId::MAP, term: 2, index: 9 };
        let old = Heard { acknowledged: other_term, ..heard(2, 150, 9) };
        commits.turn(vec![heard(2, 150, 4), old]);
        assert_eq!(carried_us(&commits, 5_000, 1, 5), 0, "an earlier entry, and one of an earlier term");
        commits.turn(vec![heard(2, 150, 4), heard(3, 50, 5)]);
        assert_eq!(carried_us(&commits, 5_000, 1, 5), 70);
    }

    #[test]
    fn while_members_change_both_quorums_must_be_complete() {
        let mut commits = commits();
        commits.turn(vec![heard(2, 150, 5), heard(3, 50, 5)]);
        let mut joint = status(5);
        joint.members.outgoing = [1, 2].map(|number| NodeId::new(number).unwrap()).into();
        assert_eq!(commits.carried_us(5_000, GroupId::MAP, 1, 5, &joint), 450);
    }

    #[test]
    fn no_more_counts_than_has_passed() {
        let mut commits = commits();
        commits.turn(vec![heard(2, 3_000, 5)]);
        assert_eq!(carried_us(&commits, 1_400, 1, 5), 400);
    }

    #[test]
    fn an_entry_that_nobody_saw_proposed_was_not_carried() {
        let mut commits = commits();
        commits.turn(vec![heard(2, 150, 5)]);
        assert_eq!(carried_us(&commits, 5_000, 1, 4), 0, "there before it led");
        assert_eq!(carried_us(&commits, 5_000, 2, 5), 0, "of another leader");
        commits.turn(Vec::new());
        assert_eq!(carried_us(&commits, 5_000, 1, 5), 0, "its own disk came last");
    }
}
