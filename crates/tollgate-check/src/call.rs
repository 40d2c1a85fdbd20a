//! What clients ask, and what they are told.
//!
//! The words are those of the contract, without what no promise speaks of. A call without an answer is neither done
//! nor undone: it may take effect at any time after it was made, or never. Not here: what a call means (`checks`).

use std::fmt;
use tollgate_types::{Key, LeaseId, Mode, Name, Names, Owner, Revision, Token, Value};

/// One logical request with all its attempts: they carry the same seq. What has no seq (grants and renewals of
/// leases, writes without one) makes a call of each attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}", self.0)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How long a request waits in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: granted at once or busy.
    No,
    /// So many milliseconds.
    ForMs(u64),
    /// Until it is resolved.
    Forever,
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A new lease, or a renewal of one that the same client has.
    GrantLease {
        /// The chosen id; none if the group is to assign one.
        lease: Option<LeaseId>,
        /// Its time to live.
        ttl_ms: u64,
    },
    /// Renew one lease.
    KeepAlive {
        /// Which.
        lease: LeaseId,
    },
    /// End a lease.
    RevokeLease {
        /// Which.
        lease: LeaseId,
    },
    /// Take the locks, all or none.
    Lock {
        /// Which.
        names: Names,
        /// On which lease.
        lease: LeaseId,
        /// For whom.
        owner: Owner,
        /// How.
        mode: Mode,
        /// How long to wait.
        wait: Wait,
        /// After which time the grant ends by itself.
        max_hold_ms: Option<u64>,
    },
    /// Change the mode of a grant.
    Convert {
        /// Which locks.
        names: Names,
        /// On which lease.
        lease: LeaseId,
        /// For whom.
        owner: Owner,
        /// The mode wanted.
        mode: Mode,
        /// How long to wait.
        wait: Wait,
    },
    /// Give the locks back.
    Unlock {
        /// Which.
        names: Names,
        /// On which lease.
        lease: LeaseId,
        /// For whom.
        owner: Owner,
        /// The token of the grant meant; none for whichever there is.
        token: Option<Token>,
    },
    /// End the grant with this token, whoever has it: an operator's forced release, or a release by token.
    ForceRelease {
        /// Which lock.
        name: Name,
        /// The token.
        token: Token,
    },
    /// End the wait of another call.
    Cancel {
        /// Which.
        of: CallId,
        /// Give the locks back if it was granted by then.
        release_if_granted: bool,
    },
    /// Who holds the lock: a linearizable read.
    ReadLock {
        /// Which lock.
        name: Name,
    },
    /// Write a register.
    PutRegister {
        /// Which.
        key: Key,
        /// What.
        value: Value,
    },
    /// Read a register, linearizably.
    ReadRegister {
        /// Which.
        key: Key,
    },
}

/// Someone who has a lock, as a read or a busy answer shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The lease.
    pub lease: LeaseId,
    /// The owner.
    pub owner: Owner,
    /// The fencing token.
    pub token: Token,
    /// How it holds.
    pub mode: Mode,
}

/// Why a holder no longer holds, or a waiter no longer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// The wait was ended to break a deadlock.
    Deadlock,
}

/// What a client is told. For an answer that says that nothing is known, record no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The lease lives.
    LeaseGranted {
        /// Its id.
        lease: LeaseId,
        /// The revision at its grant.
        incarnation: Revision,
        /// Its time to live.
        ttl_ms: u64,
        /// Whether it lived already and was renewed.
        renewed: bool,
    },
    /// The keepalive was taken.
    Renewed {
        /// The lease's time to live from then on.
        ttl_ms: u64,
    },
    /// The lease has ended by this call.
    LeaseRevoked,
    /// No such lease, or it has ended.
    LeaseNotFound,
    /// The locks are held.
    Granted {
        /// The fencing token.
        token: Token,
        /// When the holder joined the queue, if told.
        create_revision: Option<Revision>,
        /// How it holds.
        mode: Mode,
    },
    /// Others are in the way and the request would not wait.
    Busy {
        /// Who holds the locks, up to [`Outcome::BUSY_HOLDERS_MAX`] of them; none if others wait or the lock is
        /// closed.
        holders: Vec<Holder>,
    },
    /// The wait is over without a grant, or the grant has come and gone.
    Ended {
        /// The token it had, if it was granted.
        token: Option<Token>,
        /// Why.
        reason: EndReason,
    },
    /// Waiting would never end.
    Deadlock,
    /// The locks are no longer held, by this call.
    Released {
        /// The revision of the release itself.
        revision: Revision,
    },
    /// The other call's wait is over, or will never begin.
    Cancelled,
    /// The releaser or converter does not hold (one of) the locks.
    NotHeld,
    /// The token given is not that of a present grant.
    StaleToken {
        /// That of the grant in its place.
        held: Token,
    },
    /// No such waiter to cancel.
    NotWaiting,
    /// Who holds the lock.
    Lock {
        /// As of which revision of the group.
        revision: Revision,
        /// Everyone who holds it.
        holders: Vec<Holder>,
    },
    /// The register is written.
    Written {
        /// At which revision.
        revision: Revision,
    },
    /// What the register is.
    Register {
        /// As of which revision of the group.
        revision: Revision,
        /// Its value and the revision at which it was written; none if there is no such register.
        found: Option<(Value, Revision)>,
    },
    /// Refused for any other reason: it has no effect and never will, and every attempt is told so. Where that is not
    /// certain, record no answer: a seq that was acknowledged, or not taken in because too many are in flight.
    Refused,
}

impl Outcome {
    /// How many holders a busy answer lists.
    pub const BUSY_HOLDERS_MAX: usize = 8;
}
