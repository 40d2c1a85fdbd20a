//! A lease: a deadline that its client keeps moving, and all that ends with it.

use crate::claim::Claim;
use crate::reply::EndReason;
use crate::requests::Requests;
use crate::slab::Id;
use tollgate_types::{Address, ClientId, DurationMs, LeaseId, LogTime, Revision};

#[derive(Clone)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) incarnation: Revision,
    pub(crate) ttl: DurationMs,
    pub(crate) deadline: LogTime,
    /// How it ends, or ended, once the deadline has come.
    pub(crate) end_reason: EndReason,
    pub(crate) client_id: ClientId,
    pub(crate) address: Address,
    pub(crate) last_seen: LogTime,
    pub(crate) revoke_on_disconnect: bool,
    pub(crate) requests: Requests,

    // Derived, rebuilt on load: its claims as a list in order of creation.
    pub(crate) oldest: Option<Id<Claim>>,
    pub(crate) youngest: Option<Id<Claim>>,
    pub(crate) claims: u32,
    /// Whether its owners are counted in `owners`, because there are too many claims to walk.
    pub(crate) counted: bool,
}
