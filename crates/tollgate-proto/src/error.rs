//! The one table that assigns a gRPC code to each reason for an error, for callers that know only gRPC.
//!
//! Not here: which rejection has which reason (the server, which sees both), and the conversion to a gRPC status
//! (`status`).

use crate::bad_field::BadField;
use crate::v1::{Error, ErrorReason};
use std::fmt;
use tonic::Code;

/// Upper bound, exclusive, for the number of a reason.
const NUMBERS_END: i32 = 128;

impl ErrorReason {
    /// Returns the gRPC code that goes with the reason. A server that answers `Unavailable` has done nothing, so
    /// generic clients may retry. (A status without our details can have that code too: a connection that broke under a
    /// request.)
    pub const fn code(self) -> Code {
        use ErrorReason as R;
        match self {
            R::LeaseNotFound | R::NotHeld | R::NoSuchGroup => Code::NotFound,
            R::LeaseTaken => Code::AlreadyExists,
            R::TtlOutOfRange | R::KeyTwice | R::InvalidLimits | R::BadField => Code::InvalidArgument,
            R::StaleToken
            | R::NotWaiting
            | R::OtherKind
            | R::PermitsFixed
            | R::AlreadyWaiting
            | R::Overlap
            | R::SeqAcked
            | R::RejectedBefore
            | R::ApplyVersionNotRaised
            | R::HomeHere
            | R::OtherIncarnation
            | R::StubNotFound
            | R::VersionUnsupported
            | R::MemberRefused => Code::FailedPrecondition,
            R::Deadlock => Code::Aborted,
            R::LimitExceeded | R::TooManyGroups | R::Overloaded | R::DiskFull => Code::ResourceExhausted,
            R::StubPending | R::NotHome | R::NotLeader | R::NoLeader | R::WrongGroup | R::ShuttingDown => {
                Code::Unavailable
            }
            // Not `Unavailable`: that invites a repeat without a seq, which could carry out the request twice.
            R::Unspecified | R::Indeterminate => Code::Unknown,
            R::NotSupported => Code::Unimplemented,
            R::TimedOut => Code::DeadlineExceeded,
            R::Cancelled => Code::Cancelled,
            R::Compacted => Code::OutOfRange,
            R::Unauthenticated => Code::Unauthenticated,
            R::Denied => Code::PermissionDenied,
            R::Internal => Code::Internal,
        }
    }

    /// Returns every reason that this version knows, by number.
    pub fn all() -> impl Iterator<Item = ErrorReason> {
        (0..NUMBERS_END).filter_map(|number| ErrorReason::try_from(number).ok())
    }

    /// True if a request that failed for this reason may have taken effect, or still may.
    pub const fn may_have_happened(self) -> bool {
        use ErrorReason as R;
        matches!(self, R::Unspecified | R::Indeterminate | R::TimedOut | R::Cancelled | R::Internal)
    }
}

impl Error {
    /// Creates an error with everything that follows from its reason. Further details are fields.
    pub fn new(reason: ErrorReason, message: impl Into<String>) -> Error {
        Error {
            code: reason.code() as i32,
            reason: reason.into(),
            message: message.into(),
            may_have_happened: reason.may_have_happened(),
            ..Error::default()
        }
    }

    /// Creates the error for a repeat of a request that was refused for `first`, with the code of the first answer.
    pub fn rejected_before(first: ErrorReason, message: impl Into<String>) -> Error {
        Error {
            code: first.code() as i32,
            first_reason: first.into(),
            ..Error::new(ErrorReason::RejectedBefore, message)
        }
    }

    /// Creates the error for a request that exceeds a limit.
    pub fn limit_exceeded(limit: &str, max: usize, message: impl Into<String>) -> Error {
        let (limit, limit_value) = (limit.to_owned(), max as u64);
        Error { limit, limit_value, ..Error::new(ErrorReason::LimitExceeded, message) }
    }

    /// Returns the reason to match on: the reason of this error, or of the first answer if this error answers a repeat.
    pub fn cause(&self) -> ErrorReason {
        match self.reason() {
            ErrorReason::RejectedBefore => self.first_reason(),
            reason => reason,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<BadField> for Error {
    fn from(bad: BadField) -> Error {
        let error = match bad.above {
            Some(limit) => Error::limit_exceeded(limit.name, limit.max, bad.to_string()),
            None => Error::new(ErrorReason::BadField, bad.to_string()),
        };
        Error { field: bad.field.to_owned(), ..error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reason_has_a_higher_number() {
        let known = (0..1_000).filter_map(|number| ErrorReason::try_from(number).ok());
        assert!(known.eq(ErrorReason::all()));
    }

    #[test]
    fn every_reason_but_none_has_a_failing_code() {
        assert!(ErrorReason::all().count() > 40);
        for reason in ErrorReason::all() {
            assert_ne!(reason.code(), Code::Ok, "{reason:?}");
        }
    }

    #[test]
    fn what_invites_a_blind_repeat_has_not_happened() {
        for reason in ErrorReason::all().filter(|reason| reason.code() == Code::Unavailable) {
            assert!(!reason.may_have_happened(), "{reason:?}");
        }
        assert!(ErrorReason::Indeterminate.may_have_happened());
    }

    #[test]
    fn a_field_that_is_too_large_names_the_limit_and_another_wrong_one_does_not() {
        let long = tollgate_types::Name::new("x".repeat(513)).unwrap_err();
        let error = Error::from(BadField::invalid("near")(long));
        assert_eq!(
            (error.reason(), Code::from(error.code)),
            (ErrorReason::LimitExceeded, Code::ResourceExhausted)
        );
        assert_eq!(
            (error.field.as_str(), error.limit.as_str(), error.limit_value),
            ("near", "name_bytes_max", 512)
        );
        let odd = tollgate_types::Name::new("a\nb").unwrap_err();
        let error = Error::from(BadField::invalid("near")(odd));
        assert_eq!((error.reason(), error.limit.as_str()), (ErrorReason::BadField, ""));
    }

    #[test]
    fn a_repeat_of_a_refused_request_has_the_first_answer_s_code_and_cause() {
        let error = Error::rejected_before(ErrorReason::Deadlock, "deadlock");
        assert_eq!(error.reason(), ErrorReason::RejectedBefore);
        assert_eq!(error.cause(), ErrorReason::Deadlock);
        assert_eq!(Code::from(error.code), Code::Aborted);
        assert_eq!(Error::new(ErrorReason::NotHeld, "").cause(), ErrorReason::NotHeld);
    }
}
