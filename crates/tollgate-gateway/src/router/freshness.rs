//! Chooses the node that reads a group: the local node if it can provide the requested consistency, otherwise the
//! leader.
//!
//! Invariant: a read is passed on only to a known leader; if there is none, this node tries, and says why it can't
//! read. Not here: passing reads on (`attempt` for operations, `other_node` for other reads).

use super::Router;
use crate::operation;
use tollgate_node::{Consistency, NodeStatus};
use tollgate_proto::v1;
use tollgate_replica::ProposeError;
use tollgate_types::{GroupId, NodeId};

impl Router {
    /// Returns the consistency for reading a group on this node. A read that only the leader may answer is not passed
    /// on to it, because this node can ask a quorum itself.
    pub fn consistency_here(&self, group: GroupId, asked: Consistency) -> Consistency {
        if asked == Consistency::Leader && !self.leads(group) { Consistency::Linearizable } else { asked }
    }

    /// Returns the leader if it must read a group for this node: because this node has no state of the group, or falls
    /// behind because its disk is full. None if this node reads the group.
    pub fn reader_elsewhere(&self, group: GroupId, asked: Consistency) -> Option<NodeId> {
        let leader = self.status().borrow().leader(group);
        leader.filter(|_| !self.reads_here(group, self.consistency_here(group, asked), leader))
    }

    /// Returns true if the local node should read the group, which is led by `leader` as far as is known.
    pub(super) fn reads_here(
        &self,
        group: GroupId,
        consistency: Consistency,
        leader: Option<NodeId>,
    ) -> bool {
        if self.node().is_none() {
            return false;
        }
        // A leader that can't write can read.
        if consistency == Consistency::Leader {
            return self.leads(group);
        }
        // A node that has nothing to read from asks the leader, unless there is none: then this node says why it can't
        // read.
        let nobody_else = leader.is_none() || leader == self.own_id();
        let fresh = consistency == Consistency::Stale || self.keeps_up();
        nobody_else || (fresh && self.has_state(group))
    }

    /// Waits until this node can't follow a group, because its disk is full and another node leads. Returns the error
    /// for the watchers of the group on this node, which would hear nothing any more.
    pub async fn until_behind(&self, group: GroupId) -> v1::Error {
        let (own, mut status) = (self.own_id(), self.status().clone());
        let behind = |status: &NodeStatus| leader_ahead(status, group, own).is_some();
        let known = status.wait_for(behind).await.map(|status| status.leader(group));
        // The node has stopped, which its watchers learn by other means.
        let Ok(leader) = known else { return std::future::pending().await };
        let not_leader = operation::error_of_propose(&ProposeError::NotLeader { group, leader }, true);
        let message = self.why_behind(group).unwrap_or_else(|| not_leader.message.clone());
        self.with_address(v1::Error { message, ..not_leader })
    }

    /// Explains why this node can't read a group that another node leads, if its disk is full.
    pub(crate) fn why_behind(&self, group: GroupId) -> Option<String> {
        let leader = leader_ahead(&self.status().borrow(), group, self.own_id())?;
        Some(format!(
            "the disk is full, so this node falls behind: ask the leader of group {group}, node {leader}, or free some \
             space here"
        ))
    }

    /// Returns true if this node has lock state of the group.
    fn has_state(&self, group: GroupId) -> bool {
        self.status().borrow().groups.get(&group).is_some_and(|known| known.has_state)
    }

    /// Returns true if this node can follow the leaders of its groups: with a full disk it falls behind.
    fn keeps_up(&self) -> bool {
        !self.status().borrow().disk_full
    }
}

/// Returns the leader of a group that a node with a full disk can't follow.
fn leader_ahead(status: &NodeStatus, group: GroupId, own: Option<NodeId>) -> Option<NodeId> {
    status.leader(group).filter(|leader| status.disk_full && Some(*leader) != own)
}
