//! A node's or client's own clock: what it reads at a moment of true time, and when it will read something.
//!
//! Invariant: between two changes a clock runs at one rate. It may be made to stand still, to jump, and to start anew.
//! Not here: true time itself (`world`), and who may jump when (`faults`).

use crate::types::At;
use tollgate_replica::Moment;

const PPM: u64 = 1_000_000;

/// A clock that runs at its own rate.
#[derive(Debug, Clone)]
pub(crate) struct SimClock {
    /// Local microseconds in a million true ones.
    rate_ppm: u64,
    /// At this moment of true time, and before it if it stands still...
    anchor: At,
    /// ...it reads this.
    reading: u64,
    /// The most it has read before it was last set back.
    highest: u64,
    /// Until then it stands still, or reads no more than that.
    behind_until: At,
}

impl SimClock {
    /// A clock that reads `reading` now, and runs fast by so many parts per million, or slow.
    pub(crate) fn new(now: At, reading: u64, off_ppm: i64) -> SimClock {
        let rate_ppm = PPM.checked_add_signed(off_ppm).expect("a clock never runs backwards");
        assert!(rate_ppm > 0, "a clock runs");
        SimClock { rate_ppm, anchor: now, reading, highest: reading, behind_until: now }
    }

    /// What it reads now, in microseconds.
    pub(crate) fn read(&self, now: At) -> u64 {
        self.reading + scale(now.saturating_sub(self.anchor), self.rate_ppm, PPM)
    }

    /// The same, as a host takes it.
    pub(crate) fn moment(&self, now: At) -> Moment {
        Moment::from_us(self.read(now))
    }

    /// When it will read `local` at the latest, not before `now`; `u64::MAX` for never.
    pub(crate) fn when(&self, now: At, local: u64) -> At {
        if local == u64::MAX {
            return u64::MAX;
        }
        let present = self.read(now);
        if local <= present {
            return now;
        }
        // From the anchor on, and not from now, so that roundings do not add up.
        let ahead = local - self.reading;
        (self.anchor + scale(ahead, PPM, self.rate_ppm) + 1).max(now)
    }

    /// It stands still until then, and goes on from there. It never catches up: that would be a jump ahead.
    pub(crate) fn stand_still(&mut self, now: At, until: At) {
        self.reading = self.read(now);
        self.anchor = until;
        self.behind_until = self.when(until, self.highest);
    }

    /// It jumps ahead, or back.
    pub(crate) fn jump(&mut self, now: At, by_us: i64) {
        let before = self.read(now);
        self.reading = before.saturating_add_signed(by_us);
        self.anchor = now;
        self.highest = self.highest.max(before);
        self.behind_until = self.when(now, self.highest);
    }

    /// Whether it shows no progress: it stands still, or has not come back to where it once was.
    pub(crate) fn is_behind(&self, now: At) -> bool {
        now < self.behind_until
    }

    /// It runs at another rate from now on.
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
