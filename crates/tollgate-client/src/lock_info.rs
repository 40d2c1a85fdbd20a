//! A lock as it is: who holds it, who waits, why.

use crate::missing::Missing;
use std::fmt;
use std::time::Duration;
use tollgate_types::{GroupId, LeaseId, Mode, NodeId, Revision, Slot, Token};

/// A lock, with its holders and waiters, at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// Its name.
    pub name: String,
    /// Who holds it, oldest token first. May be cut short: see `holder_count`.
    pub holders: Vec<Holder>,
    /// Who waits, next in line first. May be cut short, and is left out of lists: see `waiter_count`.
    pub waiters: Vec<Waiter>,
    /// How many hold it.
    pub holder_count: u64,
    /// How many wait.
    pub waiter_count: u64,
    /// For how much longer it stays closed, by a lock-delay or after a restore; zero if it is open.
    pub closed_for: Duration,
    /// Whether the cluster was restored from a backup, and all names are closed. Not known from a list.
    pub restored: bool,
    /// The revision at which it was read.
    pub revision: Revision,
    /// Groups that could not be asked about leases that live there: of their holders and waiters it is not known when
    /// they end, nor where they are.
    pub missing: Vec<Missing>,
}

impl LockInfo {
    /// Whether an acquire would get it now: nobody holds or awaits it, and nothing keeps it closed.
    pub fn is_free(&self) -> bool {
        self.holder_count == 0 && self.waiter_count == 0 && self.closed_for.is_zero()
    }

    /// Whether this owner within the lease holds it; true as well if it is not among the holders that are shown, and
    /// not all are.
    pub fn may_be_held_by(&self, lease: LeaseId, owner: &str) -> bool {
        let is_cut = self.holder_count > self.holders.len() as u64;
        is_cut || self.holders.iter().any(|holder| holder.lease == lease && holder.owner == owner)
    }
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// By which listings and waiters refer to it: name, lease and owner.
    pub key: String,
    /// Its lease.
    pub lease: LeaseId,
    /// Its owner within the lease; empty for the lease itself.
    pub owner: String,
    /// How it holds the lock.
    pub mode: Mode,
    /// Its fencing token.
    pub token: Token,
    /// What its client calls itself.
    pub client_id: String,
    /// Where its client was last seen; empty if that is not known.
    pub address: String,
    /// Why it holds the lock, in its own words: the metadata, if that is text, else with what is none escaped. It may
    /// have line breaks: show it by [`tollgate_types::escaped`].
    pub why: String,
    /// The metadata as it was given, whatever it is.
    pub metadata: Vec<u8>,
    /// For how long it has held the lock, if that is known.
    pub held: Option<Duration>,
    /// What is left until the grant ends by itself, if that is known. It is not in an answer to one who would not wait,
    /// and where the group of its lease could not be asked ([`LockInfo::missing`]).
    pub remaining: Option<Duration>,
    /// The revision at which it began to wait, or was granted at once.
    pub create_revision: Revision,
    /// The revision of its last change.
    pub mod_revision: Revision,
}

/// Who waits for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// By which listings and other waiters refer to it: name, lease and owner.
    pub key: String,
    /// The key of the waiter before it, or of a holder if it is the first. None if only a lock-delay is in the way.
    pub predecessor_key: Option<String>,
    /// Its place in the queue: 1 for the next in line.
    pub position: u64,
    /// Its lease.
    pub lease: LeaseId,
    /// Its owner within the lease; empty for the lease itself.
    pub owner: String,
    /// The mode that it waits for.
    pub mode: Mode,
    /// Whether it holds the lock in a weaker mode meanwhile.
    pub upgrade: bool,
    /// What its client calls itself.
    pub client_id: String,
    /// Where its client was last seen; empty if that is not known.
    pub address: String,
    /// Why it wants the lock, in its own words: the metadata, if that is text, else with what is none escaped. It may
    /// have line breaks: show it by [`tollgate_types::escaped`].
    pub why: String,
    /// The metadata as it was given, whatever it is.
    pub metadata: Vec<u8>,
    /// For how long it has waited, if that is known.
    pub waited: Option<Duration>,
    /// What is left until it gives up; none if it waits as long as its lease lives.
    pub remaining: Option<Duration>,
    /// The revision at which it joined the queue.
    pub create_revision: Revision,
}

/// One lock in words: why it is busy, and what will happen next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The lock.
    pub lock: LockInfo,
    /// The slot that its name falls into.
    pub slot: Slot,
    /// The group that serves the slot.
    pub group: GroupId,
    /// The node that leads the group, if one does.
    pub leader: Option<NodeId>,
    /// Sentences for people, in order.
    pub lines: Vec<String>,
}

/// The sentences, a line each.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

/// Some locks of a longer list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocksPage {
    /// The locks, by name within a group; groups come in no order. Without waiters, and with a few holders each.
    pub locks: Vec<LockInfo>,
    /// Where to go on; none if that was all. Opaque.
    pub next: Option<String>,
}
