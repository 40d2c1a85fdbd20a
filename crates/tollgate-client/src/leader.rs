//! Who leads an election.

use tollgate_types::{LeaseId, Revision, Token};

/// The leader of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The election.
    pub election: String,
    /// The leader's lease.
    pub lease: LeaseId,
    /// The leader's owner within the lease; empty if the lease itself leads.
    pub owner: String,
    /// The fencing token of its term of office: higher than that of every leader before.
    pub token: Token,
    /// What the leader says of itself, for example its address.
    pub value: Vec<u8>,
    /// The revision at which `value` was last written.
    pub value_revision: Revision,
    /// The revision at which it stood for election.
    pub create_revision: Revision,
    /// What its client calls itself.
    pub client_id: String,
}
