//! The times at which a command is asked to end and killed, so that it is gone before its lock is.
//!
//! The client's deadline is the end of its belief in the lease (P7); the server can't end the lease before. Counted
//! back from the deadline: a margin in which nothing of the command runs any more, before that the grace in which it
//! may end by itself. Invariant: pure, the caller passes the remaining time. Not here: sending the signals
//! (`supervisor`, and `guardian` should the supervisor not be able to).

use crate::span;
use std::time::Duration;

/// The grace is at most this part of the TTL: with a longer grace, the election of a new leader would cost commands.
const GRACE_PART: u32 = 6;
/// The margin as a part of the TTL, and its bounds: enough for a signal to arrive and a process to die on a busy
/// machine.
const MARGIN_PART: u32 = 20;
const MARGIN_MIN: Duration = Duration::from_millis(20);
const MARGIN_MAX: Duration = Duration::from_millis(500);

/// State that the command should be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// The command may run.
    Run,
    /// The command should end by itself.
    Ask,
    /// The command must be gone.
    Kill,
}

/// The times before the deadline at which the steps are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    grace: Duration,
    margin: Duration,
}

impl Schedule {
    /// Makes the schedule for a lease of this TTL. The default grace is the longest that fits, but at most five
    /// seconds.
    pub(crate) fn new(ttl: Duration, grace: Option<Duration>) -> Result<Schedule, String> {
        let longest = ttl / GRACE_PART;
        if let Some(grace) = grace.filter(|grace| *grace > longest) {
            return Err(format!(
                "--grace {} is more than a sixth of the TTL of {}: give at most {}, or a TTL of {}",
                span::text(grace),
                span::text(ttl),
                span::text(longest),
                span::text(grace * GRACE_PART),
            ));
        }
        let margin = (ttl / MARGIN_PART).clamp(MARGIN_MIN, MARGIN_MAX);
        Ok(Schedule { grace: grace.unwrap_or(longest.min(Duration::from_secs(5))), margin })
    }

    /// Makes a schedule from parts that were computed by another process.
    pub(crate) fn from_parts(grace: Duration, kill_before: Duration) -> Schedule {
        Schedule { grace, margin: kill_before }
    }

    pub(crate) fn grace(self) -> Duration {
        self.grace
    }

    /// Returns the time before the deadline at which the command must be gone.
    pub(crate) fn kill_before(self) -> Duration {
        self.margin
    }

    /// Returns the time before the deadline at which the command is asked to end.
    pub(crate) fn ask_before(self) -> Duration {
        self.grace + self.margin
    }

    /// Returns the schedule of the guardian: every step a little later, so that the guardian finds nothing to do if all
    /// is well, and still before the deadline.
    pub(crate) fn for_guardian(self) -> Schedule {
        Schedule { grace: self.grace, margin: self.margin / 2 }
    }

    /// Returns the step that is due with this much time left until the deadline.
    pub(crate) fn step(self, remaining: Duration) -> Step {
        if remaining <= self.kill_before() {
            Step::Kill
        } else if remaining <= self.ask_before() {
            Step::Ask
        } else {
            Step::Run
        }
    }

    /// Returns the time until the next step, if the deadline does not move.
    pub(crate) fn until_next(self, remaining: Duration) -> Duration {
        match self.step(remaining) {
            Step::Run => remaining.saturating_sub(self.ask_before()),
            Step::Ask => remaining.saturating_sub(self.kill_before()),
            Step::Kill => Duration::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_steps_come_in_order_and_the_last_one_before_the_deadline() {
        let schedule = Schedule::new(30 * SECOND, None).unwrap();
        assert_eq!(schedule.grace(), 5 * SECOND);
        assert_eq!(schedule.step(6 * SECOND), Step::Run);
        assert_eq!(schedule.until_next(6 * SECOND), SECOND / 2);
        assert_eq!(schedule.step(SECOND * 11 / 2), Step::Ask);
        assert_eq!(schedule.until_next(SECOND), SECOND / 2);
        assert_eq!(schedule.step(SECOND / 2), Step::Kill);
        assert_eq!(schedule.step(Duration::ZERO), Step::Kill);
    }

    #[test]
    fn a_grace_above_a_sixth_of_the_ttl_is_refused_with_what_fits() {
        let error = Schedule::new(10 * SECOND, Some(5 * SECOND)).unwrap_err();
        assert_eq!(
            error,
            "--grace 5s is more than a sixth of the TTL of 10s: give at most 1.6s, or a TTL of 30s"
        );
        assert!(Schedule::new(30 * SECOND, Some(5 * SECOND)).is_ok());
    }

    #[test]
    fn a_healthy_lease_is_never_near_the_first_step() {
        // Keepalives go out every third of the TTL: one may be lost without a step being taken.
        for ttl_ms in [500, 1_000, 3_000, 30_000, 600_000] {
            let ttl = Duration::from_millis(ttl_ms);
            let schedule = Schedule::new(ttl, None).unwrap();
            assert_eq!(schedule.step(ttl * 30 / 100), Step::Run, "{ttl:?}");
        }
    }

    #[test]
    fn the_guardian_acts_after_the_supervisor_and_before_the_deadline() {
        let schedule = Schedule::new(2 * SECOND, None).unwrap();
        let guardian = schedule.for_guardian();
        assert!(guardian.ask_before() < schedule.ask_before());
        assert!(Duration::ZERO < guardian.kill_before() && guardian.kill_before() < schedule.kill_before());
    }
}
