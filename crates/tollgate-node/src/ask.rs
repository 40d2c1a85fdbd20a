//! Requests to a node.

use std::fmt;
use tollgate_core::{Command, Renewal, State, Watch};
use tollgate_replica::{CallerKey, Host, MemberChange, ReadError, WatchNumber};
use tollgate_types::{GroupId, LogTime, NodeId, Revision};

/// Callback that reads a group's state. Runs on the driver's thread, so it must be quick, and it delivers its result
/// itself.
pub type Look = Box<dyn FnOnce(Result<Sight<'_>, ReadError>) + Send>;

/// State that a [`Look`] reads.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// The group's state, as applied on this node.
    pub state: &'a State,
    /// The current log time: on the leader the time with which its next entry would be stamped, which is ahead of the
    /// state's own time by up to a tick. Other nodes do not know the current log time; there this is the state's time.
    pub now: LogTime,
    /// Index of the last entry applied on this node.
    pub applied: u64,
}

/// Required freshness of the state that a [`Look`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// At least as new as the state at the time of the request, on any node.
    Linearizable,
    /// The state on this node, if the node believes that it leads.
    Leader,
    /// The state on this node.
    Stale,
}

/// A request to a node. Requests that need the leader are refused on other nodes, with the leader's id.
pub enum Ask {
    /// Carries out a command.
    Command {
        /// Group that carries out the command.
        group: GroupId,
        /// The command.
        command: Box<Command>,
        /// True for the first attempt of a call: then a lock request that does not wait may be answered "busy" without
        /// a log entry.
        fast: bool,
    },
    /// A caller has hung up. If it was the last that attended a wait, the wait ends.
    HangUp(CallerKey),
    /// A stream is gone. Its callers may come back on another stream.
    StreamLost {
        /// Number of the stream.
        stream: u64,
    },
    /// Renews a lease.
    KeepAlive {
        /// Home of the lease.
        group: GroupId,
        /// The lease, and the requests whose answers its client has received.
        renewal: Renewal,
    },
    /// Reads a group's state.
    Read {
        /// Group to read.
        group: GroupId,
        /// Required freshness of the state.
        consistency: Consistency,
        /// Callback that reads the state.
        look: Look,
    },
    /// Reads the host itself.
    Inspect(Box<dyn FnOnce(&Host) + Send>),
    /// Watches a group's history.
    Watch {
        /// The asker's number for the watch, unique on this node: [`crate::NodeHandle::fresh_watch`].
        watch: WatchNumber,
        /// Group to watch.
        group: GroupId,
        /// Start revision; none starts with new events.
        from: Option<Revision>,
        /// Scope of the watch.
        filter: Box<Watch>,
        /// Number of events that may be sent until more credit is given.
        credit: u64,
    },
    /// Allows a watch to send more events.
    WatchCredit {
        /// Number of the watch.
        watch: WatchNumber,
        /// Number of further events.
        events: u64,
    },
    /// Ends a watch.
    Unwatch {
        /// Number of the watch.
        watch: WatchNumber,
    },
    /// Changes the members of a group.
    ChangeMembers {
        /// Group whose members change.
        group: GroupId,
        /// The change.
        change: Box<MemberChange>,
    },
    /// Transfers leadership.
    TransferLeadership {
        /// Group whose leadership is transferred.
        group: GroupId,
        /// New leader; none for the best voter.
        to: Option<NodeId>,
    },
    /// Takes a snapshot now.
    TakeSnapshot {
        /// Group of which the snapshot is taken.
        group: GroupId,
    },
}

impl Ask {
    /// Returns true if a lock is lost or stays held without this request: a keepalive, or a request that gives
    /// something back.
    pub(crate) fn is_duty(&self) -> bool {
        match self {
            Ask::KeepAlive { .. } => true,
            Ask::Command { command, .. } => matches!(
                **command,
                Command::ReleaseLock(_)
                    | Command::CancelWait(_)
                    | Command::RevokeLease(_)
                    | Command::ForceRelease(_)
            ),
            _ => false,
        }
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ask::Command { group, command, fast } => write!(f, "Command({group}, {command:?}, fast: {fast})"),
            Ask::HangUp(caller) => write!(f, "HangUp({caller:?})"),
            Ask::StreamLost { stream } => write!(f, "StreamLost({stream})"),
            Ask::KeepAlive { group, renewal } => write!(f, "KeepAlive({group}, {renewal:?})"),
            Ask::Read { group, consistency, .. } => write!(f, "Read({group}, {consistency:?})"),
            Ask::Inspect(_) => f.write_str("Inspect"),
            Ask::Watch { watch, group, from, .. } => write!(f, "Watch({watch}, {group}, {from:?})"),
            Ask::WatchCredit { watch, events } => write!(f, "WatchCredit({watch}, {events})"),
            Ask::Unwatch { watch } => write!(f, "Unwatch({watch})"),
            Ask::ChangeMembers { group, change } => write!(f, "ChangeMembers({group}, {change:?})"),
            Ask::TransferLeadership { group, to } => write!(f, "TransferLeadership({group}, {to:?})"),
            Ask::TakeSnapshot { group } => write!(f, "TakeSnapshot({group})"),
        }
    }
}
