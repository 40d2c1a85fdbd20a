//! The time that is measured: after the warm-up, until the end.

use std::time::Duration;
use tokio::time::Instant;

/// When a run began to be measured, and until when it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl Window {
    /// One that begins after the warm-up.
    pub(crate) fn after(warmup: Duration, duration: Duration) -> Window {
        let from = Instant::now() + warmup;
        Window { from, until: from + duration }
    }

    pub(crate) fn covers(self, at: Instant) -> bool {
        self.from <= at && at < self.until
    }

    pub(crate) fn is_over(self) -> bool {
        Instant::now() >= self.until
    }
}
