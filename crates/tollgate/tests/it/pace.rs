//! Rate limit that many tasks share.
//!
//! Not here: the tasks (`work`, `chaos`).

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Lets callers pass one after the other, at even intervals.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Duration,
    next: Mutex<Instant>,
}

impl Pace {
    pub(crate) fn per_second(rate: u32) -> Pace {
        Pace { interval: Duration::from_secs(1) / rate, next: Mutex::new(Instant::now()) }
    }

    /// Waits for the caller's turn. Unused turns are not made up for.
    pub(crate) async fn turn(&self) {
        let at = {
            let mut next = self.next.lock();
            let at = (*next).max(Instant::now());
            *next = at + self.interval;
            at
        };
        tokio::time::sleep_until(at.into()).await;
    }
}
