//! The results of a run, recorded by all of its callers: latencies, operation counts and failures.
//!
//! One board serves all callers, because a histogram for each of a thousand callers would fill the caches that the
//! clients need. Invariant: operations that end outside the measured window count as progress only, not as results.

use crate::failure::Failure;
use crate::latency::Latency;
use crate::report::Series;
use crate::window::Window;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Results of a run so far.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) window: Window,
    names: &'static [&'static str],
    series: Mutex<Vec<Latency>>,
    /// Operations that ended, those of the warm-up included.
    done: AtomicU64,
    failures: AtomicU64,
    first_failure: Mutex<Option<String>>,
}

impl Board {
    /// Creates a board with one latency series for each name.
    pub(crate) fn new(window: Window, names: &'static [&'static str]) -> Board {
        Board {
            window,
            names,
            series: Mutex::new(vec![Latency::new(); names.len()]),
            done: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            first_failure: Mutex::new(None),
        }
    }

    /// Records an operation that ended at `ended`, with the durations of its parts by series number.
    pub(crate) fn done(&self, ended: Instant, took: &[(usize, Duration)]) {
        self.done.fetch_add(1, Ordering::Relaxed);
        if self.window.covers(ended) {
            let mut series = self.series.lock();
            for (number, took) in took {
                series[*number].record(*took);
            }
        }
    }

    /// Counts a failed operation, in the warm-up too, and keeps the text of the first failure.
    pub(crate) fn failed(&self, failure: &Failure) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.first_failure.lock().get_or_insert_with(|| failure.to_string());
    }

    /// Returns the number of operations that ended so far, those of the warm-up included.
    pub(crate) fn progress(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn first_failure(&self) -> Option<String> {
        self.first_failure.lock().clone()
    }

    /// Returns the latencies measured in the window, by series.
    pub(crate) fn series(&self) -> Vec<Series> {
        let latencies = self.series.lock().clone();
        self.names.iter().zip(latencies).map(|(of, latency)| Series { of, latency }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ended_in_the_window_is_counted() {
        let second = Duration::from_secs(1);
        let window = Window::after(second, second);
        let board = Board::new(window, &["pair", "lock"]);
        for ended in [Instant::now(), window.from, window.from + second / 2, window.until] {
            board.done(ended, &[(0, second), (1, second / 2)]);
        }
        board.failed(&Failure::says("first"));
        board.failed(&Failure::says("second"));
        let counts: Vec<_> =
            board.series().iter().map(|series| (series.of, series.latency.count())).collect();
        assert_eq!(counts, [("pair", 2), ("lock", 2)]);
        assert_eq!((board.progress(), board.failures()), (4, 2));
        assert_eq!(board.first_failure().as_deref(), Some("first"));
    }
}
