//! A client's belief in its lease (P7).
//!
//! Invariant: the belief ends no later than (TTL - 1 ms) x (1 - 2 rho) after the last acknowledged keepalive or grant
//! was sent, on a clock that counts suspend; and once it has ended it never begins again. The millisecond is the grain
//! of the cluster's time. Not here: sending keepalives (`session`), and what is lost with the lease (`grant`).

use std::time::Duration;

/// Maximum difference between the rates of two clocks, in parts per million: rho of P7.
const RHO_PPM: u64 = 10_000;

/// The cluster counts whole milliseconds, so a deadline may come up to this much early.
const GRAIN: Duration = Duration::from_millis(1);

/// Belief in a lease, in readings of the client's [`crate::Clock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Belief {
    until: Duration,
}

impl Belief {
    /// Creates the belief in a lease that was granted by a request sent at `sent`.
    pub(crate) fn new(sent: Duration, ttl: Duration) -> Belief {
        Belief { until: sent + span(ttl) }
    }

    /// Records that a keepalive sent at `sent` was acknowledged at `now`. Returns true if the end of the belief moved.
    ///
    /// An answer that comes after the end of the belief moves nothing: the lease may have ended in between.
    pub(crate) fn acknowledged(&mut self, sent: Duration, ttl: Duration, now: Duration) -> bool {
        let until = sent + span(ttl);
        if !self.holds(now) || until <= self.until {
            return false;
        }
        self.until = until;
        true
    }

    /// True if the belief holds at `now`.
    pub(crate) fn holds(self, now: Duration) -> bool {
        now < self.until
    }

    /// Returns the end of the belief, unless another keepalive is acknowledged before.
    pub(crate) fn until(self) -> Duration {
        self.until
    }
}

/// Returns the time for which a lease of `ttl` is believed in: (TTL - 1 ms) x (1 - 2 rho), rounded down.
pub(crate) fn span(ttl: Duration) -> Duration {
    let nanos = ttl.saturating_sub(GRAIN).as_nanos() * u128::from(1_000_000 - 2 * RHO_PPM) / 1_000_000;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn p7_belief_ends_two_rho_and_a_millisecond_before_the_ttl_after_sending() {
        assert_eq!(span(ms(10_001)), ms(9_800));
        let belief = Belief::new(ms(1_000), ms(10_001));
        assert!(belief.holds(ms(10_799)));
        assert!(!belief.holds(ms(10_800)));
    }

    #[test]
    fn p7_belief_counts_from_the_sending_not_from_the_answer() {
        let mut belief = Belief::new(ms(0), ms(10_001));
        assert!(belief.acknowledged(ms(3_000), ms(10_001), ms(9_000)));
        assert_eq!(belief.until(), ms(12_800));
    }

    #[test]
    fn p7_a_belief_that_has_ended_never_begins_again() {
        let mut belief = Belief::new(ms(0), ms(10_001));
        assert!(!belief.acknowledged(ms(9_000), ms(10_001), ms(9_800)));
        assert!(!belief.holds(ms(9_800)));
    }

    #[test]
    fn a_late_answer_to_an_early_keepalive_takes_nothing_away() {
        let mut belief = Belief::new(ms(0), ms(1_001));
        assert!(belief.acknowledged(ms(500), ms(1_001), ms(600)));
        assert!(!belief.acknowledged(ms(300), ms(1_001), ms(700)));
        assert_eq!(belief.until(), ms(1_480));
    }
}
