//! Errors of an acquire.

use crate::cluster_info::DeadlockStep;
use crate::error::{Error, ErrorKind};
use crate::lock_info::Holder;
use crate::lost::Lost;
use crate::session::Failed;
use std::time::Duration;
use tollgate_types::escaped;

/// Reason why a lock was not acquired. With every variant, nothing is held and nothing waits.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The lock is held or closed, and the request was not to wait.
    #[error("{name} is busy{}{}", held_by(holders), closed_for(closed.as_ref()))]
    Busy {
        /// Name of the lock; of several, the first.
        name: String,
        /// Holders of the lock, as far as the cluster reported them: at most eight.
        holders: Vec<Holder>,
        /// Reason why the lock is closed, if the lock is closed.
        closed: Option<Closed>,
    },
    /// The wait ended before the lock was free.
    #[error("{name} was not free in time{}", held_by(holders))]
    TimedOut {
        /// Name of the lock; of several, the first.
        name: String,
        /// Holders of the lock, as far as the cluster reported them: at most eight.
        holders: Vec<Holder>,
        /// Last known place in the queue, 1 for the next in line; 0 if not known.
        position: u64,
    },
    /// The wait would never end: the holders that this owner would wait for are themselves waiting for locks of this
    /// owner. Release a lock, and start again.
    #[error("waiting would never end{}", circle(cycle))]
    Deadlock {
        /// Cycle of waits, from the refused request back to itself; empty if it is no longer known.
        cycle: Vec<DeadlockStep>,
    },
    /// The session was lost, or the lock was lost before this program learned that it had the lock.
    #[error("{0}")]
    Lost(Lost),
    /// The request failed.
    #[error("{0}")]
    Failed(Error),
}

/// Reason why a lock is closed: nobody can acquire it although nobody holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed {
    /// Minimum remaining time that the lock stays closed.
    pub left: Duration,
    /// True if the cluster was restored from a backup and grants nothing yet, because a holder from before the restore
    /// may still believe in its lock. False if a lock-delay follows the end of the last grant.
    pub restored: bool,
}

fn closed_for(closed: Option<&Closed>) -> String {
    match closed {
        None => String::new(),
        Some(Closed { left, restored: true }) => {
            format!(": the cluster was restored from a backup and grants nothing for {left:?} more")
        }
        Some(Closed { left, restored: false }) => format!(": a lock-delay keeps it closed for {left:?} more"),
    }
}

fn held_by(holders: &[Holder]) -> String {
    let Some(first) = holders.first() else { return String::new() };
    let why = if first.why.is_empty() { String::new() } else { format!(" ({})", escaped(&first.why)) };
    let more = if holders.len() > 1 { format!(" and {} more", holders.len() - 1) } else { String::new() };
    format!(": held by {} of lease {}{why}{more}", first.client_id, first.lease)
}

fn circle(cycle: &[DeadlockStep]) -> String {
    let steps: Vec<String> = cycle.iter().map(step).collect();
    if steps.is_empty() { String::new() } else { format!(": {}", steps.join("; ")) }
}

fn step(step: &DeadlockStep) -> String {
    let DeadlockStep { lease, owner, name, blocker_lease, blocker_owner, .. } = step;
    let does = if step.blocker_token.is_some() { "holds" } else { "waits ahead for" };
    format!("{owner} of {lease} waits for {name}, which {blocker_owner} of {blocker_lease} {does}")
}

impl From<Failed> for AcquireError {
    fn from(failed: Failed) -> AcquireError {
        match failed {
            Failed::Lost(lost) => AcquireError::Lost(lost),
            Failed::Error(error) => AcquireError::from(error),
        }
    }
}

impl From<Error> for AcquireError {
    fn from(error: Error) -> AcquireError {
        match error.kind() {
            ErrorKind::Deadlock => {
                let cycle = error.wire().map_or_else(Vec::new, |wire| {
                    crate::convert::deadlock_cycle(wire.cycle.clone()).unwrap_or_default()
                });
                AcquireError::Deadlock { cycle }
            }
            _ => AcquireError::Failed(error),
        }
    }
}

impl From<Lost> for AcquireError {
    fn from(lost: Lost) -> AcquireError {
        AcquireError::Lost(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_proto::v1;

    #[test]
    fn an_error_names_the_lock_and_who_has_it() {
        let wire = v1::Holder {
            lease_id: 7,
            fencing_token: 9,
            client_id: "db1:77".into(),
            metadata: "schema v42".into(),
            ..v1::Holder::default()
        };
        let holders = crate::convert::holders(vec![wire.clone(), wire]).unwrap();
        let error = AcquireError::Busy { name: "db/migrate".into(), holders, closed: None };
        assert_eq!(
            error.to_string(),
            "db/migrate is busy: held by db1:77 of lease L-0000000000000007 (schema v42) and 1 more"
        );
    }

    #[test]
    fn an_error_says_that_the_cluster_was_restored_and_for_how_long_it_grants_nothing() {
        let closed = Some(Closed { left: Duration::from_secs(90), restored: true });
        let error = AcquireError::Busy { name: "jobs".into(), holders: Vec::new(), closed };
        let expected = "jobs is busy: the cluster was restored from a backup and grants nothing for 90s more";
        assert_eq!(error.to_string(), expected);
    }
}
