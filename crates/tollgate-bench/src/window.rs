//! The measured window of a run: from the end of the warm-up until the end of the run.

use std::time::Duration;
use tokio::time::Instant;

/// Start and end of the measured time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl Window {
    /// Creates a window that begins after the warm-up.
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
