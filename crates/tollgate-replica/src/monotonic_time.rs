//! The node's own clock, as an input to the host.

use std::fmt;

/// A reading of the node's monotonic clock, in microseconds since some start. Only differences between moments of the
/// same node have a meaning. A clock that stands still or jumps back is treated as standing still.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonotonicTime(u64);

impl MonotonicTime {
    /// Later than any other moment: nothing to wait for.
    pub const NEVER: MonotonicTime = MonotonicTime(u64::MAX);

    /// A moment by its microseconds.
    pub const fn from_us(us: u64) -> MonotonicTime {
        MonotonicTime(us)
    }

    /// The microseconds.
    pub const fn us(self) -> u64 {
        self.0
    }

    /// Microseconds from `earlier` to this moment; 0 if the clock went back.
    pub const fn us_since(self, earlier: MonotonicTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `ms` milliseconds later.
    #[must_use]
    pub const fn after_ms(self, ms: u64) -> MonotonicTime {
        MonotonicTime(self.0.saturating_add(ms.saturating_mul(1_000)))
    }
}

impl fmt::Debug for MonotonicTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == MonotonicTime::NEVER { f.write_str("never") } else { write!(f, "{}us", self.0) }
    }
}
