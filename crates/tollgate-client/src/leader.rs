//! The leader of an election.

use tollgate_types::{LeaseId, Revision, Token};

/// Leader of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// Name of the election.
    pub election: String,
    /// Lease of the leader.
    pub lease: LeaseId,
    /// Owner of the leader within the lease; empty if the lease itself leads.
    pub owner: String,
    /// Fencing token of the leader's term: higher than the token of every leader before.
    pub token: Token,
    /// Value that the leader publishes about itself, for example its address.
    pub value: Vec<u8>,
    /// Revision at which `value` was last written.
    pub value_revision: Revision,
    /// Revision at which the leader became a candidate.
    pub create_revision: Revision,
    /// Name of the leader's client.
    pub client_id: String,
}
