//! The clock that leases are counted by: the driver's moments come from it, and its rate is compared with those of the
//! peers' clocks.
//!
//! Invariant: a node has one. What is measured is what counts. Not here: the comparison (`clock_monitor`), the time of
//! day, which is for people alone (`driver`).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate_replica::Moment;

/// A monotonic clock.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Its reading now: microseconds since a start of its own, which is another one in each process.
    fn now(&self) -> Moment;
}

/// The operating system's monotonic clock (`CLOCK_MONOTONIC`), from when this was made. It stands still while the
/// machine sleeps, and NTP changes its rate, never its reading.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock that begins at 0 now.
    #[expect(clippy::new_without_default, reason = "each begins at another time")]
    pub fn new() -> SystemClock {
        SystemClock { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let us = u64::try_from(self.started.elapsed().as_micros()).expect("half a million years");
        Moment::from_us(us)
    }
}

/// A node's clock, and how it is compared with those of the peers.
#[derive(Debug, Clone)]
pub struct NodeClock {
    /// What leases are counted by.
    pub clock: Arc<dyn Clock>,
    /// How often the peers' clocks are read.
    pub sampling: ClockSampling,
}

impl NodeClock {
    /// The operating system's clock, compared as is right for networks.
    pub fn system() -> NodeClock {
        NodeClock { clock: Arc::new(SystemClock::new()), sampling: ClockSampling::STANDARD }
    }
}

/// How often the peers' clocks are read. Shorter times find a wrong clock sooner, and need a network that is as much
/// quicker: a reading counts if it took at most a thousandth of a window longer than the quickest. Neither may be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSampling {
    /// From one reading to the next.
    pub every: Duration,
    /// Of all readings in such a span the quickest is kept.
    pub window: Duration,
}

impl ClockSampling {
    /// Ten readings in a window of ten seconds: a first result after one to two minutes.
    pub const STANDARD: ClockSampling =
        ClockSampling { every: Duration::from_secs(1), window: Duration::from_secs(10) };
}
