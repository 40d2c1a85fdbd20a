//! What happens to locks and leases, noted for people to read.
//!
//! A note is no part of the state, and nothing is decided by it: it reaches no reply, no event and no format, and a
//! state takes none unless it is told to. Not here: where notes are taken (`state/notes`), and who writes them into a
//! log (`tollgate-node`).

use crate::reply::EndReason;
use tollgate_types::{ClientId, DurationMs, LeaseId, Mode, Name, Owner, Reason, Token};

/// What is noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Noting {
    /// Nothing.
    #[default]
    Nothing,
    /// What ends against its holder's will or the waiter's: locks that are lost, deadlocks, and leases that nobody
    /// ended.
    Losses,
    /// Everything: also waits, grants, changes of mode, releases.
    All,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What.
    pub what: Noted,
    /// The locks; none where a lease ended.
    pub names: Vec<Name>,
    /// The lease.
    pub lease: LeaseId,
    /// The owner inside it.
    pub owner: Owner,
    /// What the lease's client calls itself.
    pub client_id: ClientId,
    /// How the locks are held, or wanted.
    pub mode: Option<Mode>,
    /// The fencing token, if they are held, or were until now.
    pub token: Option<Token>,
    /// How long it waited in line, if that is over.
    pub waited: Option<DurationMs>,
    /// How long it held them, if that is over.
    pub held: Option<DurationMs>,
    /// Why it ended.
    pub reason: Option<EndReason>,
    /// The reason given for a forced release.
    pub note: Reason,
}

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// It joined the queues.
    Waits,
    /// It holds.
    Granted,
    /// It holds in another mode.
    Converted,
    /// It holds no more.
    Ended,
    /// It waits no more, and was not granted.
    Left,
    /// It was not let into the queues, because waiting would never have ended.
    Refused,
    /// The lease ended. What it held or awaited is noted before.
    LeaseEnded,
}
