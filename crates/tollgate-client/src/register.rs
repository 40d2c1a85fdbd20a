//! A register as it is at one revision.

use tollgate_types::{LeaseId, Revision};

/// A register: a small value with its history in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Register {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The lease with which it ends; none if it stays until deleted.
    pub lease: Option<LeaseId>,
    /// The revision at which it was created.
    pub create_revision: Revision,
    /// The revision at which it was last put: what to compare with before writing again.
    pub mod_revision: Revision,
    /// How often it was put since its creation; 1 at first.
    pub version: u64,
}
