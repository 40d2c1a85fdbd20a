//! Time as a client counts it: time since the machine started, sleep included.
//!
//! A lease continues to run out while a laptop is closed, so the monotonic clock of most languages, which stops during
//! sleep, is not suitable. Programs use [`BootClock`]; tests provide a clock of their own.

use rustix::time::{ClockId, clock_gettime};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Clock of a client.
///
/// Implement this trait to test how your program behaves when a lease is lost; otherwise use the default.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time since some fixed moment. Never goes back, and counts the time for which the machine sleeps.
    fn now(&self) -> Duration;

    /// Completes once [`Clock::now`] is at or past `at`.
    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Clock that counts the time since the machine started, including sleep (`CLOCK_BOOTTIME`).
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
                // A sleep of the runtime stops while the machine sleeps: with slices, it is late by one slice at most.
                tokio::time::sleep(left.min(SLICE)).await;
            }
        })
    }
}

/// Longest single sleep.
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
