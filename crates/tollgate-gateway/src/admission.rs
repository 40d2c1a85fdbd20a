//! Admission control: decides which operations are let in under overload.
//!
//! Operations are counted while they are in flight; an operation that waits in a lock's queue is no burden and does not
//! count. Above the configured number, requests for locks are refused first: they bring more work, and their callers
//! can retry. All other operations are refused next; last, with headroom of their own, the operations without which
//! locks are lost or stay held: keepalives and releases. Invariant: a refused operation has not happened. Not here: the
//! bound on inputs in the driver's inbox (`tollgate_node`), limits of single sessions (`session`).

use crate::operation;
use crate::request_info::{KINDS, RequestInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tollgate_proto::v1;

/// Priority of an operation under overload, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The operation requests a lock.
    Wish,
    /// Any other operation.
    Ordinary,
    /// The operation keeps a lock or lease, or gives it back.
    Duty,
}

/// The rank of each kind, in the order of [`KINDS`].
const RANKS: [Rank; KINDS.len()] = {
    use Rank::{Duty, Ordinary, Wish};
    [
        Wish,     // lock
        Duty,     // unlock
        Wish,     // try_lock
        Duty,     // lease_keep_alive
        Ordinary, // convert
        Duty,     // cancel_wait
        Ordinary, // lease_grant
        Duty,     // lease_revoke
        Ordinary, // lease_time_to_live
        Ordinary, // get_lock
        Ordinary, // put
        Ordinary, // get
        Ordinary, // delete
        Ordinary, // txn
        Ordinary, // range
        Duty,     // force_release
        Wish,     // campaign
        Ordinary, // proclaim
        Ordinary, // leader
        Duty,     // resign
    ]
};

/// Returns the number of operations in flight below which an operation of this rank is let in.
const fn room(rank: Rank, admitted_max: usize) -> usize {
    let part = admitted_max.div_ceil(4);
    match rank {
        Rank::Wish => admitted_max,
        Rank::Ordinary => admitted_max.saturating_add(part),
        Rank::Duty => admitted_max.saturating_add(part).saturating_add(part),
    }
}

/// Counts the operations in flight and refuses those above the limit.
#[derive(Debug)]
pub(crate) struct Admission {
    admitted_max: usize,
    under_way: Arc<AtomicUsize>,
}

impl Admission {
    /// Creates a counter that refuses requests for locks while `admitted_max` operations are in flight.
    pub(crate) fn new(admitted_max: usize) -> Admission {
        Admission { admitted_max, under_way: Arc::default() }
    }

    /// Lets an operation in, or returns the error that refuses it.
    pub(crate) fn admit(&self, asked: RequestInfo) -> Result<AdmissionPermit, v1::Error> {
        let permit = AdmissionPermit { under_way: Arc::clone(&self.under_way), left: AtomicBool::new(false) };
        if self.under_way.fetch_add(1, Ordering::Relaxed) < room(RANKS[asked.kind], self.admitted_max) {
            return Ok(permit);
        }
        drop(permit);
        let says = format!(
            "more than {} operations are under way here, and those that want locks are refused first: nothing was \
             done; wait a little and try again, or ask elsewhere",
            self.admitted_max
        );
        let limit_value = self.admitted_max as u64;
        Err(v1::Error { limit_value, ..operation::overloaded(says) })
    }
}

/// An operation that was let in. It counts as in flight until it is dropped or waits in a queue.
#[derive(Debug)]
pub struct AdmissionPermit {
    under_way: Arc<AtomicUsize>,
    left: AtomicBool,
}

impl AdmissionPermit {
    /// Stops counting the operation as in flight, because it waits in a queue.
    pub fn leave(&self) {
        if !self.left.swap(true, Ordering::Relaxed) {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_proto::v1::ErrorReason;

    fn asked(kind: &str) -> RequestInfo {
        let kind = KINDS.iter().position(|known| *known == kind).unwrap();
        RequestInfo { kind, fencing_token: 0 }
    }

    fn fill(admission: &Admission, kind: &str) -> Vec<AdmissionPermit> {
        std::iter::from_fn(|| admission.admit(asked(kind)).ok()).collect()
    }

    #[test]
    fn locks_are_shed_first_then_the_rest_and_keepalives_and_releases_last() {
        let admission = Admission::new(8);
        let wishes = fill(&admission, "lock");
        assert_eq!(wishes.len(), 8);
        let refused = |kind| admission.admit(asked(kind)).is_err();
        assert!(refused("try_lock") && refused("campaign") && !refused("get_lock"));
        let others = fill(&admission, "put");
        assert_eq!(others.len(), 2);
        assert!(refused("lease_grant") && refused("convert"));
        for kind in ["lease_keep_alive", "lease_revoke", "unlock", "cancel_wait", "resign", "force_release"] {
            assert!(!refused(kind), "{kind}");
        }
        let duties = fill(&admission, "lease_keep_alive");
        assert_eq!(duties.len(), 2, "p16: there is an end to everything");
        drop((others, duties));
        assert!(refused("lock"));
        drop(wishes);
        assert!(!refused("lock"));
    }

    #[test]
    fn what_waits_in_a_queue_does_not_count_and_leaves_once() {
        let admission = Admission::new(1);
        let waiter = admission.admit(asked("lock")).unwrap();
        assert!(admission.admit(asked("lock")).is_err());
        waiter.leave();
        waiter.leave();
        let next = admission.admit(asked("lock")).unwrap();
        drop(waiter);
        assert!(admission.admit(asked("lock")).is_err());
        drop(next);
        assert_eq!(admission.under_way.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_refusal_says_that_nothing_was_done_and_when_to_come_again() {
        let error = Admission::new(0).admit(asked("lock")).unwrap_err();
        assert_eq!(error.reason(), ErrorReason::Overloaded);
        assert!(!error.may_have_happened && error.retry_after_ms > 0, "{error:?}");
    }

    #[test]
    fn no_limit_is_no_limit() {
        let admission = Admission::new(usize::MAX);
        assert!(admission.admit(asked("lock")).is_ok() && admission.admit(asked("unlock")).is_ok());
    }
}
