//! Errors of operations, and whether a failed operation may have happened all the same.
//!
//! One type for everything that can go wrong between a client and its cluster. Invariant: an error that says that the
//! operation has not happened is right for ever; an error that can't know says so. Not here: locks that are busy
//! (`acquire_error`) or lost (`lost`).

use std::fmt;
use tollgate_proto::v1;
use tonic::{Code, Status};

/// Kind of a failure, on which programs base decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No endpoint could be reached, or none of them found a leader in time.
    Unreachable,
    /// No answer within the time limit of the call.
    TimedOut,
    /// The request is invalid and must be changed; [`Error::field`] names the field.
    Invalid,
    /// The subject of the request does not exist: a lease that has ended, a group that is not served.
    NotFound,
    /// The state does not match the request: a stale token, a lock that is not held, an id that is taken.
    Conflict,
    /// Refused because the wait would never end.
    Deadlock,
    /// A limit of the cluster was reached.
    Limit,
    /// The caller may not do this, or did not prove its identity.
    Denied,
    /// This version of the server can't do it.
    Unsupported,
    /// The lease was lost, and with it the operations in progress.
    Lost,
    /// A watch requested history that is compacted.
    Compacted,
    /// A bug on one of the two sides.
    Internal,
}

impl ErrorKind {
    fn of(wire: &v1::Error) -> ErrorKind {
        use v1::ErrorReason as R;
        match wire.cause() {
            R::Deadlock => ErrorKind::Deadlock,
            R::Compacted => ErrorKind::Compacted,
            R::NotLeader | R::NoLeader | R::ShuttingDown | R::WrongGroup => ErrorKind::Unreachable,
            R::Indeterminate => ErrorKind::TimedOut,
            // The code NotFound describes the release; for a program that holds a guard, the reason means a lost lock.
            R::NotHeld => ErrorKind::Conflict,
            // A field that is larger than any limit allows is as invalid as a field of the wrong form.
            R::LimitExceeded if !wire.field.is_empty() => ErrorKind::Invalid,
            _ => ErrorKind::of_code(Code::from(wire.code)),
        }
    }

    fn of_code(code: Code) -> ErrorKind {
        match code {
            Code::Unavailable => ErrorKind::Unreachable,
            Code::DeadlineExceeded | Code::Cancelled => ErrorKind::TimedOut,
            Code::InvalidArgument | Code::OutOfRange => ErrorKind::Invalid,
            Code::NotFound => ErrorKind::NotFound,
            Code::FailedPrecondition | Code::AlreadyExists | Code::Aborted => ErrorKind::Conflict,
            Code::ResourceExhausted => ErrorKind::Limit,
            Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Denied,
            Code::Unimplemented => ErrorKind::Unsupported,
            Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => ErrorKind::Internal,
        }
    }
}

/// Error of an operation.
///
/// ```
/// # use tollgate_client::{Error, ErrorKind};
/// fn advice(error: &Error) -> &'static str {
///     match error.kind() {
///         ErrorKind::Unreachable => "is the cluster up?",
///         _ if error.may_have_happened() => "look before you do it again",
///         _ => "it did not happen",
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    may_have_happened: bool,
    /// Error sent by the cluster, if the cluster refused the operation.
    wire: Option<v1::Error>,
}

impl Error {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Returns a text for people: what happened and what to do next.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// True if the operation may have taken effect, or still may. False means that it has not taken effect and never
    /// will.
    pub fn may_have_happened(&self) -> bool {
        self.inner.may_have_happened
    }

    /// Returns the reason that the cluster gave, as its API spells it, for example `STALE_TOKEN`. None if the failure
    /// was found by the client.
    pub fn reason(&self) -> Option<&'static str> {
        let name = self.inner.wire.as_ref()?.cause().as_str_name();
        Some(name.strip_prefix("ERROR_REASON_").unwrap_or(name))
    }

    /// Returns the name of the invalid field of the request, if there is one.
    pub fn field(&self) -> Option<&str> {
        let field = self.inner.wire.as_ref()?.field.as_str();
        (!field.is_empty()).then_some(field)
    }

    /// Returns the oldest revision that can still be read, for an error of kind [`ErrorKind::Compacted`].
    pub fn compact_revision(&self) -> Option<u64> {
        self.inner.wire.as_ref().map(|wire| wire.compact_revision).filter(|revision| *revision > 0)
    }

    /// Returns the error that the cluster sent.
    pub(crate) fn wire(&self) -> Option<&v1::Error> {
        self.inner.wire.as_ref()
    }

    /// Returns the cluster's reason for the error, if it has one.
    pub(crate) fn cause(&self) -> Option<v1::ErrorReason> {
        self.inner.wire.as_ref().map(v1::Error::cause)
    }

    /// Creates an error for a failure found by the client.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>, may_have_happened: bool) -> Error {
        Error { inner: Box::new(Inner { kind, message: message.into(), may_have_happened, wire: None }) }
    }

    /// Creates an error for an argument that no cluster would accept.
    pub(crate) fn invalid(field: &'static str, says: impl fmt::Display) -> Error {
        Error::from(v1::Error::from(tollgate_proto::BadField::new(field, says.to_string())))
    }

    /// Creates an error for an answer that does not fit the request.
    pub(crate) fn unexpected(asked: &str) -> Error {
        let says = format!("the answer to {asked} is of another kind: client and server don't fit together");
        Error::new(ErrorKind::Internal, says, true)
    }

    /// Adds the possibility that an earlier attempt of the operation may have happened.
    #[must_use]
    pub(crate) fn unsure(mut self, unsure: bool) -> Error {
        self.inner.may_have_happened |= unsure;
        self
    }

    /// Converts the status of a failed unary call.
    pub(crate) fn of_status(status: &Status) -> Error {
        if let Some(wire) = tollgate_proto::error_of_status(status) {
            return Error::from(wire);
        }
        let kind = ErrorKind::of_code(status.code());
        // Only an error sent by a server itself is known to have had no effect.
        Error::new(kind, status.message(), true)
    }
}

impl From<v1::Error> for Error {
    fn from(wire: v1::Error) -> Error {
        let kind = ErrorKind::of(&wire);
        let (message, may_have_happened) = (wire.message.clone(), wire.may_have_happened);
        Error { inner: Box::new(Inner { kind, message, may_have_happened, wire: Some(wire) }) }
    }
}

impl From<tollgate_proto::BadField> for Error {
    fn from(bad: tollgate_proto::BadField) -> Error {
        Error::from(v1::Error::from(bad))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)?;
        if self.inner.may_have_happened {
            f.write_str(" (it may have happened)")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.inner.kind)
            .field("reason", &self.reason())
            .field("message", &self.inner.message)
            .field("may_have_happened", &self.inner.may_have_happened)
            .finish()
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_the_cluster_said() {
        let mut wire = v1::Error::new(v1::ErrorReason::StaleToken, "the token is stale");
        wire.field = "fencing_token".into();
        let error = Error::from(wire);
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(error.reason(), Some("STALE_TOKEN"));
        assert_eq!(error.field(), Some("fencing_token"));
        assert!(!error.may_have_happened());
        assert_eq!(error.to_string(), "the token is stale");
    }

    #[test]
    fn a_field_that_no_limit_allows_is_wrong_and_a_limit_in_force_is_a_limit() {
        let in_force = v1::Error::limit_exceeded("locks_max", 7, "too many");
        assert_eq!(Error::from(in_force.clone()).kind(), ErrorKind::Limit);
        let field = v1::Error { field: "name".into(), ..in_force };
        assert_eq!(Error::from(field).kind(), ErrorKind::Invalid);
        let lost = v1::Error::new(v1::ErrorReason::NotHeld, "nothing was held");
        assert_eq!(Error::from(lost).kind(), ErrorKind::Conflict, "whatever its code");
    }

    #[test]
    fn a_repeat_of_a_refused_request_has_the_first_reason() {
        let error = Error::from(v1::Error::rejected_before(v1::ErrorReason::Deadlock, "as before"));
        assert_eq!((error.kind(), error.reason()), (ErrorKind::Deadlock, Some("DEADLOCK")));
    }

    #[test]
    fn what_a_proxy_says_may_have_happened() {
        let error = Error::of_status(&Status::unavailable("bad gateway"));
        assert_eq!((error.kind(), error.may_have_happened()), (ErrorKind::Unreachable, true));
        let ours = v1::Error::new(v1::ErrorReason::NotLeader, "ask another");
        assert!(!Error::of_status(&ours.into()).may_have_happened());
    }
}
