//! Who this node has to do with: the members of all its groups, and where each is dialled.
//!
//! Invariant: what the node's own configuration says of a member's address wins over what the groups say, so that an
//! operator can move a node; what it was told when it joined counts only until a group has told it better. Not here:
//! the connections (`peers`).

use std::collections::BTreeMap;
use std::sync::Arc;
use tollgate_replica::{Host, Members};
use tollgate_types::{GroupId, HostPort, NodeId};

/// Everybody that this node speaks with and listens to, over all groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Roster {
    /// Where each is dialled, if that is known.
    pub(crate) peers: BTreeMap<NodeId, Option<String>>,
    /// No node with this id or a higher one was ever a member.
    next_node: u64,
}

impl Roster {
    fn add(&mut self, members: &Members, configured: &BTreeMap<NodeId, String>) {
        for node in members.all() {
            let replicated = &members.whereabouts_of(node).peer;
            let replicated = (*replicated != HostPort::NONE).then(|| replicated.to_string());
            let address = configured.get(&node).cloned().or(replicated);
            let known = self.peers.entry(node).or_default();
            *known = known.take().or(address);
        }
        self.next_node = self.next_node.max(members.next_node);
    }

    /// These, at addresses that nobody knows.
    #[cfg(test)]
    pub(crate) fn of_nodes(numbers: impl IntoIterator<Item = u64>) -> Roster {
        let nodes = numbers.into_iter().filter_map(NodeId::new);
        let mut roster = Roster::default();
        roster.add(&Members::first(nodes, []), &BTreeMap::new());
        roster
    }

    /// Whether it is one of them.
    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.peers.contains_key(&node)
    }

    /// Whether it was one of them and is no more. As ids are never used again, this is for good.
    pub(crate) fn is_past(&self, node: NodeId) -> bool {
        !self.contains(node) && node.number() < self.next_node
    }
}

/// What a node knows of the members, beside what its replicas have.
#[derive(Debug)]
pub(crate) struct Circle {
    configured: BTreeMap<NodeId, String>,
    /// Whom it was told of when it joined.
    acquaintances: Option<Members>,
    members: Arc<Members>,
    removed: bool,
}

impl Circle {
    pub(crate) fn new(configured: BTreeMap<NodeId, String>, acquaintances: Option<Members>) -> Circle {
        Circle { configured, acquaintances, members: Arc::default(), removed: false }
    }

    /// Takes over what the host has learned; everybody that the node now has to do with.
    pub(crate) fn renew(&mut self, host: &Host) -> Roster {
        let told: Vec<&Members> = host.groups().filter_map(|group| host.members(group)).collect();
        let of_map = host.members(GroupId::MAP).filter(|members| !members.voters.is_empty());
        let members = of_map.or(self.acquaintances.as_ref());
        if members.is_some_and(|members| *members != *self.members) {
            self.members = Arc::new(members.cloned().unwrap_or_default());
        }
        let mut roster = Roster::default();
        if self.removed {
            return roster;
        }
        for members in &told {
            roster.add(members, &self.configured);
        }
        let waits = told.is_empty() || told.iter().any(|members| members.voters.is_empty());
        if let Some(acquaintances) = self.acquaintances.as_ref().filter(|_| waits) {
            roster.add(acquaintances, &self.configured);
            // Whoever leads by now may have come after this node was told: its configuration can say so.
            for (node, address) in &self.configured {
                roster.peers.entry(*node).or_insert_with(|| Some(address.clone()));
            }
        }
        roster
    }

    /// The members of group 0, or those that the node was told of while it has no better.
    pub(crate) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Whether this node is a member no more.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed
    }

    /// This node is a member no more. Whether that is news.
    pub(crate) fn remove(&mut self) -> bool {
        !std::mem::replace(&mut self.removed, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_replica::Whereabouts;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn members(numbers: &[u64], found: &[(u64, &str)]) -> Members {
        let at = |peer: &str| Whereabouts { peer: HostPort::new(peer).unwrap(), ..Whereabouts::UNKNOWN };
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
}
