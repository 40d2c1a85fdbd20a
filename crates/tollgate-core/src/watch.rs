//! What a watch asks to see of the history.

use crate::event::{Change, Event};
use tollgate_types::{Key, Name};

/// Which events a watch sees. Locks and registers are separate spaces: a prefix reaches into one of them.
///
/// A lock's events are found by the lock's *name*, never by the keys of its holders and waiters
/// (name "/" lease): a watch on `jobs` sees all who hold or await it, and nothing of a lock named `jobs/7`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watch {
    /// Every event.
    All,
    /// The events of one lock.
    Lock(Name),
    /// The events of all locks whose name begins with these bytes; of all locks if there are none.
    LockPrefix(Vec<u8>),
    /// The events of one register.
    Register(Key),
    /// The events of all registers whose key begins with these bytes; of all registers if there are none.
    RegisterPrefix(Vec<u8>),
}

impl Watch {
    /// Whether the watch sees `event`. To ask it of many watches at once, use a [`WatchIndex`](crate::WatchIndex).
    pub fn matches(&self, event: &Event) -> bool {
        match (self, &event.change) {
            (Watch::All, _) => true,
            (Watch::Lock(name), Change::Lock(lock)) => lock.name == *name,
            (Watch::LockPrefix(prefix), Change::Lock(lock)) => lock.name.as_bytes().starts_with(prefix),
            (Watch::Register(key), Change::Register(register)) => register.key == *key,
            (Watch::RegisterPrefix(prefix), Change::Register(register)) => {
                register.key.as_bytes().starts_with(prefix)
            }
            (Watch::Lock(_) | Watch::LockPrefix(_), Change::Register(_))
            | (Watch::Register(_) | Watch::RegisterPrefix(_), Change::Lock(_)) => false,
        }
    }
}
