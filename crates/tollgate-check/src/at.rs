//! True time: microseconds since the run began, as counted by the world that ran it.
//!
//! No client and no server knows true time; their clocks run fast or slow by up to rho, and the checks allow for that.
//! Not here: log time (`tollgate-types`), which a leader counts.

use std::fmt;

/// A moment of true time, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct At(u64);

impl At {
    /// The beginning of the run.
    pub const ZERO: At = At(0);
    /// A moment later than any other.
    pub const NEVER: At = At(u64::MAX);

    /// Returns the moment this many microseconds after the beginning.
    pub const fn from_us(us: u64) -> At {
        At(us)
    }

    /// Returns the moment this many milliseconds after the beginning.
    pub const fn from_ms(ms: u64) -> At {
        At(ms.saturating_mul(1_000))
    }

    /// Returns the microseconds since the beginning.
    pub const fn us(self) -> u64 {
        self.0
    }

    /// Returns the moment `us` microseconds later.
    #[must_use]
    pub const fn after_us(self, us: u64) -> At {
        At(self.0.saturating_add(us))
    }

    /// Returns the moment `us` microseconds earlier, but not before the beginning.
    #[must_use]
    pub const fn before_us(self, us: u64) -> At {
        At(self.0.saturating_sub(us))
    }

    /// Returns the moment `ms` milliseconds later.
    #[must_use]
    pub const fn after_ms(self, ms: u64) -> At {
        self.after_us(ms.saturating_mul(1_000))
    }

    /// Returns the microseconds from `earlier` to this moment; 0 if `earlier` is not earlier.
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
