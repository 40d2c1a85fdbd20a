//! What a command answers, and what becomes of those who wait.

use crate::view::{Closed, HolderView, RegisterView, StubView};
use tollgate_types::{
    DurationMs, GroupId, Invalid, Key, LeaseId, Limit, LogTime, Mode, Name, Owner, Revision, Seq, Token,
};

/// What one entry did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The revision after it.
    pub revision: Revision,
    /// The answer to the entry's own command.
    pub reply: Reply,
    /// The waiters whose wait ended with this entry, in order. Each waiter appears in one entry only.
    pub resolved: Vec<Resolution>,
    /// The leases that are gone with this entry, with all that hung on them. They had ended for every command and
    /// read when their deadline came.
    pub ended_leases: Vec<EndedLease>,
    /// The first revision of the events that it made, if it made any: read them with `State::events_since`. They stay
    /// in the ring at least until the next entry.
    pub events_from: Option<Revision>,
}

/// A lease that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedLease {
    /// Its id, which may have been granted again.
    pub lease: LeaseId,
    /// The revision at its grant; if it was a stub, that in its home.
    pub incarnation: Revision,
    /// `LeaseExpired`, `LeaseRevoked` or `Disconnected`.
    pub reason: EndReason,
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Nothing to say but that it is done: ticks, limits, versions.
    Done,
    /// The lease lives.
    LeaseGranted {
        /// Its id.
        lease: LeaseId,
        /// Its time to live.
        ttl: DurationMs,
        /// The revision at its grant: tells this lease from an earlier one with the same id.
        incarnation: Revision,
        /// When it ends unless renewed.
        deadline: LogTime,
        /// Whether it lived already and was renewed.
        renewed: bool,
        /// From here on no seq was used by whoever had the lease until now.
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
        /// When the holder joined the queue.
        create_revision: Revision,
        /// How it holds: stronger than asked for, if it held a stronger grant already.
        mode: Mode,
    },
    /// In the queue. A [`Resolution`] with this revision will follow, once.
    Queued {
        /// By which the waiter is known.
        create_revision: Revision,
        /// 1 for the next in line.
        position: u64,
    },
    /// Others are in the way and the request would not wait, or no longer.
    Busy {
        /// Who holds the locks now, up to [`Reply::BUSY_HOLDERS_MAX`] of them.
        holders: Vec<HolderView>,
        /// What keeps them closed, if anything does.
        closed: Option<Closed>,
    },
    /// The locks are no longer held.
    Released {
        /// The revision of the release itself; grants that follow from it have higher ones.
        revision: Revision,
    },
    /// The wait is over, or will never begin.
    Cancelled,
    /// A repeat of a request whose claim has come and gone.
    Ended {
        /// The token it had, if it was granted.
        token: Option<Token>,
        /// How it ended.
        reason: EndReason,
    },
    /// The transaction ran.
    TxnDone {
        /// Whether all compares held.
        succeeded: bool,
        /// The revision of its writes, or the current one if it wrote nothing.
        revision: Revision,
        /// One result per step of the branch taken. A repeat has none: they are not kept.
        results: Vec<OpResult>,
    },
    /// The holder says something else from now on.
    Proclaimed {
        /// The revision of the change.
        revision: Revision,
    },
    /// The stub as it is now.
    Stub(StubView),
    /// The lease lives here, and will tell the group when it ends.
    StubRegistered,
    /// Definite: no lease of that incarnation lives here, nor ever will again. A stub of it must end.
    LeaseUnknown,
    /// Refused: nothing changed but that time passed, names were settled and acks taken in.
    Rejected(Rejection),
}

impl Reply {
    /// How many holders a busy answer lists.
    pub const BUSY_HOLDERS_MAX: usize = 8;
}

/// The answer to one keepalive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// Which lease.
    pub lease: LeaseId,
    /// Its time to live and new deadline; none if there is no such lease here.
    pub result: Option<(DurationMs, LogTime)>,
    /// Where it lives, if what is here is a stub: renew it there.
    pub home: Option<GroupId>,
}

/// What one step of a transaction gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpResult {
    /// Written.
    Put,
    /// The registers found, and how many matched in all.
    Got {
        /// In the order asked for.
        registers: Vec<RegisterView>,
        /// How many match, `registers` and those past the limit; one above `range_max` stands for all that are more.
        count: u64,
    },
    /// How many were deleted.
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
    /// What became of it.
    pub outcome: WaitOutcome,
}

/// What became of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitOutcome {
    /// It holds.
    Granted {
        /// The fencing token.
        token: Token,
        /// How it holds.
        mode: Mode,
    },
    /// It does not, and why: `TimedOut`, `Cancelled`, `Deadlock`, `LeaseExpired`, `LeaseRevoked` or `Disconnected`. For
    /// an upgrade also how the grant that it stood on ended, or how it lost one of its names: it may hold the others.
    Ended(EndReason),
}

/// Why a holder no longer holds, or a waiter no longer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndReason {
    /// The holder gave it back.
    Released,
    /// Nobody renewed the lease in time.
    LeaseExpired,
    /// The client ended its lease.
    LeaseRevoked,
    /// The server ended the lease because the client's connections were gone.
    Disconnected,
    /// An operator took it away.
    Forced,
    /// The grant reached its max hold.
    MaxHold,
    /// The waiter's deadline came.
    TimedOut,
    /// The waiter left.
    Cancelled,
    /// Waiting would never have ended: it was part of a deadlock over several groups.
    Deadlock,
}

/// In a word or two, for logs.
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
    /// Whether a holder may still believe that it holds: then a lock-delay applies.
    pub const fn is_involuntary(self) -> bool {
        use EndReason::{Disconnected, Forced, LeaseExpired, LeaseRevoked, MaxHold};
        matches!(self, LeaseExpired | LeaseRevoked | Disconnected | Forced | MaxHold)
    }
}

/// How a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeaseEnd {
    /// Nobody renewed it in time.
    Expired,
    /// Its client ended it.
    Revoked,
    /// The server ended it because the client's connections were gone.
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
    /// The end of a lease that ended claims for this reason; none if no lease does.
    pub const fn from_reason(reason: EndReason) -> Option<LeaseEnd> {
        match reason {
            EndReason::LeaseExpired => Some(LeaseEnd::Expired),
            EndReason::LeaseRevoked => Some(LeaseEnd::Revoked),
            EndReason::Disconnected => Some(LeaseEnd::Disconnected),
            _ => None,
        }
    }
}

/// Why a request was refused. Deterministic: every replica refuses it alike.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No such lease, or it has ended.
    #[error("lease {lease} not found: it ended or never was; grant a new one")]
    LeaseNotFound {
        /// Which.
        lease: LeaseId,
    },
    /// Another client has a lease with the chosen id.
    #[error("lease {lease} belongs to another client: choose another id, or let the group assign one")]
    LeaseTaken {
        /// Which.
        lease: LeaseId,
    },
    /// The lease's time to live is out of range.
    #[error("ttl of {} is out of range: it must be from {} to {}", asked.in_units(), min.in_units(), max.in_units())]
    TtlOutOfRange {
        /// What was asked for.
        asked: DurationMs,
        /// The shortest allowed.
        min: DurationMs,
        /// The longest allowed.
        max: DurationMs,
    },
    /// The releaser or converter does not hold the lock.
    #[error("{name} is not held by this owner: it was released, lost, or never granted")]
    NotHeld {
        /// Which lock.
        name: Name,
    },
    /// The token is not that of a present grant.
    #[error("token {given} of {name} is stale: the present grant has token {held}")]
    StaleToken {
        /// Which lock.
        name: Name,
        /// The token given.
        given: Token,
        /// That of the grant in its place.
        held: Token,
    },
    /// No such waiter to cancel.
    #[error("this owner does not wait for {name}")]
    NotWaiting {
        /// Which lock.
        name: Name,
    },
    /// Plain modes and permits don't mix, and neither do semaphores of different size.
    #[error("{name} is in use as {in_use}: ask for that, or wait until nobody holds or awaits it")]
    OtherKind {
        /// Which lock.
        name: Name,
        /// What it is in use as.
        in_use: Kind,
    },
    /// A grant's permits can't be changed.
    #[error("this owner holds {held} of {name}: release it before asking for another number of permits")]
    PermitsFixed {
        /// Which lock.
        name: Name,
        /// What it holds.
        held: Mode,
    },
    /// The owner waits for the lock already, with another mode or other names.
    #[error("this owner already waits for {name} with another mode or set of names: cancel that first")]
    AlreadyWaiting {
        /// Which lock.
        name: Name,
    },
    /// A request for several names meets a grant or wait of the same owner on some of them.
    #[error("this owner already has a claim on {name} but not the same one on all names: release it first")]
    Overlap {
        /// Which lock.
        name: Name,
    },
    /// Waiting would never end.
    #[error("deadlock: {}", Steps(cycle))]
    Deadlock {
        /// Who waits for whom, from the refused request round to itself; empty where that lies in several groups.
        cycle: Vec<CycleStep>,
    },
    /// More than a limit allows.
    #[error("{limit} is {max}: {got} is too many")]
    LimitExceeded {
        /// Which.
        limit: Limit,
        /// Its value.
        max: u64,
        /// What the request would have made it.
        got: u64,
    },
    /// The client has acknowledged this request's answer, so this is a duplicate that lost its way.
    #[error("request {seq} was acknowledged by its client: a delayed duplicate has no effect")]
    SeqAcked {
        /// Which.
        seq: Seq,
    },
    /// Another request was sent under this seq before.
    #[error(
        "seq {seq} was used before, by another request of this lease: a seq is used once; in a program that starts \
         again, grant the lease again: the answer's next_seq says where to begin"
    )]
    SeqReused {
        /// Which. Where the lease's unused seqs begin is known to its home alone.
        seq: Seq,
    },
    /// A repeat of a request that was rejected. The first answer had the details.
    #[error("request {seq} was rejected before ({code:?}): correct it and send it with a new seq")]
    RejectedBefore {
        /// Which.
        seq: Seq,
        /// Why.
        code: RejectionCode,
    },
    /// One transaction writes a key twice.
    #[error("the transaction writes {key} twice: write each key once")]
    KeyTwice {
        /// Which.
        key: Key,
    },
    /// Limits that no group can have.
    #[error("limits refused: {0}")]
    InvalidLimits(Invalid),
    /// Not above the version in force.
    #[error("apply version is {current} already: {asked} does not raise it")]
    ApplyVersionNotRaised {
        /// In force.
        current: u32,
        /// What was asked for.
        asked: u32,
    },
    /// The lease's home has not confirmed the stub yet. Nothing was done, and the request's seq is not used up.
    #[error("lease {lease} lives in group {home}, which has not confirmed it here yet: repeat the request")]
    StubPending {
        /// Which lease.
        lease: LeaseId,
        /// Where it lives.
        home: GroupId,
    },
    /// Only a lease's home grants, renews and revokes it.
    #[error("lease {lease} lives in group {home}, and this is not it: ask there")]
    NotHome {
        /// Which lease.
        lease: LeaseId,
        /// Where it lives.
        home: GroupId,
    },
    /// A lease that lives here needs no stub.
    #[error("lease {lease} lives in this group: it has no stub here")]
    HomeHere {
        /// Which lease.
        lease: LeaseId,
    },
    /// The stub here is that of another lease with the same id.
    #[error(
        "the stub of lease {lease} is of incarnation {stands}: end it first if its home says it has ended"
    )]
    OtherIncarnation {
        /// Which lease.
        lease: LeaseId,
        /// The incarnation of the stub.
        stands: Revision,
    },
    /// No such stub, or another one was added since.
    #[error("there is no such stub of lease {lease}: it ended or was never added")]
    StubNotFound {
        /// Which lease.
        lease: LeaseId,
    },
    /// A lease can have stubs in so many groups only.
    #[error("lease {lease} has stubs in {max} groups already: use another lease")]
    TooManyGroups {
        /// Which lease.
        lease: LeaseId,
        /// How many it may have.
        max: u64,
    },
    /// Another group serves the slot of a name, key or lease id in it. Nothing was done, and no seq is used up.
    #[error("group {group} serves that, by the group map of epoch {epoch}: ask there")]
    WrongGroup {
        /// Of the map in force here. A caller with an older map fetches this one.
        epoch: u64,
        /// Who serves it by that map.
        group: GroupId,
    },
}

macro_rules! rejection_codes {
    ($($variant:ident = $code:literal,)*) => {
        /// A rejection without its details: what is kept for a repeat. The numbers are part of the snapshot format.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is documented as the rejection of the same name")]
        #[repr(u8)]
        pub enum RejectionCode {
            $($variant = $code,)*
        }

        impl RejectionCode {
            /// The code of a number in a snapshot.
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

/// What a lock is in use as, while anyone holds or awaits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A lock with modes.
    Modes,
    /// A semaphore.
    Semaphore {
        /// Its permits.
        of: u32,
    },
}

impl Kind {
    /// What a request in this mode takes the lock for.
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
    /// Who waits.
    pub waiter: (LeaseId, Owner),
    /// For which lock.
    pub wants: Name,
    /// In which mode.
    pub mode: Mode,
    /// Who is in the way: the waiter of the next step.
    pub blocker: (LeaseId, Owner),
    /// The token with which the blocker holds the lock; none if it waits ahead in the queue.
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
