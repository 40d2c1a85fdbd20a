//! Reasons for a node to stop by itself. The process exits with it: data that a disk may have lost must not be voted
//! on.

use tollgate_replica::StorageError;
use tollgate_types::{GroupId, NodeId};

/// Condition after which a node does not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The disk failed.
    #[error("{0}")]
    Disk(String),
    /// A thread of the node found a broken invariant, which it has printed.
    #[error("the {0} thread stopped on a broken invariant: please report what it printed")]
    Panicked(&'static str),
    /// The state on this node differs from the leader's, though the same entries made both.
    #[error(
        "the state of group {group} behind entry {index} is another here than on node {leader}, which leads: one of \
             the two is wrong, so this node may not vote or lead; keep both data directories and report it. If it \
             happens again after a restart, remove the node, wipe its data directory and add it as a new member"
    )]
    Diverged {
        /// The group.
        group: GroupId,
        /// Index of the last entry in both states.
        index: u64,
        /// Leader with whose state this node's was compared.
        leader: NodeId,
    },
    /// The data directory is not the one with which the node voted.
    #[error(
        "node {known_by} knows this node by another disk: its data directory was founded anew, and what it \
             voted for and acknowledged before is gone. Remove the node from the cluster and let it join under a new \
             id; or, if the whole cluster is to begin anew, wipe the data directories of all its members, that of node \
             {known_by} too"
    )]
    FoundedAnew {
        /// Peer that reported it.
        known_by: NodeId,
    },
}

impl From<StorageError> for Fault {
    fn from(error: StorageError) -> Fault {
        Fault::Disk(error.to_string())
    }
}
