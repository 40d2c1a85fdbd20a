//! The clock by which deadlines are told to other processes, and counted where a pause of the machine must count too.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Time since the machine was started, suspended or not.
pub(crate) fn boot_time() -> Duration {
    // The clock is there on every Linux; were it not, no lease could be counted on either.
    Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).expect("CLOCK_BOOTTIME is there"))
}
