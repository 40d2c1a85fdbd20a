//! Answers to lock requests, in their wire form.
//!
//! A wait that ended without the lock is an answer. A wait whose lease ended is an error, because its caller has to
//! start over, and so is a wait that was ended to break a deadlock. Not here: refusals (`rejection`), which are handled
//! before.

use super::context::Replied;
use super::election::leader_of_holder;
use super::rejection::error_of_rejection;
use super::view::{Addresses, end_reason, holder};
use tollgate_core::{Closed, EndReason, HolderView, LeaseEnd, Rejection, Reply};
use tollgate_proto::claim_key;
use tollgate_proto::convert::{ModeFields, write_duration, write_mode, write_token};
use tollgate_proto::v1::{self, operation_result::Result as Wire};
use tollgate_types::{LeaseId, Mode, Name, Names, Owner, Revision, Seq, Token, Value};

/// Facts about a request that may wait.
#[derive(Debug, Clone)]
pub(super) struct RequestInfo {
    pub(super) names: Names,
    pub(super) lease: LeaseId,
    pub(super) owner: Owner,
    pub(super) seq: Option<Seq>,
    pub(super) waits: bool,
    pub(super) purpose: Purpose,
}

/// Kind of the response message.
#[derive(Debug, Clone)]
pub(super) enum Purpose {
    /// Response to a lock or try-lock; `several` is true if the request used `names`.
    Lock { several: bool },
    /// Response to a convert; `several` is true if the request used `names`.
    Convert { several: bool },
    /// Response to a campaign, with the candidate's value.
    Campaign { value: Value },
}

impl RequestInfo {
    pub(super) fn first_name(&self) -> &Name {
        &self.names.as_slice()[0]
    }

    pub(super) fn is_convert(&self) -> bool {
        matches!(self.purpose, Purpose::Convert { .. })
    }
}

/// Outcome of a lock request.
enum Outcome {
    Held {
        token: Token,
        create_revision: Revision,
        mode: Mode,
    },
    Busy(Vec<HolderView>, Option<Closed>),
    /// The wait ended, or the grant of a repeated request has ended since.
    Ended {
        token: Option<Token>,
        reason: EndReason,
    },
}

pub(super) fn locked(asked: &RequestInfo, mut replied: Replied<'_>) -> Wire {
    let outcome = match std::mem::replace(&mut replied.reply, Reply::Done) {
        Reply::Acquired { token, create_revision, mode } => Outcome::Held { token, create_revision, mode },
        Reply::Busy { holders, closed } => Outcome::Busy(holders, closed),
        Reply::Ended { reason, .. } if LeaseEnd::from_reason(reason).is_some() => {
            let rejection = Rejection::LeaseNotFound { lease: asked.lease };
            return Wire::Error(error_of_rejection(&rejection, replied.group));
        }
        // Answered as if it had been refused at once. The cycle is empty because the lock's group does not know who
        // blocked the wait.
        Reply::Ended { reason: EndReason::Deadlock, .. } => {
            let rejection = Rejection::Deadlock { cycle: Vec::new() };
            return Wire::Error(error_of_rejection(&rejection, replied.group));
        }
        Reply::Ended { token, reason } => Outcome::Ended { token, reason },
        _ => return replied.does_not_fit(),
    };
    match &asked.purpose {
        Purpose::Lock { several } | Purpose::Convert { several } => {
            Wire::Lock(lock_response(asked, *several, outcome, &replied))
        }
        Purpose::Campaign { value } => Wire::Campaign(campaign_response(asked, value, outcome, &replied)),
    }
}

fn lock_response(
    asked: &RequestInfo,
    several: bool,
    outcome: Outcome,
    replied: &Replied<'_>,
) -> v1::LockResponse {
    let mut response = v1::LockResponse {
        header: replied.head(),
        waited_ms: replied.waited_ms,
        create_revision: replied.queued.map_or(0, |(create_revision, _)| create_revision.get()),
        ..v1::LockResponse::default()
    };
    match outcome {
        Outcome::Held { token, create_revision, mode } => {
            let ModeFields { mode, permits, of } = write_mode(mode);
            response.acquired = true;
            response.key = claim_key(asked.first_name(), asked.lease, &asked.owner);
            response.fencing_token = token.get();
            (response.mode, response.permits, response.of) = (mode.into(), permits, of);
            response.create_revision = create_revision.get();
            if several {
                response.tokens = tokens(&asked.names, token, create_revision);
            }
        }
        Outcome::Busy(holders, closed) => {
            if let Some(Closed { left, restored }) = closed {
                (response.closed_ms, response.restored) = (write_duration(left), restored);
            }
            response.holders = holders.iter().map(|view| holder(view, None, &Addresses::new())).collect();
            response.position = replied.queued.map_or(0, |(_, position)| position);
        }
        Outcome::Ended { token, reason } => {
            response.fencing_token = write_token(token);
            response.end_reason = end_reason(reason).into();
            response.position = replied.queued.map_or(0, |(_, position)| position);
        }
    }
    response
}

fn tokens(names: &Names, token: Token, create_revision: Revision) -> Vec<v1::NamedToken> {
    let of = |name: &Name| v1::NamedToken {
        name: name.to_string(),
        fencing_token: token.get(),
        create_revision: create_revision.get(),
    };
    names.as_slice().iter().map(of).collect()
}

fn campaign_response(
    asked: &RequestInfo,
    value: &Value,
    outcome: Outcome,
    replied: &Replied<'_>,
) -> v1::CampaignResponse {
    let mut response = v1::CampaignResponse {
        header: replied.head(),
        waited_ms: replied.waited_ms,
        ..v1::CampaignResponse::default()
    };
    match outcome {
        Outcome::Held { token, create_revision, .. } => {
            response.elected = true;
            response.leader = Some(v1::Leader {
                name: asked.first_name().to_string(),
                lease_id: asked.lease.get(),
                owner: asked.owner.to_string(),
                fencing_token: token.get(),
                create_revision: create_revision.get(),
                value: value.as_bytes().to_vec(),
                value_revision: token.get(),
                client_id: String::new(),
            });
        }
        Outcome::Busy(holders, _) => {
            response.leader = holders.first().map(|view| leader_of_holder(asked.first_name(), view));
        }
        Outcome::Ended { reason, .. } => response.end_reason = end_reason(reason).into(),
    }
    response
}

pub(super) fn unlocked(replied: &Replied<'_>) -> Wire {
    match replied.reply {
        Reply::Released { revision } => {
            Wire::Unlock(v1::UnlockResponse { header: replied.head(), revision: revision.get() })
        }
        _ => replied.does_not_fit(),
    }
}

pub(super) fn resigned(replied: &Replied<'_>) -> Wire {
    let revision = match replied.reply {
        Reply::Released { revision } => revision,
        // The candidacy was withdrawn: the owner waited, and had not been elected.
        Reply::Cancelled => replied.revision,
        _ => return replied.does_not_fit(),
    };
    Wire::Resign(v1::ResignResponse { header: replied.head(), revision: revision.get() })
}

pub(super) fn proclaimed(replied: &Replied<'_>) -> Wire {
    match replied.reply {
        Reply::Proclaimed { revision } => {
            Wire::Proclaim(v1::ProclaimResponse { header: replied.head(), revision: revision.get() })
        }
        _ => replied.does_not_fit(),
    }
}

pub(super) fn force_released(replied: &Replied<'_>) -> Wire {
    match replied.reply {
        Reply::Released { revision } => {
            let header = replied.head();
            Wire::ForceRelease(v1::ForceReleaseResponse { header, revision: revision.get() })
        }
        _ => replied.does_not_fit(),
    }
}

pub(super) fn wait_cancelled(replied: &Replied<'_>) -> Wire {
    let mut response = v1::CancelWaitResponse { header: replied.head(), ..Default::default() };
    let outcome = match replied.reply {
        Reply::Cancelled => v1::CancelOutcome::Cancelled,
        Reply::Done => v1::CancelOutcome::Left,
        Reply::Released { revision } => {
            response.revision = revision.get();
            v1::CancelOutcome::Released
        }
        Reply::Acquired { token, create_revision, mode } => {
            let ModeFields { mode, permits, of } = write_mode(mode);
            response.fencing_token = token.get();
            (response.mode, response.permits, response.of) = (mode.into(), permits, of);
            response.revision = create_revision.get();
            v1::CancelOutcome::Granted
        }
        Reply::Ended { token, reason } => {
            response.fencing_token = write_token(token);
            response.end_reason = end_reason(reason).into();
            v1::CancelOutcome::Finished
        }
        // The request did not wait: it was busy, wrote something, or was refused.
        Reply::Busy { .. } | Reply::TxnDone { .. } | Reply::Proclaimed { .. } | Reply::Rejected(_) => {
            v1::CancelOutcome::Finished
        }
        _ => return replied.does_not_fit(),
    };
    response.outcome = outcome.into();
    Wire::CancelWait(response)
}
