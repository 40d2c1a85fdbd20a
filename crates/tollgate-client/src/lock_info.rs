//! State of a lock: holders, waiters and their reasons.

use crate::missing::Missing;
use std::fmt;
use std::time::Duration;
use tollgate_types::{GroupId, LeaseId, Mode, NodeId, Revision, Slot, Token};

/// State of a lock at one revision, with its holders and waiters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// Name of the lock.
    pub name: String,
    /// Holders, oldest token first. May be cut short: see `holder_count`.
    pub holders: Vec<Holder>,
    /// Waiters, next in line first. May be cut short, and is left out of lists: see `waiter_count`.
    pub waiters: Vec<Waiter>,
    /// Number of holders.
    pub holder_count: u64,
    /// Number of waiters.
    pub waiter_count: u64,
    /// Remaining time that the lock stays closed, by a lock-delay or after a restore; zero if it is open.
    pub closed_for: Duration,
    /// True if the cluster was restored from a backup, and all names are closed. Not known from a list.
    pub restored: bool,
    /// Revision at which the lock was read.
    pub revision: Revision,
    /// Groups that could not be asked about the leases that live there: deadlines and addresses of holders and waiters
    /// with such leases are not known.
    pub missing: Vec<Missing>,
}

impl LockInfo {
    /// True if an acquire would get the lock now: it has no holders and no waiters, and is not closed.
    pub fn is_free(&self) -> bool {
        self.holder_count == 0 && self.waiter_count == 0 && self.closed_for.is_zero()
    }

    /// True if this owner within the lease holds the lock. Also true if the owner is not among the shown holders, and
    /// not all holders are shown.
    pub fn may_be_held_by(&self, lease: LeaseId, owner: &str) -> bool {
        let is_cut = self.holder_count > self.holders.len() as u64;
        is_cut || self.holders.iter().any(|holder| holder.lease == lease && holder.owner == owner)
    }
}

/// Holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Key of the holder in listings and in [`Waiter::predecessor_key`]: name, lease and owner.
    pub key: String,
    /// Lease of the holder.
    pub lease: LeaseId,
    /// Owner of the holder within the lease; empty for the lease itself.
    pub owner: String,
    /// Mode in which the lock is held.
    pub mode: Mode,
    /// Fencing token of the grant.
    pub token: Token,
    /// Name of the holder's client.
    pub client_id: String,
    /// Address from which the holder's client was last seen; empty if not known.
    pub address: String,
    /// Metadata of the claim as text, its reason to hold the lock; bytes that are not text are escaped. It may have
    /// line breaks: show it with [`tollgate_types::escaped`].
    pub why: String,
    /// Metadata of the claim exactly as given: any bytes.
    pub metadata: Vec<u8>,
    /// Time that the lock has been held, if known.
    pub held: Option<Duration>,
    /// Remaining time until the grant ends by itself, if known. Not known in an answer to a request that did not wait,
    /// and if the group of the lease could not be asked ([`LockInfo::missing`]).
    pub remaining: Option<Duration>,
    /// Revision at which the claim joined the queue, or was granted at once.
    pub create_revision: Revision,
    /// Revision of the claim's last change.
    pub mod_revision: Revision,
}

/// Waiter for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// Key of the waiter in listings and in the `predecessor_key` of other waiters: name, lease and owner.
    pub key: String,
    /// Key of the waiter ahead, or of a holder if this waiter is the first. None if only a lock-delay is in the way.
    pub predecessor_key: Option<String>,
    /// Place in the queue: 1 for the next in line.
    pub position: u64,
    /// Lease of the waiter.
    pub lease: LeaseId,
    /// Owner of the waiter within the lease; empty for the lease itself.
    pub owner: String,
    /// Mode that the waiter wants.
    pub mode: Mode,
    /// True if the waiter holds the lock in a weaker mode meanwhile.
    pub upgrade: bool,
    /// Name of the waiter's client.
    pub client_id: String,
    /// Address from which the waiter's client was last seen; empty if not known.
    pub address: String,
    /// Metadata of the claim as text, its reason to want the lock; bytes that are not text are escaped. It may have
    /// line breaks: show it with [`tollgate_types::escaped`].
    pub why: String,
    /// Metadata of the claim exactly as given: any bytes.
    pub metadata: Vec<u8>,
    /// Time that the waiter has waited, if known.
    pub waited: Option<Duration>,
    /// Remaining time until the waiter gives up; none if it waits as long as its lease lives.
    pub remaining: Option<Duration>,
    /// Revision at which the waiter joined the queue.
    pub create_revision: Revision,
}

/// Explanation of one lock in words: why it is busy, and what will happen next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// State of the lock.
    pub lock: LockInfo,
    /// Slot of the lock's name.
    pub slot: Slot,
    /// Group that serves the slot.
    pub group: GroupId,
    /// Leader of the group, if it has one.
    pub leader: Option<NodeId>,
    /// Sentences for people, in order.
    pub lines: Vec<String>,
}

/// Prints the sentences, one per line.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

/// Page of a list of locks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocksPage {
    /// Locks, by name within a group; groups come in no particular order. Without waiters, and with a few holders each.
    pub locks: Vec<LockInfo>,
    /// Cursor for the next page; none if this is the last page. Opaque.
    pub next: Option<String>,
}
