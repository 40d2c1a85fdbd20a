//! Repeats of operations: when and for how long to retry, and what the last answer says about earlier attempts.

use super::Attempt;
use crate::link::Purpose;
use std::time::Duration;
use tollgate_proto::Retry;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::NodeId;

/// Maximum time to try an operation while there is no leader, in addition to its time in a queue.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum time to try a session's keepalive: its client sends the next one soon, and must learn in time that this one
/// failed. Other keepalives may have no sender that repeats them, and a stream of keepalives would end with a failed
/// one.
const KEEPALIVE_PATIENCE: Duration = Duration::from_secs(1);

/// Returns the time that an operation is willing to wait in a queue.
pub(super) fn wait_of(op: &Op) -> Duration {
    let timeout_ms = match op {
        Op::Lock(lock) => lock.timeout_ms,
        Op::Convert(convert) => convert.timeout_ms,
        Op::Campaign(campaign) => campaign.timeout_ms,
        _ => 0,
    };
    // A negative timeout waits for ever, that is, as long as the caller is there.
    u64::try_from(timeout_ms).map_or(Duration::from_hours(24 * 365), Duration::from_millis)
}

/// Returns the time to try an operation, not counting its wait in a queue.
pub(super) fn patience_of(op: &Op, purpose: Purpose) -> Duration {
    let comes_again = matches!(op, Op::LeaseKeepAlive(_)) && purpose == Purpose::Session;
    if comes_again { KEEPALIVE_PATIENCE } else { PATIENCE }
}

/// Marks the next attempt of an operation as a repeat.
pub(super) fn count_attempt(op: &mut Op) {
    let request = match op {
        Op::Lock(it) | Op::TryLock(it) => &mut it.request,
        Op::Unlock(it) => &mut it.request,
        Op::Convert(it) => &mut it.request,
        Op::Put(it) => &mut it.request,
        Op::Delete(it) => &mut it.request,
        Op::Txn(it) => &mut it.request,
        Op::Campaign(it) => &mut it.request,
        Op::Proclaim(it) => &mut it.request,
        Op::Resign(it) => &mut it.request,
        _ => return,
    };
    if let Some(request) = request {
        request.attempt = request.attempt.saturating_add(1);
    }
}

/// Decides the next attempt from an error of another node.
pub(super) fn judge(error: v1::Error) -> Attempt {
    match error.retry() {
        Retry::AtLeader => Attempt::Elsewhere(NodeId::new(error.leader_id)),
        Retry::AsItIs => Attempt::Unsure(error),
        // The router reads the map anew for `AtItsGroup`; all else is for the caller to decide.
        _ => Attempt::Done(OpResult::Error(error)),
    }
}

/// Returns the answer to an operation one of whose earlier attempts may have happened.
pub(super) fn settle(op: &Op, result: OpResult, unsure: Option<v1::Error>) -> OpResult {
    match (result, unsure) {
        (OpResult::Error(error), Some(unsure)) if tells_only_of_the_last_attempt(op, error.reason()) => {
            OpResult::Error(unsure)
        }
        (result, _) => result,
    }
}

/// Returns true if an error says that this attempt did nothing, but nothing about earlier attempts.
fn tells_only_of_the_last_attempt(op: &Op, reason: v1::ErrorReason) -> bool {
    match reason {
        v1::ErrorReason::Overloaded
        | v1::ErrorReason::DiskFull
        | v1::ErrorReason::NoSuchGroup
        | v1::ErrorReason::WrongGroup => true,
        // The lease is gone: an earlier attempt ended it, or it ended since then, and what that attempt wrote or gave
        // back stays. A lock that the attempt may have got is gone as well.
        v1::ErrorReason::LeaseNotFound => {
            !matches!(op, Op::Lock(_) | Op::TryLock(_) | Op::Convert(_) | Op::Campaign(_))
        }
        v1::ErrorReason::NotWaiting => matches!(op, Op::CancelWait(_)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Lost;
    use tollgate_types::GroupId;

    fn lock(seq: u64) -> v1::LockRequest {
        let request = (seq != 0).then(|| v1::Request { seq, ..Default::default() });
        v1::LockRequest { name: "jobs".into(), lease_id: 1, timeout_ms: -1, request, ..Default::default() }
    }

    #[test]
    fn only_keepalives_that_come_again_by_themselves_are_given_up_soon() {
        let keep = Op::LeaseKeepAlive(v1::LeaseKeepAliveRequest::default());
        assert_eq!(patience_of(&keep, Purpose::Session), KEEPALIVE_PATIENCE);
        assert_eq!(patience_of(&keep, Purpose::Attended), PATIENCE);
        assert_eq!(patience_of(&Op::Lock(lock(1)), Purpose::Session), PATIENCE);
    }

    #[test]
    fn what_may_have_happened_is_not_unsaid_by_a_later_attempt() {
        let unsure = || Some(Lost::unsure(GroupId::new(0)));
        let revoke = Op::LeaseRevoke(v1::LeaseRevokeRequest { id: 1 });
        let cancel = Op::CancelWait(v1::CancelWaitRequest::default());
        let ends = |op: &Op, reason, unsure| {
            let result = OpResult::Error(v1::Error::new(reason, "no"));
            matches!(settle(op, result, unsure), OpResult::Error(error) if error.may_have_happened)
        };
        for reason in [v1::ErrorReason::Overloaded, v1::ErrorReason::DiskFull, v1::ErrorReason::NoSuchGroup] {
            assert!(ends(&Op::Lock(lock(1)), reason, unsure()));
            assert!(!ends(&Op::Lock(lock(1)), reason, None));
        }
        assert!(ends(&revoke, v1::ErrorReason::LeaseNotFound, unsure()));
        let put = Op::Put(v1::PutRequest::default());
        assert!(ends(&put, v1::ErrorReason::LeaseNotFound, unsure()), "what it wrote stays");
        assert!(
            !ends(&Op::Lock(lock(1)), v1::ErrorReason::LeaseNotFound, unsure()),
            "it can't hold anything"
        );
        assert!(ends(&cancel, v1::ErrorReason::NotWaiting, unsure()));
    }
}
