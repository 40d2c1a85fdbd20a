//! Consistency of reads.

/// Consistency that a read requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Consistency {
    /// Sees every change that was acknowledged before the read began. The default, and the only one to base decisions
    /// on.
    #[default]
    Linearizable,
    /// Reads the state of the node that believes itself the leader, which may have been replaced a moment ago.
    Leader,
    /// Reads the state of whichever node is asked, however old. Works without a quorum; good for dashboards.
    Stale,
}
