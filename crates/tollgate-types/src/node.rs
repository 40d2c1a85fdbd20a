//! Identity of a process: its node id, the cluster that it belongs to, and the disk that holds its durable state.

use std::fmt;
use std::num::NonZeroU64;
use xxhash_rust::xxh3::xxh3_64;

/// A node of a cluster. Ids are never reused: a node that lost its disk comes back under another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(NonZeroU64);

impl NodeId {
    /// A node by number; there is no node 0.
    pub const fn new(number: u64) -> Option<NodeId> {
        match NonZeroU64::new(number) {
            Some(number) => Some(NodeId(number)),
            None => None,
        }
    }

    /// The node's number.
    pub const fn number(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A cluster: derived from its name, or chosen when it is bootstrapped or restored. Nodes of different clusters never
/// talk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(u64);

impl ClusterId {
    /// A cluster by number.
    pub const fn new(number: u64) -> ClusterId {
        ClusterId(number)
    }

    /// The id of a cluster that was not given one: every node derives the same id from the name.
    pub fn of_name(name: &str) -> ClusterId {
        ClusterId(xxh3_64(name.as_bytes()))
    }

    /// The cluster's number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A history of grants. The lineage is drawn when a cluster is founded, and kept by every cluster that is restored from
/// a backup of that cluster; a cluster that is founded anew has another lineage, whatever its name. Tokens of the same
/// lineage can be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage(NonZeroU64);

impl Lineage {
    /// A lineage by number; none for 0.
    pub const fn new(number: u64) -> Option<Lineage> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Lineage(number)),
            None => None,
        }
    }

    /// The lineage's number.
    pub const fn number(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A data directory, identified by a number that is drawn when the directory is founded: a node that comes back with
/// another number has lost the promises that it made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(u64);

impl DiskId {
    /// A disk by number.
    pub const fn new(number: u64) -> DiskId {
        DiskId(number)
    }

    /// The disk's number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
