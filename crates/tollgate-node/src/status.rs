//! What a node knows of its groups that matters to routing and health. Told when it changes.

use std::collections::BTreeMap;
use tollgate_replica::{Host, Role};
use tollgate_types::{GroupId, NodeId};

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
}

/// All groups of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeStatus {
    /// By group.
    pub groups: BTreeMap<GroupId, GroupStatus>,
    /// The node is stopping.
    pub stopping: bool,
    /// The node's disk is full.
    pub disk_full: bool,
}

impl NodeStatus {
    /// As the host is now.
    pub(crate) fn of(host: &Host, stopping: bool, disk_full: bool) -> NodeStatus {
        let of = |group| {
            let brief = host.brief(group).expect("one of the host's groups");
            let serves = brief.serves && !disk_full;
            GroupStatus { role: brief.role, leader: brief.leader, term: brief.term, serves }
        };
        NodeStatus { groups: host.groups().map(|group| (group, of(group))).collect(), stopping, disk_full }
    }

    /// Who leads a group, if this node knows.
    pub fn leader(&self, group: GroupId) -> Option<NodeId> {
        self.groups.get(&group).and_then(|status| status.leader)
    }

    /// Whether this node leads the group and may serve clients.
    pub fn serves(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|status| status.serves)
    }
}
