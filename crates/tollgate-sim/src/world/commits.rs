//! For how long messages are on their way until an entry is committed: what the judge of lateness must allow for.
//!
//! An entry goes to the members in the turn in which its leader puts it into the log, and the answer of one of them
//! completes its quorum. The ways of these two messages are counted, as the network made them: what members take in
//! between, what is sent late, and what is lost and sent again, is not. Invariant: nothing here asks a host how long
//! anything took. Not here: disks, which the world counts as a group without a leader while they stall (`leadership`).

use super::World;
use crate::types::At;
use std::collections::{BTreeMap, VecDeque};
use tollgate_replica::{Role, Status};
use tollgate_types::GroupId;

/// Longer than this nobody waits for an entry to be committed: an election comes first.
const REMEMBERED_US: At = 10_000_000;

/// What is known of entries and messages under way.
pub(super) struct Commits {
    /// When each message between two nodes was sent, and how long its way was.
    ways: BTreeMap<(u64, u64), VecDeque<(At, At)>>,
    groups: Vec<Proposed>,
    /// From whom the node whose turn it is heard in this turn, and how long the way was.
    heard: Vec<(u64, At)>,
}

/// The newest entries of a group's leader, and when it put each into its log.
#[derive(Clone, Default)]
struct Proposed {
    leader: u64,
    boot: u64,
    term: u64,
    entries: BTreeMap<u64, At>,
    last: u64,
}

impl Commits {
    pub(super) fn new(groups: usize) -> Commits {
        Commits { ways: BTreeMap::new(), groups: vec![Proposed::default(); groups], heard: Vec::new() }
    }

    /// A message was sent, and will arrive so much later.
    pub(super) fn sent(&mut self, now: At, from: u64, to: u64, way_us: At) {
        let ways = self.ways.entry((from, to)).or_default();
        ways.push_back((now, way_us));
        while ways.front().is_some_and(|(sent, _)| sent + REMEMBERED_US < now) {
            ways.pop_front();
        }
    }

    /// A node's turn begins, with these messages.
    pub(super) fn turn(&mut self, heard: Vec<(u64, At)>) {
        self.heard = heard;
    }

    /// A leader's turn has ended.
    fn proposed(&mut self, now: At, group: GroupId, node: u64, boot: u64, status: &Status) {
        let known = &mut self.groups[group.number() as usize];
        if (known.leader, known.boot, known.term) != (node, boot, status.term) {
            // What a leader found in its log was not proposed by it.
            let (term, last) = (status.term, status.last_index);
            *known = Proposed { leader: node, boot, term, entries: BTreeMap::new(), last };
        }
        known.entries.extend((known.last + 1..=status.last_index).map(|index| (index, now)));
        known.last = status.last_index;
        known.entries.retain(|_, at| *at + REMEMBERED_US >= now);
    }

    /// For how long messages were on their way for an entry that is applied by a node in its present turn.
    fn carried_us(&self, now: At, group: GroupId, node: u64, index: u64, status: &Status) -> At {
        let known = &self.groups[group.number() as usize];
        let Some(proposed) = known.entries.get(&index).filter(|_| known.leader == node) else { return 0 };
        let votes = |from: u64| {
            let members = &status.members;
            members.voters.iter().chain(&members.outgoing).any(|voter| voter.number() == from)
        };
        let there = |from: u64| {
            let ways = self.ways.get(&(node, from)).into_iter().flatten();
            ways.filter(|(sent, _)| sent == proposed).map(|(_, way_us)| *way_us).max().unwrap_or(0)
        };
        let answered = self.heard.iter().filter(|(from, _)| votes(*from));
        let longest = answered.map(|(from, back_us)| there(*from) + back_us).max().unwrap_or(0);
        longest.min(now - proposed)
    }
}

impl World {
    /// Notes what a node has just put into its groups' logs.
    pub(super) fn note_proposed(&mut self, number: u64) {
        let (now, node) = (self.now, &self.nodes[&number]);
        let Some(process) = &node.process else { return };
        for group in (0..self.scenario.groups).map(GroupId::new) {
            if let Some(status) = node.status(group).filter(|status| status.role == Role::Leader) {
                self.commits.proposed(now, group, number, process.boot, &status);
            }
        }
    }

    /// For how long messages were on their way for an entry that a node has just applied.
    pub(super) fn carried_us(&self, number: u64, group: GroupId, index: u64) -> At {
        let status = self.nodes[&number].status(group);
        status.map_or(0, |status| self.commits.carried_us(self.now, group, number, index, &status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_replica::{Members, ReplicaKind};
    use tollgate_types::NodeId;

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
        // Sent later: it does not bring the entry.
        commits.sent(1_100, 1, 2, 9_000);
        commits
    }

    #[test]
    fn the_way_there_and_the_way_back_count_and_what_is_between_them_does_not() {
        let mut commits = commits();
        commits.turn(vec![(2, 150)]);
        assert_eq!(commits.carried_us(5_000, GroupId::MAP, 1, 5, &status(5)), 450);
        commits.turn(vec![(3, 50), (4, 9_000)]);
        assert_eq!(commits.carried_us(5_000, GroupId::MAP, 1, 5, &status(5)), 70, "4 has no vote");
    }

    #[test]
    fn no_more_counts_than_has_passed() {
        let mut commits = commits();
        commits.turn(vec![(2, 3_000)]);
        assert_eq!(commits.carried_us(1_400, GroupId::MAP, 1, 5, &status(5)), 400);
    }

    #[test]
    fn an_entry_that_nobody_saw_proposed_was_not_carried() {
        let mut commits = commits();
        commits.turn(vec![(2, 150)]);
        assert_eq!(commits.carried_us(5_000, GroupId::MAP, 1, 4, &status(5)), 0, "there before it led");
        assert_eq!(commits.carried_us(5_000, GroupId::MAP, 2, 5, &status(5)), 0, "of another leader");
        commits.turn(Vec::new());
        assert_eq!(commits.carried_us(5_000, GroupId::MAP, 1, 5, &status(5)), 0, "its own disk came last");
    }
}
