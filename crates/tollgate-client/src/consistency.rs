//! How fresh a read must be.

/// How fresh the answer to a read must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Consistency {
    /// Sees every change that was acknowledged before the read began. The default, and the only one to decide on.
    #[default]
    Linearizable,
    /// What the node that believes itself the leader has: it may have been replaced a moment ago.
    Leader,
    /// What the node that happens to be asked has, however old. Works without a quorum; good for dashboards.
    Stale,
}
