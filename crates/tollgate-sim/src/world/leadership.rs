//! The leader of each group, and whether it can commit: an allowance for the check of lateness.
//!
//! The world sees all nodes at once. A group counts as led when a lively leader that serves clients has a working disk
//! and reaches a quorum of voters whose disks work. While faults hit nodes, or leadership is handed on, a group also
//! counts as leaderless when entries wait and none is committed; in calm times that is no excuse. Two groups that are
//! led may have leaders that can't reach each other: after a cut, while the members of one group are being replaced, or
//! until a cut-off leader steps down. Not here: elections (`tollgate-replica`).

use super::World;
use crate::network::End;
use crate::types::At;
use std::collections::BTreeSet;
use tollgate_check::Event;
use tollgate_replica::Status;
use tollgate_types::{GroupId, NodeId};

/// Time after which waiting entries count as stuck, while faults are under way.
const STUCK_US: At = 100_000;
/// Time after a fault in which the world may still be recovering.
const AFTERMATH_US: At = 3_000_000;

/// Leadership of each group, as far as the world knows.
pub(super) struct Leadership {
    groups: Vec<Lead>,
    /// Pairs of led groups for which the history says that the first one's leader can't reach the second one's.
    cut: BTreeSet<(GroupId, GroupId)>,
}

#[derive(Clone, Default)]
struct Lead {
    leader: Option<u64>,
    /// True if the history says that the group is led.
    led: bool,
    /// True if the history says that the leader's time stands still.
    still: bool,
    committed: u64,
    committed_at: At,
    handing_on: Option<HandingOn>,
}

/// A leader that may be handing its leadership on, and accepts no proposals meanwhile.
#[derive(Clone)]
struct HandingOn {
    node: u64,
    /// Time by which the leader has given up at the latest, unless its time stands still until then: the
    /// leader counts its own time.
    until: At,
    /// Time at which the leader was last looked at; `stood` is true if its time stood still from then on.
    seen: At,
    stood: bool,
}

impl HandingOn {
    /// Returns true if the handover may go on, given whether the leader's process is up and whether its time stands
    /// still.
    fn look(&mut self, now: At, up: bool, stands: bool) -> bool {
        if self.stood {
            self.until += now - self.seen;
        }
        (self.seen, self.stood) = (now, stands);
        up && now < self.until
    }
}

impl Leadership {
    pub(super) fn new(groups: usize) -> Leadership {
        Leadership { groups: vec![Lead::default(); groups], cut: BTreeSet::new() }
    }

    fn of(&self, group: GroupId) -> &Lead {
        &self.groups[group.number() as usize]
    }

    /// Returns the leader of a group, as last seen.
    pub(super) fn leader(&self, group: u32) -> Option<u64> {
        self.groups[group as usize].leader
    }

    /// Returns true if a group's leader can commit and its time passes.
    pub(super) fn is_led_in_time(&self, group: u32) -> bool {
        let lead = &self.groups[group as usize];
        lead.led && !lead.still
    }

    /// Returns true if every group is led.
    pub(super) fn all_led(&self) -> bool {
        self.groups.iter().all(|lead| lead.led)
    }

    /// Returns the groups that are not led.
    pub(super) fn unled(&self) -> Vec<usize> {
        (0..self.groups.len()).filter(|&group| !self.groups[group].led).collect()
    }
}

impl World {
    /// Returns the newest leader of a group that is lively and serves clients.
    pub(super) fn leader_of(&self, group: GroupId) -> Option<(u64, Status)> {
        let mut newest: Option<(u64, Status)> = None;
        for node in self.nodes.values().filter(|node| node.is_lively(self.now)) {
            if let Some(status) = node.status(group).filter(|status| status.serves)
                && newest.as_ref().is_none_or(|(_, other)| status.term > other.term)
            {
                newest = Some((node.id.number(), status));
            }
        }
        newest
    }

    /// Notes that the leader of a group was asked to hand its leadership on: until that has happened, or was given up,
    /// the leader is as good as none.
    pub(super) fn hands_on(&mut self, group: GroupId) {
        let Some((node, _)) = self.leader_of(group) else { return };
        let timeout_us = 1_000 * self.scenario.config.election_timeout_ms;
        let (until, seen, stood) =
            (self.now + timeout_us + timeout_us / 5, self.now, self.stands_still(node));
        self.leadership.groups[group.number() as usize].handing_on =
            Some(HandingOn { node, until, seen, stood });
    }

    /// Returns true if no time passes for a node's process.
    fn stands_still(&self, number: u64) -> bool {
        let node = &self.nodes[&number];
        !node.is_lively(self.now) || node.clock.is_behind(self.now)
    }

    /// Returns true if a group's leader may be handing its leadership on. `leader` is the present leader, if there is
    /// one.
    fn is_handing_on(&mut self, group: GroupId, leader: Option<u64>) -> bool {
        let place = group.number() as usize;
        let Some(mut handing) = self.leadership.groups[place].handing_on.take() else { return false };
        let (up, stands) = (self.nodes[&handing.node].is_up(), self.stands_still(handing.node));
        let goes_on =
            handing.look(self.now, up, stands) && leader.is_none_or(|leader| leader == handing.node);
        self.leadership.groups[place].handing_on = goes_on.then_some(handing);
        goes_on
    }

    pub(super) fn look_at_leaders(&mut self) {
        for group in self.groups() {
            self.look_at_leader(group);
        }
        self.look_between_leaders();
    }

    fn look_between_leaders(&mut self) {
        let led = |lead: &Lead| lead.leader.filter(|_| lead.led);
        let leaders: Vec<_> =
            self.groups().filter_map(|group| Some((group, led(self.leadership.of(group))?))).collect();
        let cut: BTreeSet<_> = leaders
            .iter()
            .flat_map(|sender| leaders.iter().map(move |receiver| (sender, receiver)))
            .filter(|((_, from), (_, to))| self.network.is_cut(End::Node(*from), End::Node(*to)))
            .map(|((sender, _), (receiver, _))| (*sender, *receiver))
            .collect();
        let before = std::mem::replace(&mut self.leadership.cut, cut.clone());
        for &(from, to) in before.difference(&cut) {
            self.record(Event::LeadersLinked { from, to });
        }
        for &(from, to) in cut.difference(&before) {
            self.record(Event::LeadersCut { from, to });
        }
    }

    fn look_at_leader(&mut self, group: GroupId) {
        let found = self.leader_of(group);
        let now = self.now;
        let troubled = !self.active.is_empty() || now < self.troubled_at + AFTERMATH_US;
        let reaches = found.as_ref().is_some_and(|(leader, status)| self.reaches_quorum(*leader, status));
        let still = found.as_ref().is_some_and(|(leader, _)| self.nodes[leader].clock.is_behind(now));
        let handing_on = self.is_handing_on(group, found.as_ref().map(|(leader, _)| *leader));
        let lead = &mut self.leadership.groups[group.number() as usize];
        lead.leader = found.as_ref().map(|(leader, _)| *leader);
        let mut stuck = false;
        if let Some((_, status)) = &found {
            let waits = status.committed < status.last_index || handing_on;
            if status.committed != lead.committed || !waits {
                lead.committed = status.committed;
                lead.committed_at = now;
            }
            stuck = (troubled || handing_on) && now > lead.committed_at + STUCK_US;
        }
        let can_commit = reaches && !stuck;
        let (was_led, was_still) = (lead.led, lead.still);
        (lead.led, lead.still) = (can_commit, still);
        if can_commit && !was_led {
            let node = u32::try_from(lead.leader.expect("led by somebody")).expect("few nodes");
            self.record(Event::Led {
                group,
                node,
                term: found.as_ref().map_or(0, |(_, status)| status.term),
            });
        } else if !can_commit && was_led {
            self.record(Event::Leaderless { group });
        }
        if still && !was_still {
            self.record(Event::LeaderPaused { group });
        } else if !still && was_still {
            self.record(Event::LeaderResumed { group });
        }
    }

    fn reaches_quorum(&self, leader: u64, status: &Status) -> bool {
        let reached = |voter: &&NodeId| {
            let Some(node) = self.nodes.get(&voter.number()) else { return false };
            let (one, other) = (End::Node(leader), End::Node(voter.number()));
            let linked = voter.number() == leader
                || !self.network.is_cut(one, other) && !self.network.is_cut(other, one);
            node.is_lively(self.now) && linked && !node.queue.is_troubled(self.now)
        };
        let members = &status.members;
        // A leader can't apply an entry that it can't write, even if others have the entry.
        !self.nodes[&leader].queue.is_troubled(self.now)
            && [&members.voters, &members.outgoing]
                .into_iter()
                .all(|voters| voters.is_empty() || voters.iter().filter(reached).count() > voters.len() / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_hands_on_counts_its_own_time() {
        let mut handing = HandingOn { node: 1, until: 1_200, seen: 0, stood: false };
        assert!(handing.look(1_000, true, true));
        assert!(handing.look(1_500, true, true), "it has stood still since");
        assert!(handing.look(4_000, true, false), "and until now");
        assert!(handing.look(4_199, true, false));
        assert!(!handing.look(4_200, true, false), "its time went on");
    }

    #[test]
    fn a_leader_that_died_hands_nothing_on() {
        let mut handing = HandingOn { node: 1, until: 1_200, seen: 0, stood: false };
        assert!(!handing.look(300, false, true));
    }
}
