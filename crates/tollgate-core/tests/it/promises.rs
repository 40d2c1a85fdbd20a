//! The promises that the core alone can keep, each with a check of its own, written without looking at how the core
//! does it; a test's name begins with the promise's number.
//!
//! A check that has never failed proves little. So each check runs again with bugs planted that break its promise, and
//! must find every one. Not here: the answers to each command (`oracle`, `scripts`), and promises that need more than
//! one node.

mod determinism;
mod exclusion;
mod fairness;
mod homes;
mod leases;
mod limits;
mod placement;
mod restores;
mod retries;
mod tokens;
mod waiters;
mod watches;

use crate::properties;
use std::sync::OnceLock;
use tollgate_core::{Bug, Change, Entry, Event, LockChange};
use tollgate_types::{Limits, Revision};

type Check = fn(Option<Bug>) -> Result<(), String>;

fn must_hold(check: Check) {
    if let Err(broken) = check(None) {
        panic!("{broken}");
    }
}

/// Asserts that the check itself finds the planted bug: a panic of the core does not count.
fn must_fail(check: Check, bug: Bug) {
    assert!(check(Some(bug)).is_err(), "{bug:?} is not noticed: {}", bug.says());
}

/// Returns an error with a sentence unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($says:tt)*) => {
        if !$condition {
            return Err(format!($($says)*));
        }
    };
}
use ensure;

struct History {
    seed: u64,
    limits: Limits,
    entries: Vec<Entry>,
}

/// Random histories, made once for all promises: 18,000 entries in all.
fn histories() -> &'static [History] {
    static HISTORIES: OnceLock<Vec<History>> = OnceLock::new();
    HISTORIES.get_or_init(|| {
        let history = |seed| {
            let (limits, entries) = properties::entries(seed, 300);
            History { seed, limits, entries }
        };
        (0..60).map(history).collect()
    })
}

/// The events about locks, with those of one revision together.
fn lock_changes(events: &[Event]) -> impl Iterator<Item = Vec<(Revision, &LockChange)>> {
    let at_once = events.chunk_by(|a, b| a.revision == b.revision);
    at_once.map(|events| {
        let of_locks = events.iter().filter_map(|event| match &event.change {
            Change::Lock(change) => Some((event.revision, change)),
            Change::Register(_) => None,
        });
        of_locks.collect()
    })
}
