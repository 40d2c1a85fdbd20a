//! A router's view of the cluster, apart from leaders: the cluster's id, the group map and the nodes' client addresses.
//!
//! Beside a node the view comes from the configuration; on a gateway the discovery keeps it up to date. Not here: the
//! leaders (`NodeStatus`), how a discovery learns the view (`discovery`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tollgate_types::{ClusterId, GroupMap, NodeId};

/// The cluster as a router knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoutingTable {
    /// The cluster's id; 0 until the cluster has been seen.
    pub(crate) cluster: ClusterId,
    /// The group map. None until the cluster has been seen: a guess would send requests to a group that does not serve
    /// their names.
    pub(crate) map: Option<Arc<GroupMap>>,
    /// Address at which each node serves clients, as `host:port`.
    pub(crate) clients: BTreeMap<NodeId, String>,
    /// Members without complete replicas: witnesses, which keep no locks, and learners that are still catching up.
    /// Nothing can be read from them.
    pub(crate) bystanders: BTreeSet<NodeId>,
    /// Nodes that answered recently and are not behind the others. Empty beside a node, where nodes are not polled.
    pub(crate) in_touch: BTreeSet<NodeId>,
    /// Description of what went wrong at each address.
    pub(crate) troubles: String,
}

impl RoutingTable {
    /// Returns the view of a cluster that has not been seen yet.
    pub(crate) fn blank() -> RoutingTable {
        RoutingTable::new(ClusterId::new(0), None, BTreeMap::new())
    }

    pub(crate) fn new(
        cluster: ClusterId,
        map: Option<Arc<GroupMap>>,
        clients: BTreeMap<NodeId, String>,
    ) -> RoutingTable {
        let (bystanders, in_touch) = (BTreeSet::new(), BTreeSet::new());
        RoutingTable { cluster, map, clients, bystanders, in_touch, troubles: String::new() }
    }

    /// Returns true if `other` has the same contents, apart from the troubles.
    pub(crate) fn tells_as_much_as(&self, other: &RoutingTable) -> bool {
        self.cluster == other.cluster
            && self.map == other.map
            && self.clients == other.clients
            && self.bystanders == other.bystanders
            && self.in_touch == other.in_touch
    }
}
