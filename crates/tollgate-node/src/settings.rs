//! What a node must be told to start.

use crate::clock::NodeClock;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tollgate_replica::{EngineConfig, HostConfig, Members};
use tollgate_types::{GroupId, GroupMap, Limits, NodeId};

/// The settings of one node.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// How its host behaves, and who it is.
    pub host: HostConfig,
    /// How its log is kept.
    pub engine: EngineConfig,
    /// Where its data is.
    pub data_dir: PathBuf,
    /// Where other nodes listen for peers, as `host:port`, if that is not to be what the groups say of them.
    pub peers: BTreeMap<NodeId, String>,
    /// How to begin as a first member, if there is no data yet.
    pub bootstrap: Option<Bootstrap>,
    /// How to begin as a new member, if there is no data yet. Without this or the above an empty directory is refused.
    pub join: Option<Join>,
    /// How many operations may wait for the next turn; past that, callers are refused.
    pub operations_waiting_max: usize,
    /// What leases are counted by, and how it is compared with the peers' clocks.
    pub clock: NodeClock,
}

/// A new cluster's first data.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// Its groups, and what each serves.
    pub map: Arc<GroupMap>,
    /// The members of each.
    pub members: Members,
    /// Their first limits.
    pub limits: Limits,
}

/// What a new member of a cluster that runs was told by it.
#[derive(Debug, Clone)]
pub struct Join {
    /// Its groups.
    pub groups: Vec<GroupId>,
    /// Its members, this node among them, and where they are found.
    pub members: Members,
}
