//! What changed, for watches: the replicated history of locks and registers.

use crate::format::LockChanged;
use crate::reply::EndReason;
use tollgate_types::{Key, LeaseId, Metadata, Mode, Name, Owner, Reason, Revision, Token, Value};

/// One change. Changes that happen together (several names, one transaction) share a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub revision: Revision,
    /// What.
    pub change: Change,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A holder or waiter of a lock.
    Lock(LockChange),
    /// A register.
    Register(RegisterChange),
}

/// A change to a holder or waiter: a PUT where `now` is there, else a DELETE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockChange {
    /// The lock.
    pub name: Name,
    /// The claim's lease.
    pub lease: LeaseId,
    /// The claim's owner.
    pub owner: Owner,
    /// Why it holds or waits.
    pub metadata: Metadata,
    /// When it joined the queue.
    pub create_revision: Revision,
    /// What it is from this revision on; none if it has ended.
    pub now: Option<ClaimState>,
    /// What it was before; none if it is new.
    pub prev: Option<ClaimState>,
    /// Why it, or its wait for an upgrade, ended.
    pub end: Option<EndReason>,
    /// The reason given for a forced release.
    pub note: Reason,
    /// What it says from this revision on, if it holds and says anything.
    pub value: Option<Value>,
    /// Whether nobody holds or awaits the lock any more.
    pub vacant: bool,
}

/// What a holder or waiter is at one revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimState {
    /// How it holds, or wants to.
    pub mode: Mode,
    /// Its fencing token, if it holds.
    pub token: Option<Token>,
    /// The stronger mode that it waits for while it holds.
    pub wants: Option<Mode>,
    /// Its last change.
    pub mod_revision: Revision,
    /// How many changes it has seen.
    pub version: u64,
}

/// A change to a register: a PUT where `now` is there, else a DELETE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterChange {
    /// The register.
    pub key: Key,
    /// What it is from this revision on.
    pub now: Option<RegisterState>,
    /// What it was before.
    pub prev: Option<RegisterState>,
}

/// What a register is at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterState {
    /// Its value.
    pub value: Value,
    /// The lease with which it ends.
    pub lease: Option<LeaseId>,
    /// When it was created.
    pub create_revision: Revision,
    /// When it was last put.
    pub mod_revision: Revision,
    /// How often it was put since its creation.
    pub version: u64,
}

impl LockChange {
    /// The same, by reference.
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

/// What a change counts against the bound of the history: a fixed rule, so that all replicas drop it alike.
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

/// More than the numbers of an event take when encoded.
const RING_BYTES_EACH: u64 = 128;
