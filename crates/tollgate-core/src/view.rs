//! Views that reads return: the state as a client sees it.

use crate::reply::LeaseEnd;
use tollgate_types::{
    Address, ClientId, DurationMs, GroupId, Key, LeaseId, LogTime, Metadata, Mode, Name, Owner, Revision,
    Token, Value,
};

/// A lock that someone holds or awaits, or that a lock-delay keeps closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView {
    /// Name of the lock.
    pub name: Name,
    /// Holders, oldest token first.
    pub holders: Vec<HolderView>,
    /// Waiters, next in line first.
    pub waiters: Vec<WaiterView>,
    /// Log time until which a lock-delay keeps the lock closed.
    pub closed_until: Option<LogTime>,
}

/// A holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderView {
    /// Key of the holder: name "/" lease ["/" owner].
    pub key: String,
    /// Lease of the holder.
    pub lease: LeaseId,
    /// Owner inside the lease.
    pub owner: Owner,
    /// Name that the lease's client gives itself.
    pub client_id: ClientId,
    /// Mode of the grant.
    pub mode: Mode,
    /// Fencing token of the grant.
    pub token: Token,
    /// Reason for holding, given with the request.
    pub metadata: Metadata,
    /// Value that the holder proclaims, and the revision of the grant or of the last Proclaim that set it.
    pub said: Option<(Value, Revision)>,
    /// Revision at which the holder joined the queue.
    pub create_revision: Revision,
    /// Revision of the last change.
    pub mod_revision: Revision,
    /// Number of changes so far, the creation included.
    pub version: u64,
    /// Log time since which the lock has been held, in whatever mode.
    pub since: LogTime,
    /// Log time at which the grant ends if nothing happens: the lease's deadline or the max hold, whichever is first.
    /// The deadline of a lease that lives in another group is not known here and counts as never.
    pub expiration: LogTime,
}

/// A waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaiterView {
    /// Key of the waiter: name "/" lease ["/" owner].
    pub waiter_key: String,
    /// Key of the waiter before this one, or of a holder if this one is the first; none if only a lock-delay is in the
    /// way.
    pub predecessor_key: Option<String>,
    /// Position in the queue; 1 for the next in line.
    pub position: u64,
    /// Lease of the waiter.
    pub lease: LeaseId,
    /// Owner inside the lease.
    pub owner: Owner,
    /// Name that the lease's client gives itself.
    pub client_id: ClientId,
    /// Mode that the waiter waits for.
    pub mode: Mode,
    /// True if the waiter holds a weaker mode meanwhile.
    pub upgrade: bool,
    /// Reason for waiting, given with the request.
    pub metadata: Metadata,
    /// Revision at which the waiter joined the queue; it identifies the wait.
    pub create_revision: Revision,
    /// Log time at which the waiter joined the queue.
    pub since: LogTime,
    /// Log time at which the wait gives up; none if it never does.
    pub deadline: Option<LogTime>,
    /// True if all callers that wait stand by: single callers, none of them a session.
    pub attended: bool,
    /// Number of requests for the claim, repeats included.
    pub asks: u32,
}

/// Reason why a name without a holder is not available yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Time left until the name is open.
    pub left: DurationMs,
    /// True if all names are closed, because the group was restored from a backup; false if a lock-delay keeps the name
    /// closed.
    pub restored: bool,
}

/// A wait, for the code that ends waits whose callers no longer stand by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitView {
    /// The first of the wait's locks.
    pub name: Name,
    /// Revision that identifies the wait.
    pub create_revision: Revision,
    /// Lease of the waiter.
    pub lease: LeaseId,
    /// As in [`WaiterView::attended`].
    pub attended: bool,
    /// As in [`WaiterView::asks`].
    pub asks: u32,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// Id of the lease.
    pub lease: LeaseId,
    /// Revision of the home group at which the lease was granted.
    pub incarnation: Revision,
    /// Time to live; 0 for a stub.
    pub ttl: DurationMs,
    /// Time left until the deadline; 0 for a stub.
    pub remaining: DurationMs,
    /// Log time at which the lease ends unless renewed; never for a stub, because only the home knows the deadline.
    pub deadline: LogTime,
    /// Name that the lease's client gives itself.
    pub client_id: ClientId,
    /// Last known network address of the client.
    pub address: Address,
    /// Log time of the grant or of the last renewal; for a stub, log time at which it was added.
    pub last_seen: LogTime,
    /// True if the server ends the lease when the client's last connection closes.
    pub revoke_on_disconnect: bool,
    /// Number of holders and waiters with this lease, in this group.
    pub claims: u64,
    /// The other groups that must be told of the lease's end, in order: they may have more of its claims. Empty for a
    /// stub.
    pub groups: Vec<GroupId>,
    /// Details of the stub, if the lease lives in another group.
    pub stub: Option<StubView>,
}

/// A lease's stand-in in a group that is not its home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StubView {
    /// Id of the lease.
    pub lease: LeaseId,
    /// Revision of the home group at which the lease was granted.
    pub incarnation: Revision,
    /// Home of the lease.
    pub home: GroupId,
    /// Revision of this group at which the stub was added: tells it from an earlier stub of the same lease.
    pub added: Revision,
    /// True until the home has confirmed the stub. A pending stub can't be used.
    pub pending: bool,
}

/// A lease's end that a group must be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnackedEnd {
    /// Id of the lease.
    pub lease: LeaseId,
    /// Revision at which the lease was granted.
    pub incarnation: Revision,
    /// Group that must be told.
    pub group: GroupId,
    /// Way in which the lease ended.
    pub reason: LeaseEnd,
}

/// One name that a lease holds or awaits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseClaim {
    /// The lock.
    pub name: Name,
    /// The claim's owner.
    pub owner: Owner,
    /// Mode that the claim holds or waits for.
    pub mode: Mode,
    /// Fencing token, if the claim holds.
    pub token: Option<Token>,
}

/// A register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterView {
    /// Key of the register.
    pub key: Key,
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
