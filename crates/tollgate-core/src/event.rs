//! Events of the replicated history of locks and registers, for watches.

use crate::format::LockChanged;
use crate::reply::EndReason;
use tollgate_types::{Key, LeaseId, Metadata, Mode, Name, Owner, Reason, Revision, Token, Value};

/// One change. Changes that happen together (several names, one transaction) share a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Revision of the change.
    pub revision: Revision,
    /// The change itself.
    pub change: Change,
}

/// Subject of a change, with its details.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A holder or waiter of a lock.
    Lock(LockChange),
    /// A register.
    Register(RegisterChange),
}

/// A change to a holder or waiter: a PUT if `now` is set, else a DELETE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockChange {
    /// The lock.
    pub name: Name,
    /// The claim's lease.
    pub lease: LeaseId,
    /// The claim's owner.
    pub owner: Owner,
    /// Reason for holding or waiting.
    pub metadata: Metadata,
    /// Revision at which the claim joined the queue.
    pub create_revision: Revision,
    /// State of the claim from this revision on; none if it has ended.
    pub now: Option<ClaimState>,
    /// State of the claim before; none if it is new.
    pub prev: Option<ClaimState>,
    /// Reason why the claim, or its wait for an upgrade, ended.
    pub end: Option<EndReason>,
    /// The reason given for a forced release.
    pub note: Reason,
    /// Value that the claim proclaims from this revision on, if it holds and has one.
    pub value: Option<Value>,
    /// True if the lock has no holder or waiter any more.
    pub vacant: bool,
}

/// State of a holder or waiter at one revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimState {
    /// Mode that the claim holds or waits for.
    pub mode: Mode,
    /// Fencing token, if the claim holds.
    pub token: Option<Token>,
    /// Stronger mode that the claim waits for while it holds.
    pub wants: Option<Mode>,
    /// Revision of the last change.
    pub mod_revision: Revision,
    /// Number of changes so far, the creation included.
    pub version: u64,
}

/// A change to a register: a PUT if `now` is set, else a DELETE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterChange {
    /// The register.
    pub key: Key,
    /// State of the register from this revision on; none if it is gone.
    pub now: Option<RegisterState>,
    /// State of the register before; none if it is new.
    pub prev: Option<RegisterState>,
}

/// State of a register at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterState {
    /// Value of the register.
    pub value: Value,
    /// Lease with which the register ends.
    pub lease: Option<LeaseId>,
    /// Revision at which the register was created.
    pub create_revision: Revision,
    /// Revision of the last put.
    pub mod_revision: Revision,
    /// Number of puts since the register was created.
    pub version: u64,
}

impl LockChange {
    /// The same change with borrowed fields.
    pub(crate) fn borrowed(&self) -> LockChanged<'_> {
        LockChanged {
            name: &self.name,
            lease: self.lease,
            owner: &self.owner,
            metadata: &self.metadata,
            create_revision: self.create_revision,
            now: self.now,
            prev: self.prev,
            end: self.end,
            note: &self.note,
            value: self.value.as_ref(),
            vacant: self.vacant,
        }
    }

    /// The key under which watches and listings show the claim: name "/" lease ["/" owner].
    pub fn key(&self) -> String {
        claim_key(&self.name, self.lease, &self.owner)
    }
}

/// The key of a holder or waiter: name "/" lease in hex ["/" owner].
pub fn claim_key(name: &Name, lease: LeaseId, owner: &Owner) -> String {
    if owner.is_empty() { format!("{name}/{lease:016x}") } else { format!("{name}/{lease:016x}/{owner}") }
}

/// Bytes that a change counts against the bound of the history: a fixed rule, so that all replicas drop it alike.
pub(crate) fn lock_ring_bytes(change: &LockChanged<'_>) -> u64 {
    let strings = change.name.len() + change.owner.len() + change.metadata.len() + change.note.len();
    RING_BYTES_EACH + (strings + change.value.map_or(0, Value::len)) as u64
}

impl RegisterChange {
    pub(crate) fn ring_bytes(&self) -> u64 {
        let value = |state: &Option<RegisterState>| state.as_ref().map_or(0, |state| state.value.len());
        RING_BYTES_EACH + (self.key.len() + value(&self.now) + value(&self.prev)) as u64
    }
}

/// Upper bound of the encoded size of an event's numbers.
const RING_BYTES_EACH: u64 = 128;
