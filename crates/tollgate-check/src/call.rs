//! Client calls and their outcomes, as a history records them.
//!
//! The terms are those of the client contract, without anything that no promise is about. A call without an answer is
//! neither done nor undone: it may take effect at any time after it was made, or never. Not here: the meaning of a call
//! (`checks`).

use std::fmt;
use tollgate_types::{Key, LeaseId, Mode, Name, Names, Owner, Revision, Token, Value};

/// One logical request with all its attempts, which carry the same seq. For an operation without a seq (grants and
/// renewals of leases, writes without a seq) each attempt is a call of its own.
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

/// Maximum time that a request waits in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// No waiting: granted at once or busy.
    No,
    /// At most this many milliseconds.
    ForMs(u64),
    /// Until the request is resolved.
    Forever,
}

/// Operation that a client requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Grants a new lease, or renews one that the same client has.
    GrantLease {
        /// Lease id chosen by the client; none if the group is to assign one.
        lease: Option<LeaseId>,
        /// Time to live.
        ttl_ms: u64,
    },
    /// Renews one lease.
    KeepAlive {
        /// Lease to renew.
        lease: LeaseId,
    },
    /// Ends a lease.
    RevokeLease {
        /// Lease to end.
        lease: LeaseId,
    },
    /// Takes the locks, all or none.
    Lock {
        /// Names of the locks.
        names: Names,
        /// Lease under which the locks are held.
        lease: LeaseId,
        /// Owner that requests the locks.
        owner: Owner,
        /// Mode requested.
        mode: Mode,
        /// Maximum time to wait in the queue.
        wait: Wait,
        /// Max hold: the time after which the grant ends by itself, in milliseconds.
        max_hold_ms: Option<u64>,
    },
    /// Changes the mode of a grant.
    Convert {
        /// Names of the locks.
        names: Names,
        /// Lease of the holder.
        lease: LeaseId,
        /// Owner of the holder.
        owner: Owner,
        /// Mode requested.
        mode: Mode,
        /// Maximum time to wait in the queue.
        wait: Wait,
    },
    /// Releases the locks.
    Unlock {
        /// Names of the locks.
        names: Names,
        /// Lease of the holder.
        lease: LeaseId,
        /// Owner of the holder.
        owner: Owner,
        /// Token of the grant to release; none for whatever grant the holder has.
        token: Option<Token>,
    },
    /// Ends the grant with this token, whoever holds it: an operator's forced release, or a release by token.
    ForceRelease {
        /// Name of the lock.
        name: Name,
        /// Token of the grant to end.
        token: Token,
    },
    /// Ends the wait of another call.
    Cancel {
        /// Call to cancel.
        of: CallId,
        /// True to release the locks if the call was granted by then.
        release_if_granted: bool,
    },
    /// Reads the holders of a lock, linearizably.
    ReadLock {
        /// Name of the lock.
        name: Name,
    },
    /// Writes a register.
    PutRegister {
        /// Key of the register.
        key: Key,
        /// Value to write.
        value: Value,
    },
    /// Reads a register, linearizably.
    ReadRegister {
        /// Key of the register.
        key: Key,
    },
}

/// A holder of a lock, as a read or a busy answer shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The lease.
    pub lease: LeaseId,
    /// The owner.
    pub owner: Owner,
    /// The fencing token.
    pub token: Token,
    /// The mode of the grant.
    pub mode: Mode,
}

/// Reason why a holder no longer holds or a waiter no longer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The holder released the lock.
    Released,
    /// The lease was not renewed in time.
    LeaseExpired,
    /// The client ended its lease.
    LeaseRevoked,
    /// The server ended the lease because the client's connections were gone.
    Disconnected,
    /// An operator took the lock away.
    Forced,
    /// The grant reached its max hold.
    MaxHold,
    /// The waiter's deadline passed.
    TimedOut,
    /// The wait was cancelled.
    Cancelled,
    /// The wait was ended to break a deadlock.
    Deadlock,
}

/// Answer to a call. For an answer which says that the outcome is unknown, record no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The lease was granted or renewed, and lives.
    LeaseGranted {
        /// Id of the lease.
        lease: LeaseId,
        /// Revision at which the lease was granted.
        incarnation: Revision,
        /// Time to live of the lease.
        ttl_ms: u64,
        /// True if the lease lived already and was renewed.
        renewed: bool,
    },
    /// The keepalive was accepted.
    Renewed {
        /// The lease's time to live from then on.
        ttl_ms: u64,
    },
    /// This call ended the lease.
    LeaseRevoked,
    /// No such lease, or the lease has ended.
    LeaseNotFound,
    /// The locks are held.
    Granted {
        /// The fencing token.
        token: Token,
        /// Revision at which the holder joined the queue, if reported.
        create_revision: Option<Revision>,
        /// Mode of the grant.
        mode: Mode,
    },
    /// Holders or waiters are in the way, and the request does not wait.
    Busy {
        /// Holders of the locks, at most [`Outcome::BUSY_HOLDERS_MAX`] of them; empty if nobody holds them, but others
        /// wait or the lock is closed.
        holders: Vec<Holder>,
    },
    /// The wait ended without a grant, or the grant has already ended.
    Ended {
        /// Token of the grant, if the call was granted.
        token: Option<Token>,
        /// Reason for the end.
        reason: EndReason,
    },
    /// Deadlock: the wait would never end.
    Deadlock,
    /// This call released the locks.
    Released {
        /// Revision of the release itself.
        revision: Revision,
    },
    /// The wait of the other call is over, or will never begin.
    Cancelled,
    /// The lock to release or convert, or one of several, is not held.
    NotHeld,
    /// The given token belongs to no current grant.
    StaleToken {
        /// Token of the current grant; the highest one, if a forced release finds several holders.
        held: Token,
    },
    /// No such waiter to cancel.
    NotWaiting,
    /// The holders of a lock.
    Lock {
        /// Group revision as of which the answer is true.
        revision: Revision,
        /// All holders of the lock.
        holders: Vec<Holder>,
    },
    /// The register was written.
    Written {
        /// Revision of the write.
        revision: Revision,
    },
    /// The content of a register.
    Register {
        /// Group revision as of which the answer is true.
        revision: Revision,
        /// Value of the register and the revision at which it was written; none if there is no such register.
        found: Option<(Value, Revision)>,
    },
    /// Refused for any other reason: the call has no effect and never will, and every attempt gets this answer. Where
    /// that is not certain, record no answer: if the seq was already acknowledged, or was not accepted because too many
    /// are in flight.
    Refused,
}

impl Outcome {
    /// Maximum number of holders that a busy answer lists.
    pub const BUSY_HOLDERS_MAX: usize = 8;
}
