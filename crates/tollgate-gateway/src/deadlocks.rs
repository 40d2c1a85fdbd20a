//! The last deadlocks that this node refused, for operators.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;
use tollgate_proto::v1;

/// How many are remembered.
const REMEMBERED_MAX: usize = 1_000;

/// All that were found, and the last of them.
#[derive(Debug, Default)]
pub(crate) struct Deadlocks(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    count: u64,
    last: VecDeque<(Instant, v1::Error)>,
}

impl Deadlocks {
    /// Remembers an error, if it is a deadlock.
    pub(crate) fn note(&self, error: &v1::Error) {
        if error.cause() != v1::ErrorReason::Deadlock {
            return;
        }
        let mut found = self.lock();
        found.count += 1;
        found.last.push_back((Instant::now(), error.clone()));
        if found.last.len() > REMEMBERED_MAX {
            found.last.pop_front();
        }
    }

    /// How many there were since the node started, and the last of them, newest first.
    pub(crate) fn list(&self, limit: usize) -> (u64, Vec<v1::Deadlock>) {
        let found = self.lock();
        let worded = found.last.iter().rev().take(limit).map(|(at, error)| v1::Deadlock {
            cycle: error.cycle.clone(),
            ago_ms: i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX),
            group_id: error.group_id,
        });
        (found.count, worded.collect())
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        self.0.lock().expect("nobody panics with it")
    }
}
