//! The meaning of a result on the wire for the call that it answers: done, or ask again.
//!
//! Invariant: an outcome is given only if the result settles the matter. Not here: the time of a repeat (`connection`).

use tollgate_check::{EndReason, Holder, Op, Outcome};
use tollgate_proto::convert::read_mode;
use tollgate_proto::v1::{self, ErrorReason, operation_result::Result as OpResult};
use tollgate_types::{LeaseId, Mode, Owner, Revision, Token, Value};

/// Meaning of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The call is over, with this outcome.
    Done(Outcome),
    /// The call is over, but its effect is unknown: an earlier attempt may have succeeded.
    Unknown,
    /// The request waits in the queue.
    Queued,
    /// Ask again, for this reason.
    Again(String),
}

/// Returns the meaning of a result for a call with this operation.
pub(crate) fn verdict(op: &Op, result: &OpResult) -> Verdict {
    Verdict::Done(match result {
        OpResult::Queued(_) => return Verdict::Queued,
        OpResult::Error(error) => return of_error(op, error),
        OpResult::Lock(response) => locked(op, response),
        OpResult::Unlock(response) => Outcome::Released { revision: revision(response.revision) },
        OpResult::LeaseKeepAlive(response) if response.ttl_ms == 0 => Outcome::LeaseNotFound,
        OpResult::LeaseKeepAlive(response) => Outcome::Renewed { ttl_ms: ms(response.ttl_ms) },
        OpResult::LeaseGrant(response) => Outcome::LeaseGranted {
            lease: lease(response.id),
            incarnation: revision(response.incarnation),
            ttl_ms: ms(response.ttl_ms),
            renewed: response.renewed,
        },
        OpResult::LeaseRevoke(_) => Outcome::LeaseRevoked,
        OpResult::CancelWait(response) => cancelled(response),
        OpResult::GetLock(response) => {
            let lock = response.lock.as_ref().expect("a lock is told");
            assert_eq!(lock.holder_count, lock.holders.len() as u64, "no test has that many holders");
            let revision = revision(response.header.as_ref().expect("a header is told").revision);
            Outcome::Lock { revision, holders: lock.holders.iter().map(holder).collect() }
        }
        OpResult::Put(response) => Outcome::Written { revision: revision(response.revision) },
        OpResult::Get(response) => {
            let at = revision(response.header.as_ref().expect("a header is told").revision);
            let found = response
                .register
                .as_ref()
                .map(|register| (Value::new(&register.value).unwrap(), revision(register.mod_revision)));
            Outcome::Register { revision: at, found }
        }
        other => panic!("no client of this test asks for what is answered so: {other:?}"),
    })
}

fn locked(op: &Op, response: &v1::LockResponse) -> Outcome {
    let token = Token::new(response.fencing_token).ok();
    if response.acquired {
        // The create revision of an upgrade is not that of the claim.
        let told = matches!(op, Op::Lock { .. }).then(|| revision(response.create_revision));
        let mode = mode(response.mode, response.permits, response.of);
        return Outcome::Granted { token: token.expect("a grant has a token"), create_revision: told, mode };
    }
    match response.end_reason() {
        v1::EndReason::Unspecified => {
            Outcome::Busy { holders: response.holders.iter().map(holder).collect() }
        }
        reason => Outcome::Ended { token, reason: end_reason(reason) },
    }
}

fn cancelled(response: &v1::CancelWaitResponse) -> Outcome {
    let token = Token::new(response.fencing_token).ok();
    match response.outcome() {
        v1::CancelOutcome::Cancelled => Outcome::Cancelled,
        v1::CancelOutcome::Released => Outcome::Released { revision: revision(response.revision) },
        v1::CancelOutcome::Granted => Outcome::Granted {
            token: token.expect("a grant has a token"),
            create_revision: Some(revision(response.revision)),
            mode: mode(response.mode, response.permits, response.of),
        },
        v1::CancelOutcome::Finished if response.end_reason() == v1::EndReason::Unspecified => {
            Outcome::Busy { holders: Vec::new() }
        }
        v1::CancelOutcome::Finished => Outcome::Ended { token, reason: end_reason(response.end_reason()) },
        v1::CancelOutcome::Unspecified | v1::CancelOutcome::Left => {
            panic!("a cancel without a condition found something: {response:?}")
        }
    }
}

fn of_error(op: &Op, error: &v1::Error) -> Verdict {
    use ErrorReason as R;
    let again = || Verdict::Again(format!("{:?}: {}", error.reason(), error.message));
    match error.reason() {
        R::SeqAcked => return Verdict::Unknown,
        R::StaleToken if error.fencing_token != 0 => {
            return Verdict::Done(Outcome::StaleToken { held: Token::new(error.fencing_token).unwrap() });
        }
        // The request was not accepted, so an earlier attempt may still take effect.
        R::LimitExceeded if error.limit.contains("in_flight") => return again(),
        _ => {}
    }
    match error.cause() {
        R::NotLeader
        | R::NoLeader
        | R::Indeterminate
        | R::Overloaded
        | R::DiskFull
        | R::ShuttingDown
        | R::StubPending
        | R::TimedOut
        | R::Cancelled
        // From a node that is no member of the group, or not yet: it knows nothing of earlier attempts.
        | R::NoSuchGroup
        | R::WrongGroup
        | R::NotHome => again(),
        // The lease that would know whether an earlier attempt wrote it is gone.
        R::LeaseNotFound if matches!(op, Op::PutRegister { .. }) => Verdict::Unknown,
        R::LeaseNotFound => Verdict::Done(Outcome::LeaseNotFound),
        R::Deadlock => Verdict::Done(Outcome::Deadlock),
        R::NotHeld => Verdict::Done(Outcome::NotHeld),
        R::NotWaiting => Verdict::Done(Outcome::NotWaiting),
        // The answer to a repeat does not name the token that is in the way.
        R::StaleToken => Verdict::Unknown,
        R::Internal | R::Unspecified | R::BadField => panic!("{op:?} was answered {error:?}"),
        _ => Verdict::Done(Outcome::Refused),
    }
}

fn holder(holder: &v1::Holder) -> Holder {
    Holder {
        lease: lease(holder.lease_id),
        owner: Owner::new(&holder.owner).unwrap(),
        token: Token::new(holder.fencing_token).unwrap(),
        mode: mode(holder.mode, holder.permits, holder.of),
    }
}

pub(crate) fn mode(mode: i32, permits: u32, of: u32) -> Mode {
    read_mode(mode, permits, of).unwrap()
}

pub(crate) fn revision(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

pub(crate) fn lease(number: u64) -> LeaseId {
    LeaseId::new(number).unwrap()
}

fn ms(number: i64) -> u64 {
    u64::try_from(number).unwrap()
}

pub(crate) fn end_reason(reason: v1::EndReason) -> EndReason {
    match reason {
        v1::EndReason::Unspecified => panic!("what has ended says why"),
        v1::EndReason::Released => EndReason::Released,
        v1::EndReason::LeaseExpired => EndReason::LeaseExpired,
        v1::EndReason::LeaseRevoked => EndReason::LeaseRevoked,
        v1::EndReason::Disconnected => EndReason::Disconnected,
        v1::EndReason::Forced => EndReason::Forced,
        v1::EndReason::MaxHold => EndReason::MaxHold,
        v1::EndReason::TimedOut => EndReason::TimedOut,
        v1::EndReason::Cancelled => EndReason::Cancelled,
        v1::EndReason::Deadlock => EndReason::Deadlock,
    }
}
