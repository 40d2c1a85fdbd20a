//! Registry of known peers and their addresses: the members of all groups of this node.
//!
//! Invariant: an address in the node's own configuration overrides what the groups say, so that an operator can move a
//! node. The members that the node was told of when it joined are the last resort: for the set of members until its
//! groups have named them, and for an address as long as no group has it, as is the case for the first members of a
//! restored cluster. Not here: the connections (`peers`).

use std::collections::BTreeMap;
use std::sync::Arc;
use tollgate_replica::{Host, Members, NodeAddresses};
use tollgate_types::{GroupId, HostPort, NodeId};

/// All peers to dial and to accept, over all groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Roster {
    /// Address at which each peer is dialled, if known.
    pub(crate) peers: BTreeMap<NodeId, Option<String>>,
    /// Upper bound of node ids: no node with this id or a higher one was ever a member.
    next_node: u64,
}

impl Roster {
    fn add(&mut self, members: &Members, configured: &BTreeMap<NodeId, String>) {
        for node in members.all() {
            let replicated = &members.addresses_of(node).peer;
            let replicated = (*replicated != HostPort::NONE).then(|| replicated.to_string());
            let address = configured.get(&node).cloned().or(replicated);
            let known = self.peers.entry(node).or_default();
            *known = known.take().or(address);
        }
        self.next_node = self.next_node.max(members.next_node);
    }

    /// Adds addresses for members whose groups don't have them.
    fn find(&mut self, told: &Members) {
        for (node, address) in self.peers.iter_mut().filter(|(_, address)| address.is_none()) {
            let peer = &told.addresses_of(*node).peer;
            *address = (*peer != HostPort::NONE).then(|| peer.to_string());
        }
    }

    /// Returns a roster of these nodes, without addresses.
    #[cfg(test)]
    pub(crate) fn of_nodes(numbers: impl IntoIterator<Item = u64>) -> Roster {
        let nodes = numbers.into_iter().filter_map(NodeId::new);
        let mut roster = Roster::default();
        roster.add(&Members::first(nodes, []), &BTreeMap::new());
        roster
    }

    /// Returns true if the node is a member.
    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.peers.contains_key(&node)
    }

    /// Returns true if the node was a member and no longer is. Ids are never reused, so this is final.
    pub(crate) fn is_past(&self, node: NodeId) -> bool {
        !self.contains(node) && node.number() < self.next_node
    }
}

/// Members as this node knows them, beyond the records of its replicas.
#[derive(Debug)]
pub(crate) struct PeerRegistry {
    configured: BTreeMap<NodeId, String>,
    /// Members that the node was told of when it joined.
    seed_members: Option<Members>,
    members: Arc<Members>,
    removed: bool,
}

impl PeerRegistry {
    pub(crate) fn new(configured: BTreeMap<NodeId, String>, seed_members: Option<Members>) -> PeerRegistry {
        PeerRegistry { configured, seed_members, members: Arc::default(), removed: false }
    }

    /// Updates the members from the host; returns all peers of the node.
    pub(crate) fn renew(&mut self, host: &Host) -> Roster {
        let told: Vec<&Members> = host.groups().filter_map(|group| host.members(group)).collect();
        let of_map = host.members(GroupId::MAP).filter(|members| !members.voters.is_empty());
        let members = of_map.map(|members| self.located(members)).or_else(|| self.seed_members.clone());
        if let Some(members) = members.filter(|members| *members != *self.members) {
            self.members = Arc::new(members);
        }
        let mut roster = Roster::default();
        if self.removed {
            return roster;
        }
        for members in &told {
            roster.add(members, &self.configured);
        }
        // Done after all groups have been read: an address from any group takes precedence over what the node was told.
        if let Some(seed_members) = &self.seed_members {
            roster.find(seed_members);
        }
        let waits = told.is_empty() || told.iter().any(|members| members.voters.is_empty());
        if let Some(seed_members) = self.seed_members.as_ref().filter(|_| waits) {
            roster.add(seed_members, &self.configured);
            // The current leader may have become a member after this node was told of the members: its configuration
            // can name it.
            for (node, address) in &self.configured {
                roster.peers.entry(*node).or_insert_with(|| Some(address.clone()));
            }
        }
        roster
    }

    /// Returns the members of a group, with addresses from the group, or else those that this node was told.
    fn located(&self, members: &Members) -> Members {
        let mut located = members.clone();
        let Some(seed_members) = &self.seed_members else { return located };
        for node in located.all() {
            let NodeAddresses { peer, client, .. } = seed_members.addresses_of(node);
            if *peer == HostPort::NONE && *client == HostPort::NONE {
                continue;
            }
            let found = located.node_addresses.entry(node).or_default();
            for (known, told) in [(&mut found.peer, peer), (&mut found.client, client)] {
                if *known == HostPort::NONE {
                    known.clone_from(told);
                }
            }
        }
        located
    }

    /// Returns the members of group 0, or those that the node was told of while it knows no better.
    pub(crate) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Returns true if this node was removed from the cluster.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed
    }

    /// Marks this node as removed from the cluster. Returns true if it was not marked before.
    pub(crate) fn remove(&mut self) -> bool {
        !std::mem::replace(&mut self.removed, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn members(numbers: &[u64], found: &[(u64, &str)]) -> Members {
        let at = |peer: &str| NodeAddresses { peer: HostPort::new(peer).unwrap(), ..NodeAddresses::UNKNOWN };
        let found = found.iter().map(|(number, peer)| (node(*number), at(peer)));
        Members::first(numbers.iter().copied().map(node), []).found_at(found)
    }

    fn address(roster: &Roster, number: u64) -> Option<&str> {
        roster.peers[&node(number)].as_deref()
    }

    #[test]
    fn what_the_configuration_says_wins_and_members_of_any_group_count() {
        let configured = BTreeMap::from([(node(1), "moved:1".to_owned()), (node(9), "nobody:1".to_owned())]);
        let mut roster = Roster::default();
        roster.add(&members(&[1, 2], &[(1, "a:1"), (2, "b:1")]), &configured);
        roster.add(&members(&[1, 2, 4], &[(4, "d:1")]), &configured);
        roster.add(&members(&[1, 5], &[]), &configured);
        assert_eq!((address(&roster, 1), address(&roster, 2)), (Some("moved:1"), Some("b:1")));
        assert_eq!((address(&roster, 4), address(&roster, 5)), (Some("d:1"), None));
        assert!(!roster.contains(node(9)), "an address alone makes no member");
        assert!(roster.is_past(node(3)) && !roster.is_past(node(4)) && !roster.is_past(node(6)));
    }

    /// As in a restored cluster, whose groups do not know the addresses of the first members.
    #[test]
    fn what_a_node_was_told_when_it_joined_finds_members_whose_groups_do_not_say() {
        let client =
            |at: &str| NodeAddresses { client: HostPort::new(at).unwrap(), ..NodeAddresses::UNKNOWN };
        let mut told = members(&[1, 2, 3], &[(1, "old:1"), (2, "b:1"), (3, "gone:1")]);
        told.node_addresses.get_mut(&node(2)).unwrap().client = HostPort::new("b:2").unwrap();
        let group = members(&[1, 2, 4], &[(1, "a:1"), (4, "d:1")]);

        let mut roster = Roster::default();
        roster.add(&group, &BTreeMap::new());
        roster.find(&told);
        assert_eq!((address(&roster, 1), address(&roster, 2)), (Some("a:1"), Some("b:1")));
        assert_eq!(address(&roster, 4), Some("d:1"));
        assert!(!roster.contains(node(3)), "an address alone makes no member");

        let located = PeerRegistry::new(BTreeMap::new(), Some(told)).located(&group);
        assert_eq!(located.all(), group.all());
        assert_eq!(located.next_node, group.next_node);
        let found = |number| located.addresses_of(node(number));
        assert_eq!((found(1), found(4)), (group.addresses_of(node(1)), group.addresses_of(node(4))));
        assert_eq!(*found(2), NodeAddresses { peer: HostPort::new("b:1").unwrap(), ..client("b:2") });
        assert_eq!(*found(3), NodeAddresses::UNKNOWN);
        assert_eq!(PeerRegistry::new(BTreeMap::new(), None).located(&group), group);
    }
}
