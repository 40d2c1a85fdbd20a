//! The state of a group, and the one function that changes it.
//!
//! `State::apply` is a pure function of (state, entry). Time arrives inside the entry, so every replica ends a lease at
//! the same revision. Invariant: records (`leases`, `unacked`, `claims`, `closures`, `registers`, `ring`, `dirty`) are
//! the truth and go into snapshots; everything else is derived from them and rebuilt on load.
//!
//! Not here: bytes (`format`), replication, waking callers, reading clocks.

mod acquire;
mod blockers;
mod cancel;
mod convert;
mod deadlock;
mod end;
mod grant;
mod homes;
mod identity;
mod invariants;
mod leases;
mod notes;
mod ownership;
mod placement;
mod proclaim;
mod query;
mod release;
mod restore;
mod resume;
mod settle;
mod stubs;
mod txn;
mod work;

pub use homes::STUB_GROUPS_MAX;
pub(crate) use restore::Restore;
pub use resume::ResumeError;

use crate::claim::Claim;
use crate::command::{Command, Entry};
use crate::format::{ENTRY_FORMAT_VERSION, FORMAT_1, FORMAT_2};
use crate::index::Index;
use crate::lease::{Lease, Unacked};
use crate::lock::{Closure, Lock};
use crate::owners::Owners;
use crate::planted::{Bug, Planted};
use crate::register::Register;
use crate::reply::{Applied, EndedLease, Rejection, Reply, Resolution};
use crate::ring::Ring;
use crate::slab::{Id, Pages, Slab};
use notes::Notes;
use placement::Placement;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tollgate_types::{GroupId, GroupMap, Key, LeaseId, Limits, Lineage, LogTime, Name, Revision};

/// The newest apply version that this binary supports.
pub const APPLY_VERSION_SUPPORTED: u32 =
    if cfg!(feature = "next-version") { REHEARSED } else { TAKES_ANY_METADATA };

/// Apply version from which on a state keeps fingerprints of its requests, and its lineage.
const KNOWS_REQUESTS: u32 = 2;

/// Apply version from which on metadata may be any bytes; before, it is plain text.
const TAKES_ANY_METADATA: u32 = 3;

/// Apply version for rehearsing upgrades, in tests that ask for it: leases get a millisecond more than they were asked
/// for, which is enough to tell two states apart.
const REHEARSED: u32 = 4;

/// Format in which a leader writes the entries that an apply version applies: every member of a group that was raised
/// to the version reads that format.
pub fn entry_format(apply_version: u32) -> u8 {
    match apply_version {
        ..KNOWS_REQUESTS => FORMAT_1,
        KNOWS_REQUESTS..TAKES_ANY_METADATA => FORMAT_2,
        TAKES_ANY_METADATA.. => ENTRY_FORMAT_VERSION,
    }
}

/// Locks, leases, registers and history of one group.
///
/// ```
/// use tollgate_core::{AcquireLock, Command, Entry, GrantLease, LeaseChoice, Reply, State, Wait};
/// use tollgate_types::{Address, ClientId, DurationMs, LeaseId, Limits, LogTime, Metadata, Mode, Name, Owner};
///
/// let mut state = State::new(Limits::DEFAULT);
/// let lease = LeaseId::new(7)?;
/// let grant = GrantLease {
///     id: LeaseChoice::Chosen(lease),
///     ttl: DurationMs::from_secs(10),
///     client_id: ClientId::new("worker-1")?,
///     address: Address::NONE,
///     revoke_on_disconnect: false,
/// };
/// state.apply(Entry::new(LogTime::ZERO, Command::GrantLease(grant)));
///
/// let acquire = AcquireLock {
///     names: Name::new("db/migrate")?.into(),
///     lease,
///     owner: Owner::LEASE,
///     mode: Mode::Exclusive,
///     wait: Wait::No,
///     lock_delay: DurationMs::ZERO,
///     max_hold: None,
///     metadata: Metadata::new("schema v42")?,
///     value: None,
///     attended: false,
///     request: None,
/// };
/// let applied = state.apply(Entry::new(LogTime::from_ms(5), Command::AcquireLock(acquire)));
/// let Reply::Acquired { token, .. } = applied.reply else { panic!("nobody else is there") };
/// assert_eq!(token.get(), 2);
/// # Ok::<(), tollgate_types::Invalid>(())
/// ```
pub struct State {
    now: LogTime,
    revision: Revision,
    limits: Limits,
    apply_version: u32,
    /// None until a leader of a new cluster has drawn a lineage.
    lineage: Option<Lineage>,
    placement: Placement,
    /// Log time before which no lock is granted, whatever its name, because the group was restored from a backup. Zero
    /// if the group was never restored.
    closed_until: LogTime,

    leases: Slab<Lease>,
    /// Leases that have ended here while other groups may still have stubs of them.
    unacked: Slab<Unacked>,
    claims: Slab<Claim>,
    closures: Slab<Closure>,
    registers: Slab<Register>,
    ring: Ring,
    /// Names with a waiter that may be grantable: left over when an entry's budget ran out.
    dirty: BTreeSet<Name>,

    // Derived.
    lease_ids: Index<Lease>,
    /// By deadline, then incarnation.
    lease_deadlines: BTreeMap<(LogTime, Revision), Id<Lease>>,
    /// The stubs that have not ended, by id, so that the leader can go through them a page at a time.
    stubs: BTreeMap<LeaseId, Id<Lease>>,
    /// The stubs that the home has not confirmed.
    stubs_pending: BTreeSet<LeaseId>,
    unacked_leases: BTreeMap<(LeaseId, Revision), Id<Unacked>>,
    /// Leases with registered groups, by incarnation. An ended lease in `unacked` is not among them.
    registered: BTreeMap<Revision, Id<Lease>>,
    /// Wait deadlines and max holds, by time, then by the revision that identifies the wait or claim.
    claim_deadlines: BTreeMap<(LogTime, Revision), Id<Claim>>,
    closure_ends: BTreeMap<(LogTime, Name), Id<Lock>>,
    /// Number of claims with a value.
    claim_values: u64,
    locks: Pages<Lock>,
    lock_names: Index<Lock>,
    owners: Owners,
    keys: BTreeMap<Key, Id<Register>>,
    /// The registers of each lease, by the lease's incarnation.
    lease_registers: BTreeSet<(Revision, Key)>,

    /// Working memory for the entry being applied.
    scratch: Scratch,
    /// Notes for people, no part of the state.
    notes: Notes,
    planted: Planted,
}

/// Working memory of one entry.
#[derive(Default)]
struct Scratch {
    resolved: Vec<Resolution>,
    events_from: Option<Revision>,
    /// Number of ends and grants so far, which the budget of an entry bounds.
    cost: u64,
    /// Counts the moments at which a claim may have died: entries, and revocations within one.
    moment: u64,
    /// Cost at which the present work must stop; a command's own settling is not bounded.
    cost_max: u64,
    /// Leases that are gone with this entry.
    ended_leases: Vec<EndedLease>,
    /// True if anything is due and not reaped. If false, nothing is dead and nothing needs purging.
    overdue: bool,
    /// Buffer for the bytes of a request's fingerprint, reused.
    subject: Vec<u8>,
}

impl State {
    /// The empty state of a cluster's only group, at log time 0 and revision 0.
    ///
    /// Panics if the limits are not valid.
    pub fn new(limits: Limits) -> State {
        State::of_group(limits, GroupId::MAP, Arc::new(GroupMap::single()))
    }

    /// Like [`State::new`], for one of several groups, which serves the slots that the map gives it and refuses the
    /// rest.
    pub fn of_group(limits: Limits, group: GroupId, map: Arc<GroupMap>) -> State {
        limits.validate().expect("limits are validated before a group is made");
        State {
            now: LogTime::ZERO,
            revision: Revision::ZERO,
            limits,
            apply_version: 1,
            lineage: None,
            placement: Placement::new(group, map),
            closed_until: LogTime::ZERO,
            leases: Slab::new(),
            unacked: Slab::new(),
            claims: Slab::new(),
            closures: Slab::new(),
            registers: Slab::new(),
            ring: Ring::new(),
            dirty: BTreeSet::new(),
            lease_ids: Index::new(),
            lease_deadlines: BTreeMap::new(),
            stubs: BTreeMap::new(),
            stubs_pending: BTreeSet::new(),
            unacked_leases: BTreeMap::new(),
            registered: BTreeMap::new(),
            claim_deadlines: BTreeMap::new(),
            closure_ends: BTreeMap::new(),
            claim_values: 0,
            locks: Pages::new(),
            lock_names: Index::new(),
            owners: Owners::new(),
            keys: BTreeMap::new(),
            lease_registers: BTreeSet::new(),
            scratch: Scratch { cost_max: u64::MAX, ..Scratch::default() },
            notes: Notes::default(),
            planted: Planted::default(),
        }
    }

    /// Applies an entry: the only way to change the state. Never fails: a rejection is a reply.
    ///
    /// Panics if the entry is stamped before the last one, or raises the apply version above what this binary supports:
    /// faults, for which a replica must stop.
    #[allow(clippy::needless_pass_by_value, reason = "an entry is applied once")]
    pub fn apply(&mut self, entry: Entry) -> Applied {
        assert!(
            self.now <= entry.at,
            "leaders stamp entries in log order: {:?} after {:?}",
            entry.at,
            self.now
        );
        self.trim_ring();
        self.now = entry.at;
        if self.planted(Bug::WallTimeDecides) {
            self.now = self.now.max(LogTime::from_ms(entry.at.ms() + entry.wall.unix_ms() % 2));
        }
        self.scratch.moment += 1;
        self.scratch.overdue = self.is_due();
        let budget = self.work(self.limits.reaps_per_entry_max);
        let reply = self.run(&entry.command);
        self.note_refusal(&reply);
        self.work(budget);
        Applied {
            revision: self.revision,
            reply,
            resolved: std::mem::take(&mut self.scratch.resolved),
            ended_leases: std::mem::take(&mut self.scratch.ended_leases),
            events_from: self.scratch.events_from.take(),
        }
    }

    /// Runs a command: the one place that branches on commands.
    fn run(&mut self, command: &Command) -> Reply {
        if let Err(rejection) = self.check_placement(command) {
            return Reply::Rejected(rejection);
        }
        match command {
            Command::Tick => Reply::Done,
            Command::GrantLease(grant) => self.grant_lease(grant),
            Command::RenewLeases(renew) => self.renew_leases(renew),
            Command::RevokeLease(revoke) => self.revoke_lease(revoke),
            Command::AcquireLock(acquire) => self.acquire_lock(acquire),
            Command::ReleaseLock(release) => self.release_lock(release),
            Command::ConvertLock(convert) => self.convert_lock(convert),
            Command::CancelWait(cancel) => self.cancel_wait(cancel),
            Command::ForceRelease(force) => self.force_release(force),
            Command::Proclaim(proclaim) => self.proclaim(proclaim),
            Command::Txn(txn) => self.txn(txn),
            Command::SetLimits(limits) => self.set_limits(limits),
            Command::RaiseApplyVersion(version) => self.raise_apply_version(*version),
            Command::AddStub(add) => self.add_stub(add),
            Command::ConfirmStub(confirm) => self.confirm_stub(*confirm),
            Command::EndStub(end) => self.end_stub(*end),
            Command::RegisterStub(register) => self.register_stub(*register),
            Command::AckLeaseEnd(ack) => self.ack_lease_end(*ack),
            Command::EndDeadlock(end) => self.end_deadlock(end),
            Command::SetLineage(lineage) => self.set_lineage(*lineage),
        }
    }

    fn set_limits(&mut self, limits: &Limits) -> Reply {
        if let Err(invalid) = limits.validate() {
            return Reply::Rejected(Rejection::InvalidLimits(invalid));
        }
        self.limits = limits.clone();
        Reply::Done
    }

    fn raise_apply_version(&mut self, asked: u32) -> Reply {
        assert!(
            asked <= APPLY_VERSION_SUPPORTED,
            "the group moved on to apply version {asked} and this binary knows {APPLY_VERSION_SUPPORTED}: upgrade it"
        );
        if asked <= self.apply_version {
            return Reply::Rejected(Rejection::ApplyVersionNotRaised { current: self.apply_version, asked });
        }
        self.apply_version = asked;
        Reply::Done
    }

    fn set_lineage(&mut self, lineage: Lineage) -> Reply {
        if self.knows_requests() && (self.lineage.is_none() || self.planted(Bug::LineageReplaced)) {
            self.lineage = Some(lineage);
        }
        Reply::Done
    }

    /// True if the state keeps a lineage that it is given: from version 2 on.
    pub fn takes_lineage(&self) -> bool {
        self.knows_requests()
    }

    /// True if the rules of version 2 are in force.
    fn knows_requests(&self) -> bool {
        self.apply_version >= KNOWS_REQUESTS
    }

    /// True if the rules of version 3 are in force.
    fn takes_any_metadata(&self) -> bool {
        self.apply_version >= TAKES_ANY_METADATA
    }

    /// True if the rules of the rehearsed version are in force. A rule of any version asks for the version in force
    /// like this, never for the version that the binary supports.
    fn rehearses(&self) -> bool {
        let in_force = cfg!(feature = "next-version") && self.apply_version >= REHEARSED;
        in_force || self.planted(Bug::RulesNotInForce)
    }

    fn trim_ring(&mut self) {
        if self.planted(Bug::RingSplitsRevision) && self.ring.bytes() > self.limits.ring_bytes_max {
            self.ring.pop_front();
            return;
        }
        self.ring.trim(self.limits.ring_bytes_max);
    }

    /// Moves to the next revision, for one state change, and returns it.
    fn bump(&mut self) -> Revision {
        self.revision = self.revision.next();
        self.revision
    }

    /// Switches a planted bug on in this state.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Bug) {
        self.planted = Planted::some(bug);
    }

    fn planted(&self, bug: Bug) -> bool {
        self.planted.is(bug)
    }
}
