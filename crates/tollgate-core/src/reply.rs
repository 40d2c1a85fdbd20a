//! Replies to commands, and the ends of waits.

use crate::view::{Closed, HolderView, RegisterView, StubView};
use tollgate_types::{
    DurationMs, GroupId, Invalid, Key, LeaseId, Limit, LogTime, Mode, Name, Owner, Revision, Seq, Token,
};

/// Everything that one entry did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Revision after the entry.
    pub revision: Revision,
    /// Reply to the entry's own command.
    pub reply: Reply,
    /// The waits that ended with this entry, in order. Each wait appears in one entry only.
    pub resolved: Vec<Resolution>,
    /// The leases that are gone with this entry, with all that was attached to them. For every command and read, they
    /// had ended when their deadline came.
    pub ended_leases: Vec<EndedLease>,
    /// First revision of the events that the entry made, if it made any: read them with `State::events_since`. They
    /// stay in the ring at least until the next entry.
    pub events_from: Option<Revision>,
}

/// A lease that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedLease {
    /// Id of the lease, which may have been granted again.
    pub lease: LeaseId,
    /// Revision at which the lease was granted; for a stub, a revision of the lease's home.
    pub incarnation: Revision,
    /// `LeaseExpired`, `LeaseRevoked` or `Disconnected`.
    pub reason: EndReason,
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Done, with no details: ticks, limits, versions.
    Done,
    /// The lease lives.
    LeaseGranted {
        /// Id of the lease.
        lease: LeaseId,
        /// Time to live of the lease.
        ttl: DurationMs,
        /// Revision at which the lease was granted: tells this lease from an earlier one with the same id.
        incarnation: Revision,
        /// Log time at which the lease ends unless renewed.
        deadline: LogTime,
        /// True if the lease lived already and was renewed.
        renewed: bool,
        /// First unused seq: no seq from here on was used by the previous user of the lease.
        next_seq: Seq,
    },
    /// One result per renewal, in order.
    LeasesRenewed(Vec<Renewed>),
    /// The lease has ended; its locks end with it.
    LeaseRevoked,
    /// The lock is held.
    Acquired {
        /// The fencing token.
        token: Token,
        /// Revision at which the holder joined the queue.
        create_revision: Revision,
        /// Mode of the grant: stronger than asked for, if the owner held a stronger grant already.
        mode: Mode,
    },
    /// The request waits in the queue. A [`Resolution`] with this revision will follow, once.
    Queued {
        /// Revision that identifies the waiter.
        create_revision: Revision,
        /// Position in the queue; 1 for the next in line.
        position: u64,
    },
    /// Others are in the way, and the request does not wait, or no longer.
    Busy {
        /// Present holders of the locks, up to [`Reply::BUSY_HOLDERS_MAX`] of them.
        holders: Vec<HolderView>,
        /// Reason why the locks are closed, if they are.
        closed: Option<Closed>,
    },
    /// The locks are no longer held.
    Released {
        /// Revision of the release itself; grants that follow from it have higher ones.
        revision: Revision,
    },
    /// The wait is over, or will never begin.
    Cancelled,
    /// A repeat of a request whose claim has come and gone.
    Ended {
        /// Token of the claim, if it was granted.
        token: Option<Token>,
        /// Reason for the claim's end.
        reason: EndReason,
    },
    /// The transaction ran.
    TxnDone {
        /// True if all compares were true.
        succeeded: bool,
        /// Revision of the writes, or the current revision if there were none.
        revision: Revision,
        /// One result per step of the branch taken. A repeat has none, because results are not kept.
        results: Vec<OpResult>,
    },
    /// The holder's value was changed.
    Proclaimed {
        /// The revision of the change.
        revision: Revision,
    },
    /// The stub in its present state.
    Stub(StubView),
    /// The lease lives here, its home, which will tell the registered group when the lease ends.
    StubRegistered,
    /// No lease of that incarnation lives here, nor ever will again, which is definite. A stub of it must end.
    LeaseUnknown,
    /// Refused: nothing changed, except that time passed, names were settled and acks were taken in.
    Rejected(Rejection),
}

impl Reply {
    /// Most holders that a busy reply lists.
    pub const BUSY_HOLDERS_MAX: usize = 8;
}

/// The answer to one keepalive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// Id of the lease.
    pub lease: LeaseId,
    /// Time to live and new deadline of the lease; none if this group is not the home of such a lease.
    pub result: Option<(DurationMs, LogTime)>,
    /// Home of the lease, if this group has a stub of it: the lease must be renewed there.
    pub home: Option<GroupId>,
}

/// Result of one step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpResult {
    /// Written.
    Put,
    /// The registers that a read found.
    Got {
        /// Registers in the order asked for.
        registers: Vec<RegisterView>,
        /// Number of matches, those past the limit included; one above `range_max` stands for any larger number.
        count: u64,
    },
    /// Number of registers deleted.
    Deleted(u64),
}

/// The end of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The `create_revision` of [`Reply::Queued`].
    pub create_revision: Revision,
    /// The waiter's lease.
    pub lease: LeaseId,
    /// The waiter's owner.
    pub owner: Owner,
    /// Outcome of the wait.
    pub outcome: WaitOutcome,
}

/// Outcome of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The waiter was granted the lock.
    Granted {
        /// The fencing token.
        token: Token,
        /// Mode of the grant.
        mode: Mode,
    },
    /// The waiter was not granted the lock, with the reason: `TimedOut`, `Cancelled`, `Deadlock`, `LeaseExpired`,
    /// `LeaseRevoked` or `Disconnected`. For an upgrade also the reason for which its grant ended or lost one of its
    /// names: the claim may hold the others.
    Ended(EndReason),
}

/// Reason for the end of a grant or of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndReason {
    /// The holder gave the lock back.
    Released,
    /// No client renewed the lease in time.
    LeaseExpired,
    /// The client ended its lease.
    LeaseRevoked,
    /// The server ended the lease because the client's connections were gone.
    Disconnected,
    /// An operator took the lock away.
    Forced,
    /// The grant reached its max hold.
    MaxHold,
    /// The wait reached its deadline.
    TimedOut,
    /// The wait was cancelled.
    Cancelled,
    /// The wait would never have ended: it was part of a deadlock over several groups.
    Deadlock,
}

/// The reason in a word or two, for logs.
impl std::fmt::Display for EndReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            EndReason::Released => "released",
            EndReason::LeaseExpired => "lease expired",
            EndReason::LeaseRevoked => "lease revoked",
            EndReason::Disconnected => "disconnected",
            EndReason::Forced => "forced",
            EndReason::MaxHold => "max hold",
            EndReason::TimedOut => "timed out",
            EndReason::Cancelled => "cancelled",
            EndReason::Deadlock => "deadlock",
        })
    }
}

impl EndReason {
    /// True if the holder may still believe that it holds: then a lock-delay applies.
    pub const fn is_involuntary(self) -> bool {
        use EndReason::{Disconnected, Forced, LeaseExpired, LeaseRevoked, MaxHold};
        matches!(self, LeaseExpired | LeaseRevoked | Disconnected | Forced | MaxHold)
    }
}

/// Way in which a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeaseEnd {
    /// No client renewed the lease in time.
    Expired,
    /// Its client ended the lease.
    Revoked,
    /// The server ended the lease because the client's connections were gone.
    Disconnected,
}

impl From<LeaseEnd> for EndReason {
    fn from(end: LeaseEnd) -> EndReason {
        match end {
            LeaseEnd::Expired => EndReason::LeaseExpired,
            LeaseEnd::Revoked => EndReason::LeaseRevoked,
            LeaseEnd::Disconnected => EndReason::Disconnected,
        }
    }
}

impl LeaseEnd {
    /// The lease's end that ends claims for this reason; none if the reason is another one.
    pub const fn from_reason(reason: EndReason) -> Option<LeaseEnd> {
        match reason {
            EndReason::LeaseExpired => Some(LeaseEnd::Expired),
            EndReason::LeaseRevoked => Some(LeaseEnd::Revoked),
            EndReason::Disconnected => Some(LeaseEnd::Disconnected),
            _ => None,
        }
    }
}

/// Reason for which a request was refused. Deterministic: every replica refuses it alike.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No such lease, or it has ended.
    #[error("lease {lease} not found: it ended or never was; grant a new one")]
    LeaseNotFound {
        /// Id of the lease.
        lease: LeaseId,
    },
    /// Another client has a lease with the chosen id.
    #[error("lease {lease} belongs to another client: choose another id, or let the group assign one")]
    LeaseTaken {
        /// Id of the lease.
        lease: LeaseId,
    },
    /// The lease's time to live is out of range.
    #[error("ttl of {} is out of range: it must be from {} to {}", asked.in_units(), min.in_units(), max.in_units())]
    TtlOutOfRange {
        /// Time to live that was asked for.
        asked: DurationMs,
        /// Shortest time allowed.
        min: DurationMs,
        /// Longest time allowed.
        max: DurationMs,
    },
    /// The releaser or converter does not hold the lock.
    #[error("{name} is not held by this owner: it was released, lost, or never granted")]
    NotHeld {
        /// Name of the lock.
        name: Name,
    },
    /// The token is not the token of a present grant.
    #[error("token {given} of {name} is stale: the present grant has token {held}")]
    StaleToken {
        /// Name of the lock.
        name: Name,
        /// Token that was given.
        given: Token,
        /// Token of a present grant of the lock.
        held: Token,
    },
    /// There is no such wait to cancel.
    #[error("this owner does not wait for {name}")]
    NotWaiting {
        /// Name of the lock.
        name: Name,
    },
    /// Plain modes and permits don't mix, and neither do semaphores of different size.
    #[error("{name} is in use as {in_use}: ask for that, or wait until nobody holds or awaits it")]
    OtherKind {
        /// Name of the lock.
        name: Name,
        /// Kind that the lock is in use as.
        in_use: Kind,
    },
    /// A grant's permits can't be changed.
    #[error("this owner holds {held} of {name}: release it before asking for another number of permits")]
    PermitsFixed {
        /// Name of the lock.
        name: Name,
        /// Mode of the present grant.
        held: Mode,
    },
    /// The owner waits for the lock already, with another mode or other names.
    #[error("this owner already waits for {name} with another mode or set of names: cancel that first")]
    AlreadyWaiting {
        /// Name of the lock.
        name: Name,
    },
    /// A request for several names meets a grant or wait of the same owner on some of them.
    #[error("this owner already has a claim on {name} but not the same one on all names: release it first")]
    Overlap {
        /// Name of a lock with such a grant or wait.
        name: Name,
    },
    /// The wait would never end.
    #[error("deadlock: {}", Steps(cycle))]
    Deadlock {
        /// The cycle of waits, from the refused request round to itself; empty if the cycle spans several groups.
        cycle: Vec<CycleStep>,
    },
    /// The request exceeds a limit.
    #[error("{limit} is {max}: {got} is too many")]
    LimitExceeded {
        /// The limit.
        limit: Limit,
        /// Value of the limit.
        max: u64,
        /// Value that the request would have led to.
        got: u64,
    },
    /// The client has acknowledged this request's answer, so this is a delayed duplicate.
    #[error("request {seq} was acknowledged by its client: a delayed duplicate has no effect")]
    SeqAcked {
        /// Seq of the request.
        seq: Seq,
    },
    /// Another request was sent under this seq before.
    #[error(
        "seq {seq} was used before, by another request of this lease: a seq is used once; in a program that starts \
         again, grant the lease again: the answer's next_seq says where to begin"
    )]
    SeqReused {
        /// Seq of the request. Only the lease's home knows from which seq on none was used.
        seq: Seq,
    },
    /// A repeat of a request that was rejected. The first answer had the details.
    #[error("request {seq} was rejected before ({code:?}): correct it and send it with a new seq")]
    RejectedBefore {
        /// Seq of the request.
        seq: Seq,
        /// Code of the first rejection.
        code: RejectionCode,
    },
    /// One transaction writes a key twice.
    #[error("the transaction writes {key} twice: write each key once")]
    KeyTwice {
        /// Key that is written twice.
        key: Key,
    },
    /// The limits are not valid for any group.
    #[error("limits refused: {0}")]
    InvalidLimits(Invalid),
    /// The version asked for is not above the version in force.
    #[error("apply version is {current} already: {asked} does not raise it")]
    ApplyVersionNotRaised {
        /// Version in force.
        current: u32,
        /// Version that was asked for.
        asked: u32,
    },
    /// The lease's home has not confirmed the stub yet. Nothing was done, and the request's seq is not used up.
    #[error("lease {lease} lives in group {home}, which has not confirmed it here yet: repeat the request")]
    StubPending {
        /// Id of the lease.
        lease: LeaseId,
        /// Home of the lease.
        home: GroupId,
    },
    /// Only a lease's home grants, renews and revokes it.
    #[error("lease {lease} lives in group {home}, and this is not it: ask there")]
    NotHome {
        /// Id of the lease.
        lease: LeaseId,
        /// Home of the lease.
        home: GroupId,
    },
    /// A lease that lives here needs no stub.
    #[error("lease {lease} lives in this group: it has no stub here")]
    HomeHere {
        /// Id of the lease.
        lease: LeaseId,
    },
    /// The stub here belongs to another lease with the same id.
    #[error(
        "the stub of lease {lease} is of incarnation {stands}: end it first if its home says it has ended"
    )]
    OtherIncarnation {
        /// Id of the lease.
        lease: LeaseId,
        /// Incarnation of the stub.
        stands: Revision,
    },
    /// There is no such stub, or another one was added since.
    #[error("there is no such stub of lease {lease}: it ended or was never added")]
    StubNotFound {
        /// Id of the lease.
        lease: LeaseId,
    },
    /// The lease has stubs in as many groups as are allowed.
    #[error("lease {lease} has stubs in {max} groups already: use another lease")]
    TooManyGroups {
        /// Id of the lease.
        lease: LeaseId,
        /// Most groups in which a lease may have stubs.
        max: u64,
    },
    /// Another group serves the slot of a name, key or lease id in the command. Nothing was done, and no seq is used
    /// up.
    #[error("group {group} serves that, by the group map of epoch {epoch}: ask there")]
    WrongGroup {
        /// Epoch of the group map in force here. A caller with an older map fetches this one.
        epoch: u64,
        /// Group that serves the slot by that map.
        group: GroupId,
    },
}

macro_rules! rejection_codes {
    ($($variant:ident = $code:literal,)*) => {
        /// A rejection without its details, as it is kept for a repeat. The numbers are part of the snapshot format.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is documented as the rejection of the same name")]
        #[repr(u8)]
        pub enum RejectionCode {
            $($variant = $code,)*
        }

        impl RejectionCode {
            /// Returns the code with this number in a snapshot.
            pub(crate) fn from_number(number: u8) -> Option<RejectionCode> {
                match number { $($code => Some(RejectionCode::$variant),)* _ => None }
            }
        }

        impl Rejection {
            /// The rejection without its details.
            pub fn code(&self) -> RejectionCode {
                match self {
                    Rejection::RejectedBefore { code, .. } => *code,
                    $(Rejection::$variant { .. } => RejectionCode::$variant,)*
                }
            }
        }
    };
}

rejection_codes! {
    LeaseNotFound = 1,
    LeaseTaken = 2,
    TtlOutOfRange = 3,
    NotHeld = 4,
    StaleToken = 5,
    NotWaiting = 6,
    OtherKind = 7,
    PermitsFixed = 8,
    AlreadyWaiting = 9,
    Overlap = 10,
    Deadlock = 11,
    LimitExceeded = 12,
    SeqAcked = 13,
    KeyTwice = 14,
    InvalidLimits = 15,
    ApplyVersionNotRaised = 16,
    StubPending = 17,
    NotHome = 18,
    HomeHere = 19,
    OtherIncarnation = 20,
    StubNotFound = 21,
    TooManyGroups = 22,
    WrongGroup = 23,
    SeqReused = 24,
}

/// Kind of a lock, fixed while the lock has a holder or waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A lock with modes.
    Modes,
    /// A semaphore.
    Semaphore {
        /// Number of permits.
        of: u32,
    },
}

impl Kind {
    /// Kind of a lock that a request in this mode needs.
    pub const fn of(mode: Mode) -> Kind {
        match mode {
            Mode::Permit { of, .. } => Kind::Semaphore { of },
            _ => Kind::Modes,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Modes => f.write_str("a lock with modes"),
            Kind::Semaphore { of } => write!(f, "a semaphore of {of}"),
        }
    }
}

/// One edge of a deadlock: `waiter` wants `wants`, and `blocker` is in its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CycleStep {
    /// Owner that waits.
    pub waiter: (LeaseId, Owner),
    /// Lock that the waiter wants.
    pub wants: Name,
    /// Mode that the waiter wants.
    pub mode: Mode,
    /// Owner in the way: the waiter of the next step.
    pub blocker: (LeaseId, Owner),
    /// Token with which the blocker holds the lock; none if the blocker waits ahead in the queue.
    pub blocker_token: Option<Token>,
}

struct Steps<'a>(&'a [CycleStep]);

impl std::fmt::Display for Steps<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("a circle of waits over several groups");
        }
        for (i, step) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let (lease, owner) = &step.waiter;
            let (other_lease, other_owner) = &step.blocker;
            write!(f, "{comma}{lease}/{owner} wants {} ({}) ", step.wants, step.mode)?;
            match step.blocker_token {
                Some(token) => write!(f, "held by {other_lease}/{other_owner} with token {token}")?,
                None => write!(f, "behind {other_lease}/{other_owner} in the queue")?,
            }
        }
        Ok(())
    }
}
