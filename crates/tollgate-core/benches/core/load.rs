//! The commands that the benchmark applies: 32-byte names, a fresh owner per request, seqs acknowledged one behind.

use tollgate_core::{
    AcquireLock, Command, Entry, Event, GrantLease, LeaseChoice, ReleaseBy, ReleaseLock, Reply, Request,
    Scope, State, Wait, Watch,
};
use tollgate_types::{
    Address, ClientId, DurationMs, LeaseId, Limits, LogTime, Metadata, Mode, Name, Names, Owner, Revision,
    Seq, SeqRanges,
};

pub(crate) const TTL_MS: u64 = 10_000;

/// A name of 32 bytes; names with neighbouring numbers are far apart in order.
pub(crate) fn name(i: u64) -> Name {
    let scattered = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let name = Name::new(format!("jobs/tenant-{:04}/{:015x}", scattered % 10_000, scattered >> 4)).unwrap();
    assert_eq!(name.len(), 32);
    name
}

pub(crate) fn request(before: u64) -> Request {
    let acked = if before == 0 { Vec::new() } else { vec![(1, before)] };
    Request { seq: Seq::new(before + 1).unwrap(), acked: SeqRanges::new(acked).unwrap(), scope: Scope::Whole }
}

fn owner(i: u64) -> Owner {
    Owner::new(format!("task-{i}")).unwrap()
}

pub(crate) fn grant(lease: LeaseId) -> Command {
    Command::GrantLease(GrantLease {
        id: LeaseChoice::Chosen(lease),
        ttl: DurationMs::from_ms(TTL_MS),
        client_id: ClientId::new("worker-17").unwrap(),
        address: Address::new("10.1.2.3:45678").unwrap(),
        revoke_on_disconnect: true,
    })
}

pub(crate) fn acquire(name: Name, lease: LeaseId, task: u64, wait: Wait, request: Request) -> Command {
    Command::AcquireLock(AcquireLock {
        names: Names::One(name),
        lease,
        owner: owner(task),
        mode: Mode::Exclusive,
        wait,
        lock_delay: DurationMs::ZERO,
        max_hold: None,
        metadata: Metadata::new("nightly job").unwrap(),
        value: None,
        attended: false,
        request: Some(request),
    })
}

pub(crate) fn release(name: Name, lease: LeaseId, task: u64, request: Request) -> Command {
    let by = ReleaseBy::Holder { lease, owner: owner(task), token: None, request: Some(request) };
    Command::ReleaseLock(ReleaseLock { names: Names::One(name), by })
}

pub(crate) fn tick(at: LogTime) -> Entry {
    Entry::new(at, Command::Tick)
}

pub(crate) fn apply(state: &mut State, command: Command) -> Reply {
    state.apply(Entry::new(state.now(), command)).reply
}

/// A lock and its unlock by the worker's lease, on names other than the `held` ones.
pub(crate) fn random_work(turn: u64, worker: LeaseId, held: u64) -> (Command, Command) {
    let name = name(held * 10 + turn * 7_919);
    let lock = acquire(name.clone(), worker, turn, Wait::No, request(turn));
    (lock, release(name, worker, turn, request(turn + 1)))
}

/// Events of acquiring the first `count` names.
pub(crate) fn events(count: u64) -> Vec<Event> {
    let mut state = State::new(Limits::DEFAULT);
    let lease = LeaseId::new(1).unwrap();
    apply(&mut state, grant(lease));
    for i in 0..count {
        apply(&mut state, acquire(name(i), lease, i, Wait::No, request(i)));
    }
    let all = usize::try_from(count).unwrap();
    state.events_since(Revision::ZERO.next(), &Watch::All, all).unwrap().events
}
