//! Log time, durations and the time of day, in milliseconds.

use std::fmt;

/// A group's log time: milliseconds counted by the group's leaders, not a wall clock. Log time stands still while the
/// group has no leader.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogTime(u64);

impl LogTime {
    /// The log time of a new group.
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

    /// The time `duration` later; `NEVER` at most.
    #[must_use]
    pub const fn after(self, duration: DurationMs) -> LogTime {
        LogTime(self.0.saturating_add(duration.0))
    }

    /// The time left until `deadline`; zero once the deadline has passed.
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
    /// The empty duration.
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

    /// Writes the duration as people do: `100ms`, `90s`, `10m`, `1h`.
    pub fn in_units(self) -> impl fmt::Display {
        InUnits(self)
    }
}

/// A duration in the largest unit that leaves no rest: `100ms`, `90s`, `10m`, `1h`.
struct InUnits(DurationMs);

impl fmt::Display for InUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.0;
        let whole = |unit_ms: u64| ms > 0 && ms.is_multiple_of(unit_ms);
        match ms {
            ms if whole(3_600_000) => write!(f, "{}h", ms / 3_600_000),
            ms if whole(60_000) => write!(f, "{}m", ms / 60_000),
            ms if whole(1_000) => write!(f, "{}s", ms / 1_000),
            ms => write!(f, "{ms}ms"),
        }
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

/// A time of day by the wall clock of some machine, for people: milliseconds since 1970. Wall clocks can be wrong, so
/// no decision depends on this time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime(u64);

impl WallTime {
    /// No time recorded.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_written_in_the_largest_unit_that_leaves_no_rest() {
        for (ms, text) in [
            (0, "0ms"),
            (1_500, "1500ms"),
            (90_000, "90s"),
            (600_000, "10m"),
            (3_600_000, "1h"),
            (86_400_000, "24h"),
        ] {
            assert_eq!(DurationMs::from_ms(ms).in_units().to_string(), text);
        }
    }
}
