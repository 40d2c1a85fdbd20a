//! Time as a client counts it: how long the machine has been up, sleep included.
//!
//! A lease goes on running out while a laptop is closed, so the monotonic clock of most languages, which stands still
//! then, is no good here. Programs use [`BootClock`]; tests bring a clock of their own.

use rustix::time::{ClockId, clock_gettime};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Where a client takes its time from.
///
/// Implement it to test what your program does when a lease is lost; otherwise the default is right.
pub trait Clock: Send + Sync + 'static {
    /// The time since some fixed moment. Never goes back, and counts the time for which the machine sleeps.
    fn now(&self) -> Duration;

    /// Completes once [`Clock::now`] is at or past `at`.
    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The time since the machine started, the time for which it slept included (`CLOCK_BOOTTIME`).
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::try_from(now).expect("the machine did not start in the future")
    }

    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let left = at.saturating_sub(self.now());
                if left.is_zero() {
                    return;
                }
                // A sleep of the runtime stands still while the machine does: in slices, it is late by one at most.
                tokio::time::sleep(left.min(SLICE)).await;
            }
        })
    }
}

/// The longest single sleep.
const SLICE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_ends_when_its_time_has_come_and_not_before() {
        let begun = BootClock.now();
        BootClock.sleep_until(begun + Duration::from_millis(20)).await;
        assert!(BootClock.now() >= begun + Duration::from_millis(20));
        BootClock.sleep_until(begun).await;
    }
}
