//! Wire errors for operations that got no reply from the state machine.
//!
//! Invariant: `may_have_happened` is false only where the operation has not happened and never will. Not here: refusals
//! by the state machine (`rejection`), and the address of a leader, which the router knows.

use tollgate_node::{NotAnswered, NotTaken};
use tollgate_proto::v1::{Error, ErrorReason};
use tollgate_replica::{ProposeError, ReadError};
use tollgate_types::{GroupId, NodeId};

/// Roughly the time to elect a leader after the old one is known to be gone.
const NO_LEADER_RETRY_MS: i64 = 200;
/// Roughly the time to work off the operations in flight.
const OVERLOADED_RETRY_MS: i64 = 100;
const DISK_FULL_RETRY_MS: i64 = 5_000;

/// Maximum size of an answer to a client: gRPC clients accept messages of 4 MiB by default, and a longer one would end
/// its stream, with all operations in flight on it.
pub const RESULT_BYTES_MAX: usize = 3_584 << 10;

/// Returns the error for an answer that is too long to send. The caller sets whether the operation may have happened.
pub fn too_long(length: usize, longest: usize) -> Error {
    let says = format!("the answer has {length} bytes, and at most {longest} are sent: ask for less at once");
    Error { limit_value: longest as u64, ..Error::new(ErrorReason::LimitExceeded, says) }
}

/// Returns the error for a feature that this version does not support.
pub fn not_supported(says: impl Into<String>) -> Error {
    Error::new(ErrorReason::NotSupported, says)
}

/// Returns the error for a node that takes no more work for now.
pub fn overloaded(says: impl Into<String>) -> Error {
    Error { retry_after_ms: OVERLOADED_RETRY_MS, ..Error::new(ErrorReason::Overloaded, says) }
}

/// Returns the error for an answer that does not fit the request: a bug.
pub fn unexpected(what: &str) -> Error {
    let says =
        format!("the server got an answer that does not fit its question ({what}): report this as a bug");
    Error::new(ErrorReason::Internal, says)
}

/// Returns the error for a command that was not carried out, or whose outcome is unknown. `may_repeat`:
/// [`super::Context::may_repeat`].
pub fn error_of_propose(error: &ProposeError, may_repeat: bool) -> Error {
    let says = error.to_string();
    match error {
        ProposeError::NotLeader { group, leader } => not_leader(*group, *leader, says),
        ProposeError::Indeterminate { group } => indeterminate(*group, may_repeat),
        ProposeError::Overloaded { group } => Error { group_id: group.number(), ..overloaded(says) },
        ProposeError::TooLong { bytes_max, .. } => Error {
            limit: "command_bytes_max".to_owned(),
            limit_value: *bytes_max as u64,
            ..Error::new(ErrorReason::LimitExceeded, says)
        },
        ProposeError::DiskFull => {
            Error { retry_after_ms: DISK_FULL_RETRY_MS, ..Error::new(ErrorReason::DiskFull, says) }
        }
        ProposeError::NoRoom { group } => no_room(*group, says),
        ProposeError::NoRoomMidway { group } => Error { may_have_happened: true, ..no_room(*group, says) },
        ProposeError::NoSuchGroup { group } => {
            Error { group_id: group.number(), ..Error::new(ErrorReason::NoSuchGroup, says) }
        }
        ProposeError::VersionUnsupported { .. } => Error::new(ErrorReason::VersionUnsupported, says),
        ProposeError::Refused(_) => Error::new(ErrorReason::MemberRefused, says),
    }
}

fn no_room(group: GroupId, says: String) -> Error {
    let error = Error::new(ErrorReason::DiskFull, says);
    Error { group_id: group.number(), retry_after_ms: DISK_FULL_RETRY_MS, ..error }
}

fn not_leader(group: GroupId, leader: Option<NodeId>, says: String) -> Error {
    let group_id = group.number();
    match leader {
        Some(leader) => {
            Error { group_id, leader_id: leader.number(), ..Error::new(ErrorReason::NotLeader, says) }
        }
        None => {
            Error { group_id, retry_after_ms: NO_LEADER_RETRY_MS, ..Error::new(ErrorReason::NoLeader, says) }
        }
    }
}

fn indeterminate(group: GroupId, may_repeat: bool) -> Error {
    let next = if may_repeat {
        "send it again as it is, which has no second effect"
    } else {
        "it has no seq, so a repeat could take effect twice: read the state before you go on"
    };
    let says = format!("group {group} changed its leader before the request was committed: {next}");
    let retry_after_ms = if may_repeat { NO_LEADER_RETRY_MS } else { 0 };
    Error { group_id: group.number(), retry_after_ms, ..Error::new(ErrorReason::Indeterminate, says) }
}

/// Returns the error for a request that still waits in a queue, but whose outcome this node will not learn.
pub fn left_waiting(group: GroupId, leader: Option<NodeId>) -> Error {
    let says = format!(
        "group {group} changed its leader while the request waited in line, where it still is: send it again as it is"
    );
    Error {
        group_id: group.number(),
        leader_id: leader.map_or(0, NodeId::number),
        retry_after_ms: NO_LEADER_RETRY_MS,
        ..Error::new(ErrorReason::Indeterminate, says)
    }
}

/// Returns the error for a request that waits in a queue for which too many callers are waiting already.
pub(super) fn crowded(group: GroupId) -> Error {
    let says = "too many callers wait for this very request, or for the same lock as the same owner: the outcome is \
                told to them; wait for one of their answers, or give each task an owner of its own";
    Error { may_have_happened: true, group_id: group.number(), ..overloaded(says) }
}

/// Returns the answer for a caller that has hung up.
pub fn hung_up(group: GroupId) -> Error {
    let says = "its caller hung up while it waited: send it again with a new seq if it is still wanted";
    Error { group_id: group.number(), ..Error::new(ErrorReason::Cancelled, says) }
}

/// Returns the error for a failed read, which changes nothing and may always be retried.
pub fn error_of_read(error: &ReadError) -> Error {
    let says = error.to_string();
    match error {
        ReadError::TimedOut { group } => Error {
            group_id: group.number(),
            retry_after_ms: NO_LEADER_RETRY_MS,
            ..Error::new(ErrorReason::NoLeader, says)
        },
        ReadError::Overloaded { group } => Error { group_id: group.number(), ..overloaded(says) },
        ReadError::Stopped { group } => {
            Error { group_id: group.number(), ..Error::new(ErrorReason::ShuttingDown, says) }
        }
        ReadError::NoState { group } => {
            Error { group_id: group.number(), ..Error::new(ErrorReason::NoSuchGroup, says) }
        }
    }
}

/// Returns the error for a node that has not answered at all.
pub fn error_of_not_answered(error: NotAnswered, group: GroupId) -> Error {
    match error {
        NotAnswered::NotTaken(NotTaken::Full) => {
            let says = format!("{error}: nothing was done; wait a little and try again, or ask another node");
            Error { group_id: group.number(), ..overloaded(says) }
        }
        NotAnswered::NotTaken(NotTaken::Stopped) => {
            let says = format!("{error}: nothing was done");
            Error { group_id: group.number(), ..Error::new(ErrorReason::ShuttingDown, says) }
        }
        NotAnswered::Stopped => {
            let says = format!("{error}: ask another node, with the same seq if there is one");
            Error { group_id: group.number(), ..Error::new(ErrorReason::Indeterminate, says) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_replica::MemberRefusal;

    const GROUP: GroupId = GroupId::new(3);

    #[test]
    fn only_a_proposal_that_is_in_some_log_may_have_happened() {
        let node = NodeId::new(2).unwrap();
        let all = [
            (ProposeError::NotLeader { group: GROUP, leader: Some(node) }, ErrorReason::NotLeader),
            (ProposeError::NotLeader { group: GROUP, leader: None }, ErrorReason::NoLeader),
            (ProposeError::Indeterminate { group: GROUP }, ErrorReason::Indeterminate),
            (ProposeError::Overloaded { group: GROUP }, ErrorReason::Overloaded),
            (ProposeError::DiskFull, ErrorReason::DiskFull),
            (ProposeError::NoRoom { group: GROUP }, ErrorReason::DiskFull),
            (ProposeError::NoRoomMidway { group: GROUP }, ErrorReason::DiskFull),
            (ProposeError::TooLong { bytes: 2, bytes_max: 1 }, ErrorReason::LimitExceeded),
            (ProposeError::NoSuchGroup { group: GROUP }, ErrorReason::NoSuchGroup),
            (ProposeError::VersionUnsupported { node, version: 2 }, ErrorReason::VersionUnsupported),
            (ProposeError::Refused(MemberRefusal::Busy), ErrorReason::MemberRefused),
        ];
        for (error, reason) in all {
            let wire = error_of_propose(&error, true);
            assert_eq!(wire.reason(), reason);
            let unsure =
                matches!(error, ProposeError::Indeterminate { .. } | ProposeError::NoRoomMidway { .. });
            assert_eq!(wire.may_have_happened, unsure, "{wire:?}");
            assert_eq!(wire.code, reason.code() as i32);
        }
    }

    #[test]
    fn who_is_not_the_leader_says_who_is() {
        let leader = NodeId::new(2);
        let error = error_of_propose(&ProposeError::NotLeader { group: GROUP, leader }, true);
        assert_eq!((error.leader_id, error.group_id, error.retry_after_ms), (2, 3, 0));
        let error = error_of_propose(&ProposeError::NotLeader { group: GROUP, leader: None }, true);
        assert!(error.retry_after_ms > 0);
    }

    #[test]
    fn an_unknown_outcome_says_whether_to_repeat() {
        let unsure = ProposeError::Indeterminate { group: GROUP };
        assert!(error_of_propose(&unsure, true).message.contains("send it again"));
        let careful = error_of_propose(&unsure, false);
        assert!(careful.message.contains("read the state before"));
        assert_eq!(careful.retry_after_ms, 0);
    }

    #[test]
    fn a_failed_read_has_not_happened() {
        let all = [
            ReadError::TimedOut { group: GROUP },
            ReadError::Overloaded { group: GROUP },
            ReadError::Stopped { group: GROUP },
            ReadError::NoState { group: GROUP },
        ];
        for error in all {
            let wire = error_of_read(&error);
            assert!(!wire.may_have_happened && wire.group_id == 3, "{wire:?}");
        }
    }

    #[test]
    fn a_node_that_stopped_may_have_done_it_and_a_full_one_has_not() {
        assert!(error_of_not_answered(NotAnswered::Stopped, GROUP).may_have_happened);
        let full = error_of_not_answered(NotAnswered::NotTaken(NotTaken::Full), GROUP);
        assert!(!full.may_have_happened && full.retry_after_ms > 0);
    }

    #[test]
    fn a_waiter_without_its_leader_is_told_to_ask_the_next() {
        let error = left_waiting(GROUP, NodeId::new(2));
        assert_eq!((error.reason(), error.leader_id), (ErrorReason::Indeterminate, 2));
        assert!(error.may_have_happened);
    }
}
