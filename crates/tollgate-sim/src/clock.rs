//! The clock of a node or client: its reading at a moment of true time, and the moment at which it will have a given
//! reading.
//!
//! Invariant: between two changes a clock runs at one rate. It may be made to stand still, to jump, and to change its
//! rate. Not here: true time itself (`world`), and the decision which clocks jump when (`faults`).

use crate::types::At;
use tollgate_replica::MonotonicTime;

const PPM: u64 = 1_000_000;

/// A clock that runs at its own rate.
#[derive(Debug, Clone)]
pub(crate) struct SimClock {
    /// Local microseconds per million true microseconds.
    rate_ppm: u64,
    /// True time at which the clock reads `reading`; also before it, if the clock stands still.
    anchor: At,
    /// Local microseconds that the clock reads at `anchor`.
    reading: u64,
    /// Highest reading before the clock was last set back.
    highest: u64,
    /// Time until which the clock stands still, or reads no more than `highest`.
    behind_until: At,
}

impl SimClock {
    /// Creates a clock that reads `reading` now and is off by `off_ppm` parts per million: fast if positive, slow if
    /// negative.
    pub(crate) fn new(now: At, reading: u64, off_ppm: i64) -> SimClock {
        let rate_ppm = PPM.checked_add_signed(off_ppm).expect("a clock never runs backwards");
        assert!(rate_ppm > 0, "a clock runs");
        SimClock { rate_ppm, anchor: now, reading, highest: reading, behind_until: now }
    }

    /// Returns the present reading, in microseconds.
    pub(crate) fn read(&self, now: At) -> u64 {
        self.reading + scale(now.saturating_sub(self.anchor), self.rate_ppm, PPM)
    }

    /// Returns the present reading as a host takes it.
    pub(crate) fn moment(&self, now: At) -> MonotonicTime {
        MonotonicTime::from_us(self.read(now))
    }

    /// Returns the moment by which the clock will read `local`, not before `now`; `u64::MAX` for never.
    pub(crate) fn when(&self, now: At, local: u64) -> At {
        if local == u64::MAX {
            return u64::MAX;
        }
        let present = self.read(now);
        if local <= present {
            return now;
        }
        // Counted from the anchor and not from now, so that rounding errors do not add up.
        let ahead = local - self.reading;
        (self.anchor + scale(ahead, PPM, self.rate_ppm) + 1).max(now)
    }

    /// Makes the clock stand still until `until`, and go on from its present reading. It never catches up: that would
    /// be a jump ahead.
    pub(crate) fn stand_still(&mut self, now: At, until: At) {
        self.reading = self.read(now);
        self.anchor = until;
        self.behind_until = self.when(until, self.highest);
    }

    /// Makes the clock jump ahead, or back.
    pub(crate) fn jump(&mut self, now: At, by_us: i64) {
        let before = self.read(now);
        self.reading = before.saturating_add_signed(by_us);
        self.anchor = now;
        self.highest = self.highest.max(before);
        self.behind_until = self.when(now, self.highest);
    }

    /// Returns true while the clock shows no progress: it stands still, or has not come back to its highest reading.
    pub(crate) fn is_behind(&self, now: At) -> bool {
        now < self.behind_until
    }

    /// Makes the clock run at another rate from now on.
    pub(crate) fn set_rate(&mut self, now: At, off_ppm: i64) {
        let highest = self.highest;
        *self = SimClock { highest, ..SimClock::new(now, self.read(now), off_ppm) };
        self.behind_until = self.when(now, highest);
    }
}

fn scale(amount: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(amount) * u128::from(by) / u128::from(of)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_gets_there_early_and_never_before_it_reads_so() {
        for off in [-50_000, -1, 0, 7, 50_000] {
            let clock = SimClock::new(1_000, 5, off);
            for local in [6, 77, 1_000_003, 99_999_999] {
                let at = clock.when(1_000, local);
                assert!(clock.read(at) >= local, "{off} {local} {at}");
                assert!(clock.read(at - 3) < local, "{off} {local} {at}");
            }
        }
    }

    #[test]
    fn a_clock_that_stood_still_goes_on_from_there() {
        let mut clock = SimClock::new(0, 0, 0);
        clock.stand_still(100, 600);
        assert_eq!([100, 599, 600, 700].map(|now| clock.read(now)), [100, 100, 100, 200]);
        assert_eq!(clock.when(200, 150), 651);
        assert!(clock.is_behind(599) && !clock.is_behind(600));
    }

    #[test]
    fn a_clock_that_jumps_back_reads_less() {
        let mut clock = SimClock::new(0, 1_000, 0);
        clock.jump(500, -400);
        assert_eq!((clock.read(500), clock.read(600)), (1_100, 1_200));
        assert_eq!(clock.when(500, 1_500), 901);
        assert!(clock.is_behind(899) && !clock.is_behind(901));
        assert_eq!(clock.when(500, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_clock_set_back_twice_has_both_ways_to_make_up() {
        let mut clock = SimClock::new(0, 1_000, 0);
        clock.jump(500, -400);
        clock.jump(600, -300);
        assert!(clock.is_behind(1_199) && !clock.is_behind(1_201));
        clock.stand_still(700, 900);
        assert!(clock.is_behind(1_399) && !clock.is_behind(1_401));
    }
}
