//! Meaning of an answer for its call: done, or ask again.
//!
//! Invariant: an outcome is given only where the answer settles the matter. Not here: when the call is sent again
//! (`call`).

use crate::front::{Answer, seen_holder};
use tollgate_check::{EndReason, Op, Outcome};
use tollgate_core::{Rejection, RejectionCode, Reply, WaitOutcome};
use tollgate_replica::ProposeError;
use tollgate_types::NodeId;

/// Meaning of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The call is over, with this outcome.
    Done(Outcome),
    /// The call is over, and the answer does not tell its outcome: an earlier attempt may have had the effect.
    Unknown,
    /// The call waits in the queue.
    Queued,
    /// Ask again, preferably this node.
    AskLeader(Option<NodeId>),
    /// The call may still take effect. Ask again.
    Indeterminate,
    /// Ask again later.
    AskLater,
    /// The lease's home has not confirmed the stub. Ask again.
    StubPending,
    /// The answer says nothing about the call, for example because it is to a stray copy.
    Ignore,
}

/// Returns the meaning of the answer to a call with this operation; `op` is none for a call that the history does not
/// know.
pub(super) fn verdict(op: Option<&Op>, answer: &Answer) -> Verdict {
    match answer {
        Answer::Reply(reply) | Answer::Busy(reply) => of_reply(op, reply),
        Answer::Queued { .. } => Verdict::Queued,
        Answer::Resolved { create_revision, outcome } => match *outcome {
            WaitOutcome::Granted { token, mode } => {
                // The create revision of an upgrade is not that of the claim.
                let create_revision = matches!(op, Some(Op::Lock { .. })).then_some(*create_revision);
                Verdict::Done(Outcome::Granted { token, create_revision, mode })
            }
            WaitOutcome::Ended(reason) => {
                Verdict::Done(Outcome::Ended { token: None, reason: end_reason(reason) })
            }
        },
        Answer::Renewed(renewed) => Verdict::Done(match renewed.result {
            Some((ttl, _)) => Outcome::Renewed { ttl_ms: ttl.ms() },
            None => Outcome::LeaseNotFound,
        }),
        Answer::NotDone(error) => of_error(error),
        Answer::NotRead(_) => Verdict::AskLater,
        Answer::Lock { revision, holders } => {
            Verdict::Done(Outcome::Lock { revision: *revision, holders: holders.clone() })
        }
        Answer::Register { revision, found } => {
            Verdict::Done(Outcome::Register { revision: *revision, found: found.clone() })
        }
        Answer::Events { .. } | Answer::Compacted { .. } | Answer::Left => Verdict::Ignore,
    }
}

fn of_error(error: &ProposeError) -> Verdict {
    match error {
        ProposeError::NotLeader { leader, .. } => Verdict::AskLeader(*leader),
        ProposeError::Indeterminate { .. } | ProposeError::NoRoomMidway { .. } => Verdict::Indeterminate,
        ProposeError::Overloaded { .. }
        | ProposeError::DiskFull
        | ProposeError::NoRoom { .. }
        | ProposeError::NoSuchGroup { .. } => Verdict::AskLater,
        ProposeError::Refused(_) | ProposeError::VersionUnsupported { .. } | ProposeError::TooLong { .. } => {
            unreachable!("clients change neither members nor versions, and ask for little: {error}")
        }
    }
}

fn of_reply(op: Option<&Op>, reply: &Reply) -> Verdict {
    Verdict::Done(match reply {
        Reply::LeaseGranted { lease, ttl, incarnation, renewed, .. } => Outcome::LeaseGranted {
            lease: *lease,
            incarnation: *incarnation,
            ttl_ms: ttl.ms(),
            renewed: *renewed,
        },
        Reply::LeaseRevoked => Outcome::LeaseRevoked,
        Reply::Acquired { token, create_revision, mode } => {
            Outcome::Granted { token: *token, create_revision: Some(*create_revision), mode: *mode }
        }
        Reply::Busy { holders, .. } => {
            Outcome::Busy { holders: holders.iter().cloned().map(seen_holder).collect() }
        }
        Reply::Released { revision } => Outcome::Released { revision: *revision },
        Reply::Cancelled => Outcome::Cancelled,
        Reply::Ended { token, reason } => Outcome::Ended { token: *token, reason: end_reason(*reason) },
        Reply::TxnDone { revision, .. } => Outcome::Written { revision: *revision },
        Reply::Rejected(rejection) => return of_rejection(op, rejection),
        // Calls that the history does not know: stubs, and values of holders.
        Reply::Stub(_) | Reply::Proclaimed { .. } | Reply::Done => return Verdict::Unknown,
        Reply::Queued { .. } | Reply::LeasesRenewed(_) | Reply::StubRegistered | Reply::LeaseUnknown => {
            unreachable!("no node answers a client so: {reply:?}")
        }
    })
}

fn of_rejection(op: Option<&Op>, rejection: &Rejection) -> Verdict {
    // A release by token has no seq: a second attempt that finds the lock free says nothing about the first.
    if matches!(op, Some(Op::ForceRelease { .. })) {
        return Verdict::Unknown;
    }
    match rejection {
        // A cancel that comes after the answer to its target was acknowledged: the target is over.
        Rejection::SeqAcked { .. } if matches!(op, Some(Op::Cancel { .. })) => return Verdict::Unknown,
        Rejection::SeqAcked { .. } => return Verdict::Ignore,
        Rejection::StubPending { .. } => return Verdict::StubPending,
        // A request under the other lease's stub would end with that lease.
        Rejection::OtherIncarnation { .. } => return Verdict::AskLater,
        Rejection::StaleToken { held, .. } => return Verdict::Done(Outcome::StaleToken { held: *held }),
        _ => {}
    }
    match rejection.code() {
        // The lease that would know whether an earlier attempt wrote the register is gone.
        RejectionCode::LeaseNotFound if matches!(op, Some(Op::PutRegister { .. })) => Verdict::Unknown,
        RejectionCode::LeaseNotFound => Verdict::Done(Outcome::LeaseNotFound),
        RejectionCode::Deadlock => Verdict::Done(Outcome::Deadlock),
        RejectionCode::NotHeld => Verdict::Done(Outcome::NotHeld),
        RejectionCode::NotWaiting => Verdict::Done(Outcome::NotWaiting),
        // A repeat does not tell which token stands in the way.
        RejectionCode::StaleToken => Verdict::Unknown,
        _ => Verdict::Done(Outcome::Refused),
    }
}

/// Converts a reason to the form of the history.
pub(super) fn end_reason(reason: tollgate_core::EndReason) -> EndReason {
    match reason {
        tollgate_core::EndReason::Released => EndReason::Released,
        tollgate_core::EndReason::LeaseExpired => EndReason::LeaseExpired,
        tollgate_core::EndReason::LeaseRevoked => EndReason::LeaseRevoked,
        tollgate_core::EndReason::Disconnected => EndReason::Disconnected,
        tollgate_core::EndReason::Forced => EndReason::Forced,
        tollgate_core::EndReason::MaxHold => EndReason::MaxHold,
        tollgate_core::EndReason::TimedOut => EndReason::TimedOut,
        tollgate_core::EndReason::Cancelled => EndReason::Cancelled,
        tollgate_core::EndReason::Deadlock => EndReason::Deadlock,
    }
}
