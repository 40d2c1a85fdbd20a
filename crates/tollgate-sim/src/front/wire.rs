//! Messages between clients and nodes.
//!
//! The network may lose, repeat, delay and reorder all messages. A request with a seq is safe to repeat; a request
//! without one is sent once per call, and the front drops copies of it, as an ordered connection would. Not here: when
//! clients send what (`client`), and how nodes answer (`front`).

use tollgate_check::{CallId, Holder};
use tollgate_core::{Command, Event, Renewal, Renewed, Reply, WaitOutcome, Watch};
use tollgate_replica::{ProposeError, ReadError};
use tollgate_types::{GroupId, Key, Name, Revision, Value};

/// A message from a client to a node.
#[derive(Debug, Clone)]
pub struct Request {
    /// Id of the call, in the history too; the answer is matched by it. No two clients use the same id.
    pub call: CallId,
    /// Number of the attempt of this call, from 1.
    pub attempt: u32,
    /// Group that the request is for.
    pub group: GroupId,
    /// True if the request was sent to this node alone.
    pub alone: bool,
    /// Connection of the client that carries the request.
    pub lane: Lane,
    /// Content of the request.
    pub ask: Ask,
}

/// A connection of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// The session's connection: waits go on whatever becomes of the connection.
    Session,
    /// A connection of single callers, who stand by while they wait. Like a link between nodes, it carries several
    /// callers.
    Single,
    /// Another connection of single callers.
    Other,
}

/// Content of a request.
#[derive(Debug, Clone)]
pub enum Ask {
    /// Carries out a command, one that clients may send.
    Command(Box<Command>),
    /// Renews a lease: the node gathers renewals.
    KeepAlive(Renewal),
    /// Hangs up: the caller of a call has left this connection. Nobody answers.
    HangUp {
        /// The call.
        of: CallId,
    },
    /// Stands for a broken connection, as the node notices it. Nobody answers.
    StreamLost,
    /// Reads the holders of a lock, linearizably, on any node.
    ReadLock(Name),
    /// Reads a register, linearizably, on any node.
    ReadRegister(Key),
    /// Subscribes to changes from a revision or from now on, for a few seconds, on any node.
    Watch {
        /// The client's number for the watch; a new subscription with this number replaces the earlier one.
        watch: u32,
        /// The first revision wanted; none for a watch from now on.
        from: Option<Revision>,
        /// Selection of what is watched.
        filter: Watch,
    },
}

/// A message from a node to a client.
#[derive(Debug, Clone)]
pub struct Response {
    /// Call of the request.
    pub call: CallId,
    /// Attempt of the request.
    pub attempt: u32,
    /// Group of the request.
    pub group: GroupId,
    /// Connection of the request.
    pub lane: Lane,
    /// The answer.
    pub answer: Answer,
}

/// Content of a response.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Reply of the command, which was applied. Never [`Reply::Queued`].
    Reply(Box<Reply>),
    /// The lock is busy, answered without the log: true for the first attempt, if no other was sent.
    Busy(Box<Reply>),
    /// The request waits in the queue; the outcome will follow, unless the node stops or no longer leads.
    Queued {
        /// Position in the queue: 1 for the next in line.
        position: u64,
    },
    /// The wait is over.
    Resolved {
        /// Revision at which the claim joined the queue; for an upgrade, the revision at which the upgrade did.
        create_revision: Revision,
        /// Outcome of the wait.
        outcome: WaitOutcome,
    },
    /// The keepalive was applied.
    Renewed(Renewed),
    /// The caller hung up, and its wait goes on for others.
    Left,
    /// The request was not carried out, or nobody knows.
    NotDone(ProposeError),
    /// The read could not be confirmed.
    NotRead(ReadError),
    /// The holders of a lock.
    Lock {
        /// Group revision as of which the answer is true.
        revision: Revision,
        /// All holders of the lock.
        holders: Vec<Holder>,
    },
    /// The content of a register.
    Register {
        /// Group revision as of which the answer is true.
        revision: Revision,
        /// Value of the register and the revision at which it was written; none if there is no such register.
        found: Option<(Value, Revision)>,
    },
    /// All changes that the watch wants, of the revisions from `from` to before `next`.
    Events {
        /// The client's number for the watch.
        watch: u32,
        /// First revision of this batch: where the batch before ended.
        from: Revision,
        /// The changes, in order.
        events: Vec<Event>,
        /// First revision of the next batch.
        next: Revision,
    },
    /// The history that the watch wants is gone; the subscription is over.
    Compacted {
        /// The client's number for the watch.
        watch: u32,
        /// The first revision that the watch wanted.
        from: Revision,
        /// The first revision that is still available.
        min_revision: Revision,
    },
}
