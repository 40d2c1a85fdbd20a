//! Events of a watch: changes of locks and registers.

use crate::register::Register;
use std::fmt;
use tollgate_types::{LeaseId, Mode, Revision, Token};

/// Change of a lock or a register. Changes that happen together share a revision and come one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Revision of the change, the cluster's count of changes.
    pub revision: Revision,
    /// The change.
    pub change: Change,
}

/// Kind and content of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A claim is new or has changed: its holder or waiter holds the lock, or waits for it, in a new way.
    Claim {
        /// Claim after the change.
        claim: Claim,
        /// Claim before the change; only if the watch asked for it, and none if the claim is new.
        before: Option<Claim>,
        /// Reason why the claim's wait for a stronger mode ended, if it has ended.
        wait_ended: Option<EndReason>,
    },
    /// A claim has ended: its holder no longer holds the lock, or its waiter no longer waits.
    ClaimEnded {
        /// Name of the lock.
        name: String,
        /// Lease of the claim.
        lease: LeaseId,
        /// Owner of the claim within the lease; empty for the lease itself.
        owner: String,
        /// Revision at which the claim was made, which identifies it.
        create_revision: Revision,
        /// Last state of the claim; only if the watch asked for it.
        before: Option<Claim>,
        /// Reason why the claim ended.
        reason: EndReason,
        /// Reason that the operator gave, with [`EndReason::Forced`].
        note: Option<String>,
        /// True if the lock has no holders and no waiters any more.
        vacant: bool,
    },
    /// A register was created or written.
    Register {
        /// Register after the change.
        register: Register,
        /// Register before the change; only if the watch asked for it, and none if the register is new.
        before: Option<Register>,
    },
    /// A register was deleted.
    RegisterDeleted {
        /// Key of the register.
        key: Vec<u8>,
        /// Last state of the register; only if the watch asked for it.
        before: Option<Register>,
    },
}

impl Change {
    /// Returns the fencing token, if this change is the grant of a lock.
    pub fn granted(&self) -> Option<Token> {
        match self {
            Change::Claim { claim, .. } => {
                claim.token.filter(|token| token.get() == claim.mod_revision.get())
            }
            _ => None,
        }
    }
}

/// Claim at one revision: a holder of a lock or a waiter for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// Name of the lock.
    pub name: String,
    /// Lease of the claim.
    pub lease: LeaseId,
    /// Owner of the claim within the lease; empty for the lease itself.
    pub owner: String,
    /// Mode in which the claim holds the lock, or wants it.
    pub mode: Mode,
    /// Fencing token of the claim; none while it waits.
    pub token: Option<Token>,
    /// Stronger mode that the claim waits for while it holds the lock.
    pub wants: Option<Mode>,
    /// Revision at which the claim joined the queue, or was granted at once.
    pub create_revision: Revision,
    /// Revision of the claim's last change.
    pub mod_revision: Revision,
    /// Number of changes of the claim; 1 at first.
    pub version: u64,
    /// Metadata of the claim as text, its reason to hold or wait; bytes that are not text are escaped. It may have line
    /// breaks: show it with [`tollgate_types::escaped`].
    pub why: String,
    /// Metadata of the claim exactly as given: any bytes.
    pub metadata: Vec<u8>,
}

/// Reason why a holder no longer holds, or a waiter no longer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The holder released the lock.
    Released,
    /// The lease was not renewed in time.
    LeaseExpired,
    /// The lease was revoked.
    LeaseRevoked,
    /// The server ended the lease because its client's connections were closed.
    Disconnected,
    /// An operator took the lock away.
    Forced,
    /// The grant reached its maximum hold time.
    MaxHold,
    /// The waiter's time to wait was over.
    TimedOut,
    /// The waiter left the queue.
    Cancelled,
    /// The wait was ended to break a deadlock over several groups.
    Deadlock,
    /// The reason is not known to this version of the client.
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
