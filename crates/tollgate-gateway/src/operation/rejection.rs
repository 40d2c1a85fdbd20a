//! Wire errors for refusals by the state machine.
//!
//! A rejection is definite: the request has not happened, and the same request would be refused again until something
//! changes. Not here: the rejections that some kinds of operations treat as an answer (`lock_answer`).

use tollgate_core::{CycleStep, Rejection, RejectionCode};
use tollgate_proto::BadField;
use tollgate_proto::convert::{self, ModeFields, write_mode, write_token};
use tollgate_proto::v1::{DeadlockStep, Error, ErrorReason};
use tollgate_types::{GroupId, Limit};

/// Roughly the time that a group takes to hear from another.
const STUB_RETRY_MS: i64 = 50;
/// The time until other clients make room can't be known.
const ROOM_RETRY_MS: i64 = 1_000;

/// Returns the error for a rejection by `group`, with all details that the wire has a field for.
pub fn error_of_rejection(rejection: &Rejection, group: GroupId) -> Error {
    let mut error = match rejection {
        Rejection::RejectedBefore { code, .. } => {
            Error::rejected_before(reason_of(*code), rejection.to_string())
        }
        _ => Error::new(reason_of(rejection.code()), format!("{rejection}{}", what_next(rejection))),
    };
    error.group_id = group.number();
    add_details(&mut error, rejection);
    error
}

/// Returns the error for a release of a lock that is not held, which is harmless if it repeats a release.
pub(super) fn nothing_was_held(rejection: &Rejection, group: GroupId) -> Error {
    let message = format!(
        "{rejection}; nothing was held, so nothing was released: if this repeats a release all is well, else stop \
         what the lock protects"
    );
    Error { message, ..error_of_rejection(rejection, group) }
}

/// Returns the error reason for a rejection code.
const fn reason_of(code: RejectionCode) -> ErrorReason {
    match code {
        RejectionCode::LeaseNotFound => ErrorReason::LeaseNotFound,
        RejectionCode::LeaseTaken => ErrorReason::LeaseTaken,
        RejectionCode::TtlOutOfRange => ErrorReason::TtlOutOfRange,
        RejectionCode::NotHeld => ErrorReason::NotHeld,
        RejectionCode::StaleToken => ErrorReason::StaleToken,
        RejectionCode::NotWaiting => ErrorReason::NotWaiting,
        RejectionCode::OtherKind => ErrorReason::OtherKind,
        RejectionCode::PermitsFixed => ErrorReason::PermitsFixed,
        RejectionCode::AlreadyWaiting => ErrorReason::AlreadyWaiting,
        RejectionCode::Overlap => ErrorReason::Overlap,
        RejectionCode::Deadlock => ErrorReason::Deadlock,
        RejectionCode::LimitExceeded => ErrorReason::LimitExceeded,
        RejectionCode::SeqAcked => ErrorReason::SeqAcked,
        RejectionCode::KeyTwice => ErrorReason::KeyTwice,
        RejectionCode::InvalidLimits => ErrorReason::InvalidLimits,
        RejectionCode::ApplyVersionNotRaised => ErrorReason::ApplyVersionNotRaised,
        RejectionCode::StubPending => ErrorReason::StubPending,
        RejectionCode::NotHome => ErrorReason::NotHome,
        RejectionCode::HomeHere => ErrorReason::HomeHere,
        RejectionCode::OtherIncarnation => ErrorReason::OtherIncarnation,
        RejectionCode::StubNotFound => ErrorReason::StubNotFound,
        RejectionCode::TooManyGroups => ErrorReason::TooManyGroups,
        RejectionCode::WrongGroup => ErrorReason::WrongGroup,
        RejectionCode::SeqReused => ErrorReason::BadField,
    }
}

/// Returns the end of the error message, where the rejection's own text does not say what to do.
const fn what_next(rejection: &Rejection) -> &'static str {
    match rejection {
        Rejection::NotHeld { .. } => "; stop what it protects, and lock it again if you still need it",
        Rejection::StaleToken { .. } => "; nothing was freed: whoever has the old token must stop",
        Rejection::NotWaiting { .. } => ": it was granted, has ended or never queued; read the lock to know",
        Rejection::Deadlock { .. } => "; release what you hold, and start again",
        Rejection::LimitExceeded { limit: Limit::OpsInFlightPerLease | Limit::WaitsPerLease, .. } => {
            "; acknowledge the answers that you have (request.acked), and try again"
        }
        Rejection::LimitExceeded { limit, .. } if counts_records(*limit) => {
            "; give some back and try again, or have an operator raise the limit"
        }
        Rejection::LimitExceeded { .. } => "; ask for less, or have an operator raise the limit",
        Rejection::SeqAcked { .. } => "; send what is still to be done with a new seq",
        Rejection::ApplyVersionNotRaised { .. } => "; there is nothing to do",
        Rejection::HomeHere { .. } => "; use it as it is",
        Rejection::StubNotFound { .. } => "; begin again by adding one",
        _ => "",
    }
}

/// Returns true for a limit on existing records, whose number others can reduce, and false for a limit on the request
/// itself.
const fn counts_records(limit: Limit) -> bool {
    matches!(
        limit,
        Limit::Locks
            | Limit::Leases
            | Limit::ClaimsPerLease
            | Limit::HoldersPerLock
            | Limit::WaitersPerLock
            | Limit::OpsInFlightPerLease
            | Limit::WaitsPerLease
            | Limit::ClaimValues
            | Limit::Registers
    )
}

/// Returns true if a request, or its answer, was refused because it is larger than a limit; repeating it can't help.
/// False where others may make room, and for a repeat, whose error has the code but not the limit.
pub fn is_too_large(error: &Error) -> bool {
    let counts = |limit: &Limit| limit.name() == error.limit && counts_records(*limit);
    error.reason() == ErrorReason::LimitExceeded && !Limit::ALL.iter().any(counts)
}

fn add_details(error: &mut Error, rejection: &Rejection) {
    match rejection {
        Rejection::NotHeld { name }
        | Rejection::NotWaiting { name }
        | Rejection::OtherKind { name, .. }
        | Rejection::PermitsFixed { name, .. }
        | Rejection::AlreadyWaiting { name }
        | Rejection::Overlap { name } => error.name = name.to_string(),
        Rejection::StaleToken { name, held, .. } => {
            error.name = name.to_string();
            error.fencing_token = held.get();
        }
        Rejection::KeyTwice { key } => error.name = key.to_string(),
        Rejection::Deadlock { cycle } => error.cycle = cycle.iter().map(step).collect(),
        Rejection::LimitExceeded { limit, max, .. } => {
            limit.name().clone_into(&mut error.limit);
            error.limit_value = *max;
            error.retry_after_ms = if counts_records(*limit) { ROOM_RETRY_MS } else { 0 };
        }
        Rejection::StubPending { .. } => error.retry_after_ms = STUB_RETRY_MS,
        Rejection::NotHome { home, .. } => error.group_id = home.number(),
        Rejection::SeqReused { .. } => "request.seq".clone_into(&mut error.field),
        Rejection::WrongGroup { epoch, group } => {
            error.group_id = group.number();
            error.map_epoch = *epoch;
        }
        Rejection::LeaseNotFound { .. }
        | Rejection::LeaseTaken { .. }
        | Rejection::TtlOutOfRange { .. }
        | Rejection::SeqAcked { .. }
        | Rejection::RejectedBefore { .. }
        | Rejection::InvalidLimits(_)
        | Rejection::ApplyVersionNotRaised { .. }
        | Rejection::HomeHere { .. }
        | Rejection::OtherIncarnation { .. }
        | Rejection::StubNotFound { .. }
        | Rejection::TooManyGroups { .. } => {}
    }
}

/// Reads back one step of a circle that another node has found.
pub fn read_step(step: &DeadlockStep) -> Result<CycleStep, BadField> {
    Ok(CycleStep {
        waiter: (
            convert::read_lease_id("cycle.lease_id", step.lease_id)?,
            convert::read_owner("cycle.owner", &step.owner)?,
        ),
        wants: convert::read_name("cycle.name", &step.name)?,
        mode: convert::read_mode(step.mode, step.permits, step.of)?,
        blocker: (
            convert::read_lease_id("cycle.blocker_lease_id", step.blocker_lease_id)?,
            convert::read_owner("cycle.blocker_owner", &step.blocker_owner)?,
        ),
        blocker_token: convert::read_token_or_none(
            "cycle.blocker_fencing_token",
            step.blocker_fencing_token,
        )?,
    })
}

fn step(step: &CycleStep) -> DeadlockStep {
    let ModeFields { mode, permits, of } = write_mode(step.mode);
    DeadlockStep {
        lease_id: step.waiter.0.get(),
        owner: step.waiter.1.to_string(),
        name: step.wants.to_string(),
        mode: mode.into(),
        permits,
        of,
        blocker_lease_id: step.blocker.0.get(),
        blocker_owner: step.blocker.1.to_string(),
        blocker_fencing_token: write_token(step.blocker_token),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::Kind;
    use tollgate_types::{DurationMs, Invalid, Key, LeaseId, Mode, Name, Owner, Revision, Seq, Token};

    fn name() -> Name {
        Name::new("jobs").unwrap()
    }

    fn lease() -> LeaseId {
        LeaseId::new(7).unwrap()
    }

    /// Returns one rejection of each kind.
    fn all() -> Vec<Rejection> {
        let (name, lease) = (name(), lease());
        let (ttl, seq, home) = (DurationMs::from_ms(5), Seq::new(9).unwrap(), GroupId::new(6));
        let token = |number| Token::new(number).unwrap();
        let step = CycleStep {
            waiter: (lease, Owner::new("a").unwrap()),
            wants: name.clone(),
            mode: Mode::permit(2, 3).unwrap(),
            blocker: (lease, Owner::new("b").unwrap()),
            blocker_token: Some(token(4)),
        };
        vec![
            Rejection::LeaseNotFound { lease },
            Rejection::LeaseTaken { lease },
            Rejection::TtlOutOfRange { asked: ttl, min: ttl, max: ttl },
            Rejection::NotHeld { name: name.clone() },
            Rejection::StaleToken { name: name.clone(), given: token(3), held: token(8) },
            Rejection::NotWaiting { name: name.clone() },
            Rejection::OtherKind { name: name.clone(), in_use: Kind::Modes },
            Rejection::PermitsFixed { name: name.clone(), held: Mode::permit(1, 2).unwrap() },
            Rejection::AlreadyWaiting { name: name.clone() },
            Rejection::Overlap { name },
            Rejection::Deadlock { cycle: vec![step] },
            Rejection::LimitExceeded { limit: Limit::WaitersPerLock, max: 2, got: 3 },
            Rejection::SeqAcked { seq },
            Rejection::RejectedBefore { seq, code: RejectionCode::Deadlock },
            Rejection::KeyTwice { key: Key::new("k").unwrap() },
            Rejection::InvalidLimits(Invalid::Empty { what: "limits" }),
            Rejection::ApplyVersionNotRaised { current: 1, asked: 1 },
            Rejection::StubPending { lease, home },
            Rejection::NotHome { lease, home },
            Rejection::HomeHere { lease },
            Rejection::OtherIncarnation { lease, stands: Revision::ZERO },
            Rejection::StubNotFound { lease },
            Rejection::TooManyGroups { lease, max: 2 },
            Rejection::WrongGroup { epoch: 3, group: home },
            Rejection::SeqReused { seq },
        ]
    }

    fn error(rejection: &Rejection) -> Error {
        error_of_rejection(rejection, GroupId::new(1))
    }

    #[test]
    fn every_rejection_is_definite_and_says_what_to_do() {
        let mut reasons = Vec::new();
        for rejection in all() {
            let error = error(&rejection);
            assert!(!error.may_have_happened, "{error:?}");
            assert!(error.message.contains([':', ';']), "{}", error.message);
            assert!(!reasons.contains(&error.reason), "{error:?}");
            reasons.push(error.reason);
        }
        assert_eq!(reasons.len(), 25);
    }

    #[test]
    fn details_are_in_their_fields() {
        let all = all();
        let of = |reason| all.iter().map(error).find(|error| error.reason() == reason).unwrap();
        let stale = of(ErrorReason::StaleToken);
        assert_eq!((stale.name.as_str(), stale.fencing_token, stale.group_id), ("jobs", 8, 1));
        let limit = of(ErrorReason::LimitExceeded);
        assert_eq!((limit.limit.as_str(), limit.limit_value), ("waiters_per_lock_max", 2));
        assert!(limit.retry_after_ms > 0);
        assert_eq!(of(ErrorReason::NotHome).group_id, 6);
        let elsewhere = of(ErrorReason::WrongGroup);
        assert_eq!((elsewhere.group_id, elsewhere.map_epoch), (6, 3));
        assert!(of(ErrorReason::StubPending).retry_after_ms > 0);
        assert_eq!(of(ErrorReason::KeyTwice).name, "k");
        assert_eq!(of(ErrorReason::BadField).field, "request.seq");
        let before = of(ErrorReason::RejectedBefore);
        assert_eq!((before.cause(), before.code), (ErrorReason::Deadlock, 10));
        for reason in [ErrorReason::NotHeld, ErrorReason::NotWaiting, ErrorReason::Overlap] {
            assert_eq!(of(reason).name, "jobs");
        }
    }

    #[test]
    fn a_deadlock_tells_its_cycle() {
        let all = all();
        let deadlock = all.iter().map(error).find(|error| error.reason() == ErrorReason::Deadlock).unwrap();
        let [step] = deadlock.cycle.as_slice() else { panic!("one step: {deadlock:?}") };
        assert!(all.contains(&Rejection::Deadlock { cycle: vec![read_step(step).unwrap()] }), "and back");
        assert_eq!((step.owner.as_str(), step.name.as_str(), step.permits, step.of), ("a", "jobs", 2, 3));
        assert_eq!((step.blocker_owner.as_str(), step.blocker_fencing_token), ("b", 4));
    }

    #[test]
    fn a_limit_on_the_request_itself_is_not_waited_for() {
        let too_long = Rejection::LimitExceeded { limit: Limit::NameBytes, max: 16, got: 17 };
        assert_eq!(error(&too_long).retry_after_ms, 0);
        let unacked = Rejection::LimitExceeded { limit: Limit::OpsInFlightPerLease, max: 1, got: 2 };
        assert!(error(&unacked).message.contains("acknowledge"));
    }
}
