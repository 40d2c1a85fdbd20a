//! A lease as it is, and what hangs on it.

use crate::missing::Missing;
use std::time::Duration;
use tollgate_types::{GroupId, LeaseId, Mode, Revision, Seq, Token};

/// A lease that was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseGranted {
    /// Its id.
    pub id: LeaseId,
    /// Its time to live, counted from when the request was *sent*.
    pub ttl: Duration,
    /// Whether it lived already, and was renewed.
    pub renewed: bool,
    /// The revision of its grant: tells it from an earlier lease with the same id.
    pub incarnation: Revision,
    /// From here on no number was used by a request of the lease. None from a node that does not know.
    pub next_seq: Option<Seq>,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// Its id.
    pub id: LeaseId,
    /// Its time to live, counted from the last keepalive.
    pub ttl: Duration,
    /// What is left of it.
    pub remaining: Duration,
    /// What its client calls itself.
    pub client_id: String,
    /// Where its client was last seen; empty if that is not known.
    pub address: String,
    /// How long ago it was granted or last renewed.
    pub last_seen: Duration,
    /// Whether the server ends it when its client's last connection closes.
    pub revoke_on_disconnect: bool,
    /// How many locks it holds or awaits, in all groups but those that are `missing`.
    pub claims: u64,
    /// The revision of its grant: tells it from an earlier lease with the same id.
    pub incarnation: Revision,
    /// The group where it lives.
    pub group: GroupId,
    /// The other groups in which it has had locks.
    pub other_groups: Vec<GroupId>,
    /// Those of them that could not be asked.
    pub missing: Vec<Missing>,
}

/// One lock that a lease holds or awaits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseClaim {
    /// The lock.
    pub name: String,
    /// The owner that holds or awaits it; empty for the lease itself.
    pub owner: String,
    /// How it is held, or wanted.
    pub mode: Mode,
    /// Its fencing token; none while it waits.
    pub token: Option<Token>,
}

/// A lease and what hangs on it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseDetail {
    /// The lease.
    pub lease: LeaseInfo,
    /// What hangs on it, by name: the first 1,000. `lease.claims` says how many there are, and `lease.missing` in which
    /// groups there may be more.
    pub claims: Vec<LeaseClaim>,
}

/// Some leases of a longer list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeasesPage {
    /// The leases, by id within a group; groups come in no order.
    pub leases: Vec<LeaseInfo>,
    /// Where to go on; none if that was all. Opaque.
    pub next: Option<String>,
}
