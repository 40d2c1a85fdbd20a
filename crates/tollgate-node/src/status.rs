//! What a node knows of its groups that matters to routing and health. Told when it changes.

use crate::circle::Circle;
use std::collections::BTreeMap;
use std::sync::Arc;
use tollgate_core::State;
use tollgate_replica::{Brief, Host, Members, Role};
use tollgate_types::{GroupId, GroupMap, Lineage, NodeId};

/// One group as this node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupStatus {
    /// What this node's replica does.
    pub role: Role,
    /// Who leads, as far as it knows.
    pub leader: Option<NodeId>,
    /// In which term.
    pub term: u64,
    /// Whether this node leads and may serve clients.
    pub serves: bool,
    /// Whether this node leads, and neither it nor another could have anything written, for lack of room on disks.
    pub stuck: bool,
    /// Whether this node has lock state of the group: a witness has none, nor has a node that has just joined.
    pub has_state: bool,
    /// The cluster's lineage, by that state.
    pub lineage: Option<Lineage>,
}

/// All groups of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools, reason = "facts that have nothing to do with each other")]
pub struct NodeStatus {
    /// By group.
    pub groups: BTreeMap<GroupId, GroupStatus>,
    /// The node is stopping.
    pub stopping: bool,
    /// The node's disk is full.
    pub disk_full: bool,
    /// The members of group 0, and where they are found.
    pub members: Arc<Members>,
    /// The node votes, and keeps no locks.
    pub witness: bool,
    /// The node is a member no more: it was removed, and takes part in nothing.
    pub removed: bool,
    /// Which group serves which slot, by the state of the map's group here; none on a witness, and before the first
    /// snapshot.
    pub map: Option<Arc<GroupMap>>,
}

impl NodeStatus {
    /// As the host is now.
    pub(crate) fn of(host: &Host, circle: &Circle, stopping: bool, disk_full: bool) -> NodeStatus {
        let removed = circle.is_removed();
        let of = |group| {
            let brief = host.brief(group).expect("one of the host's groups");
            let state = host.state(group);
            let (serves, has_state) = (brief.serves && !disk_full && !removed, state.is_some());
            let lineage = state.and_then(State::lineage);
            // Whom a removed node followed may lead no more, and nobody would tell it.
            let leader = brief.leader.filter(|_| !removed);
            let Brief { role, term, stuck, .. } = brief;
            GroupStatus { role, leader, term, serves, stuck, has_state, lineage }
        };
        NodeStatus {
            groups: host.groups().map(|group| (group, of(group))).collect(),
            stopping,
            disk_full,
            members: Arc::clone(circle.members()),
            witness: host.is_witness(),
            removed,
            map: host.state(GroupId::MAP).map(|state| Arc::clone(state.map())),
        }
    }

    /// Who leads a group, if this node knows.
    pub fn leader(&self, group: GroupId) -> Option<NodeId> {
        self.groups.get(&group).and_then(|status| status.leader)
    }

    /// Likewise, and the term.
    pub fn leadership(&self, group: GroupId) -> (Option<NodeId>, u64) {
        self.groups.get(&group).map_or((None, 0), |status| (status.leader, status.term))
    }

    /// Whether this node leads the group and may serve clients.
    pub fn serves(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|status| status.serves)
    }
}
