//! Where all callers of a run write down what they did.
//!
//! One for all of them and not one for each: a thousand histograms would fill the caches that the clients need.
//! Invariant: what ended outside the window is not counted, but for progress.

use crate::failure::Failure;
use crate::latency::Latency;
use crate::report::Series;
use crate::window::Window;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// What was done so far.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) window: Window,
    names: &'static [&'static str],
    series: Mutex<Vec<Latency>>,
    /// Also of the warm-up.
    done: AtomicU64,
    failures: AtomicU64,
    first_failure: Mutex<Option<String>>,
}

impl Board {
    /// One with a series of latencies for each name.
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

    /// An operation ended then; how long what it consists of took, by number of series.
    pub(crate) fn done(&self, ended: Instant, took: &[(usize, Duration)]) {
        self.done.fetch_add(1, Ordering::Relaxed);
        if self.window.covers(ended) {
            let mut series = self.series.lock().expect("nobody panics with it");
            for (number, took) in took {
                series[*number].record(*took);
            }
        }
    }

    /// An operation failed; in the warm-up too, that is told.
    pub(crate) fn failed(&self, failure: &Failure) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.first_failure.lock().expect("nobody panics with it").get_or_insert_with(|| failure.to_string());
    }

    /// How many operations ended so far.
    pub(crate) fn progress(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn first_failure(&self) -> Option<String> {
        self.first_failure.lock().expect("nobody panics with it").clone()
    }

    /// What was measured.
    pub(crate) fn series(&self) -> Vec<Series> {
        let latencies = self.series.lock().expect("nobody panics with it").clone();
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
