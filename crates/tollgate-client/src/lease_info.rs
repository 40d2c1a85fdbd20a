//! State of a lease, and its locks.

use crate::missing::Missing;
use std::time::Duration;
use tollgate_types::{GroupId, LeaseId, Mode, Revision, Seq, Token};

/// Lease that was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseGranted {
    /// Id of the lease.
    pub id: LeaseId,
    /// Time to live, counted from the moment when the request was *sent*.
    pub ttl: Duration,
    /// True if the lease already existed, and was renewed.
    pub renewed: bool,
    /// Revision of the lease's grant, which distinguishes it from an earlier lease with the same id.
    pub incarnation: Revision,
    /// First request number that no request of the lease has used, nor any above. None from a node that does not know.
    pub next_seq: Option<Seq>,
}

/// State of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// Id of the lease.
    pub id: LeaseId,
    /// Time to live, counted from the last keepalive.
    pub ttl: Duration,
    /// Remaining time until the lease ends.
    pub remaining: Duration,
    /// Name of the lease's client.
    pub client_id: String,
    /// Address from which the lease's client was last seen; empty if not known.
    pub address: String,
    /// Time since the lease was granted or last renewed.
    pub last_seen: Duration,
    /// True if the server ends the lease when its client's last connection closes.
    pub revoke_on_disconnect: bool,
    /// Number of locks that the lease holds or awaits, in all groups except those in `missing`.
    pub claims: u64,
    /// Revision of the lease's grant, which distinguishes it from an earlier lease with the same id.
    pub incarnation: Revision,
    /// Home group of the lease.
    pub group: GroupId,
    /// Other groups in which the lease has had locks.
    pub other_groups: Vec<GroupId>,
    /// Other groups that could not be asked.
    pub missing: Vec<Missing>,
}

/// Lock that a lease holds or awaits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseClaim {
    /// Name of the lock.
    pub name: String,
    /// Owner that holds or awaits the lock; empty for the lease itself.
    pub owner: String,
    /// Mode in which the lock is held, or wanted.
    pub mode: Mode,
    /// Fencing token of the claim; none while it waits.
    pub token: Option<Token>,
}

/// State of a lease, with its locks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseDetail {
    /// State of the lease.
    pub lease: LeaseInfo,
    /// Locks that the lease holds or awaits, by name: the first 1,000. `lease.claims` is their total number, and
    /// `lease.missing` lists the groups that may have more.
    pub claims: Vec<LeaseClaim>,
}

/// Page of a list of leases.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeasesPage {
    /// Leases, by id within a group; groups come in no particular order.
    pub leases: Vec<LeaseInfo>,
    /// Cursor for the next page; none if this is the last page. Opaque.
    pub next: Option<String>,
}
