//! Notes about locks and leases, for people to read.
//!
//! A note is no part of the state, and nothing is decided by it: it reaches no reply, no event and no format, and a
//! state takes none unless it is told to. Not here: taking notes (`state/notes`), and writing them into a log
//! (`tollgate-node`).

use crate::reply::EndReason;
use tollgate_types::{ClientId, DurationMs, LeaseId, Mode, Name, Owner, Reason, Token};

/// Selection of the notes to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Noting {
    /// Nothing.
    #[default]
    Nothing,
    /// Ends against the will of the holder or the waiter: lost locks, deadlocks, and leases that no client ended.
    Losses,
    /// Everything: also waits, grants, changes of mode, releases.
    All,
}

/// One event in the life of a claim or a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Kind of the event.
    pub what: Noted,
    /// Names of the locks; empty if a lease ended.
    pub names: Vec<Name>,
    /// Lease of the claim.
    pub lease: LeaseId,
    /// Owner inside the lease.
    pub owner: Owner,
    /// Name that the lease's client gives itself.
    pub client_id: ClientId,
    /// Mode that is held or wanted.
    pub mode: Option<Mode>,
    /// Fencing token, if the locks are held, or were until now.
    pub token: Option<Token>,
    /// Time spent in the queue, if that is over.
    pub waited: Option<DurationMs>,
    /// Time for which the locks were held, if that is over.
    pub held: Option<DurationMs>,
    /// Reason for the end.
    pub reason: Option<EndReason>,
    /// The reason given for a forced release.
    pub note: Reason,
}

/// Kind of a noted event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// The claim joined the queues.
    Waits,
    /// The claim was granted.
    Granted,
    /// The claim holds in another mode.
    Converted,
    /// The claim holds no more.
    Ended,
    /// The claim left the queues without a grant.
    Left,
    /// The request was not let into the queues, because the wait would never have ended.
    Refused,
    /// The lease ended. The ends of its claims are noted before.
    LeaseEnded,
}
