//! Events that make up a history.
//!
//! Events are in the order of true time; events at the same moment are in the order in which they were recorded. Not
//! here: the operations and answers of calls (`call`).

use crate::at::At;
use crate::call::{CallId, EndReason, Holder, Op, Outcome};
use tollgate_types::{GroupId, LeaseId, Mode, Name, Owner, Revision, Token};

/// One event of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client makes a call and sends its first attempt.
    Invoke {
        /// Id by which later events name the call.
        call: CallId,
        /// Client that makes the call.
        client: u32,
        /// Group in which the call's names, key or lease live; for a cancel, the group that the call to cancel was sent
        /// to.
        group: GroupId,
        /// Operation that the client requests.
        op: Op,
    },
    /// The client receives the answer. A call without an answer may have taken effect at any time, or never.
    Return {
        /// The call that was answered.
        call: CallId,
        /// The answer.
        outcome: Outcome,
    },
    /// Another attempt of the call was answered too: recorded for P10, whether or not the client was still listening.
    AnsweredAgain {
        /// The call that was answered.
        call: CallId,
        /// The answer to this attempt.
        outcome: Outcome,
    },
    /// A leader received a keepalive or a grant of a lease and proposed it. The last such event before the answer
    /// counts.
    Received {
        /// The keepalive or grant.
        call: CallId,
    },
    /// A lease is gone from a group. Recorded when the first node applies the entry that reaps the lease, before any
    /// answer that follows from it.
    LeaseEnded {
        /// Group from which the lease is gone.
        group: GroupId,
        /// Id of the lease.
        lease: LeaseId,
        /// Revision at which the lease was granted, in its home group.
        incarnation: Revision,
        /// Reason for the end.
        reason: LeaseEnd,
        /// Revision of the group after the entry that reaps the lease.
        revision: Revision,
        /// True for a stub: the lease lives in another group, and only its locks are in this one.
        stub: bool,
        /// Time that messages of the reaping entry spent in the network, in microseconds: to the member that completed
        /// its quorum, and back. Counted by the world that carried the messages, so that it includes no member's own
        /// slowness.
        carried_us: u64,
    },
    /// No leader of the group can commit from here on.
    Leaderless {
        /// The group.
        group: GroupId,
    },
    /// A leader of the group can commit from here on.
    Led {
        /// The group.
        group: GroupId,
        /// Node of the leader.
        node: u32,
        /// Term of the leader. Two of these events of one group with the same node and term are one leadership with a
        /// gap, not an election.
        term: u64,
    },
    /// The group's leader is paused from here on.
    LeaderPaused {
        /// The group.
        group: GroupId,
    },
    /// The group's leader is running again, or another node leads.
    LeaderResumed {
        /// The group.
        group: GroupId,
    },
    /// From here on both groups are led, but nothing that the leader of `from` sends reaches the leader of `to`.
    LeadersCut {
        /// Group of the sending leader.
        from: GroupId,
        /// Group whose leader receives nothing.
        to: GroupId,
    },
    /// The leader of `from` reaches the leader of `to` again, or one of the two groups is no longer led.
    LeadersLinked {
        /// Group of the sending leader.
        from: GroupId,
        /// Group whose leader can receive again.
        to: GroupId,
    },
    /// Hash of a node's state after the node applied an entry. A sample of the entries is enough.
    Applied {
        /// Node that applied the entry.
        node: u32,
        /// Group of the entry.
        group: GroupId,
        /// Log index of the entry.
        index: u64,
        /// Hash of the whole state.
        hash: u64,
    },
    /// From here on a client believes in its lease until a moment of true time. Recorded whenever the belief changes,
    /// after the answer that changed it; `until` is now if the client gives up.
    Believes {
        /// The client.
        client: u32,
        /// The lease that the client believes in.
        lease: LeaseId,
        /// End of the belief, unless a later event changes it.
        until: At,
    },
    /// A store answered a write that carried a token.
    FencedWrite {
        /// The store; each store keeps its own highest token.
        store: u32,
        /// Lock that guards the data.
        name: Name,
        /// Fencing token of the write.
        token: Token,
        /// Mode of the writer's grant.
        mode: FenceMode,
        /// True if the store refuses an equal exclusive token too.
        strict: bool,
        /// True if the store accepted the write.
        accepted: bool,
    },
    /// A watch is opened.
    Watch {
        /// Id by which later events name the watch.
        watch: u32,
        /// Group that is watched.
        group: GroupId,
        /// First revision that the watch wants; none for a watch from now on.
        from: Option<Revision>,
        /// Selection of the locks that are watched.
        filter: Filter,
    },
    /// A watch from now on was told its first revision.
    WatchBegan {
        /// The watch.
        watch: u32,
        /// First revision that the watch will deliver.
        from: Revision,
    },
    /// A watch delivered changes.
    WatchEvents {
        /// The watch.
        watch: u32,
        /// The changes, in order.
        changes: Vec<Change>,
        /// Revision below which everything that the watch wants has now been delivered.
        next: Revision,
    },
    /// A watch was told that history is gone. If the watch goes on, it does so at `min_revision`.
    WatchCompacted {
        /// The watch.
        watch: u32,
        /// First revision that is still available.
        min_revision: Revision,
    },
    /// Result of a linearizable read of a whole group: every lock that exists, every lease that lives.
    FinalState {
        /// The group.
        group: GroupId,
        /// Time at which the read began; the event itself is recorded where the read ended.
        asked: At,
        /// Group revision as of which the result is true.
        revision: Revision,
        /// Every lock with a holder or waiter.
        locks: Vec<FinalLock>,
        /// Every lease that lives in this group, with its incarnation; no stubs.
        leases: Vec<(LeaseId, Revision)>,
    },
    /// A client is gone and waits for no more answers.
    ClientGone {
        /// The client.
        client: u32,
    },
    /// All faults are over from here on.
    Healed,
    /// The run is over: no call had a chance to be answered after this.
    End,
}

/// Reason why a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseEnd {
    /// The lease was not renewed in time.
    Expired,
    /// A client revoked the lease.
    Revoked,
    /// The server noticed that its client's connections were gone.
    Disconnected,
}

/// Mode that travels with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceMode {
    /// The mode of an exclusive grant.
    Exclusive,
    /// The mode of a shared grant.
    Shared,
    /// The mode of a semaphore's grant.
    Permit,
}

/// Selection of the locks whose changes a watch wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// All locks of the group.
    All,
    /// One lock.
    Name(Name),
    /// Locks whose names begin with this prefix.
    Prefix(String),
    /// All locks of the group, but only the changes about holders and waiters on this lease.
    Lease(LeaseId),
}

impl Filter {
    /// Returns true if the watch wants changes of this lock that are about this lease.
    pub fn wants(&self, name: &Name, lease: LeaseId) -> bool {
        match self {
            Filter::All => true,
            Filter::Name(one) => one == name,
            Filter::Prefix(prefix) => name.as_bytes().starts_with(prefix.as_bytes()),
            Filter::Lease(one) => *one == lease,
        }
    }
}

/// A change that a watch delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Revision of the change.
    pub revision: Revision,
    /// Lock that changed.
    pub name: Name,
    /// Lease of the holder or waiter.
    pub lease: LeaseId,
    /// Owner of the holder or waiter.
    pub owner: Owner,
    /// Kind of the change.
    pub kind: ChangeKind,
}

/// Kind of change to a holder or waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// A waiter joined the queue.
    Queued,
    /// The lock was granted, for the first time or in a stronger mode.
    Granted {
        /// The fencing token.
        token: Token,
        /// Mode of the grant.
        mode: Mode,
    },
    /// A holder keeps its grant, but waits for an upgrade, no longer does, or holds in a weaker mode.
    Changed,
    /// A holder or waiter neither holds nor waits any more.
    Ended {
        /// Token of the grant that ended, for a holder.
        token: Option<Token>,
        /// Reason for the end.
        reason: EndReason,
    },
}

/// One lock of an [`Event::FinalState`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalLock {
    /// Name of the lock.
    pub name: Name,
    /// All holders of the lock.
    pub holders: Vec<Holder>,
    /// All waiters for the lock.
    pub waiters: Vec<(LeaseId, Owner)>,
}
