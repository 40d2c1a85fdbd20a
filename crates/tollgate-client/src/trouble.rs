//! Whether a stream that broke should be opened again.

use crate::error::{Error, ErrorKind};
use tollgate_proto::v1::{self, ErrorReason};
use tonic::{Code, Status};

/// What to do about a stream that can't go on.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Open it again, maybe elsewhere.
    Passing,
    /// Trying again would give the same.
    Lasting(Error),
}

impl Trouble {
    /// Of an operation that was given all the time that operations get.
    pub(crate) fn of(error: Error) -> Trouble {
        let passes = match error.wire() {
            Some(wire) => passes(wire),
            None => matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::TimedOut),
        };
        if passes { Trouble::Passing } else { Trouble::Lasting(error) }
    }

    /// Of what a server says inside a stream.
    pub(crate) fn told(wire: v1::Error) -> Trouble {
        if passes(&wire) { Trouble::Passing } else { Trouble::Lasting(Error::from(wire)) }
    }
}

/// Of a stream that ended with a status.
pub(crate) fn trouble(status: &Status) -> Trouble {
    let error = Error::of_status(status);
    if error.wire().is_some() {
        return Trouble::of(error);
    }
    // Not in a server's words: something between here and there, which may be any code, or a server of another kind.
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
            // It is a new node there, or one that is being removed: others have the group.
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
