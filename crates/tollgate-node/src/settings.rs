//! Settings with which a node starts.

use crate::clock::NodeClock;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tollgate_replica::{EngineConfig, HostConfig, Members};
use tollgate_types::{GroupId, GroupMap, Limits, NodeId};

/// The settings of one node.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// Settings of the host, among them the cluster and the node's id.
    pub host: HostConfig,
    /// Settings of the log.
    pub engine: EngineConfig,
    /// Path of the data directory.
    pub data_dir: PathBuf,
    /// Peer addresses of other nodes, as `host:port`, where they are to override those that the groups have.
    pub peers: BTreeMap<NodeId, String>,
    /// Data of a first member, if there is no data yet.
    pub bootstrap: Option<Bootstrap>,
    /// Data of a new member, if there is no data yet. Without this or `bootstrap` an empty directory is refused.
    pub join: Option<Join>,
    /// Maximum number of operations that wait for the next turn; above it, callers are refused.
    pub operations_waiting_max: usize,
    /// Clock by which leases are counted, and its comparison with the peers' clocks.
    pub clock: NodeClock,
}

/// First data of a new cluster.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// The groups, and the slots that each serves.
    pub map: Arc<GroupMap>,
    /// Members of each group.
    pub members: Members,
    /// First limits of each group.
    pub limits: Limits,
}

/// Facts that a running cluster tells a new member.
#[derive(Debug, Clone)]
pub struct Join {
    /// The groups of the cluster.
    pub groups: Vec<GroupId>,
    /// Members of the cluster, this node among them, with their addresses.
    pub members: Members,
}
