//! The changes that consensus orders. Adding a variant or a field changes the log format (`format::command`).

use tollgate_types::{
    Address, ClientId, DurationMs, GroupId, Key, LeaseId, Limits, Lineage, LogTime, Metadata, Mode, Name,
    Names, Owner, Reason, Revision, Seq, SeqRanges, Slot, Token, Value, WallTime,
};

use crate::format::{FORMAT_1, FORMAT_2};
use crate::reply::LeaseEnd;

/// One command with the log time that the leader stamped on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The group's log time. Never below that of the entry before it.
    pub at: LogTime,
    /// What time of day the leader believed it was. Decides nothing.
    pub wall: WallTime,
    /// What to do.
    pub command: Command,
}

impl Entry {
    /// An entry of which nobody noted the time of day.
    pub const fn new(at: LogTime, command: Command) -> Entry {
        Entry { at, wall: WallTime::UNKNOWN, command }
    }
}

/// A change that consensus has ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Carries nothing: time must pass even when no client speaks.
    Tick,
    /// Makes a lease, or renews it if the same client has it already.
    GrantLease(GrantLease),
    /// The keepalives that a leader gathered for a few milliseconds.
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
    /// Changes what a holder says of itself.
    Proclaim(Proclaim),
    /// Reads and writes registers in one step.
    Txn(Txn),
    /// Replaces the limits.
    SetLimits(Box<Limits>),
    /// Lets the group use what newer binaries can do.
    RaiseApplyVersion(u32),
    /// In a group that is not a lease's home: makes a pending stub, on which the lease's claims here will hang.
    AddStub(AddStub),
    /// The home has registered this group: the stub may be used.
    ConfirmStub(ConfirmStub),
    /// The home says that the lease has ended, or never lived: the stub and all that hangs on it end.
    EndStub(EndStub),
    /// In a lease's home: a group has a stub of it and must be told of its end.
    RegisterStub(RegisterStub),
    /// In a lease's home: a group has ended its stub, and need not be told again.
    AckLeaseEnd(AckLeaseEnd),
    /// Ends a wait that is part of a deadlock over several groups, which no group sees by itself.
    EndDeadlock(EndDeadlock),
    /// Says of which lineage the group is, if that was never said: what a new cluster's first leader drew.
    SetLineage(Lineage),
}

impl Command {
    /// Takes away what entries of a format have no place for, or makes it what they have a place for, so that who keeps
    /// the command has what others will read.
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

    /// The lease and the number by which a repeat of the command is known, if it has one.
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

/// The identity of a request within its lease, by which a repeat is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its number; a repeat carries the number of the first attempt.
    pub seq: Seq,
    /// Requests whose answers the client has; their outcomes need not be kept, and they never run again.
    pub acked: SeqRanges,
    /// Whether the command is all of the request.
    pub scope: Scope,
}

/// How much of a client's request a command is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Nobody said: it is from a log that had no place for that.
    Unsaid,
    /// All of it.
    Whole,
    /// What one group has of a request for these names, which lie in several groups.
    PartOf(Box<Names>),
}

/// See [`Command::GrantLease`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantLease {
    /// Which id it gets.
    pub id: LeaseChoice,
    /// How long it lives after its last renewal.
    pub ttl: DurationMs,
    /// Who asks. Only the same client may grant a living id again.
    pub client_id: ClientId,
    /// Where the client was seen.
    pub address: Address,
    /// Whether the server ends the lease when the client's last connection closes.
    pub revoke_on_disconnect: bool,
}

/// Who picks a lease's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseChoice {
    /// The client did.
    Chosen(LeaseId),
    /// The group does, in this slot.
    Assigned(Slot),
}

/// See [`Command::RenewLeases`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewLeases {
    /// In the order in which they are carried out and answered.
    pub renewals: Vec<Renewal>,
}

/// One keepalive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// Which lease.
    pub lease: LeaseId,
    /// Where the client was seen, if that changed.
    pub address: Option<Address>,
    /// As in [`Request::acked`].
    pub acked: SeqRanges,
}

/// See [`Command::RevokeLease`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokeLease {
    /// Which lease.
    pub lease: LeaseId,
    /// Given if the server asks, because the client's connection is gone, and not the client: where that came from, if
    /// known. A lease that was kept alive from elsewhere since does not end.
    pub disconnected: Option<Address>,
}

/// See [`Command::AddStub`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddStub {
    /// Which lease.
    pub lease: LeaseId,
    /// The revision, in its home, at its grant.
    pub incarnation: Revision,
    /// What the lease's client calls itself, for those who look at the locks here.
    pub client_id: ClientId,
    /// Where the lease lives.
    pub home: GroupId,
}

/// See [`Command::ConfirmStub`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfirmStub {
    /// Which lease.
    pub lease: LeaseId,
    /// The revision, in its home, at its grant.
    pub incarnation: Revision,
    /// The stub that was there when the home was asked ([`crate::StubView::added`]). Another one, added since, is not
    /// confirmed by that answer: the lease may have ended in between.
    pub added: Revision,
}

/// See [`Command::EndStub`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndStub {
    /// Which lease.
    pub lease: LeaseId,
    /// The revision, in its home, at its grant. A stub of another is left alone.
    pub incarnation: Revision,
    /// How it ended there; `Expired` if the home knows nothing of it.
    pub reason: LeaseEnd,
}

/// See [`Command::RegisterStub`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterStub {
    /// Which lease.
    pub lease: LeaseId,
    /// The revision at its grant.
    pub incarnation: Revision,
    /// Where the stub is.
    pub group: GroupId,
}

/// See [`Command::AckLeaseEnd`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckLeaseEnd {
    /// Which lease.
    pub lease: LeaseId,
    /// The revision at its grant.
    pub incarnation: Revision,
    /// Where no stub of it is left.
    pub group: GroupId,
}

/// See [`Command::EndDeadlock`]. Both conditions are what the search saw: a wait or a grant that came since is not
/// meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndDeadlock {
    /// One of the locks that are waited for.
    pub name: Name,
    /// When the wait joined the queue; for an upgrade, when that did.
    pub create_revision: Revision,
    /// The grant that is in its way.
    pub blocker: Token,
}

/// How long a request may wait in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: a busy lock is the answer.
    No,
    /// Until that much log time has passed.
    For(DurationMs),
    /// As long as the lease lives.
    Forever,
}

/// See [`Command::AcquireLock`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquireLock {
    /// What to take; several are granted together, with one token.
    pub names: Names,
    /// Who asks: this lease...
    pub lease: LeaseId,
    /// ...and this thread of control inside it.
    pub owner: Owner,
    /// How to share it.
    pub mode: Mode,
    /// How long to queue.
    pub wait: Wait,
    /// How long the names stay closed if the grant ends against its holder's will.
    pub lock_delay: DurationMs,
    /// How long after the grant it ends even if the lease lives; 0 is none.
    pub max_hold: Option<DurationMs>,
    /// Why, for people; any bytes.
    pub metadata: Metadata,
    /// What it says of itself from the moment of its grant, if anything; [`Command::Proclaim`] changes it.
    pub value: Option<Value>,
    /// Whether it comes from a caller that stands by while it waits: once nobody does, whoever leads may end the wait
    /// ([`CancelTarget::Wait`]). A session's requests wait on without one.
    pub attended: bool,
    /// By which a repeat is known.
    pub request: Option<Request>,
}

/// See [`Command::ReleaseLock`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseLock {
    /// What to give back; all of it or, if one is not held, nothing.
    pub names: Names,
    /// Whose.
    pub by: ReleaseBy,
}

/// How a release names the grant that it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseBy {
    /// By its holder, and its token if given.
    Holder {
        /// The holder's lease.
        lease: LeaseId,
        /// The holder's owner.
        owner: Owner,
        /// If given, the grant must have it.
        token: Option<Token>,
        /// By which a repeat is known.
        request: Option<Request>,
    },
    /// By its token alone.
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
    /// The new mode. A weaker one is had at once with the same token; any other waits ahead of the queue.
    pub mode: Mode,
    /// How long to wait for it.
    pub wait: Wait,
    /// As in [`AcquireLock::attended`].
    pub attended: bool,
    /// By which a repeat is known.
    pub request: Option<Request>,
}

/// See [`Command::CancelWait`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelWait {
    /// The waiter's lease.
    pub lease: LeaseId,
    /// Which of its requests.
    pub target: CancelTarget,
    /// Whether a grant that came first is given back.
    pub release_if_granted: bool,
    /// If given: does nothing to a claim that was asked for more often than that, repeats included. So one caller that
    /// goes takes nothing from another that asked for the same.
    pub asks_max: Option<u32>,
    /// As in [`Request::acked`].
    pub acked: SeqRanges,
}

/// Which wait a cancel ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelTarget {
    /// That of a request, even one that has not arrived yet: then it never takes effect.
    Seq(Seq),
    /// Likewise, of a request on this lock and no other: another request's claim that has the seq is let be.
    SeqOn {
        /// The request.
        seq: Seq,
        /// One of its locks.
        name: Name,
    },
    /// That of an owner in a lock's queue.
    Waiter {
        /// The lock.
        name: Name,
        /// The waiter's owner.
        owner: Owner,
    },
    /// This very wait, and no later one of the same owner.
    Wait {
        /// One of its locks.
        name: Name,
        /// When it joined the queue; for an upgrade, when that did.
        create_revision: Revision,
    },
}

/// See [`Command::ForceRelease`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForceRelease {
    /// The lock.
    pub name: Name,
    /// The grant to end: never "whoever holds it now".
    pub token: Token,
    /// Why, for the holder and the audit.
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
    /// The token of its grant: who holds under another one says nothing.
    pub token: Token,
    /// What it says from now on.
    pub value: Value,
    /// By which a repeat is known.
    pub request: Option<Request>,
}

/// See [`Command::Txn`]. A plain put or delete is one without compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Txn {
    /// By which a repeat is known: the lease that numbers its requests, and the number.
    pub request: Option<(LeaseId, Request)>,
    /// All must hold for `then`; otherwise `otherwise` runs.
    pub compares: Vec<Compare>,
    /// What to do if all compares hold.
    pub then: Vec<Op>,
    /// What to do if one does not.
    pub otherwise: Vec<Op>,
}

impl Txn {
    /// The keys that it names one by one, in both branches: which of them it runs may depend on the state, and where it
    /// belongs must not. A range sees what is here.
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
    /// Its attribute must stand in this relation...
    pub relation: Relation,
    /// ...to this.
    pub against: Against,
}

/// How a register's attribute must stand to the given one: `attribute relation given`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The same.
    Equal,
    /// Not the same.
    NotEqual,
    /// Below it.
    Less,
    /// Above it.
    Greater,
}

/// An attribute of a register. One that does not exist has revisions and version 0, no lease, and a value that no
/// relation holds for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Against {
    /// When it was created.
    Create(Revision),
    /// When it was last put.
    Mod(Revision),
    /// How often it was put since its creation.
    Version(u64),
    /// Its value.
    Value(Value),
    /// Its lease.
    Lease(Option<LeaseId>),
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes a register.
    Put {
        /// Which.
        key: Key,
        /// What.
        value: Value,
        /// The lease with which it ends; none keeps it until deleted.
        lease: Option<LeaseId>,
    },
    /// Reads registers as the steps before left them.
    Get(RangeQuery),
    /// Deletes the registers that match.
    Delete(KeySelector),
}

/// One key, or all that begin with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySelector {
    /// Exactly this key.
    Key(Key),
    /// Every key that begins with these bytes.
    Prefix(Key),
    /// Every key.
    All,
}

/// Which registers, how many, in which order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeQuery {
    /// Which.
    pub keys: KeySelector,
    /// At most so many, after sorting. 0 means as many as the limit allows.
    pub limit: u32,
    /// The order.
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
