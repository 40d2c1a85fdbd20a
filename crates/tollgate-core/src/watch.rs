//! Selection of the events of the history that a watch sees.

use crate::event::{Change, Event};
use tollgate_types::{Key, LeaseId, Name};

/// The events that a watch sees. Locks and registers are separate spaces: a prefix reaches into one of them.
///
/// A lock's events are found by the lock's *name*, never by the keys of its holders and waiters (name "/" lease): a
/// watch on `jobs` sees all claims on that lock, and nothing of a lock named `jobs/7`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watch {
    /// Every event.
    All,
    /// The events of one lock.
    Lock(Name),
    /// The events of all locks whose name begins with these bytes; of all locks if there are none.
    LockPrefix(Vec<u8>),
    /// The events of all holders and waiters that have this lease, whatever the lock; no events of registers.
    ///
    /// The id counts, not the incarnation: if an ended lease's id was granted anew, the watch sees the events of both
    /// leases.
    Lease(LeaseId),
    /// The events of one register.
    Register(Key),
    /// The events of all registers whose key begins with these bytes; of all registers if there are none.
    RegisterPrefix(Vec<u8>),
}

impl Watch {
    /// True if the watch sees `event`. To check an event against many watches, use a [`WatchIndex`](crate::WatchIndex).
    pub fn matches(&self, event: &Event) -> bool {
        match &event.change {
            Change::Lock(lock) => self.matches_lock(lock.name.as_bytes(), lock.lease),
            Change::Register(register) => self.matches_register(register.key.as_bytes()),
        }
    }

    /// True if the watch sees the events about this lease's claims on the lock with this name.
    pub(crate) fn matches_lock(&self, name: &[u8], lease: LeaseId) -> bool {
        match self {
            Watch::All => true,
            Watch::Lock(watched) => watched.as_bytes() == name,
            Watch::LockPrefix(prefix) => name.starts_with(prefix),
            Watch::Lease(watched) => *watched == lease,
            Watch::Register(_) | Watch::RegisterPrefix(_) => false,
        }
    }

    /// True if the watch sees the events of the register with this key.
    pub(crate) fn matches_register(&self, key: &[u8]) -> bool {
        match self {
            Watch::All => true,
            Watch::Register(watched) => watched.as_bytes() == key,
            Watch::RegisterPrefix(prefix) => key.starts_with(prefix),
            Watch::Lock(_) | Watch::LockPrefix(_) | Watch::Lease(_) => false,
        }
    }
}
