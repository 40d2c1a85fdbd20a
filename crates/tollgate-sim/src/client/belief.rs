//! The time until which a client believes in its lease (P7).
//!
//! Invariant: the belief never goes past T + (TTL - 1 ms) x (1 - 2 rho), where T is the client's own clock when it sent
//! the last acknowledged keepalive. The millisecond is the grain of log time. Not here: what a client does once it no
//! longer believes (`session`).

/// Belief of a client in its lease, on the client's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Belief {
    until: u64,
}

impl Belief {
    /// Notes that a grant or keepalive sent at `sent` was acknowledged. Returns true if that prolonged the belief.
    pub(super) fn acknowledged(&mut self, sent: u64, ttl_ms: u64, rho_ppm: u32) -> bool {
        let until = sent.saturating_add(span_us(ttl_ms, rho_ppm));
        let later = until > self.until;
        self.until = self.until.max(until);
        later
    }

    /// Returns true if the client believes now.
    pub(super) fn holds(self, now: u64) -> bool {
        now < self.until
    }

    /// Returns the local time at which the belief ends, unless another renewal is acknowledged before.
    pub(super) fn until(self) -> u64 {
        self.until
    }
}

/// Grain of log time: it counts whole milliseconds, so a lease that is stamped late in one ends up to this much early.
const GRAIN_MS: u64 = 1;

/// Returns for how long a client believes after a renewal for `ttl_ms`, in microseconds: (TTL - 1 ms) x (1 - 2 rho).
pub(super) fn span_us(ttl_ms: u64, rho_ppm: u32) -> u64 {
    let parts = 1_000_000 - 2 * u128::from(rho_ppm);
    u64::try_from(u128::from(ttl_ms.saturating_sub(GRAIN_MS)) * parts / 1_000).unwrap_or(u64::MAX)
}

/// Converts a client's own time to true time, for the history alone: the client does not know true time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TrueTime {
    /// Readings of both clocks, local and true: `recent` a while ago, `older` a longer while ago, `last` the latest.
    recent: (u64, u64),
    older: (u64, u64),
    last: (u64, u64),
}

/// Time for which a pair of readings is kept before the rate is taken from the next pair.
const WINDOW_US: u64 = 2_000_000;

impl TrueTime {
    /// Notes that the client's clock reads `local` at `at`.
    pub(super) fn note(&mut self, local: u64, at: u64) {
        if self.last == (0, 0) {
            *self = TrueTime { recent: (local, at), older: (local, at), last: (local, at) };
        }
        if local.saturating_sub(self.recent.0) > WINDOW_US {
            (self.older, self.recent) = (self.recent, (local, at));
        }
        self.last = (local, at);
    }

    /// Returns when the client's clock will read `local`, if it goes on as it did and is off by no more than `rho_ppm`.
    pub(super) fn of(self, local: u64, rho_ppm: u32) -> u64 {
        let ahead = local.saturating_sub(self.last.0);
        let counted = self.last.0.saturating_sub(self.older.0);
        let passed = self.last.1.saturating_sub(self.older.1);
        let at_rate = if counted > 0 { scaled(ahead, passed, counted) } else { ahead };
        let rho = u64::from(rho_ppm);
        let fastest = scaled(ahead, 1_000_000, 1_000_000 + rho);
        let slowest = scaled(ahead, 1_000_000, 1_000_000 - rho);
        self.last.1.saturating_add(at_rate.clamp(fastest, slowest))
    }
}

fn scaled(us: u64, by: u64, over: u64) -> u64 {
    u64::try_from(u128::from(us) * u128::from(by) / u128::from(over)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn belief_ends_two_rho_before_the_ttl_after_sending() {
        assert_eq!(span_us(10_001, 10_000), 9_800_000);
        let mut belief = Belief::default();
        assert!(!belief.holds(0));
        assert!(belief.acknowledged(1_000_000, 10_001, 10_000));
        assert!(belief.holds(10_799_999));
        assert!(!belief.holds(10_800_000));
    }

    #[test]
    fn a_late_answer_to_an_early_keepalive_takes_nothing_away() {
        let mut belief = Belief::default();
        assert!(belief.acknowledged(5_000_000, 1_001, 10_000));
        assert!(!belief.acknowledged(4_000_000, 1_001, 10_000));
        assert_eq!(belief.until(), 5_980_000);
    }

    #[test]
    fn true_time_follows_a_clock_that_runs_fast() {
        let mut time = TrueTime::default();
        for at in (1_000_000..20_000_000).step_by(10_000) {
            time.note(7_000_000 + at / 100 * 101, at);
        }
        let (local, at) = (7_000_000 + 30_000_000 / 100 * 101, 30_000_000);
        assert!(time.of(local, 10_000).abs_diff(at) < 10, "{}", time.of(local, 10_000));
    }
}
