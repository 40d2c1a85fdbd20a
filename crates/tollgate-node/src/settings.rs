//! What a node must be told to start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use tollgate_replica::{EngineConfig, HostConfig, Members};
use tollgate_types::{GroupId, Limits, NodeId};

/// The settings of one node.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// How its host behaves, and who it is.
    pub host: HostConfig,
    /// How its log is kept.
    pub engine: EngineConfig,
    /// Where its data is.
    pub data_dir: PathBuf,
    /// Where the other nodes listen for peers, as `host:port`.
    pub peers: BTreeMap<NodeId, String>,
    /// How to begin, if there is no data yet. Without it an empty directory is refused.
    pub bootstrap: Option<Bootstrap>,
    /// How many operations may wait for the next turn; past that, callers are refused.
    pub operations_waiting_max: usize,
}

/// A new cluster's first data.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// Its groups.
    pub groups: Vec<GroupId>,
    /// The members of each.
    pub members: Members,
    /// Their first limits.
    pub limits: Limits,
}
