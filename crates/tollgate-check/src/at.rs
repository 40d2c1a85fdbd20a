//! True time: microseconds since the run began, as the world that ran it counts them.
//!
//! No client and no server knows it; their clocks run fast or slow by up to rho, and the bounds here allow for that.
//! Not here: log time (`tollgate-types`), which a leader counts.

use std::fmt;

/// A moment of true time, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct At(u64);

impl At {
    /// The beginning of the run.
    pub const ZERO: At = At(0);
    /// Later than anything.
    pub const NEVER: At = At(u64::MAX);

    /// A moment by its microseconds.
    pub const fn from_us(us: u64) -> At {
        At(us)
    }

    /// A moment by its milliseconds.
    pub const fn from_ms(ms: u64) -> At {
        At(ms.saturating_mul(1_000))
    }

    /// The microseconds.
    pub const fn us(self) -> u64 {
        self.0
    }

    /// `us` microseconds later.
    #[must_use]
    pub const fn after_us(self, us: u64) -> At {
        At(self.0.saturating_add(us))
    }

    /// `us` microseconds earlier, but not before the beginning.
    #[must_use]
    pub const fn before_us(self, us: u64) -> At {
        At(self.0.saturating_sub(us))
    }

    /// `ms` milliseconds later.
    #[must_use]
    pub const fn after_ms(self, ms: u64) -> At {
        self.after_us(ms.saturating_mul(1_000))
    }

    /// The microseconds from `earlier` to this; 0 if it is not earlier.
    pub const fn since(self, earlier: At) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == At::NEVER {
            return f.write_str("never");
        }
        write!(f, "{}.{:06} s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_reads_as_seconds() {
        assert_eq!(At::from_ms(1_500).after_us(7).to_string(), "1.500007 s");
        assert_eq!(At::NEVER.after_ms(1).to_string(), "never");
        assert_eq!(At::from_ms(1).since(At::from_ms(2)), 0);
    }
}
