//! What a router knows of the cluster beside who leads: which one it is, which group serves which slot, where the nodes
//! serve clients.
//!
//! Beside a node it comes with the configuration; a gateway's scout keeps it up to date. Not here: who leads
//! (`NodeStatus`), how a scout learns it (`scout`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tollgate_types::{ClusterId, GroupMap, NodeId};

/// The cluster as a router knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chart {
    /// 0 until it was seen.
    pub(crate) cluster: ClusterId,
    /// None until it was seen: to guess would send requests to a group that does not have their names.
    pub(crate) map: Option<Arc<GroupMap>>,
    /// Where each node serves clients, as `host:port`.
    pub(crate) clients: BTreeMap<NodeId, String>,
    /// Members that keep no locks, or not all of them yet: witnesses and learners. There is nothing to read there.
    pub(crate) bystanders: BTreeSet<NodeId>,
    /// The nodes that answered lately and are not behind the others. Empty beside a node, where nobody looks.
    pub(crate) in_touch: BTreeSet<NodeId>,
    /// What went wrong at which address, in words.
    pub(crate) troubles: String,
}

impl Chart {
    /// Of a cluster that was not seen yet.
    pub(crate) fn blank() -> Chart {
        Chart::new(ClusterId::new(0), None, BTreeMap::new())
    }

    pub(crate) fn new(
        cluster: ClusterId,
        map: Option<Arc<GroupMap>>,
        clients: BTreeMap<NodeId, String>,
    ) -> Chart {
        let (bystanders, in_touch) = (BTreeSet::new(), BTreeSet::new());
        Chart { cluster, map, clients, bystanders, in_touch, troubles: String::new() }
    }

    /// Whether another tells the same, whatever trouble there was in finding it out.
    pub(crate) fn tells_as_much_as(&self, other: &Chart) -> bool {
        self.cluster == other.cluster
            && self.map == other.map
            && self.clients == other.clients
            && self.bystanders == other.bystanders
            && self.in_touch == other.in_touch
    }
}
