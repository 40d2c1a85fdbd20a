//! What reads return: the state as a client sees it.

use crate::reply::LeaseEnd;
use tollgate_types::{
    Address, ClientId, DurationMs, GroupId, Key, LeaseId, LogTime, Metadata, Mode, Name, Owner, Revision,
    Token, Value,
};

/// A lock that someone holds or awaits, or that a lock-delay keeps closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView {
    /// Its name.
    pub name: Name,
    /// Who holds it, oldest token first.
    pub holders: Vec<HolderView>,
    /// Who waits, next in line first.
    pub waiters: Vec<WaiterView>,
    /// Until when a lock-delay keeps it closed.
    pub closed_until: Option<LogTime>,
}

/// A holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderView {
    /// name "/" lease ["/" owner].
    pub key: String,
    /// Its lease.
    pub lease: LeaseId,
    /// Its owner.
    pub owner: Owner,
    /// What the lease's client calls itself.
    pub client_id: ClientId,
    /// How it holds.
    pub mode: Mode,
    /// Its fencing token.
    pub token: Token,
    /// Why it holds.
    pub metadata: Metadata,
    /// What it says of itself, and the revision since which it does: that of its grant or of its last Proclaim.
    pub said: Option<(Value, Revision)>,
    /// When it joined the queue.
    pub create_revision: Revision,
    /// Its last change.
    pub mod_revision: Revision,
    /// How many changes it has seen.
    pub version: u64,
    /// The log time since which it holds the lock, in whatever mode.
    pub since: LogTime,
    /// When the grant ends if nothing happens: the lease's deadline or the max hold, whichever is first. The deadline
    /// of a lease that lives in another group is not known here and counts as never.
    pub expiration: LogTime,
}

/// A waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaiterView {
    /// name "/" lease ["/" owner].
    pub waiter_key: String,
    /// The key of the waiter before it, or of a holder if it is the first; none if only a lock-delay is in the way.
    pub predecessor_key: Option<String>,
    /// 1 for the next in line.
    pub position: u64,
    /// Its lease.
    pub lease: LeaseId,
    /// Its owner.
    pub owner: Owner,
    /// What the lease's client calls itself.
    pub client_id: ClientId,
    /// What it waits for.
    pub mode: Mode,
    /// Whether it holds a weaker mode meanwhile.
    pub upgrade: bool,
    /// Why it waits.
    pub metadata: Metadata,
    /// When it joined the queue; the number by which its wait is known.
    pub create_revision: Revision,
    /// The log time then.
    pub since: LogTime,
    /// When it gives up.
    pub deadline: Option<LogTime>,
    /// Whether all who wait stand by: single callers, none of them a session.
    pub attended: bool,
    /// How often its claim was asked for, repeats included.
    pub asks: u32,
}

/// Why a name that nobody may hold can't be had yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// For how much longer.
    pub left: DurationMs,
    /// Whether all names are closed, because the group was restored from a backup; else a lock-delay keeps it closed.
    pub restored: bool,
}

/// A wait, as whoever looks after those who stand by sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitView {
    /// The first of its locks.
    pub name: Name,
    /// By which it is known.
    pub create_revision: Revision,
    /// Whose it is.
    pub lease: LeaseId,
    /// As in [`WaiterView::attended`].
    pub attended: bool,
    /// As in [`WaiterView::asks`].
    pub asks: u32,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// Its id.
    pub lease: LeaseId,
    /// The revision at its grant, in its home.
    pub incarnation: Revision,
    /// Its time to live; 0 of a stub.
    pub ttl: DurationMs,
    /// What is left of it; 0 of a stub.
    pub remaining: DurationMs,
    /// When it ends unless renewed; never of a stub, whose home knows.
    pub deadline: LogTime,
    /// What its client calls itself.
    pub client_id: ClientId,
    /// Where its client was last seen.
    pub address: Address,
    /// The log time of its grant or last renewal; of a stub, when it was added.
    pub last_seen: LogTime,
    /// Whether the server ends it when the client's last connection closes.
    pub revoke_on_disconnect: bool,
    /// How many holders and waiters hang on it, in this group.
    pub claims: u64,
    /// The other groups that must be told of its end, in order: where it may have more of them. None of a stub.
    pub groups: Vec<GroupId>,
    /// What it is, if it lives in another group.
    pub stub: Option<StubView>,
}

/// A lease's stand-in in a group that is not its home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StubView {
    /// Which lease.
    pub lease: LeaseId,
    /// The revision, in its home, at its grant.
    pub incarnation: Revision,
    /// Where it lives.
    pub home: GroupId,
    /// The revision, here, at which the stub was added: tells it from an earlier one of the same lease.
    pub added: Revision,
    /// Whether the home has yet to confirm it. Until then it can't be used.
    pub pending: bool,
}

/// A group that must be told of a lease's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnackedEnd {
    /// Which lease.
    pub lease: LeaseId,
    /// The revision at its grant.
    pub incarnation: Revision,
    /// Whom to tell.
    pub group: GroupId,
    /// How it ended.
    pub reason: LeaseEnd,
}

/// One name that a lease holds or awaits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseClaim {
    /// The lock.
    pub name: Name,
    /// The claim's owner.
    pub owner: Owner,
    /// How it holds, or wants to.
    pub mode: Mode,
    /// Its fencing token, if it holds.
    pub token: Option<Token>,
}

/// A register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterView {
    /// Its key.
    pub key: Key,
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
