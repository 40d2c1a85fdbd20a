//! What can be asked of a node.

use std::fmt;
use tollgate_core::{Command, Renewal, State, Watch};
use tollgate_replica::{CallerKey, Host, MemberChange, ReadError, WatchNumber};
use tollgate_types::{GroupId, LogTime, NodeId, Revision};

/// Looks at a group's state, on the driver's thread: be quick, and answer whoever waits by yourself.
pub type Look = Box<dyn FnOnce(Result<Sight<'_>, ReadError>) + Send>;

/// What a [`Look`] sees.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// The group's state, as of what is applied here.
    pub state: &'a State,
    /// The present log time: on the leader what its next entry would be stamped with, which is past the state's own
    /// time by up to a tick. Elsewhere nobody knows it, and this is the state's.
    pub now: LogTime,
    /// The last entry that is applied here.
    pub applied: u64,
}

/// How new the state must be that a [`Look`] sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// As new as when it was asked for, on any node.
    Linearizable,
    /// What this node has, if it believes that it leads.
    Leader,
    /// What this node has.
    Stale,
}

/// Something asked of a node. What needs the leader is refused elsewhere, with its name.
pub enum Ask {
    /// Carry out a command.
    Command {
        /// Where.
        group: GroupId,
        /// What.
        command: Box<Command>,
        /// Whether this is the first attempt of its call: then a lock request that does not wait may be told that the
        /// lock is busy without an entry in the log.
        fast: bool,
    },
    /// A caller wants nothing any more. If it was the last that stood by a wait, the wait ends.
    HangUp(CallerKey),
    /// A stream is gone. Its callers may come by another.
    StreamLost {
        /// Which.
        stream: u64,
    },
    /// Renew a lease.
    KeepAlive {
        /// Where it lives.
        group: GroupId,
        /// Which, and what its client has answers to.
        renewal: Renewal,
    },
    /// Look at a group's state.
    Read {
        /// Of which group.
        group: GroupId,
        /// How new it must be.
        consistency: Consistency,
        /// What to do with it.
        look: Look,
    },
    /// Look at the host itself.
    Inspect(Box<dyn FnOnce(&Host) + Send>),
    /// Follow a group's history.
    Watch {
        /// The asker's number for the watch, unique on this node: [`crate::NodeHandle::fresh_watch`].
        watch: WatchNumber,
        /// Of which group.
        group: GroupId,
        /// From which revision on; none for what is new.
        from: Option<Revision>,
        /// What to see.
        filter: Box<Watch>,
        /// How many events may be sent before more are allowed.
        credit: u64,
    },
    /// A watch may be told of so many events more.
    WatchCredit {
        /// Which.
        watch: WatchNumber,
        /// How many.
        events: u64,
    },
    /// End a watch.
    Unwatch {
        /// Which.
        watch: WatchNumber,
    },
    /// Change who is a member.
    ChangeMembers {
        /// Of which group.
        group: GroupId,
        /// How.
        change: Box<MemberChange>,
    },
    /// Hand leadership on.
    TransferLeadership {
        /// Of which group.
        group: GroupId,
        /// To whom; none for the best voter.
        to: Option<NodeId>,
    },
    /// Take a snapshot now.
    TakeSnapshot {
        /// Of which group.
        group: GroupId,
    },
}

impl Ask {
    /// Whether a lock is lost or stays closed without it: a keepalive, or what gives something back.
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
