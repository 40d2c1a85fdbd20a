//! Until when a client believes in its lease (P7).
//!
//! Invariant: never past (the clock when the last acknowledged keepalive or grant was sent) + (TTL - 1 ms) x
//! (1 - 2 rho), on a clock that counts suspend; and once it has ended it never begins again. The millisecond is the
//! grain of the cluster's time. Not here: who sends keepalives (`session`), and what is lost with the lease (`grant`).

use std::time::Duration;

/// How far the rates of two clocks may be apart, in parts per million: rho of P7.
const RHO_PPM: u64 = 10_000;

/// The cluster counts whole milliseconds, so a deadline may come up to this much early.
const GRAIN: Duration = Duration::from_millis(1);

/// What a client believes of its lease, in readings of its [`crate::Clock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Belief {
    until: Duration,
}

impl Belief {
    /// A lease was granted, by a request sent at `sent`.
    pub(crate) fn new(sent: Duration, ttl: Duration) -> Belief {
        Belief { until: sent + span(ttl) }
    }

    /// A keepalive that was sent at `sent` was acknowledged at `now`. Whether that moved the end.
    ///
    /// An answer that comes when the belief is over moves nothing: the lease may have ended and begun to belong to
    /// nobody in between.
    pub(crate) fn acknowledged(&mut self, sent: Duration, ttl: Duration, now: Duration) -> bool {
        let until = sent + span(ttl);
        if !self.holds(now) || until <= self.until {
            return false;
        }
        self.until = until;
        true
    }

    /// Whether it holds at `now`.
    pub(crate) fn holds(self, now: Duration) -> bool {
        now < self.until
    }

    /// When it ends, unless something is acknowledged before.
    pub(crate) fn until(self) -> Duration {
        self.until
    }
}

/// For how long a lease of `ttl` is believed in: (TTL - 1 ms) x (1 - 2 rho), rounded down.
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
