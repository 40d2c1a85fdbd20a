//! Which node reads a group: the one beside, if it can be as fresh as is asked, and else the leader.
//!
//! Invariant: a read is passed on only to a leader that is known; where there is none, this node tries, and says why it
//! can't. Not here: how reads are passed on (`attempt` for operations, `other_node` for the rest).

use super::Router;
use crate::operation;
use tollgate_node::{Consistency, NodeStatus};
use tollgate_proto::v1;
use tollgate_replica::ProposeError;
use tollgate_types::{GroupId, NodeId};

impl Router {
    /// How fresh a group is read for one who wants it so: what only the leader may answer is not passed on to it, for
    /// this node can ask a quorum itself.
    pub fn consistency_here(&self, group: GroupId, asked: Consistency) -> Consistency {
        if asked == Consistency::Leader && !self.leads(group) { Consistency::Linearizable } else { asked }
    }

    /// The leader, where it must read a group for this node: one that has no state of the group, or falls behind
    /// because its disk is full. None where this node reads it.
    pub fn reader_elsewhere(&self, group: GroupId, asked: Consistency) -> Option<NodeId> {
        let leader = self.status().borrow().leader(group);
        leader.filter(|_| !self.reads_here(group, self.consistency_here(group, asked), leader))
    }

    /// True if the node beside is the one to read the group, which is led by `leader` as far as is known.
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
        // One that has nothing to read from asks the leader, unless there is none: then it says why.
        let nobody_else = leader.is_none() || leader == self.own_id();
        let fresh = consistency == Consistency::Stale || self.keeps_up();
        nobody_else || (fresh && self.has_state(group))
    }

    /// Waits until this node can't follow a group, because its disk is full and another node leads. What to tell those
    /// who follow it here, and would be left in silence.
    pub async fn until_behind(&self, group: GroupId) -> v1::Error {
        let (own, mut status) = (self.own_id(), self.status().clone());
        let behind = |status: &NodeStatus| leader_ahead(status, group, own).is_some();
        let known = status.wait_for(behind).await.map(|status| status.leader(group));
        // The node has stopped, and who follows is told so.
        let Ok(leader) = known else { return std::future::pending().await };
        let not_leader = operation::error_of_propose(&ProposeError::NotLeader { group, leader }, true);
        let message = self.why_behind(group).unwrap_or_else(|| not_leader.message.clone());
        self.with_address(v1::Error { message, ..not_leader })
    }

    /// Why this node can't read a group that another leads, if its disk is full.
    pub(crate) fn why_behind(&self, group: GroupId) -> Option<String> {
        let leader = leader_ahead(&self.status().borrow(), group, self.own_id())?;
        Some(format!(
            "the disk is full, so this node falls behind: ask the leader of group {group}, node {leader}, or free some \
             space here"
        ))
    }

    /// True if this node has lock state of the group.
    fn has_state(&self, group: GroupId) -> bool {
        self.status().borrow().groups.get(&group).is_some_and(|known| known.has_state)
    }

    /// True if this node can follow the leaders of its groups: with a full disk it falls behind.
    fn keeps_up(&self) -> bool {
        !self.status().borrow().disk_full
    }
}

/// Who leads a group that a node with a full disk can't follow.
fn leader_ahead(status: &NodeStatus, group: GroupId, own: Option<NodeId>) -> Option<NodeId> {
    status.leader(group).filter(|leader| status.disk_full && Some(*leader) != own)
}
