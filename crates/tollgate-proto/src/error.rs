//! The one table of reasons for errors: gRPC code, HTTP status, whether the request may have happened, and what may be
//! done with it.
//!
//! Whoever decides about a repeat asks the table: the client, gateways, nodes that pass requests on.
//! Not here: which rejection has which reason (the server, which sees both), and the conversion to a gRPC status
//! (`status`).

use crate::bad_field::BadField;
use crate::v1::{Error, ErrorReason};
use std::fmt;
use tonic::Code;

/// Upper bound, exclusive, for the number of a reason.
const NUMBERS_END: i32 = 128;

/// Advice to the caller of a request that failed: whether and how to send the same request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Don't send it unchanged: what is wrong must be changed first, or must change by itself. Then it is a new
    /// request, with a new seq.
    No,
    /// Send it to the group's leader, once there is one. Nothing has happened.
    AtLeader,
    /// Send it to the group that has its names or its lease, by the present group map. Nothing has happened.
    AtItsGroup,
    /// Send it to another node: this one has no replica of the group. Nothing has happened.
    AtAnotherNode,
    /// Send it after `retry_after_ms`, here or elsewhere. Nothing has happened, unless the error says that it may have.
    Later,
    /// Send it as it is, with its seq: the outcome is unknown. Without a seq a repeat could take effect twice.
    AsItIs,
    /// Decide anew: the time for the answer was over, or its caller had gone. The outcome is unknown.
    IfStillWanted,
}

/// Row of the table of reasons.
struct Row {
    code: Code,
    http_status: u16,
    may_have_happened: bool,
    retry: Retry,
}

impl Row {
    /// A failure that changed nothing.
    const fn nothing(code: Code, http_status: u16, retry: Retry) -> Row {
        Row { code, http_status, may_have_happened: false, retry }
    }

    /// A failure with an unknown outcome. Never `Unavailable`: that invites generic clients to a repeat without a seq,
    /// which could take effect twice.
    const fn unknown(code: Code, http_status: u16, retry: Retry) -> Row {
        Row { code, http_status, may_have_happened: true, retry }
    }
}

impl ErrorReason {
    /// The table.
    const fn row(self) -> Row {
        use ErrorReason as R;
        match self {
            R::NotLeader | R::NoLeader | R::ShuttingDown => {
                Row::nothing(Code::Unavailable, 503, Retry::AtLeader)
            }
            R::WrongGroup | R::NotHome => Row::nothing(Code::Unavailable, 503, Retry::AtItsGroup),
            R::StubPending => Row::nothing(Code::Unavailable, 503, Retry::Later),
            R::Overloaded | R::DiskFull => Row::nothing(Code::ResourceExhausted, 429, Retry::Later),
            // Not 404: a node without the group has not looked for the lease, and a client would take it for ended.
            R::NoSuchGroup => Row::nothing(Code::NotFound, 503, Retry::AtAnotherNode),
            R::LeaseNotFound | R::NotHeld => Row::nothing(Code::NotFound, 404, Retry::No),
            R::LeaseTaken => Row::nothing(Code::AlreadyExists, 409, Retry::No),
            R::Deadlock => Row::nothing(Code::Aborted, 409, Retry::No),
            R::LimitExceeded | R::TooManyGroups => Row::nothing(Code::ResourceExhausted, 429, Retry::No),
            R::TtlOutOfRange | R::KeyTwice | R::InvalidLimits | R::BadField => {
                Row::nothing(Code::InvalidArgument, 400, Retry::No)
            }
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
            | R::MemberRefused => Row::nothing(Code::FailedPrecondition, 400, Retry::No),
            R::Compacted => Row::nothing(Code::OutOfRange, 400, Retry::No),
            R::Unauthenticated => Row::nothing(Code::Unauthenticated, 401, Retry::No),
            R::Denied => Row::nothing(Code::PermissionDenied, 403, Retry::No),
            R::NotSupported => Row::nothing(Code::Unimplemented, 501, Retry::No),
            R::Indeterminate => Row::unknown(Code::Unknown, 500, Retry::AsItIs),
            R::TimedOut => Row::unknown(Code::DeadlineExceeded, 504, Retry::IfStillWanted),
            // Known from nginx: the client closed the request.
            R::Cancelled => Row::unknown(Code::Cancelled, 499, Retry::IfStillWanted),
            R::Unspecified => Row::unknown(Code::Unknown, 500, Retry::No),
            R::Internal => Row::unknown(Code::Internal, 500, Retry::No),
        }
    }

    /// Returns the gRPC code of the reason. A server that says `Unavailable` has done nothing, so generic clients may
    /// retry it. (A status without our details can have that code too: a connection that broke under a request.)
    pub const fn code(self) -> Code {
        self.row().code
    }

    /// Returns the HTTP status of the reason: the status of its code at grpc-gateway, but for [`Self::NoSuchGroup`].
    pub const fn http_status(self) -> u16 {
        self.row().http_status
    }

    /// Returns true if a request that failed for this reason may have taken effect, or still may.
    pub const fn may_have_happened(self) -> bool {
        self.row().may_have_happened
    }

    /// Returns what may be done with the same request. Repeats of requests that are refused for a limit on what is in
    /// progress are the client's decision: it knows whether its acknowledgements make room.
    pub const fn retry(self) -> Retry {
        self.row().retry
    }

    /// Returns every reason that this version knows, by number.
    pub fn all() -> impl Iterator<Item = ErrorReason> {
        (0..NUMBERS_END).filter_map(|number| ErrorReason::try_from(number).ok())
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

    /// Returns what may be done with the request: by the error's reason, and by what the error says of this request.
    pub fn retry(&self) -> Retry {
        match self.reason().retry() {
            Retry::AtLeader | Retry::AtItsGroup | Retry::AtAnotherNode if self.may_have_happened => {
                Retry::AsItIs
            }
            retry => retry,
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
    fn what_may_be_sent_again_freely_has_not_happened() {
        for reason in ErrorReason::all() {
            let unknown = matches!(reason.retry(), Retry::AsItIs | Retry::IfStillWanted);
            let known = !matches!(reason.retry(), Retry::No) && !unknown;
            assert!(!(known && reason.may_have_happened()), "{reason:?}");
            assert!(!unknown || reason.may_have_happened(), "{reason:?}");
        }
    }

    #[test]
    fn an_error_that_may_have_happened_is_repeated_as_it_is_wherever_it_may_be_sent() {
        for reason in [ErrorReason::NoLeader, ErrorReason::WrongGroup, ErrorReason::NoSuchGroup] {
            let unsure = Error { may_have_happened: true, ..Error::new(reason, "") };
            assert_eq!(unsure.retry(), Retry::AsItIs, "{reason:?}");
            assert_ne!(Error::new(reason, "").retry(), Retry::AsItIs, "{reason:?}");
        }
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
