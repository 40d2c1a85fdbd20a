//! A bug that a run is given on purpose, to prove that the world and its judge see it.
//!
//! Not here: what the bugs are (`tollgate-replica`, `tollgate-core`). Without the feature `planted-bugs` there are
//! none.

/// One planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// In every host.
    #[cfg(feature = "planted-bugs")]
    Replica(tollgate_replica::Bug),
    /// In every state.
    #[cfg(feature = "planted-bugs")]
    Core(tollgate_core::Bug),
}

#[cfg(feature = "planted-bugs")]
impl Planted {
    /// All of them.
    pub fn all() -> Vec<Planted> {
        let replica = tollgate_replica::Bug::ALL.iter().map(|&bug| Planted::Replica(bug));
        replica.chain(tollgate_core::Bug::ALL.iter().map(|&bug| Planted::Core(bug))).collect()
    }

    /// What it is called.
    pub fn name(self) -> String {
        match self {
            Planted::Replica(bug) => format!("{bug:?}"),
            Planted::Core(bug) => format!("{bug:?}"),
        }
    }
}

#[cfg(not(feature = "planted-bugs"))]
impl Planted {
    /// All of them: none in this build.
    pub fn all() -> Vec<Planted> {
        Vec::new()
    }

    /// What it is called.
    pub fn name(self) -> String {
        match self {}
    }
}
