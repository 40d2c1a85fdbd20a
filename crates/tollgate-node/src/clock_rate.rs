//! Estimates the rate of one peer's clock against this node's, from readings requested over a network.
//!
//! A reading is a pair: the reading of the peer's clock, and the time of that reading by this node's clock, uncertain
//! by the round trip. Of each window the reading with the shortest round trip is kept, and it counts if its round trip
//! is near the shortest of all. Queues in the network therefore add little, and the bound is known: at most a
//! thousandth to any slope between two readings. The rate is the median of the slopes along a chain of readings.
//!
//! The median is used because of jumps: a jump (a machine that was suspended, a route with other delays one way) spoils
//! the one slope that it falls into, and by its size no jump can be distinguished from a rate: half a second in ten
//! seconds may be either. A rate shows in every slope.
//!
//! Invariant: pure and bounded; at most `WINDOWS_MAX` closed windows and an open one are kept. Not here: sockets
//! (`peers::clock_link`), and the conclusions from the rates of several peers (`clock_verdict`).

use crate::planted::{Bug, planted};
use std::collections::VecDeque;
use std::time::Duration;
use tollgate_replica::MonotonicTime;

/// Number of closed windows that count; older ones are dropped.
const WINDOWS_MAX: u64 = 12;

/// Minimum number of slopes for a rate: two of them may be spoilt.
const SLOPES_MIN: usize = 5;

/// Divides a window to give the maximum by which a round trip that counts may exceed the shortest one.
const EXCESS_DIVISOR: u64 = 1_000;

/// Maximum error that delays in a network can add to a slope. Each of its two readings is off by at most half the
/// excess of its round trip, and the readings are at least a window apart.
#[cfg(test)]
const ERROR_MAX: f64 = 0.001;

/// One reading of a peer's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Time of the request, by this node's clock.
    pub(crate) asked: MonotonicTime,
    /// Arrival time of the answer, by this node's clock.
    pub(crate) answered: MonotonicTime,
    /// Id of the clock that the peer read: a different number after each start of its process.
    pub(crate) clock: u64,
    /// Reading of the peer's clock.
    pub(crate) peer: MonotonicTime,
}

impl Reading {
    fn round_trip_us(&self) -> u64 {
        self.answered.us_since(self.asked)
    }

    /// Estimates the time by this node's clock at which the peer read its clock, assuming that both ways took equally
    /// long. If they did not, all readings are off by the same amount, and slopes are still right.
    fn here_us(&self) -> u64 {
        self.asked.us() + self.round_trip_us() / 2
    }

    /// Returns the rate of the peer's clock relative to this node's until a later reading: 0.02 if it is 2% fast.
    fn slope_until(&self, later: &Reading) -> f64 {
        let here = later.here_us() - self.here_us();
        signed_us(self.peer.us(), later.peer.us()) / signed_us(0, here) - 1.0
    }
}

/// Returns the signed time between two readings of a clock, which a broken clock may have set back.
fn signed_us(from: u64, to: u64) -> f64 {
    let passed = Duration::from_micros(to.abs_diff(from)).as_secs_f64() * 1e6;
    if to < from { -passed } else { passed }
}

/// Estimator of the rate of one peer's clock.
#[derive(Debug)]
pub(crate) struct RateEstimator {
    window_us: u64,
    /// The reading of each window with the shortest round trip, with the window's number, oldest first.
    kept: VecDeque<(u64, Reading)>,
}

impl RateEstimator {
    /// Returns an estimator without readings.
    pub(crate) fn new(window: Duration) -> RateEstimator {
        let window_us = u64::try_from(window.as_micros()).unwrap_or(u64::MAX).max(1);
        RateEstimator { window_us, kept: VecDeque::new() }
    }

    /// Takes a reading. A reading of another clock than before, because the peer was restarted, starts over.
    pub(crate) fn read(&mut self, reading: Reading) {
        if reading.answered < reading.asked {
            return;
        }
        if self.kept.back().is_some_and(|(_, last)| last.clock != reading.clock) {
            self.kept.clear();
        }
        let window = self.window_of(reading.answered);
        match self.kept.back_mut() {
            Some((last, _)) if *last > window => {}
            Some((last, kept)) if *last == window => {
                if reading.round_trip_us() < kept.round_trip_us() {
                    *kept = reading;
                }
            }
            _ => self.kept.push_back((window, reading)),
        }
        while self.kept.front().is_some_and(|(first, _)| first + WINDOWS_MAX < window) {
            self.kept.pop_front();
        }
    }

    /// Returns the rate of the peer's clock relative to this node's: 0.02 if it is 2% fast. None if there are too few
    /// readings.
    pub(crate) fn rate(&self, now: MonotonicTime) -> Option<f64> {
        let open = self.window_of(now);
        let closed = self.kept.iter().filter(|(window, _)| *window < open && window + WINDOWS_MAX >= open);
        let closed: Vec<&Reading> = closed.map(|(_, reading)| reading).collect();
        let quickest_us = closed.iter().map(|reading| reading.round_trip_us()).min()?;
        let slowest_us = quickest_us + self.window_us / EXCESS_DIVISOR;
        let mut quick = closed.into_iter().filter(|reading| reading.round_trip_us() <= slowest_us);
        let first = quick.next()?;
        let (mut last, mut slopes) = (first, Vec::new());
        for reading in quick {
            // Readings of neighbouring windows may be close together; a short delay would then make a steep slope.
            if reading.here_us().saturating_sub(last.here_us()) >= self.window_us {
                slopes.push(last.slope_until(reading));
                last = reading;
            }
        }
        if slopes.len() < SLOPES_MIN {
            return None;
        }
        if planted(Bug::ClockJumpTakenForRate) {
            return Some(first.slope_until(last));
        }
        Some(median(slopes))
    }

    fn window_of(&self, moment: MonotonicTime) -> u64 {
        moment.us() / self.window_us
    }
}

/// Returns the middle value, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;
    const S: u64 = 1_000 * MS;
    const WINDOW: Duration = Duration::from_secs(10);

    /// Simulated peer, read once a second, for as long as a test needs.
    struct Peer {
        estimator: RateEstimator,
        /// Reading of this node's clock.
        now_us: u64,
        /// Reading of the peer's clock, in nanoseconds, because 2% of a microsecond is lost in microseconds.
        shows_ns: u64,
        /// Speed of the peer's clock, in millionths.
        rate: u64,
        clock: u64,
        there_us: u64,
        back_us: u64,
    }

    impl Peer {
        fn new(rate: u64) -> Peer {
            let estimator = RateEstimator::new(WINDOW);
            Peer {
                estimator,
                now_us: 7 * S,
                shows_ns: 900 * S * 1_000,
                rate,
                clock: 1,
                there_us: 200,
                back_us: 300,
            }
        }

        fn pass(&mut self, us: u64) {
            self.now_us += us;
            self.shows_ns += us * self.rate / 1_000;
        }

        /// Lets time pass and takes readings; `extra_us` returns the extra delay of each way.
        fn live(&mut self, seconds: u64, mut extra_us: impl FnMut(u64) -> (u64, u64)) {
            for second in 0..seconds {
                let extra = extra_us(second);
                let asked = MonotonicTime::from_us(self.now_us);
                self.pass(self.there_us + extra.0);
                let peer = MonotonicTime::from_us(self.shows_ns / 1_000);
                self.pass(self.back_us + extra.1);
                let answered = MonotonicTime::from_us(self.now_us);
                self.estimator.read(Reading { asked, answered, clock: self.clock, peer });
                self.pass(S);
            }
        }

        fn rate(&self) -> Option<f64> {
            self.estimator.rate(MonotonicTime::from_us(self.now_us))
        }

        #[track_caller]
        fn runs_at(&self, rate: f64, give_or_take: f64) {
            let found = self.rate().expect("a rate is known");
            assert!(
                (found - rate).abs() <= give_or_take,
                "{found} is not {rate}, give or take {give_or_take}"
            );
        }
    }

    fn steady(_: u64) -> (u64, u64) {
        (0, 0)
    }

    /// Returns a pseudo-random number from 0 to `below`.
    fn scatter(seed: u64, below: u64) -> u64 {
        let mut x = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^= x >> 29;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x ^ (x >> 32)) % below
    }

    #[test]
    fn p5_the_rate_of_a_clock_is_found_whether_fast_or_slow() {
        for (rate, is) in
            [(1_020_000, 0.02), (980_000, -0.02), (1_005_000, 0.005), (1_000_000, 0.0), (1_500_000, 0.5)]
        {
            let mut peer = Peer::new(rate);
            peer.live(120, steady);
            peer.runs_at(is, 0.000_01);
        }
    }

    #[test]
    fn nothing_is_said_before_five_slopes_are_known() {
        let mut peer = Peer::new(1_020_000);
        let mut seconds = 0;
        while peer.rate().is_none() {
            peer.live(1, steady);
            seconds += 1;
        }
        assert!((51..=71).contains(&seconds), "{seconds} s");
    }

    #[test]
    fn p5_jitter_of_the_network_adds_no_more_than_is_known() {
        for seed in 0..50 {
            for rate in [1_000_000, 1_020_000] {
                let mut peer = Peer::new(rate);
                // Most readings are late by up to 300 ms, on one way, the other or both.
                peer.live(300, |second| {
                    let at = seed * 10_000 + second * 4;
                    if scatter(at, 8) == 0 {
                        return (scatter(at + 1, 4 * MS), scatter(at + 2, 4 * MS));
                    }
                    (scatter(at + 1, 2) * scatter(at + 2, 300 * MS), scatter(at + 3, 300 * MS))
                });
                let is = f64::from(u32::try_from(rate).unwrap()) / 1e6 - 1.0;
                if peer.rate().is_some() {
                    peer.runs_at(is, ERROR_MAX * 1.05);
                }
            }
        }
        // One reading in eight is quick enough: then a rate is known.
        let mut peer = Peer::new(1_020_000);
        peer.live(300, |second| if second % 8 == 0 { (0, 0) } else { (0, 300 * MS) });
        peer.runs_at(0.02, ERROR_MAX);
    }

    #[test]
    fn p5_a_process_that_was_paused_changes_no_rate() {
        let mut peer = Peer::new(1_000_000);
        // The peer is stopped for 4 of every 9 seconds: requests in that time are answered late.
        peer.live(300, |second| if second % 9 == 4 { (4 * S, 0) } else { (0, 0) });
        peer.runs_at(0.0, 0.000_01);
    }

    #[test]
    fn p5_jumps_of_a_clock_are_no_rate_whatever_their_size() {
        // Suspended for half a second (5% of a window), for an hour, and woken late, so that its clock jumps ahead.
        for jump_us in [-500_000, -3_600_000_000, 200_000, 30_000_000_i64] {
            for at in [15, 47, 61, 89, 100] {
                let mut peer = Peer::new(1_000_000);
                peer.shows_ns += 9_000 * S * 1_000;
                peer.live(at, steady);
                peer.shows_ns = peer.shows_ns.checked_add_signed(jump_us * 1_000).unwrap();
                for _ in 0..150 {
                    peer.live(1, steady);
                    assert!(peer.rate().is_none_or(|rate| rate.abs() < 0.000_01), "{:?}", peer.rate());
                }
                peer.runs_at(0.0, 0.000_01);
            }
        }
    }

    #[test]
    fn p5_two_jumps_soon_after_the_start_are_no_rate() {
        let mut peer = Peer::new(1_000_000);
        for seconds in [25, 20, 100] {
            peer.live(seconds, |_| (0, 0));
            assert!(peer.rate().is_none_or(|rate| rate.abs() < 0.000_01), "{:?}", peer.rate());
            peer.shows_ns -= S * 1_000;
        }
    }

    #[test]
    fn a_clock_that_is_suspended_all_the_time_is_slow() {
        let mut peer = Peer::new(1_000_000);
        for _ in 0..30 {
            peer.live(9, steady);
            peer.pass(S);
            peer.shows_ns -= 500_000_000;
        }
        assert!(peer.rate().unwrap() < -0.04);
    }

    #[test]
    fn p5_a_route_with_other_delays_changes_no_rate() {
        for (there_us, back_us) in [(100_200, 300), (200, 100_300), (30_000, 30_000), (250, 250), (0, 0)] {
            let mut peer = Peer::new(1_000_000);
            (peer.there_us, peer.back_us) = (50_200, 50_300);
            peer.live(100, steady);
            (peer.there_us, peer.back_us) = (there_us, back_us);
            for _ in 0..300 {
                peer.live(1, steady);
                assert!(peer.rate().is_none_or(|rate| rate.abs() < 0.000_01), "{:?}", peer.rate());
            }
            peer.runs_at(0.0, 0.000_01);
        }
    }

    #[test]
    fn a_peer_that_was_started_again_is_measured_anew() {
        let mut peer = Peer::new(1_020_000);
        peer.live(100, steady);
        assert!(peer.rate().is_some());
        (peer.clock, peer.shows_ns, peer.rate) = (2, 5, 1_000_000);
        peer.live(1, steady);
        assert_eq!(peer.rate(), None, "what the other clock showed counts no more");
        peer.live(100, steady);
        peer.runs_at(0.0, 0.000_01);
    }

    #[test]
    fn a_connection_that_was_away_costs_no_reading_and_a_long_silence_all() {
        let mut peer = Peer::new(1_020_000);
        peer.live(70, steady);
        peer.pass(30 * S);
        peer.live(15, steady);
        peer.runs_at(0.02, 0.000_01);
        peer.pass(130 * S);
        assert_eq!(peer.rate(), None);
        peer.live(15, steady);
        assert_eq!(peer.rate(), None, "old readings are no part of a new rate");
    }

    #[test]
    fn a_clock_that_went_wrong_is_noticed_within_two_minutes() {
        let mut peer = Peer::new(1_000_000);
        peer.live(200, steady);
        peer.rate = 1_020_000;
        peer.live(100, steady);
        peer.runs_at(0.02, 0.000_01);
    }

    #[test]
    fn p16_what_is_kept_is_bounded_and_nonsense_breaks_nothing() {
        let mut peer = Peer::new(1_000_000);
        peer.live(5_000, steady);
        assert!(peer.estimator.kept.len() <= usize::try_from(WINDOWS_MAX).unwrap() + 1);
        let moments = [0, 1, S, u64::MAX / 2, u64::MAX].map(MonotonicTime::from_us);
        for asked in moments {
            for answered in moments {
                for reading in moments {
                    peer.estimator.read(Reading { asked, answered, clock: 1, peer: reading });
                    assert!(peer.estimator.rate(answered).is_none_or(f64::is_finite));
                }
            }
        }
    }
}
