//! The clock by which deadlines are passed to other processes, and which counts the time that the machine was
//! suspended.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the time since the machine was booted, including the time it was suspended.
pub(crate) fn boot_time() -> Duration {
    // The clock exists on every Linux; without it, no lease could be measured either.
    Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).expect("CLOCK_BOOTTIME is there"))
}
