//! Status of a node's groups for routing and health. Published when it changes.

use crate::peer_registry::PeerRegistry;
use std::collections::BTreeMap;
use std::sync::Arc;
use tollgate_core::State;
use tollgate_replica::{Brief, Host, Members, Role};
use tollgate_types::{GroupId, GroupMap, Lineage, NodeId};

/// One group as this node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupStatus {
    /// Role of this node's replica.
    pub role: Role,
    /// The leader, if this node knows it.
    pub leader: Option<NodeId>,
    /// Term of the group.
    pub term: u64,
    /// True if this node leads and may serve clients.
    pub serves: bool,
    /// True if this node leads, and neither it nor another node could have anything written, for lack of room on disks.
    pub stuck: bool,
    /// True if this node has lock state of the group: a witness has none, nor has a node that has just joined.
    pub has_state: bool,
    /// The cluster's lineage, according to the lock state.
    pub lineage: Option<Lineage>,
}

/// Status of a node and of all its groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools, reason = "facts that have nothing to do with each other")]
pub struct NodeStatus {
    /// Status of each group.
    pub groups: BTreeMap<GroupId, GroupStatus>,
    /// True if the node is stopping.
    pub stopping: bool,
    /// True if the node's disk is full.
    pub disk_full: bool,
    /// Members of group 0, with their addresses.
    pub members: Arc<Members>,
    /// True if the node is a witness: it votes, and keeps no locks.
    pub witness: bool,
    /// True if the node was removed from the cluster, and takes part in nothing.
    pub removed: bool,
    /// The group map, according to this node's state of the map's group; none on a witness, and before the first
    /// snapshot.
    pub map: Option<Arc<GroupMap>>,
}

impl NodeStatus {
    /// Returns the present status.
    pub(crate) fn of(
        host: &Host,
        peer_registry: &PeerRegistry,
        stopping: bool,
        disk_full: bool,
    ) -> NodeStatus {
        let removed = peer_registry.is_removed();
        let of = |group| {
            let brief = host.brief(group).expect("one of the host's groups");
            let state = host.state(group);
            let (serves, has_state) = (brief.serves && !disk_full && !removed, state.is_some());
            let lineage = state.and_then(State::lineage);
            // The last known leader of a removed node may lead no more, and the node would not be told.
            let leader = brief.leader.filter(|_| !removed);
            let Brief { role, term, stuck, .. } = brief;
            GroupStatus { role, leader, term, serves, stuck, has_state, lineage }
        };
        NodeStatus {
            groups: host.groups().map(|group| (group, of(group))).collect(),
            stopping,
            disk_full,
            members: Arc::clone(peer_registry.members()),
            witness: host.is_witness(),
            removed,
            map: host.state(GroupId::MAP).map(|state| Arc::clone(state.map())),
        }
    }

    /// Returns the leader of a group, if this node knows it.
    pub fn leader(&self, group: GroupId) -> Option<NodeId> {
        self.groups.get(&group).and_then(|status| status.leader)
    }

    /// Returns the leader of a group, if this node knows it, and the term.
    pub fn leadership(&self, group: GroupId) -> (Option<NodeId>, u64) {
        self.groups.get(&group).map_or((None, 0), |status| (status.leader, status.term))
    }

    /// Returns true if this node leads the group and may serve clients.
    pub fn serves(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|status| status.serves)
    }
}
