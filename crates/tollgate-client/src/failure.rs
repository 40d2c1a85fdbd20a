//! Decides whether a stream that broke should be opened again.

use crate::error::{Error, ErrorKind};
use tollgate_proto::{Retry, v1};
use tonic::{Code, Status};

/// Classification of the trouble of a stream that can't go on.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Opening the stream again may help, possibly at another node.
    Passing,
    /// Trying again would give the same error.
    Lasting(Error),
}

impl Failure {
    /// Classifies the error of an operation that was tried for the full call timeout.
    pub(crate) fn of(error: Error) -> Failure {
        let passes = match error.wire() {
            Some(wire) => passes(wire),
            None => matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::TimedOut),
        };
        if passes { Failure::Passing } else { Failure::Lasting(error) }
    }

    /// Classifies an error that a server sends inside a stream.
    pub(crate) fn told(wire: v1::Error) -> Failure {
        if passes(&wire) { Failure::Passing } else { Failure::Lasting(Error::from(wire)) }
    }
}

/// Classifies the status with which a stream ended.
pub(crate) fn classify(status: &Status) -> Failure {
    let error = Error::of_status(status);
    if error.wire().is_some() {
        return Failure::of(error);
    }
    // The status has no Tollgate error: it comes from a proxy or the transport, with any code, or from a server of
    // another kind.
    match status.code() {
        Code::Unimplemented | Code::PermissionDenied | Code::Unauthenticated | Code::InvalidArgument => {
            Failure::Lasting(error)
        }
        _ => Failure::Passing,
    }
}

fn passes(wire: &v1::Error) -> bool {
    // The outcome of an attempt does not matter here: a stream only reads.
    wire.cause().retry() != Retry::No
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_proto::v1::ErrorReason;

    #[test]
    fn a_broken_connection_passes_and_a_refusal_does_not() {
        for code in [Code::Unavailable, Code::Unknown, Code::Internal, Code::Cancelled] {
            assert!(matches!(classify(&Status::new(code, "h2")), Failure::Passing), "{code:?}");
        }
        assert!(matches!(classify(&Status::new(Code::Unimplemented, "")), Failure::Lasting(_)));
        let told = |reason| Failure::told(v1::Error::new(reason, "so"));
        for reason in [ErrorReason::ShuttingDown, ErrorReason::NoSuchGroup] {
            assert!(matches!(told(reason), Failure::Passing), "{reason:?}");
        }
        assert!(matches!(told(ErrorReason::BadField), Failure::Lasting(_)));
        assert!(matches!(Failure::of(Error::unexpected("Watch")), Failure::Lasting(_)));
    }
}
