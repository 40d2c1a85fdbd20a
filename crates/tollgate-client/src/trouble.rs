//! Decides whether a stream that broke should be opened again.

use crate::error::{Error, ErrorKind};
use tollgate_proto::v1::{self, ErrorReason};
use tonic::{Code, Status};

/// Classification of the trouble of a stream that can't go on.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Opening the stream again may help, possibly at another node.
    Passing,
    /// Trying again would give the same error.
    Lasting(Error),
}

impl Trouble {
    /// Classifies the error of an operation that was tried for the full call timeout.
    pub(crate) fn of(error: Error) -> Trouble {
        let passes = match error.wire() {
            Some(wire) => passes(wire),
            None => matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::TimedOut),
        };
        if passes { Trouble::Passing } else { Trouble::Lasting(error) }
    }

    /// Classifies an error that a server sends inside a stream.
    pub(crate) fn told(wire: v1::Error) -> Trouble {
        if passes(&wire) { Trouble::Passing } else { Trouble::Lasting(Error::from(wire)) }
    }
}

/// Classifies the status with which a stream ended.
pub(crate) fn trouble(status: &Status) -> Trouble {
    let error = Error::of_status(status);
    if error.wire().is_some() {
        return Trouble::of(error);
    }
    // The status has no Tollgate error: it comes from a proxy or the transport, with any code, or from a server of
    // another kind.
    match status.code() {
        Code::Unimplemented | Code::PermissionDenied | Code::Unauthenticated | Code::InvalidArgument => {
            Trouble::Lasting(error)
        }
        _ => Trouble::Passing,
    }
}

fn passes(wire: &v1::Error) -> bool {
    use ErrorReason as R;
    matches!(
        wire.cause(),
        R::NotLeader
            | R::NoLeader
            | R::ShuttingDown
            | R::WrongGroup
            | R::Overloaded
            | R::Indeterminate
            | R::TimedOut
            | R::Cancelled
            // The node is new, or is being removed: others have the group.
            | R::NoSuchGroup
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_connection_passes_and_a_refusal_does_not() {
        for code in [Code::Unavailable, Code::Unknown, Code::Internal, Code::Cancelled] {
            assert!(matches!(trouble(&Status::new(code, "h2")), Trouble::Passing), "{code:?}");
        }
        assert!(matches!(trouble(&Status::new(Code::Unimplemented, "")), Trouble::Lasting(_)));
        let told = |reason| Trouble::told(v1::Error::new(reason, "so"));
        for reason in [ErrorReason::ShuttingDown, ErrorReason::NoSuchGroup] {
            assert!(matches!(told(reason), Trouble::Passing), "{reason:?}");
        }
        assert!(matches!(told(ErrorReason::BadField), Trouble::Lasting(_)));
        assert!(matches!(Trouble::of(Error::unexpected("Watch")), Trouble::Lasting(_)));
    }
}
