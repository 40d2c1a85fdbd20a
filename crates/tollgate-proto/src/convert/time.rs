//! Durations: signed on the wire, so that -1 can mean "for ever" where that makes sense and be refused elsewhere.

use crate::bad_field::BadField;
use tollgate_types::{DurationMs, LogTime};

/// Maximum time that a request waits in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The request does not wait.
    No,
    /// The request waits for at most this time.
    For(DurationMs),
    /// The request waits as long as the lease lives.
    Forever,
}

/// Reads a wait: 0 is none, -1 for ever.
pub fn read_wait(field: &'static str, ms: i64) -> Result<Wait, BadField> {
    match ms {
        0 => Ok(Wait::No),
        -1 => Ok(Wait::Forever),
        _ => match u64::try_from(ms) {
            Ok(ms) => Ok(Wait::For(DurationMs::from_ms(ms))),
            Err(_) => Err(BadField::new(
                field,
                format!("{ms} ms is no wait: 0 is none, -1 as long as the lease lives"),
            )),
        },
    }
}

/// Returns a wait in milliseconds: 0 for none, -1 for ever.
pub fn write_wait(wait: Wait) -> i64 {
    match wait {
        Wait::No => 0,
        Wait::For(duration) => write_duration(duration),
        Wait::Forever => -1,
    }
}

/// Reads a duration, which must not be negative.
pub fn read_duration(field: &'static str, ms: i64) -> Result<DurationMs, BadField> {
    u64::try_from(ms)
        .map(DurationMs::from_ms)
        .map_err(|_| BadField::new(field, format!("{ms} ms is negative: give 0 for none, or more")))
}

/// Reads a duration, or none if it is 0.
pub fn read_duration_or_none(field: &'static str, ms: i64) -> Result<Option<DurationMs>, BadField> {
    read_duration(field, ms).map(|duration| Some(duration).filter(|duration| *duration != DurationMs::ZERO))
}

/// Reads a lease's time to live from `ttl` in seconds and `ttl_ms`, which overrides `ttl`. The bounds of the limits are
/// checked elsewhere.
pub fn read_ttl(ttl: i64, ttl_ms: i64) -> Result<DurationMs, BadField> {
    let (field, ttl, unit_ms) = if ttl_ms == 0 { ("ttl", ttl, 1_000) } else { ("ttl_ms", ttl_ms, 1) };
    match u64::try_from(ttl) {
        Ok(0) => Err(BadField::new("ttl_ms", "no time to live is given: set ttl_ms, or ttl in seconds")),
        Ok(ttl) => Ok(DurationMs::from_ms(ttl.saturating_mul(unit_ms))),
        Err(_) => Err(BadField::new(field, format!("{ttl} is negative: a lease lives for more than 0"))),
    }
}

/// Returns a duration in milliseconds.
pub fn write_duration(duration: DurationMs) -> i64 {
    i64::try_from(duration.ms()).unwrap_or(i64::MAX)
}

/// Returns the remaining time until `deadline`; -1 if the deadline is never.
pub fn write_remaining(now: LogTime, deadline: LogTime) -> i64 {
    if deadline == LogTime::NEVER { -1 } else { write_duration(now.until(deadline)) }
}

/// Returns a time to live in whole seconds: rounded down, because a client that believes in a lease for too long does
/// harm; but at least 1, because 0 would mean that the lease has ended.
pub fn write_seconds(ttl: DurationMs) -> i64 {
    write_duration(ttl).div_euclid(1_000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_none_for_ever_or_so_long() {
        for (ms, wait) in [(0, Wait::No), (-1, Wait::Forever), (1_500, Wait::For(DurationMs::from_ms(1_500)))]
        {
            assert_eq!(read_wait("timeout_ms", ms), Ok(wait));
            assert_eq!(write_wait(wait), ms);
        }
        let wrong = read_wait("timeout_ms", -2).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "bad field timeout_ms: -2 ms is no wait: 0 is none, -1 as long as the lease lives"
        );
        assert!(read_wait("timeout_ms", i64::MIN).is_err());
    }

    #[test]
    fn a_negative_duration_is_refused() {
        assert_eq!(read_duration("lock_delay_ms", 0), Ok(DurationMs::ZERO));
        assert_eq!(read_duration("lock_delay_ms", 5), Ok(DurationMs::from_ms(5)));
        assert_eq!(read_duration("lock_delay_ms", -1).unwrap_err().field, "lock_delay_ms");
        assert_eq!(read_duration_or_none("max_hold_ms", 0), Ok(None));
        assert_eq!(read_duration_or_none("max_hold_ms", 5), Ok(Some(DurationMs::from_ms(5))));
        assert_eq!(read_duration_or_none("max_hold_ms", -1).unwrap_err().field, "max_hold_ms");
    }

    #[test]
    fn a_ttl_in_ms_wins_over_one_in_seconds() {
        assert_eq!(read_ttl(30, 0), Ok(DurationMs::from_secs(30)));
        assert_eq!(read_ttl(30, 1_500), Ok(DurationMs::from_ms(1_500)));
        assert_eq!(read_ttl(0, 1_500), Ok(DurationMs::from_ms(1_500)));
        assert_eq!(read_ttl(i64::MAX, 0), Ok(DurationMs::from_ms(u64::MAX)));
    }

    #[test]
    fn a_negative_or_missing_ttl_is_refused() {
        assert_eq!(read_ttl(-1, 0).unwrap_err().field, "ttl");
        assert_eq!(read_ttl(5, -1).unwrap_err().field, "ttl_ms");
        assert_eq!(
            read_ttl(0, 0).unwrap_err().says,
            "no time to live is given: set ttl_ms, or ttl in seconds"
        );
    }

    #[test]
    fn what_is_left_is_never_negative_but_for_never() {
        let at = LogTime::from_ms;
        assert_eq!(write_remaining(at(100), at(350)), 250);
        assert_eq!(write_remaining(at(400), at(350)), 0);
        assert_eq!(write_remaining(at(400), LogTime::NEVER), -1);
        assert_eq!(write_duration(DurationMs::from_ms(u64::MAX)), i64::MAX);
    }

    #[test]
    fn seconds_are_rounded_down_but_never_to_a_lease_that_has_ended() {
        for (ms, seconds) in [(100, 1), (1_000, 1), (1_999, 1), (2_000, 2)] {
            assert_eq!(write_seconds(DurationMs::from_ms(ms)), seconds);
        }
    }
}
