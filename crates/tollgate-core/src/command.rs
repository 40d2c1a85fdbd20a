//! The commands that consensus orders. Adding a variant or a field changes the log format (`format::command`).

use tollgate_types::{
    Address, ClientId, DurationMs, GroupId, Key, LeaseId, Limits, Lineage, LogTime, Metadata, Mode, Name,
    Names, Owner, Reason, Revision, Seq, SeqRanges, Slot, Token, Value, WallTime,
};

use crate::format::{FORMAT_1, FORMAT_2};
use crate::reply::LeaseEnd;

/// One command with the log time that the leader stamped on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Log time of the group, never below the log time of the entry before.
    pub at: LogTime,
    /// Time of day that the leader's wall clock showed. Decides nothing.
    pub wall: WallTime,
    /// The command.
    pub command: Command,
}

impl Entry {
    /// An entry without a recorded time of day.
    pub const fn new(at: LogTime, command: Command) -> Entry {
        Entry { at, wall: WallTime::UNKNOWN, command }
    }
}

/// A change that consensus has ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Does nothing but let log time pass, which it must even when no client speaks.
    Tick,
    /// Grants a lease, or renews it if the same client has it already.
    GrantLease(GrantLease),
    /// Renews leases: the keepalives that a leader gathered for a few milliseconds.
    RenewLeases(RenewLeases),
    /// Ends a lease now.
    RevokeLease(RevokeLease),
    /// Takes one lock or several together, or joins their queues.
    AcquireLock(AcquireLock),
    /// Gives locks back.
    ReleaseLock(ReleaseLock),
    /// Changes the mode of a grant.
    ConvertLock(ConvertLock),
    /// Leaves a queue, or forbids a request that has not arrived yet.
    CancelWait(CancelWait),
    /// Takes a lock away from the holder of a token.
    ForceRelease(ForceRelease),
    /// Changes the value that a holder proclaims.
    Proclaim(Proclaim),
    /// Reads and writes registers in one step.
    Txn(Txn),
    /// Replaces the limits.
    SetLimits(Box<Limits>),
    /// Raises the apply version, so that the group may use the features of newer binaries.
    RaiseApplyVersion(u32),
    /// In a group that is not the lease's home: adds a pending stub, to which the lease's claims here will be attached.
    AddStub(AddStub),
    /// Confirms a stub: the lease's home has registered this group, so the stub may be used.
    ConfirmStub(ConfirmStub),
    /// Ends a stub and all that is attached to it: the lease's home says that the lease has ended, or never lived.
    EndStub(EndStub),
    /// In a lease's home: registers a group that has a stub of the lease and must be told of the lease's end.
    RegisterStub(RegisterStub),
    /// In a lease's home: records that a group has ended its stub, and need not be told again.
    AckLeaseEnd(AckLeaseEnd),
    /// Ends a wait that is part of a deadlock over several groups, which no single group can see.
    EndDeadlock(EndDeadlock),
    /// Sets the group's lineage, drawn by the first leader of a new cluster, if the group has none yet.
    SetLineage(Lineage),
}

impl Command {
    /// Removes or simplifies the fields that an entry of the given format can't hold, so that a replica that keeps the
    /// command has the same command as those that decode the entry.
    pub fn fit_into(&mut self, format: u8) {
        if format <= FORMAT_2
            && let Command::AcquireLock(acquire) = self
            && !acquire.metadata.is_plain()
        {
            acquire.metadata = acquire.metadata.to_plain();
        }
        if format > FORMAT_1 {
            return;
        }
        if let Some(request) = self.request_mut() {
            request.scope = Scope::Unsaid;
        }
        if let Command::CancelWait(cancel) = self
            && let CancelTarget::SeqOn { seq, .. } = cancel.target
        {
            cancel.target = CancelTarget::Seq(seq);
        }
    }

    /// Lease and seq that identify a repeat of the command, if the command has a seq.
    pub fn identity(&self) -> Option<(LeaseId, Seq)> {
        let numbered = |lease: LeaseId, request: &Option<Request>| Some((lease, request.as_ref()?.seq));
        match self {
            Command::AcquireLock(acquire) => numbered(acquire.lease, &acquire.request),
            Command::ReleaseLock(ReleaseLock { by: ReleaseBy::Holder { lease, request, .. }, .. }) => {
                numbered(*lease, request)
            }
            Command::ConvertLock(convert) => numbered(convert.lease, &convert.request),
            Command::Proclaim(proclaim) => numbered(proclaim.lease, &proclaim.request),
            Command::Txn(txn) => txn.request.as_ref().map(|(lease, request)| (*lease, request.seq)),
            _ => None,
        }
    }

    fn request_mut(&mut self) -> Option<&mut Request> {
        match self {
            Command::AcquireLock(acquire) => acquire.request.as_mut(),
            Command::ReleaseLock(ReleaseLock { by: ReleaseBy::Holder { request, .. }, .. }) => {
                request.as_mut()
            }
            Command::ConvertLock(convert) => convert.request.as_mut(),
            Command::Proclaim(proclaim) => proclaim.request.as_mut(),
            Command::Txn(txn) => txn.request.as_mut().map(|(_, request)| request),
            _ => None,
        }
    }
}

/// The identity of a request within its lease, by which a repeat is recognized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Number of the request; a repeat carries the number of the first attempt.
    pub seq: Seq,
    /// Requests whose answers the client has; their outcomes need not be kept, and they never run again.
    pub acked: SeqRanges,
    /// Share of the client's request that this command carries.
    pub scope: Scope,
}

/// Share of a client's request that one command carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Unknown: the command is from a log whose format had no place for the scope.
    Unsaid,
    /// The whole request.
    Whole,
    /// The part, for one group, of a request for these names, which lie in several groups.
    PartOf(Box<Names>),
}

/// See [`Command::GrantLease`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantLease {
    /// Id of the new lease, or the slot to assign one in.
    pub id: LeaseChoice,
    /// Time to live after the last renewal.
    pub ttl: DurationMs,
    /// Client that asks. Only the same client may grant a living id again.
    pub client_id: ClientId,
    /// Network address of the client.
    pub address: Address,
    /// True if the server ends the lease when the client's last connection closes.
    pub revoke_on_disconnect: bool,
}

/// Choice of a lease's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseChoice {
    /// Chosen by the client.
    Chosen(LeaseId),
    /// Assigned by the group, in this slot.
    Assigned(Slot),
}

/// See [`Command::RenewLeases`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewLeases {
    /// Renewals in the order in which they are carried out and answered.
    pub renewals: Vec<Renewal>,
}

/// One keepalive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// Id of the lease.
    pub lease: LeaseId,
    /// Network address of the client, if it changed.
    pub address: Option<Address>,
    /// As in [`Request::acked`].
    pub acked: SeqRanges,
}

/// See [`Command::RevokeLease`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokeLease {
    /// Id of the lease.
    pub lease: LeaseId,
    /// Set if the server asks because the client's connection is gone: the address of that connection, or an empty one
    /// if unknown. None if the client asks. A lease that was kept alive from another address since does not end.
    pub disconnected: Option<Address>,
}

/// See [`Command::AddStub`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddStub {
    /// Id of the lease.
    pub lease: LeaseId,
    /// Revision of the home group at which the lease was granted.
    pub incarnation: Revision,
    /// Name that the lease's client gives itself, for people who look at the locks of this group.
    pub client_id: ClientId,
    /// Home of the lease.
    pub home: GroupId,
}

/// See [`Command::ConfirmStub`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfirmStub {
    /// Id of the lease.
    pub lease: LeaseId,
    /// Revision of the home group at which the lease was granted.
    pub incarnation: Revision,
    /// Revision of the stub that existed when the home was asked ([`crate::StubView::added`]). A stub added since is
    /// not confirmed by that answer: the lease may have ended in between.
    pub added: Revision,
}

/// See [`Command::EndStub`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndStub {
    /// Id of the lease.
    pub lease: LeaseId,
    /// Revision of the home group at which the lease was granted. The stub of another incarnation is left alone.
    pub incarnation: Revision,
    /// Reason for the lease's end; `Expired` if the home knows nothing of it.
    pub reason: LeaseEnd,
}

/// See [`Command::RegisterStub`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterStub {
    /// Id of the lease.
    pub lease: LeaseId,
    /// Revision at which the lease was granted.
    pub incarnation: Revision,
    /// Group that has the stub.
    pub group: GroupId,
}

/// See [`Command::AckLeaseEnd`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckLeaseEnd {
    /// Id of the lease.
    pub lease: LeaseId,
    /// Revision at which the lease was granted.
    pub incarnation: Revision,
    /// Group that has no stub of the lease left.
    pub group: GroupId,
}

/// See [`Command::EndDeadlock`]. `create_revision` and `blocker` are those that the search saw, so that a wait or a
/// grant that came since is not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndDeadlock {
    /// One of the locks that the wait is for.
    pub name: Name,
    /// Revision at which the wait joined the queue; for an upgrade, the revision at which the upgrade did.
    pub create_revision: Revision,
    /// Token of the grant in the way of the wait.
    pub blocker: Token,
}

/// Longest wait of a request in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// No wait: a busy lock is the answer.
    No,
    /// Wait until this much log time has passed.
    For(DurationMs),
    /// Wait as long as the lease lives.
    Forever,
}

/// See [`Command::AcquireLock`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquireLock {
    /// Locks to take; several are granted together, with one token.
    pub names: Names,
    /// Lease of the requester.
    pub lease: LeaseId,
    /// Thread of control inside the lease that asks.
    pub owner: Owner,
    /// Mode of the lock.
    pub mode: Mode,
    /// Longest wait in the queue.
    pub wait: Wait,
    /// Time for which the names stay closed if the grant ends against its holder's will.
    pub lock_delay: DurationMs,
    /// Longest time that the grant lasts, even if the lease lives; none or zero for no bound.
    pub max_hold: Option<DurationMs>,
    /// Reason for the request, for people; any bytes.
    pub metadata: Metadata,
    /// Value that the holder proclaims from its grant on, if any; [`Command::Proclaim`] changes it.
    pub value: Option<Value>,
    /// True if the request comes from a caller that stands by while it waits: once no such caller is left, the leader
    /// may end the wait ([`CancelTarget::Wait`]). The requests of a session wait on without one.
    pub attended: bool,
    /// Identity by which a repeat is recognized.
    pub request: Option<Request>,
}

/// See [`Command::ReleaseLock`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseLock {
    /// Locks to give back: all of them or, if one is not held, none.
    pub names: Names,
    /// Holder or token of the grant.
    pub by: ReleaseBy,
}

/// Identification of the grant that a release ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseBy {
    /// By the holder and, if given, the token.
    Holder {
        /// The holder's lease.
        lease: LeaseId,
        /// The holder's owner.
        owner: Owner,
        /// Token that the grant must have, if given.
        token: Option<Token>,
        /// Identity by which a repeat is recognized.
        request: Option<Request>,
    },
    /// By the token alone.
    Token(Token),
}

/// See [`Command::ConvertLock`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertLock {
    /// All the names of the grant.
    pub names: Names,
    /// The holder's lease.
    pub lease: LeaseId,
    /// The holder's owner.
    pub owner: Owner,
    /// The new mode. A weaker one is granted at once and keeps the token; any other waits ahead of the queue.
    pub mode: Mode,
    /// Longest wait for the new mode.
    pub wait: Wait,
    /// As in [`AcquireLock::attended`].
    pub attended: bool,
    /// Identity by which a repeat is recognized.
    pub request: Option<Request>,
}

/// See [`Command::CancelWait`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelWait {
    /// The waiter's lease.
    pub lease: LeaseId,
    /// The wait to end.
    pub target: CancelTarget,
    /// True if a grant that came before the cancel is to be given back.
    pub release_if_granted: bool,
    /// If given, the cancel does nothing to a claim with more requests than this, repeats included. So a caller that
    /// leaves takes nothing from another caller that asked for the same.
    pub asks_max: Option<u32>,
    /// As in [`Request::acked`].
    pub acked: SeqRanges,
}

/// The wait that a cancel ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelTarget {
    /// The wait of a request, even of one that has not arrived yet: then the request never takes effect.
    Seq(Seq),
    /// Like `Seq`, but only for a request on this lock: a claim of another request with the same seq is left alone.
    SeqOn {
        /// Seq of the request.
        seq: Seq,
        /// One of its locks.
        name: Name,
    },
    /// The wait of an owner in a lock's queue.
    Waiter {
        /// The lock.
        name: Name,
        /// The waiter's owner.
        owner: Owner,
    },
    /// Exactly this wait, and no later wait of the same owner.
    Wait {
        /// One of its locks.
        name: Name,
        /// Revision at which the wait joined the queue; for an upgrade, the revision at which the upgrade did.
        create_revision: Revision,
    },
}

/// See [`Command::ForceRelease`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForceRelease {
    /// The lock.
    pub name: Name,
    /// Token of the grant to end, so that the command never ends "whoever holds it now".
    pub token: Token,
    /// Reason, for the holder and the audit.
    pub reason: Reason,
}

/// See [`Command::Proclaim`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proclaim {
    /// One of the locks of the grant.
    pub name: Name,
    /// The holder's lease.
    pub lease: LeaseId,
    /// The holder's owner.
    pub owner: Owner,
    /// Token of the holder's grant: a holder with another token changes nothing.
    pub token: Token,
    /// The new value.
    pub value: Value,
    /// Identity by which a repeat is recognized.
    pub request: Option<Request>,
}

/// See [`Command::Txn`]. A plain put or delete is a transaction without compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Txn {
    /// Identity by which a repeat is recognized: the lease whose requests are numbered, and the request.
    pub request: Option<(LeaseId, Request)>,
    /// Conditions: if all are true, `then` runs, else `otherwise`.
    pub compares: Vec<Compare>,
    /// Steps to run if all compares are true.
    pub then: Vec<Op>,
    /// Steps to run if a compare is false.
    pub otherwise: Vec<Op>,
}

impl Txn {
    /// The keys that both branches and the compares name one by one. Both branches count, because the branch that runs
    /// may depend on the state, and the group that a transaction belongs to must not. Ranges don't count: a range sees
    /// the registers of this group.
    pub(crate) fn single_keys(&self) -> impl Iterator<Item = &Key> {
        let compared = self.compares.iter().map(|compare| &compare.key);
        let ops = self.then.iter().chain(&self.otherwise);
        compared.chain(ops.filter_map(|op| match op {
            Op::Put { key, .. }
            | Op::Get(RangeQuery { keys: KeySelector::Key(key), .. })
            | Op::Delete(KeySelector::Key(key)) => Some(key),
            Op::Get(_) | Op::Delete(_) => None,
        }))
    }
}

/// One condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// The register.
    pub key: Key,
    /// Relation that the register's attribute must have to `against`.
    pub relation: Relation,
    /// Attribute and the value to compare it with.
    pub against: Against,
}

/// Relation of a register's attribute to a given value: `attribute relation given`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Equal to the given value.
    Equal,
    /// Not equal to the given value.
    NotEqual,
    /// Below the given value.
    Less,
    /// Above the given value.
    Greater,
}

/// An attribute of a register. A register that does not exist has revisions and version 0, no lease, and a value for
/// which every relation is false.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Against {
    /// Revision at which the register was created.
    Create(Revision),
    /// Revision of the last put.
    Mod(Revision),
    /// Number of puts since the register was created.
    Version(u64),
    /// Value of the register.
    Value(Value),
    /// Lease of the register.
    Lease(Option<LeaseId>),
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes a register.
    Put {
        /// Key of the register.
        key: Key,
        /// Value to write.
        value: Value,
        /// Lease with which the register ends; none keeps the register until it is deleted.
        lease: Option<LeaseId>,
    },
    /// Reads registers as the steps before left them.
    Get(RangeQuery),
    /// Deletes the registers that match.
    Delete(KeySelector),
}

/// One key, or all keys that begin with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySelector {
    /// Exactly this key.
    Key(Key),
    /// Every key that begins with these bytes.
    Prefix(Key),
    /// Every key.
    All,
}

/// A range of registers, with its order and bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeQuery {
    /// Keys of the range.
    pub keys: KeySelector,
    /// Most registers to return, after sorting; 0 means as many as the limit allows.
    pub limit: u32,
    /// Order of the registers.
    pub sort: Sort,
}

/// The order of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// By key.
    Key,
    /// By key, last first.
    KeyDescending,
    /// By create revision, then key.
    Create,
    /// The reverse of `Create`.
    CreateDescending,
}
