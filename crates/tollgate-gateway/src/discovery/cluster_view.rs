//! A discovery's knowledge of a cluster, updated answer by answer. Pure: no network, and time comes in with the
//! answers.
//!
//! Invariant: of two answers about a group the one with the higher term counts, and within one term the one that names
//! a leader, as long as a node that answers confirms it. Answers of another cluster, or of another gateway, are
//! ignored. A node is out of touch only in comparison with others: while no node knows a leader, as in an election, no
//! node is out of touch. Not here: the choice and time of polls (`discovery`).

use crate::routing_table::RoutingTable;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tollgate_node::GroupStatus;
use tollgate_node::planted::{Bug, planted};
use tollgate_proto::v1::{Group, GroupsResponse, MemberKind, MembersResponse};
use tollgate_replica::Role;
use tollgate_types::{ClusterId, GroupId, GroupMap, Lineage, NodeId, Slot};

/// Number of polls in a row that a node may leave unanswered before it counts as out of touch: one may be late by
/// chance.
const MISSES_MAX: u32 = 2;

/// Time that a node may be behind the others before it counts as out of touch: longer than the news of a new leader
/// needs to reach all nodes, however often they are polled.
const BEHIND_MAX: Duration = Duration::from_millis(2_500);

/// Answer of a node.
pub(super) struct Told {
    pub(super) groups: GroupsResponse,
    /// Members, which are not asked for in every poll.
    pub(super) members: Option<MembersResponse>,
}

/// Everything known about the cluster.
#[derive(Debug)]
pub(super) struct ClusterView {
    /// Configured addresses; never forgotten.
    given: Vec<String>,
    /// The cluster that is polled; none until one was seen, unless it is configured.
    cluster: Option<ClusterId>,
    map: Option<Arc<GroupMap>>,
    groups: BTreeMap<GroupId, GroupStatus>,
    clients: BTreeMap<NodeId, String>,
    /// Members without complete replicas: witnesses, and learners that are still catching up.
    bystanders: BTreeSet<NodeId>,
    seen: BTreeMap<String, Seen>,
    /// Number of unanswered polls in a row, over all nodes.
    silent: u32,
    /// Index of the address polled last.
    turn: usize,
}

/// Results of the polls of one address.
#[derive(Debug, Default)]
struct Seen {
    node: Option<NodeId>,
    /// Number of unanswered polls in a row.
    misses: u32,
    /// Leader and term of each group, according to the last answer.
    named: BTreeMap<GroupId, (Option<NodeId>, u64)>,
    /// Time since which the node knows less about leaders than others do, if so.
    behind_since: Option<Duration>,
    /// True if the node was in touch with the others, and has not lost touch since.
    in_touch: bool,
    trouble: String,
}

impl ClusterView {
    pub(super) fn new(given: Vec<String>, cluster: Option<ClusterId>) -> ClusterView {
        assert!(!given.is_empty(), "the configuration names at least one node");
        ClusterView {
            given,
            cluster,
            map: None,
            groups: BTreeMap::new(),
            clients: BTreeMap::new(),
            bystanders: BTreeSet::new(),
            seen: BTreeMap::new(),
            silent: 0,
            turn: 0,
        }
    }

    /// Returns the addresses to poll: those of the members, then the configured ones that belong to no member.
    pub(super) fn addresses(&self) -> Vec<String> {
        let mut addresses: Vec<String> = self.clients.values().cloned().collect();
        addresses.extend(self.given.iter().filter(|given| !self.is_member_s(given)).cloned());
        addresses
    }

    /// Returns true if a configured address belongs to a member, under the same or another name.
    fn is_member_s(&self, given: &str) -> bool {
        let answers_elsewhere = |node: &NodeId| {
            let other = self.clients.get(node).and_then(|address| self.seen.get(address));
            other.is_some_and(|other| other.misses == 0)
        };
        let node = self.seen.get(given).and_then(|seen| seen.node);
        self.clients.values().any(|client| client == given)
            || node.is_some_and(|node| answers_elsewhere(&node))
    }

    /// Returns the next address to poll, in turn.
    pub(super) fn next_address(&mut self) -> String {
        let mut addresses = self.addresses();
        self.turn = (self.turn + 1) % addresses.len();
        addresses.swap_remove(self.turn)
    }

    pub(super) fn groups(&self) -> &BTreeMap<GroupId, GroupStatus> {
        &self.groups
    }

    /// Returns true if every group has a leader.
    pub(super) fn is_whole(&self) -> bool {
        !self.groups.is_empty() && self.groups.values().all(|group| group.leader.is_some())
    }

    /// Returns true if every group has a leader that is confirmed by a node that answered its last poll.
    pub(super) fn is_settled(&self) -> bool {
        self.is_whole() && self.groups.keys().all(|group| self.is_named(*group, 1))
    }

    /// Returns true if a node with fewer than `misses` unanswered polls in a row names the known leader of a group.
    fn is_named(&self, group: GroupId, misses: u32) -> bool {
        self.groups.get(&group).is_some_and(|known| {
            let names = |seen: &Seen| seen.named.get(&group) == Some(&(known.leader, known.term));
            known.leader.is_some() && self.seen.values().any(|seen| seen.misses < misses && names(seen))
        })
    }

    /// Removes leaders that no answering node names. A new term can't be relied on to replace them: nodes that miss
    /// their leader ask each other before they begin a new term, and without a majority none ever begins.
    fn unseat(&mut self) {
        let unseated = self.groups.keys().copied().filter(|group| !self.is_named(*group, MISSES_MAX));
        for group in unseated.collect::<Vec<GroupId>>() {
            self.groups.entry(group).and_modify(|known| known.leader = None);
        }
    }

    /// Returns the number of unanswered polls in a row, over all nodes.
    pub(super) fn silent(&self) -> u32 {
        self.silent
    }

    /// Returns true if no node answers.
    pub(super) fn is_silent(&self) -> bool {
        self.silent as usize >= self.addresses().len()
    }

    /// Returns true if the address of a leader is unknown.
    pub(super) fn misses_members(&self, groups: &GroupsResponse) -> bool {
        let known = |leader: u64| NodeId::new(leader).is_none_or(|leader| self.clients.contains_key(&leader));
        self.clients.is_empty() || !groups.groups.iter().all(|group| known(group.leader_id))
    }

    /// Records that a node did not answer, or gave an invalid answer.
    pub(super) fn missed(&mut self, address: &str, why: String) {
        self.silent = self.silent.saturating_add(1);
        let seen = self.seen.entry(address.to_owned()).or_default();
        seen.misses = seen.misses.saturating_add(1);
        seen.in_touch &= seen.misses < MISSES_MAX;
        seen.trouble = why;
        if self.is_silent() {
            // The former leaders are of no use to anybody, and the next leader may have any term.
            for group in self.groups.values_mut() {
                (group.leader, group.term) = (None, 0);
            }
        }
        self.unseat();
    }

    /// Takes the answer of a node, given at `now`, the time since the first poll. Returns true if the members in it
    /// were taken.
    pub(super) fn answered(&mut self, address: &str, told: &Told, now: Duration) -> bool {
        match self.learn(address, told, now) {
            Ok(took_members) => took_members,
            Err(why) => {
                let known = self.seen.get(address).is_some_and(|seen| seen.trouble == why);
                if !known {
                    tracing::warn!(address, why, "a node's answer is not taken");
                }
                self.missed(address, why);
                false
            }
        }
    }

    fn learn(&mut self, address: &str, told: &Told, now: Duration) -> Result<bool, String> {
        let groups = &told.groups;
        if groups.via_gateway {
            return Err("it is a gateway: name nodes of the cluster instead".to_owned());
        }
        let header = groups.header.unwrap_or_default();
        let cluster = ClusterId::new(header.cluster_id);
        if let Some(expected) = self.cluster.filter(|expected| *expected != cluster)
            && !planted(Bug::OtherClusterFollowed)
        {
            return Err(format!("it is of cluster {cluster}, and this gateway is one of {expected}"));
        }
        self.take_map(groups)?;
        self.cluster = Some(cluster);
        self.hear(address, NodeId::new(header.member_id), &groups.groups);
        let behind = self.take_groups(&groups.groups, Lineage::new(header.lineage));
        self.unseat();
        // A node that knows less than others may have missed the latest change of members.
        let members = told.members.as_ref().filter(|_| !behind || self.clients.is_empty());
        if let Some(members) = members {
            self.take_members(members);
        }
        self.silent = 0;
        let seen = self.seen.entry(address.to_owned()).or_default();
        if behind {
            let since = *seen.behind_since.get_or_insert(now);
            seen.in_touch &= now.saturating_sub(since) < BEHIND_MAX;
            "it knows no leader, or an old one".clone_into(&mut seen.trouble);
        } else {
            (seen.behind_since, seen.in_touch, seen.trouble) = (None, true, String::new());
        }
        Ok(members.is_some())
    }

    /// Stores the answer of a node under this address, and removes earlier answers of the same node under other
    /// addresses, which are no longer polled.
    fn hear(&mut self, address: &str, node: Option<NodeId>, groups: &[Group]) {
        let mut heard = self.seen.remove(address).unwrap_or_default();
        for other in self.seen.values_mut().filter(|other| node.is_some() && other.node == node) {
            other.named.clear();
            heard.in_touch |= std::mem::take(&mut other.in_touch);
            heard.behind_since = heard.behind_since.or(other.behind_since.take());
        }
        let named =
            |told: &Group| (GroupId::new(told.group_id), (NodeId::new(told.leader_id), told.raft_term));
        heard.named = groups.iter().map(named).collect();
        (heard.node, heard.misses) = (node, 0);
        self.seen.insert(address.to_owned(), heard);
    }

    fn take_map(&mut self, groups: &GroupsResponse) -> Result<(), String> {
        if self.map.as_ref().is_some_and(|map| map.epoch() >= groups.map_epoch) {
            return Ok(());
        }
        self.map = Some(Arc::new(read_map(groups)?));
        Ok(())
    }

    /// Takes leaders and terms from an answer. Returns true if the node knows less than others that answered their last
    /// poll: no leader of a group, or an old one. All groups of the cluster are of one lineage.
    fn take_groups(&mut self, groups: &[Group], lineage: Option<Lineage>) -> bool {
        let mut behind = groups.is_empty();
        for told in groups {
            let (leader, term) = (NodeId::new(told.leader_id), told.raft_term);
            let unknown = GroupStatus {
                role: Role::Follower,
                leader: None,
                term: 0,
                serves: false,
                stuck: false,
                has_state: false,
                lineage,
            };
            let group = GroupId::new(told.group_id);
            let is_named = self.is_named(group, 1);
            let known = self.groups.entry(group).or_insert(unknown);
            known.lineage = known.lineage.or(lineage);
            let is_newer = term > known.term || (term == known.term && leader.is_some());
            behind |= is_named && !is_newer;
            if is_newer {
                (known.leader, known.term) = (leader, term);
            }
        }
        behind
    }

    fn take_members(&mut self, members: &MembersResponse) {
        let found = members.members.iter().filter_map(|member| {
            let address = member.client_address.trim_start_matches("http://").trim_end_matches('/');
            Some((NodeId::new(member.node_id)?, address.to_owned()))
                .filter(|(_, address)| !address.is_empty())
        });
        let found: BTreeMap<NodeId, String> = found.collect();
        if !found.is_empty() {
            self.clients = found;
            let stands_by = |kind| matches!(kind, MemberKind::Witness | MemberKind::Learner);
            let bystanders = members.members.iter().filter(|member| stands_by(member.kind()));
            self.bystanders = bystanders.filter_map(|member| NodeId::new(member.node_id)).collect();
            let known = self.addresses();
            self.seen.retain(|address, _| known.contains(address) || self.given.contains(address));
        }
    }

    pub(super) fn routing_table(&self) -> RoutingTable {
        let cluster = self.cluster.unwrap_or(ClusterId::new(0));
        let in_touch = self.seen.values().filter(|seen| seen.in_touch && !self.is_silent());
        let serves = |node: &NodeId| self.clients.contains_key(node) && !self.bystanders.contains(node);
        let in_touch = in_touch.filter_map(|seen| seen.node).filter(serves);
        RoutingTable {
            in_touch: in_touch.collect(),
            bystanders: self.bystanders.clone(),
            troubles: self.troubles(),
            ..RoutingTable::new(cluster, self.map.clone(), self.clients.clone())
        }
    }

    fn troubles(&self) -> String {
        let told = self.addresses().into_iter().filter_map(|address| match self.seen.get(&address) {
            None => Some(format!("{address}: not asked yet")),
            Some(seen) if seen.trouble.is_empty() => None,
            Some(seen) => Some(format!("{address}: {}", seen.trouble)),
        });
        told.collect::<Vec<_>>().join("; ")
    }
}

/// Reads the group map from a node's answer.
fn read_map(groups: &GroupsResponse) -> Result<GroupMap, String> {
    let mut ranges = Vec::new();
    for group in &groups.groups {
        for range in &group.slots {
            let first = u16::try_from(range.first).ok().and_then(|first| Slot::new(first).ok());
            let first = first.ok_or_else(|| format!("it says that there is a slot {}", range.first))?;
            ranges.push((first, GroupId::new(group.group_id)));
        }
    }
    ranges.sort();
    ranges.dedup_by_key(|(_, group)| *group);
    GroupMap::new(groups.map_epoch, ranges).map_err(|invalid| format!("its group map is wrong: {invalid}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_proto::v1::{Header, Member, SlotRange};

    const CLUSTER: u64 = 7;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    /// Returns an answer of node `from`: one group in term `term`, led by node `leader`.
    fn told(from: u64, term: u64, leader: u64) -> Told {
        let slots = vec![SlotRange { first: 0, last: 16_383 }];
        let group = Group { slots, leader_id: leader, raft_term: term, ..Group::default() };
        let header = Header { cluster_id: CLUSTER, member_id: from, ..Header::default() };
        let groups =
            GroupsResponse { header: Some(header), map_epoch: 1, groups: vec![group], via_gateway: false };
        let member =
            |id: u64| Member { node_id: id, client_address: format!("n{id}:1"), ..Member::default() };
        let members =
            MembersResponse { next_node_id: 0, header: None, members: (1..=3).map(member).collect() };
        Told { groups, members: Some(members) }
    }

    fn cluster_view() -> ClusterView {
        ClusterView::new(vec!["n1:1".to_owned(), "other-name:1".to_owned()], None)
    }

    impl ClusterView {
        /// Takes an answer at time 0, for tests in which the time does not matter.
        fn take(&mut self, address: &str, told: &Told) {
            self.take_at(address, told, 0);
        }

        fn take_at(&mut self, address: &str, told: &Told, ms: u64) {
            self.answered(address, told, Duration::from_millis(ms));
        }
    }

    fn leader(cluster_view: &ClusterView) -> Option<u64> {
        cluster_view.groups()[&GroupId::MAP].leader.map(NodeId::number)
    }

    #[test]
    fn nothing_is_known_until_a_node_has_answered_and_then_all_of_them_are() {
        let mut cluster_view = cluster_view();
        assert!(
            !cluster_view.is_whole()
                && cluster_view.routing_table().clients.is_empty()
                && cluster_view.routing_table().map.is_none()
        );
        assert!(cluster_view.routing_table().troubles.contains("n1:1: not asked yet"));
        cluster_view.take("n1:1", &told(1, 4, 2));
        assert!(cluster_view.is_whole() && leader(&cluster_view) == Some(2));
        let routing_table = cluster_view.routing_table();
        assert_eq!((routing_table.cluster.number(), routing_table.clients.len()), (CLUSTER, 3));
        assert_eq!(routing_table.in_touch.into_iter().collect::<Vec<_>>(), [node(1)]);
        assert_eq!(cluster_view.addresses(), ["n1:1", "n2:1", "n3:1", "other-name:1"]);
        let mut asked: Vec<String> = (0..4).map(|_| cluster_view.next_address()).collect();
        asked.sort();
        assert_eq!(asked, ["n1:1", "n2:1", "n3:1", "other-name:1"]);
    }

    #[test]
    fn another_name_of_a_node_that_answers_is_not_asked_as_well() {
        let mut cluster_view = cluster_view();
        cluster_view.take("other-name:1", &told(3, 4, 2));
        assert_eq!(cluster_view.addresses().len(), 4, "it has not answered under its own name");
        cluster_view.take("n3:1", &told(3, 4, 2));
        assert_eq!(cluster_view.addresses(), ["n1:1", "n2:1", "n3:1"]);
        cluster_view.missed("n3:1", "gone".to_owned());
        assert_eq!(cluster_view.addresses().len(), 4);
    }

    #[test]
    fn a_node_that_is_behind_takes_nothing_back_and_is_out_of_touch_after_a_while() {
        let mut cluster_view = cluster_view();
        cluster_view.take("n1:1", &told(1, 4, 2));
        cluster_view.take("n2:1", &told(2, 4, 2));
        // The number of polls does not matter.
        for (told, ms, touches) in [
            (told(1, 3, 1), 1_000, true),
            (told(1, 4, 0), 1_010, true),
            (told(1, 4, 0), 3_499, true),
            (told(1, 3, 1), 3_500, false),
        ] {
            cluster_view.take_at("n1:1", &told, ms);
            assert_eq!(leader(&cluster_view), Some(2));
            assert_eq!(cluster_view.routing_table().in_touch.contains(&node(1)), touches, "after {ms} ms");
        }
        cluster_view.take("n1:1", &told(1, 5, 3));
        assert_eq!(leader(&cluster_view), Some(3));
        assert!(cluster_view.routing_table().in_touch.contains(&node(1)));
        // A node that is behind when it is first seen has to catch up before it is asked for anything.
        cluster_view.take("n3:1", &told(3, 4, 2));
        assert!(!cluster_view.routing_table().in_touch.contains(&node(3)));
    }

    #[test]
    fn p11_nobody_is_out_of_touch_while_nobody_knows_a_leader() {
        let mut cluster_view = cluster_view();
        let all = [("n1:1", 1), ("n2:1", 2), ("n3:1", 3)];
        for (address, from) in all {
            cluster_view.take(address, &told(from, 4, 2));
        }
        // An election that takes a minute, with frequent polls.
        for (ms, (address, from)) in (0..60_000).step_by(10).zip(all.into_iter().cycle()) {
            cluster_view.take_at(address, &told(from, 5, 0), ms);
            assert_eq!(cluster_view.routing_table().in_touch.len(), 3, "after {ms} ms");
        }
        // The first node that knows the next leader does not put the others out of touch.
        cluster_view.take_at("n1:1", &told(1, 6, 3), 60_000);
        cluster_view.take_at("n2:1", &told(2, 5, 0), 60_010);
        assert_eq!((leader(&cluster_view), cluster_view.routing_table().in_touch.len()), (Some(3), 3));
        cluster_view.take_at("n2:1", &told(2, 5, 0), 63_000);
        assert_eq!(cluster_view.routing_table().in_touch.len(), 2, "it alone has not heard of it");
    }

    #[test]
    fn nothing_is_read_from_witnesses_and_learners() {
        let mut cluster_view = cluster_view();
        let mut told_of = told(1, 4, 2);
        let members = told_of.members.as_mut().unwrap();
        members.members[1].kind = MemberKind::Witness.into();
        members.members[2].kind = MemberKind::Learner.into();
        for (address, from) in [("n1:1", 1), ("n2:1", 2), ("n3:1", 3)] {
            let groups = told(from, 4, 2).groups;
            cluster_view.take(address, &Told { groups, members: told_of.members.clone() });
        }
        let routing_table = cluster_view.routing_table();
        assert_eq!(routing_table.in_touch.into_iter().collect::<Vec<_>>(), [node(1)]);
        assert_eq!(routing_table.bystanders.into_iter().collect::<Vec<_>>(), [node(2), node(3)]);
        assert_eq!(cluster_view.addresses().len(), 4, "they know who leads");
        cluster_view.take("n1:1", &told(1, 4, 2));
        assert!(cluster_view.routing_table().bystanders.is_empty(), "a learner becomes a voter");
    }

    #[test]
    fn members_are_taken_from_nodes_that_are_not_behind_the_others() {
        let mut cluster_view = cluster_view();
        let without = |from, term, leader| {
            let mut told = told(from, term, leader);
            told.members.as_mut().unwrap().members.pop();
            told
        };
        assert!(cluster_view.answered("n1:1", &told(1, 4, 2), Duration::ZERO));
        assert!(!cluster_view.answered("n3:1", &without(3, 3, 1), Duration::ZERO));
        assert_eq!(cluster_view.routing_table().clients.len(), 3);
        let groups = told(2, 4, 2).groups;
        assert!(!cluster_view.answered("n2:1", &Told { groups, members: None }, Duration::ZERO));
        assert!(cluster_view.answered("n3:1", &without(3, 4, 2), Duration::ZERO));
        assert_eq!(cluster_view.routing_table().clients.len(), 2);
    }

    #[test]
    fn an_election_unseats_the_leader_before_there_is_another() {
        let mut cluster_view = cluster_view();
        cluster_view.take("n1:1", &told(1, 4, 2));
        cluster_view.take("n1:1", &told(1, 5, 0));
        assert!(leader(&cluster_view).is_none() && !cluster_view.is_whole());
        cluster_view.take("n1:1", &told(1, 5, 3));
        assert_eq!(leader(&cluster_view), Some(3));
    }

    /// Returns a cluster view of three nodes that have all named the leader.
    fn cluster_view_of_three() -> ClusterView {
        let mut cluster_view = ClusterView::new(vec!["n1:1".to_owned()], None);
        for (address, from) in [("n1:1", 1), ("n2:1", 2), ("n3:1", 3)] {
            cluster_view.take(address, &told(from, 4, 2));
        }
        cluster_view
    }

    #[test]
    fn p11_a_majority_that_is_gone_takes_its_leader_with_it_and_who_is_left_stays_in_touch() {
        let mut cluster_view = cluster_view_of_three();
        let gone = || "connection refused".to_owned();
        // Pre-vote: nobody begins a new term, so the remaining node may stay in the old one indefinitely.
        for (ms, round) in (1_000..61_000).step_by(1_000).zip(0..) {
            cluster_view.take_at("n1:1", &told(1, 4, 0), ms);
            assert!(cluster_view.routing_table().in_touch.contains(&node(1)), "after {ms} ms");
            for address in ["n2:1", "n3:1"] {
                cluster_view.missed(address, gone());
            }
            assert_eq!(leader(&cluster_view), (round == 0).then_some(2), "after {ms} ms");
        }
        assert!(!cluster_view.is_whole());
        // The leader was only away, and no election was held.
        cluster_view.take("n2:1", &told(2, 4, 2));
        assert_eq!(leader(&cluster_view), Some(2));
    }

    #[test]
    fn p11_a_leader_that_lost_its_majority_leads_no_more_once_nobody_says_so() {
        let mut cluster_view = cluster_view_of_three();
        for ms in (1_000..61_000).step_by(1_000) {
            cluster_view.take_at("n2:1", &told(2, 4, 0), ms);
            assert!(cluster_view.routing_table().in_touch.contains(&node(2)), "after {ms} ms");
            for address in ["n1:1", "n3:1"] {
                cluster_view.missed(address, "connection refused".to_owned());
            }
        }
        assert_eq!(leader(&cluster_view), None);
    }

    #[test]
    fn a_follower_that_knows_no_leader_unseats_nobody_whom_another_node_names() {
        let mut cluster_view = cluster_view_of_three();
        // The leader answers, but sometimes late.
        for ms in (1_000..61_000).step_by(1_000) {
            cluster_view.take_at("n1:1", &told(1, 4, 0), ms);
            cluster_view.missed("n3:1", "connection refused".to_owned());
            cluster_view.missed("n2:1", "no answer".to_owned());
            assert_eq!(leader(&cluster_view), Some(2), "after {ms} ms");
            cluster_view.take_at("n2:1", &told(2, 4, 2), ms);
        }
        assert!(!cluster_view.routing_table().in_touch.contains(&node(1)), "it alone knows no leader");
        // The gateway can't reach the leader, but a node that can names it.
        let mut cluster_view = cluster_view_of_three();
        for ms in (1_000..61_000).step_by(1_000) {
            cluster_view.take_at("n1:1", &told(1, 4, 0), ms);
            cluster_view.take_at("n3:1", &told(3, 4, 2), ms);
            cluster_view.missed("n2:1", "no answer".to_owned());
            assert_eq!(leader(&cluster_view), Some(2), "after {ms} ms");
        }
        assert!(!cluster_view.routing_table().in_touch.contains(&node(1)));
    }

    #[test]
    fn a_leader_that_nobody_names_is_looked_for_soon() {
        let mut cluster_view = cluster_view_of_three();
        assert!(cluster_view.is_settled());
        cluster_view.take("n1:1", &told(1, 4, 0));
        cluster_view.missed("n2:1", "connection refused".to_owned());
        assert!(cluster_view.is_settled(), "one names it still");
        cluster_view.missed("n3:1", "connection refused".to_owned());
        assert!(cluster_view.is_whole() && !cluster_view.is_settled());
        cluster_view.take("n2:1", &told(2, 4, 2));
        assert!(cluster_view.is_settled());
    }

    #[test]
    fn what_a_node_said_under_another_name_is_forgotten_once_it_answers_under_its_own() {
        let mut cluster_view = cluster_view();
        cluster_view.take("other-name:1", &told(3, 4, 2));
        for (address, from) in [("n1:1", 1), ("n2:1", 2), ("n3:1", 3)] {
            cluster_view.take(address, &told(from, 4, 2));
        }
        // The node is cut off from the others.
        for ms in [1_000, 2_000, 3_500] {
            assert!(cluster_view.routing_table().in_touch.contains(&node(3)), "before {ms} ms");
            cluster_view.take_at("n3:1", &told(3, 4, 0), ms);
        }
        assert!(!cluster_view.routing_table().in_touch.contains(&node(3)));
    }

    #[test]
    fn when_no_node_answers_nobody_leads_and_each_one_s_trouble_is_told() {
        let mut cluster_view = cluster_view();
        cluster_view.take("n1:1", &told(1, 4, 2));
        for address in cluster_view.addresses() {
            assert!(cluster_view.is_whole());
            cluster_view.missed(&address, "connection refused".to_owned());
        }
        assert!(
            !cluster_view.is_whole()
                && cluster_view.is_silent()
                && cluster_view.routing_table().in_touch.is_empty()
        );
        assert!(cluster_view.routing_table().troubles.contains("n2:1: connection refused"));
        // A cluster may come back unchanged.
        cluster_view.take("n1:1", &told(1, 4, 2));
        assert_eq!(leader(&cluster_view), Some(2));
    }

    #[test]
    fn another_cluster_is_refused_whether_it_was_named_or_seen_first() {
        let other = || {
            let mut told = told(2, 99, 2);
            told.groups.header.as_mut().unwrap().cluster_id = CLUSTER + 1;
            told
        };
        let mut named = ClusterView::new(vec!["n1:1".to_owned()], Some(ClusterId::new(CLUSTER)));
        named.take("n1:1", &other());
        assert!(named.groups().is_empty() && named.routing_table().clients.is_empty());
        assert!(
            named.routing_table().troubles.contains("it is of cluster"),
            "{}",
            named.routing_table().troubles
        );
        let mut first = cluster_view();
        first.take("n1:1", &told(1, 4, 2));
        first.take("n2:1", &other());
        assert_eq!(leader(&first), Some(2));
    }

    #[test]
    fn a_gateway_is_no_node() {
        let mut cluster_view = cluster_view();
        let mut gateway = told(0, 4, 2);
        gateway.groups.via_gateway = true;
        cluster_view.take("n1:1", &gateway);
        assert!(
            cluster_view.groups().is_empty()
                && cluster_view.routing_table().troubles.contains("it is a gateway")
        );
    }

    #[test]
    fn a_map_is_read_whatever_the_order_of_its_ranges_and_only_a_newer_one_counts() {
        let group = |id, first, last| {
            let slots = vec![SlotRange { first, last }];
            Group { group_id: id, slots, ..Group::default() }
        };
        let mut groups = GroupsResponse {
            map_epoch: 3,
            groups: vec![group(1, 8_192, 16_383), group(0, 0, 8_191)],
            ..GroupsResponse::default()
        };
        let map = read_map(&groups).unwrap();
        assert_eq!((map.epoch(), map.groups().len()), (3, 2));
        assert_eq!(map.group_of(Slot::new(8_191).unwrap()), GroupId::MAP);
        let mut cluster_view = cluster_view();
        cluster_view.take_map(&groups).unwrap();
        groups.map_epoch = 2;
        groups.groups.pop();
        cluster_view.take_map(&groups).unwrap();
        assert_eq!(cluster_view.routing_table().map.map(|map| map.epoch()), Some(3));
        groups.map_epoch = 4;
        assert!(cluster_view.take_map(&groups).is_err(), "it has a hole");
    }
}
