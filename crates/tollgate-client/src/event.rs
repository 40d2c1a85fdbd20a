//! What a watch tells: changes of locks and registers.

use crate::register::Register;
use std::fmt;
use tollgate_types::{LeaseId, Mode, Revision, Token};

/// One change. Those that happen together share a revision and come one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// When: the cluster's count of changes.
    pub revision: Revision,
    /// What.
    pub change: Change,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Somebody waits for a lock or holds it, newly or in another way than before.
    Claim {
        /// As it is now.
        claim: Claim,
        /// As it was; only if the watch asked for it, and none if it is new.
        before: Option<Claim>,
        /// If its wait for a stronger mode has ended: why.
        wait_ended: Option<EndReason>,
    },
    /// Somebody no longer holds a lock, or no longer waits for it.
    ClaimEnded {
        /// The lock.
        name: String,
        /// Whose claim it was.
        lease: LeaseId,
        /// Which owner's within the lease; empty for the lease itself.
        owner: String,
        /// The revision at which the claim was made, by which it is known.
        create_revision: Revision,
        /// As it was at last; only if the watch asked for it.
        before: Option<Claim>,
        /// Why it ended.
        reason: EndReason,
        /// What the operator gave as a reason, with [`EndReason::Forced`].
        note: Option<String>,
        /// Whether nobody holds or awaits the lock any more.
        vacant: bool,
    },
    /// A register is new, or was written again.
    Register {
        /// As it is now.
        register: Register,
        /// As it was; only if the watch asked for it, and none if it is new.
        before: Option<Register>,
    },
    /// A register is gone.
    RegisterDeleted {
        /// Which.
        key: Vec<u8>,
        /// As it was; only if the watch asked for it.
        before: Option<Register>,
    },
}

impl Change {
    /// The token, if this is the moment at which a lock was granted.
    pub fn granted(&self) -> Option<Token> {
        match self {
            Change::Claim { claim, .. } => {
                claim.token.filter(|token| token.get() == claim.mod_revision.get())
            }
            _ => None,
        }
    }
}

/// Somebody who holds a lock or waits for it, at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The lock.
    pub name: String,
    /// Its lease.
    pub lease: LeaseId,
    /// Its owner within the lease; empty for the lease itself.
    pub owner: String,
    /// How it holds the lock, or wants to.
    pub mode: Mode,
    /// Its fencing token; none while it waits.
    pub token: Option<Token>,
    /// The stronger mode that it waits for while it holds.
    pub wants: Option<Mode>,
    /// The revision at which it joined the queue, or was granted at once.
    pub create_revision: Revision,
    /// The revision of its last change.
    pub mod_revision: Revision,
    /// How many changes it has seen; 1 at first.
    pub version: u64,
    /// Why it holds or waits, in its own words: the metadata, if that is text, else with what is none escaped. It may
    /// have line breaks: show it by [`tollgate_types::escaped`].
    pub why: String,
    /// The metadata as it was given, whatever it is.
    pub metadata: Vec<u8>,
}

/// Why a holder no longer holds, or a waiter no longer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// Its holder gave it back.
    Released,
    /// Nobody renewed the lease in time.
    LeaseExpired,
    /// The lease was revoked.
    LeaseRevoked,
    /// The server ended the lease because its client's connections were gone.
    Disconnected,
    /// An operator took the lock away.
    Forced,
    /// The grant reached its longest permitted time.
    MaxHold,
    /// The waiter's patience ended.
    TimedOut,
    /// The waiter left the queue.
    Cancelled,
    /// The wait was ended to break a deadlock over several groups.
    Deadlock,
    /// For a reason that this version of the client does not know.
    Unknown,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
            EndReason::Unknown => "unknown reason",
        })
    }
}
