//! Log time, durations and the time of day, in milliseconds.

use std::fmt;

/// A group's log time: milliseconds that some leader has counted, not a wall clock. It stands still while nobody
/// leads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogTime(u64);

impl LogTime {
    /// Where a new group starts.
    pub const ZERO: LogTime = LogTime(0);
    /// Later than any deadline: "never".
    pub const NEVER: LogTime = LogTime(u64::MAX);

    /// A time by its milliseconds.
    pub const fn from_ms(ms: u64) -> LogTime {
        LogTime(ms)
    }

    /// The milliseconds.
    pub const fn ms(self) -> u64 {
        self.0
    }

    /// `duration` later; far enough is `NEVER`.
    #[must_use]
    pub const fn after(self, duration: DurationMs) -> LogTime {
        LogTime(self.0.saturating_add(duration.0))
    }

    /// What is left of the time until `deadline`; nothing once it has passed.
    pub const fn until(self, deadline: LogTime) -> DurationMs {
        DurationMs(deadline.0.saturating_sub(self.0))
    }
}

impl fmt::Debug for LogTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == LogTime::NEVER { f.write_str("never") } else { write!(f, "@{}ms", self.0) }
    }
}

/// A duration in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DurationMs(u64);

impl DurationMs {
    /// No time at all.
    pub const ZERO: DurationMs = DurationMs(0);

    /// A duration by its milliseconds.
    pub const fn from_ms(ms: u64) -> DurationMs {
        DurationMs(ms)
    }

    /// A duration by its seconds.
    pub const fn from_secs(secs: u64) -> DurationMs {
        DurationMs(secs.saturating_mul(1_000))
    }

    /// The milliseconds.
    pub const fn ms(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for DurationMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

impl fmt::Display for DurationMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A time of day by somebody's wall clock, for people: milliseconds since 1970. Wall clocks are wrong now and then, so
/// nothing is decided by one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime(u64);

impl WallTime {
    /// Nobody noted it.
    pub const UNKNOWN: WallTime = WallTime(0);

    /// A time by its milliseconds since 1970; 0 is unknown.
    pub const fn from_unix_ms(ms: u64) -> WallTime {
        WallTime(ms)
    }

    /// The milliseconds since 1970; 0 if unknown.
    pub const fn unix_ms(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == WallTime::UNKNOWN { f.write_str("unknown") } else { write!(f, "{}ms after 1970", self.0) }
    }
}
