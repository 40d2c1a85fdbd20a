//! The clock by which leases are counted: the driver's times come from it, and its rate is compared with those of the
//! peers' clocks.
//!
//! Invariant: a node has one such clock, so the clock that is measured is the clock that counts. Not here: the
//! comparison (`clock_monitor`), the time of day, which is for people only (`driver`).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate_replica::MonotonicTime;

/// A monotonic clock.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Returns the current reading: microseconds since a start that differs from process to process.
    fn now(&self) -> MonotonicTime;
}

/// The operating system's monotonic clock (`CLOCK_MONOTONIC`), counted from the creation of this value. The clock
/// stands still while the machine sleeps, and NTP changes its rate, never its reading.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Returns a clock that starts at 0 now.
    #[expect(clippy::new_without_default, reason = "each begins at another time")]
    pub fn new() -> SystemClock {
        SystemClock { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> MonotonicTime {
        let us = u64::try_from(self.started.elapsed().as_micros()).expect("half a million years");
        MonotonicTime::from_us(us)
    }
}

/// A node's clock, and the settings of its comparison with the peers' clocks.
#[derive(Debug, Clone)]
pub struct NodeClock {
    /// Clock by which leases are counted.
    pub clock: Arc<dyn Clock>,
    /// Sampling of the peers' clocks.
    pub sampling: ClockSampling,
}

impl NodeClock {
    /// Returns the operating system's clock, with the sampling that suits real networks.
    pub fn system() -> NodeClock {
        NodeClock { clock: Arc::new(SystemClock::new()), sampling: ClockSampling::STANDARD }
    }
}

/// Sampling of the peers' clocks. Shorter times find a wrong clock sooner, and need a network that is faster by the
/// same factor: a reading counts if its round trip is longer than the shortest one by at most a thousandth of a window.
/// Neither time may be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSampling {
    /// Time from one reading to the next.
    pub every: Duration,
    /// Length of a window: of all readings in it the one with the shortest round trip is kept.
    pub window: Duration,
}

impl ClockSampling {
    /// Ten readings in a window of ten seconds: a first result after one to two minutes.
    pub const STANDARD: ClockSampling =
        ClockSampling { every: Duration::from_secs(1), window: Duration::from_secs(10) };
}
