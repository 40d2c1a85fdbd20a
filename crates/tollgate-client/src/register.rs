//! State of a register at one revision.

use tollgate_types::{LeaseId, Revision};

/// Register: a small value with its revisions and version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Register {
    /// Key of the register.
    pub key: Vec<u8>,
    /// Value of the register.
    pub value: Vec<u8>,
    /// Lease with which the register ends; none if it stays until deleted.
    pub lease: Option<LeaseId>,
    /// Revision at which the register was created.
    pub create_revision: Revision,
    /// Revision of the last put: compare with it before writing again.
    pub mod_revision: Revision,
    /// Number of puts since the creation; 1 at first.
    pub version: u64,
}
