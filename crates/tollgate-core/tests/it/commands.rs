//! Short forms of commands, and a state to apply them to: a test spells out only its own subject.

use std::sync::Arc;
use tollgate_core::{
    APPLY_VERSION_SUPPORTED, AcquireLock, AddStub, Applied, Bug, CancelTarget, CancelWait, Command,
    ConfirmStub, ConvertLock, EndStub, Entry, Event, GrantLease, LeaseChoice, LeaseEnd, Op, Proclaim,
    RegisterStub, ReleaseBy, ReleaseLock, RenewLeases, Renewal, Request, RevokeLease, Scope, SnapshotReader,
    State, Txn, Wait, Watch,
};
use tollgate_types::{
    Address, ClientId, DurationMs, GroupId, GroupMap, Key, LeaseId, Limits, LogTime, Metadata, Mode, Name,
    Names, Owner, Revision, Seq, SeqRanges, Token, Value,
};

/// A state in which a planted bug survives a restore.
pub(crate) struct Replica {
    pub(crate) state: State,
    bug: Option<Bug>,
}

impl Replica {
    pub(crate) fn new(limits: &Limits, bug: Option<Bug>) -> Replica {
        Replica::of_group(limits, GroupId::MAP, &Arc::new(GroupMap::single()), bug)
    }

    pub(crate) fn of_group(
        limits: &Limits,
        group: GroupId,
        map: &Arc<GroupMap>,
        bug: Option<Bug>,
    ) -> Replica {
        let mut replica = Replica::at_version_1(limits, group, map, bug);
        replica.at(0, Command::RaiseApplyVersion(APPLY_VERSION_SUPPORTED));
        replica
    }

    /// The only group of a cluster, raised to an older version.
    pub(crate) fn at_version(version: u32, limits: &Limits) -> Replica {
        let mut replica = Replica::at_version_1(limits, GroupId::MAP, &Arc::new(GroupMap::single()), None);
        replica.at(0, Command::RaiseApplyVersion(version));
        replica
    }

    /// A replica of a group as it begins, at apply version 1.
    pub(crate) fn at_version_1(
        limits: &Limits,
        group: GroupId,
        map: &Arc<GroupMap>,
        bug: Option<Bug>,
    ) -> Replica {
        let state = State::of_group(limits.clone(), group, Arc::clone(map));
        let mut replica = Replica { state, bug };
        replica.plant();
        replica
    }

    fn plant(&mut self) {
        if let Some(bug) = self.bug {
            self.state.plant(bug);
        }
    }

    pub(crate) fn apply(&mut self, entry: &Entry) -> Applied {
        self.state.apply(entry.clone())
    }

    /// Applies a command at a log time in milliseconds.
    pub(crate) fn at(&mut self, ms: u64, command: Command) -> Applied {
        self.state.apply(at(ms, command))
    }

    /// The events that an entry made, read right after it.
    pub(crate) fn events_of(&self, applied: &Applied) -> Vec<Event> {
        let Some(from) = applied.events_from else { return Vec::new() };
        let batch = self.state.events_since(from, &Watch::All, usize::MAX);
        batch.expect("the events of the last entry are kept").events
    }

    pub(crate) fn hash(&self) -> u64 {
        self.state.snapshot().hash()
    }

    /// True if nothing is due: then only a command changes anything at this log time.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.next_deadline().is_none_or(|next| next > self.state.now())
    }

    /// Continues with a state loaded from a snapshot of the present one.
    pub(crate) fn restore(&mut self, chunk_bytes: usize) -> Result<(), String> {
        let mut reader = SnapshotReader::new();
        for chunk in self.state.snapshot().chunks(chunk_bytes) {
            reader.push(&chunk).map_err(|error| format!("a chunk was refused: {error}"))?;
        }
        self.state = reader.finish().map_err(|error| format!("the snapshot was refused: {error}"))?;
        self.plant();
        Ok(())
    }
}

pub(crate) fn at(ms: u64, command: Command) -> Entry {
    Entry::new(LogTime::from_ms(ms), command)
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

pub(crate) fn names(texts: &[&str]) -> Names {
    Names::new(texts.iter().map(|text| name(text)).collect()).expect("each once")
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).expect("a good key")
}

pub(crate) fn owner(text: &str) -> Owner {
    Owner::new(text).expect("a good owner")
}

pub(crate) fn lease(id: u64) -> LeaseId {
    LeaseId::new(id).expect("a good id")
}

pub(crate) fn seq(number: u64) -> Seq {
    Seq::new(number).expect("small and above 0")
}

pub(crate) fn permits(n: u32, of: u32) -> Mode {
    Mode::permit(n, of).expect("n is at most of")
}

#[allow(clippy::unnecessary_wraps, reason = "it stands where an optional request is asked for")]
pub(crate) fn request(number: u64) -> Option<Request> {
    Some(Request { seq: seq(number), acked: SeqRanges::default(), scope: Scope::Whole })
}

pub(crate) fn grant(id: u64, ttl_ms: u64) -> Command {
    Command::GrantLease(GrantLease {
        id: LeaseChoice::Chosen(lease(id)),
        ttl: DurationMs::from_ms(ttl_ms),
        client_id: ClientId::NONE,
        address: Address::NONE,
        revoke_on_disconnect: false,
    })
}

/// A grant by a client with an id, which may therefore grant the lease again.
pub(crate) fn grant_by(client: &str, id: u64, ttl_ms: u64) -> Command {
    let mut command = grant(id, ttl_ms);
    if let Command::GrantLease(grant) = &mut command {
        grant.client_id = ClientId::new(client).expect("a good client id");
    }
    command
}

pub(crate) fn revision(number: u64) -> Revision {
    Revision::new(number).expect("small")
}

/// A stub of a lease that lives in group 2.
pub(crate) fn stub(id: u64, incarnation: u64) -> Command {
    let (client_id, home) = (ClientId::NONE, GroupId::new(2));
    Command::AddStub(AddStub { lease: lease(id), incarnation: revision(incarnation), client_id, home })
}

pub(crate) fn confirm(id: u64, incarnation: u64, added: u64) -> Command {
    let (incarnation, added) = (revision(incarnation), revision(added));
    Command::ConfirmStub(ConfirmStub { lease: lease(id), incarnation, added })
}

pub(crate) fn end_stub(id: u64, incarnation: u64) -> Command {
    let (incarnation, reason) = (revision(incarnation), LeaseEnd::Revoked);
    Command::EndStub(EndStub { lease: lease(id), incarnation, reason })
}

pub(crate) fn register(id: u64, incarnation: u64, group: u32) -> Command {
    let (incarnation, group) = (revision(incarnation), GroupId::new(group));
    Command::RegisterStub(RegisterStub { lease: lease(id), incarnation, group })
}

pub(crate) fn revoke(id: u64) -> Command {
    Command::RevokeLease(RevokeLease { lease: lease(id), disconnected: None })
}

pub(crate) fn renew(ids: impl IntoIterator<Item = u64>) -> Command {
    let renewal = |id| Renewal { lease: lease(id), address: None, acked: SeqRanges::default() };
    Command::RenewLeases(RenewLeases { renewals: ids.into_iter().map(renewal).collect() })
}

/// An exclusive acquire by the lease itself, with an endless wait.
pub(crate) fn acquire(id: u64, texts: &[&str]) -> AcquireLock {
    AcquireLock {
        names: names(texts),
        lease: lease(id),
        owner: Owner::LEASE,
        mode: Mode::Exclusive,
        wait: Wait::Forever,
        lock_delay: DurationMs::ZERO,
        max_hold: None,
        metadata: Metadata::NONE,
        value: None,
        attended: false,
        request: None,
    }
}

/// A Proclaim by the lease itself.
pub(crate) fn proclaim(id: u64, text: &str, token: u64, value: &[u8]) -> Command {
    Command::Proclaim(Proclaim {
        name: name(text),
        lease: lease(id),
        owner: Owner::LEASE,
        token: Token::new(token).expect("above 0"),
        value: Value::new(value).expect("short"),
        request: None,
    })
}

/// [`acquire`] of one name.
pub(crate) fn lock(id: u64, text: &str) -> Command {
    lock_as(id, text, Mode::Exclusive)
}

pub(crate) fn lock_as(id: u64, text: &str, mode: Mode) -> Command {
    Command::AcquireLock(AcquireLock { mode, ..acquire(id, &[text]) })
}

/// A release by the lease itself, whatever its token.
pub(crate) fn unlock(id: u64, text: &str) -> Command {
    let by = ReleaseBy::Holder { lease: lease(id), owner: Owner::LEASE, token: None, request: None };
    Command::ReleaseLock(ReleaseLock { names: names(&[text]), by })
}

/// A convert by the lease itself, with an endless wait.
pub(crate) fn convert(id: u64, text: &str, mode: Mode) -> ConvertLock {
    let (names, wait) = (names(&[text]), Wait::Forever);
    let (owner, attended, request) = (Owner::LEASE, false, None);
    ConvertLock { names, lease: lease(id), owner, mode, wait, attended, request }
}

pub(crate) fn cancel_seq(id: u64, number: u64) -> Command {
    Command::CancelWait(CancelWait {
        lease: lease(id),
        target: CancelTarget::Seq(seq(number)),
        release_if_granted: false,
        asks_max: None,
        acked: SeqRanges::default(),
    })
}

pub(crate) fn put(text: &str, value: &[u8], id: Option<u64>) -> Op {
    Op::Put { key: key(text), value: Value::new(value).expect("a good value"), lease: id.map(lease) }
}

pub(crate) fn txn(then: Vec<Op>) -> Command {
    Command::Txn(Txn { request: None, compares: Vec::new(), then, otherwise: Vec::new() })
}
