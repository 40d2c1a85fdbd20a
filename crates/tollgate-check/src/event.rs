//! What a history is made of.
//!
//! Events stand in the order of true time; those at the same moment, in the order in which they were recorded. Not
//! here: what clients ask and are told (`call`).

use crate::at::At;
use crate::call::{CallId, EndReason, Holder, Op, Outcome};
use tollgate_types::{GroupId, LeaseId, Mode, Name, Owner, Revision, Token};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client makes a call, and sends its first attempt.
    Invoke {
        /// By which later events name the call.
        call: CallId,
        /// Who makes it.
        client: u32,
        /// Where its names, its key or its lease live; for a cancel, where the call that it is about went.
        group: GroupId,
        /// What it asks.
        op: Op,
    },
    /// The client has its answer. A call without one may have taken effect at any time, or never.
    Return {
        /// Which call.
        call: CallId,
        /// What it was told.
        outcome: Outcome,
    },
    /// Another attempt of the call was answered too: record it for P10, whether or not the client was still listening.
    AnsweredAgain {
        /// Which call.
        call: CallId,
        /// What this attempt was told.
        outcome: Outcome,
    },
    /// A leader received a keepalive or a grant of a lease and proposed it. The last before the answer counts.
    Received {
        /// Which call.
        call: CallId,
    },
    /// A lease is gone from a group. Recorded when the first node applies the entry that reaps it, before any answer
    /// that follows from it.
    LeaseEnded {
        /// Where.
        group: GroupId,
        /// Which.
        lease: LeaseId,
        /// The revision at its grant, in the group where it lives.
        incarnation: Revision,
        /// Why.
        reason: LeaseEnd,
        /// The group's revision after that entry.
        revision: Revision,
        /// Whether the lease lives in another group and only its locks are here.
        stub: bool,
        /// How long messages of that entry were on their way, in microseconds: to the member that completed its quorum,
        /// and back. As the world that carried them counts it, so that no member's own slowness is in it.
        carried_us: u64,
    },
    /// No leader of the group can commit from here on.
    Leaderless {
        /// Which.
        group: GroupId,
    },
    /// A leader can commit from here on.
    Led {
        /// Which group.
        group: GroupId,
        /// By whom.
        node: u32,
        /// In which term. Two of a group with the same node and term are one leadership with a gap, no election.
        term: u64,
    },
    /// The group's leader stands still from here on.
    LeaderPaused {
        /// Which group.
        group: GroupId,
    },
    /// The group's leader goes on, or another leads.
    LeaderResumed {
        /// Which group.
        group: GroupId,
    },
    /// Both groups are led, and nothing that one's leader sends reaches the other's from here on.
    LeadersCut {
        /// The sender's group.
        from: GroupId,
        /// The group that hears nothing.
        to: GroupId,
    },
    /// It does again, or one of the two groups is no longer led.
    LeadersLinked {
        /// The sender's group.
        from: GroupId,
        /// The group that hears again.
        to: GroupId,
    },
    /// A node's state after it applied an entry. A sample will do.
    Applied {
        /// Which node.
        node: u32,
        /// Which group.
        group: GroupId,
        /// Which entry.
        index: u64,
        /// The hash of the whole state.
        hash: u64,
    },
    /// From here on a client believes in its lease until a moment of true time. Recorded whenever that changes, after
    /// the answer that changed it; `until` now if it gives up.
    Believes {
        /// Who.
        client: u32,
        /// In which lease.
        lease: LeaseId,
        /// Until when, unless another event says otherwise.
        until: At,
    },
    /// A store answered a write that carried a token.
    FencedWrite {
        /// Which store: each keeps its own highest token.
        store: u32,
        /// Which lock guards it.
        name: Name,
        /// The token.
        token: Token,
        /// How the writer holds the lock.
        mode: FenceMode,
        /// Whether an equal exclusive token is refused too.
        strict: bool,
        /// What the store said.
        accepted: bool,
    },
    /// A watch is opened.
    Watch {
        /// By which later events name it.
        watch: u32,
        /// Of which group.
        group: GroupId,
        /// The first revision that it wants; none for what is new from now on.
        from: Option<Revision>,
        /// Which locks.
        filter: Filter,
    },
    /// A watch from now on was told where it begins: it wants this revision first.
    WatchBegan {
        /// Which watch.
        watch: u32,
        /// The first revision that it will be told of.
        from: Revision,
    },
    /// A watch delivered changes.
    WatchEvents {
        /// Which watch.
        watch: u32,
        /// In order.
        changes: Vec<Change>,
        /// Everything that it wants below this revision has now been delivered.
        next: Revision,
    },
    /// A watch was told that history is gone. If it goes on, it does so at `min_revision`.
    WatchCompacted {
        /// Which watch.
        watch: u32,
        /// The first revision that is still there.
        min_revision: Revision,
    },
    /// What a linearizable read of a whole group saw: every lock that exists, every lease that lives.
    FinalState {
        /// Which group.
        group: GroupId,
        /// When the read began; the event stands where it ended.
        asked: At,
        /// As of which revision.
        revision: Revision,
        /// Every lock with a holder or waiter.
        locks: Vec<FinalLock>,
        /// Every lease that lives in this group, and its incarnation; no stubs.
        leases: Vec<(LeaseId, Revision)>,
    },
    /// A client is gone and waits for no more answers.
    ClientGone {
        /// Who.
        client: u32,
    },
    /// All faults are over from here on.
    Healed,
    /// The run is over: nobody had a chance to be answered after this.
    End,
}

/// Why a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseEnd {
    /// Nobody renewed it in time.
    Expired,
    /// A client asked for it.
    Revoked,
    /// The server noticed that its client's connections were gone.
    Disconnected,
}

/// The mode that travels with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceMode {
    /// Of an exclusive grant.
    Exclusive,
    /// Of a shared grant.
    Shared,
    /// Of a semaphore's grant.
    Permit,
}

/// Which changes of locks a watch wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// All of the group.
    All,
    /// One.
    Name(Name),
    /// Those that begin so.
    Prefix(String),
    /// All of the group, but of holders and waiters only those of this lease.
    Lease(LeaseId),
}

impl Filter {
    /// True if the watch wants changes of this lock that are about this lease.
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
    /// When.
    pub revision: Revision,
    /// On which lock.
    pub name: Name,
    /// Whose lease.
    pub lease: LeaseId,
    /// Whose owner.
    pub owner: Owner,
    /// What.
    pub kind: ChangeKind,
}

/// What happened to a holder or waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It joined the queue.
    Queued,
    /// It holds, or holds in a stronger mode.
    Granted {
        /// The fencing token.
        token: Token,
        /// How it holds.
        mode: Mode,
    },
    /// It holds as before, but waits for an upgrade, no longer does, or holds in a weaker mode.
    Changed,
    /// It neither holds nor waits any more.
    Ended {
        /// The token it had, if it held.
        token: Option<Token>,
        /// Why.
        reason: EndReason,
    },
}

/// One lock of a [`Event::FinalState`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalLock {
    /// Which.
    pub name: Name,
    /// Everyone who holds it.
    pub holders: Vec<Holder>,
    /// Everyone who waits for it.
    pub waiters: Vec<(LeaseId, Owner)>,
}
