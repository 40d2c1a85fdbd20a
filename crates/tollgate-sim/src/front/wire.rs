//! What travels between clients and nodes.
//!
//! The network may lose, repeat, delay and reorder all of it. A request that carries a seq is safe to repeat; one
//! without is sent once per call, and the front drops copies of it, as an ordered connection would. Not here: who
//! sends what when (`client`), and how it is answered (`front`).

use tollgate_check::{CallId, Holder};
use tollgate_core::{Command, Event, Renewal, Renewed, Reply, WaitOutcome, Watch};
use tollgate_replica::{ProposeError, ReadError};
use tollgate_types::{GroupId, Key, Name, Revision, Value};

/// What a client sends to a node.
#[derive(Debug, Clone)]
pub struct Request {
    /// By which the answer is matched, and the call's name in the history. No two clients use the same.
    pub call: CallId,
    /// Which attempt of the call this is, from 1.
    pub attempt: u32,
    /// To which group it speaks.
    pub group: GroupId,
    /// Whether it was sent to this node alone.
    pub alone: bool,
    /// By which of the client's connections it comes.
    pub lane: Lane,
    /// What it asks.
    pub ask: Ask,
}

/// A connection of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Its session: what waits goes on whatever becomes of the connection.
    Session,
    /// That of its single callers, who stand by while they wait. Like a link between nodes, it carries several.
    Single,
    /// Another one of that kind.
    Other,
}

/// What a client asks.
#[derive(Debug, Clone)]
pub enum Ask {
    /// To carry out a command, one that clients may send.
    Command(Box<Command>),
    /// To renew a lease: the node gathers these.
    KeepAlive(Renewal),
    /// Nothing any more: the caller of that call has hung up on this connection. Nobody answers.
    HangUp {
        /// Which call.
        of: CallId,
    },
    /// Nothing: this connection has broken, and the node notices. Nobody answers.
    StreamLost,
    /// Who holds a lock: a linearizable read, on any node.
    ReadLock(Name),
    /// What a register is: a linearizable read, on any node.
    ReadRegister(Key),
    /// To be told of changes from a revision or from now on, for a few seconds; on any node.
    Watch {
        /// The client's number for the watch; a new subscription to it replaces the one before.
        watch: u32,
        /// The first revision wanted; none for what is new from now on.
        from: Option<Revision>,
        /// What to see.
        filter: Watch,
    },
}

/// What a node sends to a client.
#[derive(Debug, Clone)]
pub struct Response {
    /// That of the request.
    pub call: CallId,
    /// That of the request.
    pub attempt: u32,
    /// That of the request.
    pub group: GroupId,
    /// That of the request.
    pub lane: Lane,
    /// The answer.
    pub answer: Answer,
}

/// What a client is told.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The command was applied, and this is what it answered. Never [`Reply::Queued`].
    Reply(Box<Reply>),
    /// The lock is busy, said without the log: it holds for the first attempt, if no other was sent.
    Busy(Box<Reply>),
    /// It waits in the queue; the outcome will follow, unless the node stops or leads no more.
    Queued {
        /// 1 for the next in line.
        position: u64,
    },
    /// Its wait is over.
    Resolved {
        /// When it joined the queue; for an upgrade, when that did.
        create_revision: Revision,
        /// What became of it.
        outcome: WaitOutcome,
    },
    /// The keepalive was applied.
    Renewed(Renewed),
    /// It hung up, and its wait goes on for others.
    Left,
    /// It was not carried out, or nobody knows.
    NotDone(ProposeError),
    /// The read could not be confirmed.
    NotRead(ReadError),
    /// Who holds the lock.
    Lock {
        /// As of which revision.
        revision: Revision,
        /// All of them.
        holders: Vec<Holder>,
    },
    /// What the register is.
    Register {
        /// As of which revision.
        revision: Revision,
        /// Its value, and when that was written.
        found: Option<(Value, Revision)>,
    },
    /// All that the watch wants of the revisions from `from` to before `next`.
    Events {
        /// The client's number for the watch.
        watch: u32,
        /// Where this batch begins: where the one before ended.
        from: Revision,
        /// In order.
        events: Vec<Event>,
        /// Where the next one will begin.
        next: Revision,
    },
    /// The history that the watch wants is gone; the subscription is over.
    Compacted {
        /// The client's number for the watch.
        watch: u32,
        /// The first revision that it wanted.
        from: Revision,
        /// The first that is still there.
        min_revision: Revision,
    },
}
