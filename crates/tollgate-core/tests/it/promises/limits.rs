//! P16: every limit of the core refuses what exceeds it, by name and value, or bounds it if it can't be refused.

use super::{ensure, must_fail, must_hold};
use crate::commands::{
    Replica, acquire, cancel_seq, grant, key, lock, lock_as, name, owner, proclaim, put, renew, request, txn,
};
use tollgate_core::{
    AcquireLock, Bug, Change, Command, Event, ForceRelease, KeySelector, Op, RegisterState, Rejection, Reply,
    Watch,
};
use tollgate_types::{DurationMs, Limit, Limits, LogTime, Metadata, Mode, Reason, Token, Value};

/// Value to which a limit is lowered: not its least one, so that the test sees that the value is used.
const VALUE: u64 = 20;
/// Number of leases in every drive, with ids from 1.
const LEASES: u64 = 40;
const TTL_MS: u64 = 60_000;

/// Drives one limit to its bound, and past it.
fn drive(limit: Limit, bug: Option<Bug>) -> Result<(), String> {
    let drive = Drive { limit, bug };
    match limit {
        Limit::NameBytes => drive.size(|size| lock(1, &"n".repeat(bytes(size)))),
        Limit::MetadataBytes => {
            // The limit counts bytes, whatever they are.
            let metadata = |size| Metadata::new(vec![b'\n'; bytes(size)]).expect("short");
            drive.size(|size| {
                Command::AcquireLock(AcquireLock { metadata: metadata(size), ..acquire(1, &["jobs"]) })
            })?;
            let (name, token) = (name("jobs"), Token::new(1).expect("above 0"));
            let reason = Reason::new(vec![b'm'; bytes(VALUE + 1)]).expect("short");
            drive.refuses(&[], Command::ForceRelease(ForceRelease { name, token, reason }))
        }
        Limit::NamesPerRequest => drive.size(|count| {
            let texts: Vec<String> = (0..count).map(|i| format!("n{i}")).collect();
            Command::AcquireLock(acquire(1, &texts.iter().map(String::as_str).collect::<Vec<_>>()))
        }),
        Limit::LockDelay => drive.size(|ms| {
            let lock_delay = DurationMs::from_ms(ms);
            Command::AcquireLock(AcquireLock { lock_delay, ..acquire(1, &["jobs"]) })
        }),
        Limit::Locks | Limit::ClaimsPerLease => drive.count(&[], |i| lock(1, &format!("n{i}"))),
        Limit::Leases => drive.count(&[], |i| grant(LEASES + i, TTL_MS)),
        Limit::HoldersPerLock => drive.count(&[], |i| lock_as(i, "jobs", Mode::Shared)),
        Limit::WaitersPerLock => drive.count(&[lock(LEASES, "jobs")], |i| lock(i, "jobs")),
        Limit::OpsInFlightPerLease => {
            drive.count(&[], |i| {
                let text = format!("n{i}");
                Command::AcquireLock(AcquireLock { request: request(i), ..acquire(1, &[&text]) })
            })?;
            drive.count(&[], |i| cancel_seq(1, i))
        }
        Limit::WaitsPerLease => waits(drive),
        Limit::TtlMin | Limit::TtlMax => ttls(bug),
        Limit::RenewalsPerEntry => drive.size(|count| renew(1..=count)),
        Limit::Registers => drive.count(&[], |i| txn(vec![put(&format!("k{i}"), b"", None)])),
        Limit::ValueBytes => {
            let value = |size| vec![b'v'; bytes(size)];
            drive.size(|size| txn(vec![put("k", &value(size), None)]))?;
            drive.size(|size| saying("jobs", &value(size)))?;
            drive.accepts(&[saying("jobs", b"")], proclaim(1, "jobs", LEASES + 1, &value(VALUE)))?;
            drive.refuses(&[saying("jobs", b"")], proclaim(1, "jobs", LEASES + 1, &value(VALUE + 1)))
        }
        Limit::ClaimValues => {
            drive.count(&[], |i| saying(&format!("n{i}"), b"v"))?;
            let all = (1..=VALUE).map(|i| saying(&format!("n{i}"), b"v")).chain([lock(1, "quiet")]);
            let all: Vec<Command> = all.collect();
            // A holder that has a value already may change it.
            drive.accepts(&all, proclaim(1, "n1", LEASES + 1, b"w"))?;
            drive.refuses(&all, proclaim(1, "quiet", LEASES + VALUE + 1, b"w"))
        }
        Limit::TxnOps => {
            drive.size(|count| txn((0..count).map(|i| put(&format!("k{i}"), b"", None)).collect()))
        }
        Limit::Range => {
            let puts: Vec<Command> =
                (0..=VALUE).map(|i| txn(vec![put(&format!("k{i}"), b"", None)])).collect();
            drive.accepts(&puts, txn(vec![Op::Delete(KeySelector::Prefix(key("k1")))]))?;
            drive.refuses(&puts, txn(vec![Op::Delete(KeySelector::All)]))
        }
        Limit::RingBytes => the_ring_is_bounded(bug),
        Limit::ReapsPerEntry => the_work_of_an_entry_is_bounded(drive),
        Limit::DeadlockVisits => a_search_is_bounded(drive),
    }
}

/// An acquire of a lock with a value.
fn saying(text: &str, value: &[u8]) -> Command {
    let value = Some(Value::new(value).expect("short"));
    Command::AcquireLock(AcquireLock { value, ..acquire(1, &[text]) })
}

fn bytes(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

#[derive(Clone, Copy)]
struct Drive {
    limit: Limit,
    bug: Option<Bug>,
}

impl Drive {
    /// A state with leases, in which the limit is lowered.
    fn replica(self) -> Result<Replica, String> {
        let mut replica = Replica::new(&Limits::DEFAULT, self.bug);
        for id in 1..=LEASES {
            replica.at(0, grant(id, TTL_MS));
        }
        let mut limits = Limits::DEFAULT;
        limits.set(self.limit, if self.limit == Limit::Leases { LEASES + VALUE } else { VALUE });
        let reply = replica.at(0, Command::SetLimits(Box::new(limits))).reply;
        ensure!(reply == Reply::Done, "{} can be lowered to {VALUE}: {reply:?}", self.limit);
        Ok(replica)
    }

    fn accepted(self, before: &[Command]) -> Result<Replica, String> {
        let mut replica = self.replica()?;
        for command in before {
            let reply = replica.at(0, command.clone()).reply;
            ensure!(!matches!(reply, Reply::Rejected(_)), "{}: {reply:?} below the limit", self.limit);
        }
        Ok(replica)
    }

    fn accepts(self, before: &[Command], command: Command) -> Result<(), String> {
        self.accepted(&[before, &[command]].concat()).map(drop)
    }

    /// Checks that the command is refused, by the limit's name and value, and without a trace.
    fn refuses(self, before: &[Command], command: Command) -> Result<(), String> {
        let (limit, mut replica) = (self.limit, self.accepted(before)?);
        let (max, hash) = (replica.state.limits().get(limit), replica.hash());
        let reply = replica.at(0, command).reply;
        let rejection = Rejection::LimitExceeded { limit, max, got: max + 1 };
        let says = format!("{} is {max}: {} is too many", limit.name(), max + 1);
        ensure!(rejection.to_string() == says, "{rejection} instead of {says}");
        ensure!(reply == Reply::Rejected(rejection), "{limit}: {reply:?} past the limit");
        ensure!(replica.hash() == hash, "{limit}: a refusal changed the state");
        Ok(())
    }

    /// Checks a limit on one command: exactly the limit is accepted, one more is not.
    fn size(self, command: impl Fn(u64) -> Command) -> Result<(), String> {
        self.accepts(&[], command(VALUE))?;
        self.refuses(&[], command(VALUE + 1))
    }

    /// Checks a limit on a number of things: exactly as many commands are accepted, the next is not.
    fn count(self, before: &[Command], command: impl Fn(u64) -> Command) -> Result<(), String> {
        let fine: Vec<Command> = before.iter().cloned().chain((1..=VALUE).map(&command)).collect();
        self.refuses(&fine, command(VALUE + 1))
    }
}

/// Waits have a limit of their own: a lease that has reached it goes on with everything else. A refusal is kept for its
/// seq, so it leaves that trace.
fn waits(drive: Drive) -> Result<(), String> {
    let wait = |i: u64| {
        let owner = owner(&format!("o{i}"));
        Command::AcquireLock(AcquireLock { request: request(i), owner, ..acquire(1, &["jobs"]) })
    };
    let before = std::iter::once(lock(LEASES, "jobs")).chain((1..=VALUE).map(wait));
    let mut replica = drive.accepted(&before.collect::<Vec<_>>())?;
    let reply = replica.at(0, wait(VALUE + 1)).reply;
    let over = Rejection::LimitExceeded { limit: drive.limit, max: VALUE, got: VALUE + 1 };
    ensure!(reply == Reply::Rejected(over), "{}: {reply:?} past the limit", drive.limit);
    let limits = Limits { ops_in_flight_per_lease_max: 2, ..replica.state.limits().clone() };
    replica.at(0, Command::SetLimits(Box::new(limits)));
    let free = AcquireLock { request: request(VALUE + 2), ..acquire(1, &["free"]) };
    let reply = replica.at(0, Command::AcquireLock(free)).reply;
    ensure!(matches!(reply, Reply::Acquired { .. }), "the waits of a lease jam it: {reply:?}");
    Ok(())
}

/// Checks both ends of the TTL's range together, because one limits the other.
fn ttls(bug: Option<Bug>) -> Result<(), String> {
    let limits = Limits { ttl_ms_min: 50, ttl_ms_max: 70, ..Limits::DEFAULT };
    let mut replica = Replica::new(&limits, bug);
    let (min, max) = (DurationMs::from_ms(50), DurationMs::from_ms(70));
    for asked in [0, 49, 71, u64::MAX] {
        let reply = replica.at(0, grant(1, asked)).reply;
        let rejection = Rejection::TtlOutOfRange { asked: DurationMs::from_ms(asked), min, max };
        ensure!(reply == Reply::Rejected(rejection), "{asked}: {reply:?}");
    }
    for asked in [50, 70] {
        let reply = replica.at(0, grant(asked, asked)).reply;
        ensure!(matches!(reply, Reply::LeaseGranted { .. }), "{asked}: {reply:?}");
    }
    Ok(())
}

/// The bound of the ring refuses nothing: the ring drops the oldest events. It may exceed the bound by the events of
/// the last entry.
fn the_ring_is_bounded(bug: Option<Bug>) -> Result<(), String> {
    let limits = Limits { ring_bytes_max: 50_000, ..Limits::DEFAULT };
    let mut replica = Replica::new(&limits, bug);
    let value = [b'v'; 1_000];
    for i in 0..300 {
        let puts = ["a", "b", "c"].map(|text| put(text, &value, None));
        let applied = replica.at(i, txn(puts.to_vec()));
        let added = bytes_at_least(&replica.events_of(&applied));
        let kept = replica.state.events_since(replica.state.min_revision(), &Watch::All, usize::MAX);
        let kept = bytes_at_least(&kept.map_err(|error| error.to_string())?.events);
        ensure!(kept <= limits.ring_bytes_max + added, "{kept} bytes of history after {i} entries");
        ensure!(i < 20 || kept > limits.ring_bytes_max / 2, "only {kept} bytes of history after {i} entries");
    }
    Ok(())
}

fn bytes_at_least(events: &[Event]) -> u64 {
    let value = |state: &Option<RegisterState>| state.as_ref().map_or(0, |state| state.value.len());
    let event = |event: &Event| match &event.change {
        Change::Register(change) => value(&change.now) + value(&change.prev),
        Change::Lock(change) => change.name.len(),
    };
    events.iter().map(event).sum::<usize>() as u64
}

/// The budget of an entry refuses nothing: the rest of the work is done in the next entries.
fn the_work_of_an_entry_is_bounded(drive: Drive) -> Result<(), String> {
    let mut replica = drive.replica()?;
    for id in 1..=LEASES {
        replica.at(0, lock(id, &format!("n{id}")));
    }
    // For each lease, its lock ends and then the lease itself is forgotten.
    for entries in 1..=2 * LEASES / VALUE {
        let applied = replica.at(TTL_MS, Command::Tick);
        let ends = replica.events_of(&applied).len() as u64;
        ensure!(ends <= VALUE, "{ends} ends in one entry");
        let left = LEASES - entries * VALUE / 2;
        let count = replica.state.lease_count();
        ensure!(count == left, "{count} leases instead of {left} after {entries} entries");
    }
    ensure!(replica.state.next_deadline().is_none(), "nothing is left");
    Ok(())
}

/// The bound of a deadlock search refuses nothing: past it the request queues unsearched.
fn a_search_is_bounded(drive: Drive) -> Result<(), String> {
    let by_owner = |id, text: String| {
        Command::AcquireLock(AcquireLock { owner: owner("o"), ..acquire(id, &[text.as_str()]) })
    };
    for (length, found) in [(3, true), (30, false)] {
        let mut replica = drive.replica()?;
        for id in 1..=length {
            replica.at(0, by_owner(id, format!("n{id}")));
        }
        for id in 1..length {
            replica.at(0, by_owner(id, format!("n{}", id + 1)));
        }
        let reply = replica.at(0, by_owner(length, "n1".to_owned())).reply;
        let right = if found {
            matches!(reply, Reply::Rejected(Rejection::Deadlock { .. }))
        } else {
            matches!(reply, Reply::Queued { .. })
        };
        ensure!(right, "a cycle of {length}: {reply:?}");
        ensure!(replica.state.now() == LogTime::ZERO, "nothing else happened");
    }
    Ok(())
}

fn every_limit_holds(bug: Option<Bug>) -> Result<(), String> {
    Limit::ALL.iter().try_for_each(|limit| drive(*limit, bug))
}

#[test]
fn p16_every_limit_refuses_or_bounds() {
    must_hold(every_limit_holds);
    must_fail(every_limit_holds, Bug::RingSplitsRevision);
    must_fail(every_limit_holds, Bug::LimitOneTooMany);
    must_fail(every_limit_holds, Bug::WaitsJamTheirLease);
}

#[test]
fn p16_limits_that_no_group_can_have_are_refused() {
    for limit in Limit::ALL {
        let (min, max) = limit.range();
        for value in [min.checked_sub(1), Some(max + 1)].into_iter().flatten() {
            let mut limits = Limits::DEFAULT;
            limits.set(*limit, value);
            let mut replica = Replica::new(&Limits::DEFAULT, None);
            let reply = replica.at(0, Command::SetLimits(Box::new(limits))).reply;
            let Reply::Rejected(Rejection::InvalidLimits(why)) = reply else { panic!("{limit}: {reply:?}") };
            assert_eq!(why.to_string(), format!("{limit} is {value}: it must be from {min} to {max}"));
            assert_eq!(*replica.state.limits(), Limits::DEFAULT);
        }
    }
}
