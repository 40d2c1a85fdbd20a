//! Why a node stopped by itself. The process goes with it: what a disk may have lost must not be voted on.

use tollgate_replica::StorageError;

/// Something that a node does not go on after.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The disk failed.
    #[error("{0}")]
    Disk(String),
    /// A thread of the node found a broken invariant; it has said which.
    #[error("the {0} thread stopped on a broken invariant: please report what it printed")]
    Panicked(&'static str),
}

impl From<StorageError> for Fault {
    fn from(error: StorageError) -> Fault {
        Fault::Disk(error.to_string())
    }
}
