//! A bug that is planted in a run on purpose, to prove that the world and the checker see it.
//!
//! Not here: the bugs themselves (`tollgate-replica`, `tollgate-core`). Without the feature `planted-bugs` there are
//! none.

/// One planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A bug in every host.
    #[cfg(feature = "planted-bugs")]
    Replica(tollgate_replica::Bug),
    /// A bug in every state.
    #[cfg(feature = "planted-bugs")]
    Core(tollgate_core::Bug),
}

#[cfg(feature = "planted-bugs")]
impl Planted {
    /// Returns all bugs.
    pub fn all() -> Vec<Planted> {
        let replica = tollgate_replica::Bug::ALL.iter().map(|&bug| Planted::Replica(bug));
        replica.chain(tollgate_core::Bug::ALL.iter().map(|&bug| Planted::Core(bug))).collect()
    }

    /// Returns the name of the bug.
    pub fn name(self) -> String {
        match self {
            Planted::Replica(bug) => format!("{bug:?}"),
            Planted::Core(bug) => format!("{bug:?}"),
        }
    }
}

#[cfg(not(feature = "planted-bugs"))]
impl Planted {
    /// Returns all bugs: none in this build.
    pub fn all() -> Vec<Planted> {
        Vec::new()
    }

    /// Returns the name of the bug.
    pub fn name(self) -> String {
        match self {}
    }
}
