//! The leader's count of log time.
//!
//! Log time continues from the last stamp in the leader's log, and advances with the leader's own monotonic clock. It
//! advances by at most a limited step per turn; time beyond that step is lost for good. So a process that was stopped
//! for a minute does not end the leases whose keepalives are unread in its sockets, and no later turn catches up. A
//! clock that stands still or jumps back does not change log time.
//!
//! Not here: the leadership itself, and the stamping of entries (`replica`).

use crate::monotonic_time::MonotonicTime;
use tollgate_types::LogTime;

#[derive(Debug, Clone, Copy)]
pub(crate) struct LogClock {
    /// Microseconds, because turns are shorter than a millisecond.
    now_us: u64,
    seen: MonotonicTime,
}

impl LogClock {
    /// Continues from the last stamp in the log.
    pub(crate) fn start(last_stamp: LogTime, now: MonotonicTime) -> LogClock {
        LogClock { now_us: last_stamp.ms().saturating_mul(1_000), seen: now }
    }

    /// Advances log time. Called once per turn.
    pub(crate) fn advance(&mut self, now: MonotonicTime, step_max_ms: u64) {
        let passed_us = now.us_since(self.seen);
        self.now_us += passed_us.min(step_max_ms.saturating_mul(1_000));
        self.seen = now;
    }

    /// Implements a planted bug: catches up on the time that was cut off, up to the same step in each turn.
    pub(crate) fn catch_up(&mut self, behind_us: &mut u64, now: MonotonicTime, step_max_ms: u64) {
        let step_us = step_max_ms.saturating_mul(1_000);
        let passed_us = now.us_since(self.seen);
        *behind_us += passed_us.saturating_sub(step_us);
        let made_up_us = (*behind_us).min(step_us.saturating_sub(passed_us));
        *behind_us -= made_up_us;
        self.now_us += made_up_us;
    }

    pub(crate) fn now(&self) -> LogTime {
        LogTime::from_ms(self.now_us / 1_000)
    }

    /// Time until log time reaches `time`, in milliseconds of this clock, rounded up.
    pub(crate) fn ms_until(&self, time: LogTime) -> u64 {
        time.ms().saturating_mul(1_000).saturating_sub(self.now_us).div_ceil(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> MonotonicTime {
        MonotonicTime::from_us(ms * 1_000)
    }

    #[test]
    fn log_time_goes_on_from_the_last_stamp() {
        let mut clock = LogClock::start(LogTime::from_ms(7_000), at_ms(50));
        clock.advance(at_ms(150), 500);
        assert_eq!(clock.now(), LogTime::from_ms(7_100));
    }

    #[test]
    fn a_pause_moves_log_time_by_one_step_and_is_never_caught_up() {
        let mut clock = LogClock::start(LogTime::ZERO, at_ms(0));
        clock.advance(at_ms(60_000), 500);
        assert_eq!(clock.now(), LogTime::from_ms(500));
        clock.advance(at_ms(60_010), 500);
        assert_eq!(clock.now(), LogTime::from_ms(510));
    }

    #[test]
    fn a_clock_that_stands_still_or_jumps_back_never_moves_log_time_back() {
        let mut clock = LogClock::start(LogTime::ZERO, at_ms(1_000));
        clock.advance(at_ms(1_100), 500);
        clock.advance(at_ms(1_100), 500);
        clock.advance(at_ms(200), 500);
        assert_eq!(clock.now(), LogTime::from_ms(100));
        clock.advance(at_ms(250), 500);
        assert_eq!(clock.now(), LogTime::from_ms(150));
    }

    #[test]
    fn parts_of_a_millisecond_add_up() {
        let mut clock = LogClock::start(LogTime::ZERO, MonotonicTime::from_us(0));
        for turn in 1..=2_500 {
            clock.advance(MonotonicTime::from_us(turn * 400), 500);
        }
        assert_eq!(clock.now(), LogTime::from_ms(1_000));
    }
}
