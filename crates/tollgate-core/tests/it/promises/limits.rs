//! P16: every limit of the core refuses what is past it, by name and value, or bounds what it does not refuse.

use super::{ensure, must_fail, must_hold};
use crate::commands::{
    Replica, acquire, cancel_seq, grant, key, lease, lock, lock_as, owner, permits, put, renew, revoke, txn,
};
use tollgate_core::{
    AcquireLock, Bug, Change, Command, ForceRelease, GrantLease, KeySelector, LeaseChoice, Op, Rejection, Reply, Wait,
    Watch,
};
use tollgate_types::{
    Address, ClientId, DurationMs, Limit, Limits, Metadata, Mode, Revision, Slot, Token,
};

/// To what each limit is lowered: small, and not its least value, so that it is seen to be used.
const VALUE: u64 = 20;

/// Drives one limit to its bound.
fn drive(limit: Limit, bug: Option<Bug>) -> Result<(), String> {
    match limit {
        Limit::NameBytes => at_bound(limit, bug, |i| lock(1, &"n".repeat(size(i)))),
        Limit::MetadataBytes => {
            at_bound(limit, bug, |i| {
                let metadata = Metadata::new(vec![b'm'; size(i)]).expect("short");
                Command::AcquireLock(AcquireLock { metadata, ..acquire(1, &["jobs"]) })
            })?;
            let reason = Metadata::new(vec![b'm'; size(VALUE + 1)]).expect("short");
            let token = Token::new(1).expect("above 0");
            let name = crate::commands::name("jobs");
            refuses(limit, bug, &[], Command::ForceRelease(ForceRelease { name, token, reason }))
        }
        Limit::NamesPerRequest => at_bound(limit, bug, |i| {
            let texts: Vec<String> = (0..i).map(|i| format!("n{i}")).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            Command::AcquireLock(acquire(i, &texts))
        }),
        Limit::LockDelay => at_bound(limit, bug, |i| {
            let lock_delay = DurationMs::from_ms(i);
            Command::AcquireLock(AcquireLock { lock_delay, ..acquire(1, &["jobs"]) })
        }),
        Limit::Locks | Limit::ClaimsPerLease => up_to(limit, bug, |i| lock(1, &format!("n{i}"))),
        Limit::Leases => up_to_from(limit, bug, LEASES, |i| grant(LEASES + i, 1_000)),
        Limit::HoldersPerLock => up_to(limit, bug, |i| lock_as(i, "jobs", Mode::Shared)),
        Limit::WaitersPerLock => {
            let held = lock(LEASES, "jobs");
            after(&[held], limit, bug, |i| lock(i, "jobs"))
        }
        Limit::OpsInFlightPerLease => {
            let command = |i| {
                let text = format!("n{i}");
                Command::AcquireLock(AcquireLock { request: crate::commands::request(i), ..acquire(1, &[&text]) })
            };
            up_to(limit, bug, command)?;
            up_to(limit, bug, |i| cancel_seq(1, i))
        }
        Limit::TtlMin | Limit::TtlMax => ttl(limit, bug),
        Limit::RenewalsPerEntry => at_bound(limit, bug, |i| renew(1..=i)),
        Limit::Registers => up_to(limit, bug, |i| txn(vec![put(&format!("k{i}"), b"", None)])),
        Limit::ValueBytes => at_bound(limit, bug, |i| txn(vec![put("k", &vec![b'v'; size(i)], None)])),
        Limit::TxnOps => at_bound(limit, bug, |i| txn((0..i).map(|i| put(&format!("k{i}"), b"", None)).collect())),
        Limit::Range => {
            let puts: Vec<Command> = (0..=VALUE).map(|i| txn(vec![put(&format!("k{i}"), b"", None)])).collect();
            refuses(limit, bug, &puts, txn(vec![Op::Delete(KeySelector::All)]))?;
            let fewer = Op::Delete(KeySelector::Prefix(key("k1")));
            accepts(limit, bug, &puts, txn(vec![fewer]))
        }
        Limit::RingBytes => ring(bug),
        Limit::ReapsPerEntry => reaps(bug),
        Limit::DeadlockVisits => deadlock_visits(bug),
    }
}

/// Leases 1 to this one are there in every drive.
const LEASES: u64 = 40;

fn size(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

/// A state with one limit lowered, and leases.
fn replica_with(limit: Limit, bug: Option<Bug>) -> Replica {
    let mut replica = Replica::new(&Limits::DEFAULT, bug);
    for id in 1..=LEASES {
        replica.at(0, grant(id, 60_000));
    }
    let mut limits = Limits::DEFAULT;
    // The leases that are there count.
    limits.set(limit, if limit == Limit::Leases { LEASES + VALUE } else { VALUE });
    let reply = replica.at(0, Command::SetLimits(Box::new(limits))).reply;
    assert_eq!(reply, Reply::Done, "{limit} can be {VALUE}");
    replica
}

fn is_refused(replica: &mut Replica, limit: Limit, command: Command) -> Result<(), String> {
    let max = replica.state.limits().get(limit);
    let (revision, hash) = (replica.state.revision(), replica.hash());
    let keeps_outcome = matches!(&command, Command::AcquireLock(AcquireLock { request: Some(_), .. }));
    let reply = replica.at(0, command).reply;
    let refusal = Reply::Rejected(Rejection::LimitExceeded { limit, max, got: max + 1 });
    ensure!(reply == refusal, "{limit}: {reply:?} instead of {refusal:?}");
    let says = format!("{limit} is {max}: {} is too many", max + 1);
    let said = match reply {
        Reply::Rejected(rejection) => rejection.to_string(),
        _ => String::new(),
    };
    ensure!(said == says, "{said:?} instead of {says:?}");
    ensure!(replica.state.revision() == revision, "{limit}: a refusal took a revision");
    ensure!(replica.hash() == hash || keeps_outcome, "{limit}: a refusal changed the state");
    Ok(())
}

fn is_accepted(replica: &mut Replica, limit: Limit, command: Command) -> Result<(), String> {
    let reply = replica.at(0, command).reply;
    ensure!(!matches!(reply, Reply::Rejected(_)), "{limit}: {reply:?} below the limit");
    Ok(())
}

fn refuses(limit: Limit, bug: Option<Bug>, before: &[Command], command: Command) -> Result<(), String> {
    let mut replica = replica_with(limit, bug);
    for command in before {
        is_accepted(&mut replica, limit, command.clone())?;
    }
    is_refused(&mut replica, limit, command)
}

fn accepts(limit: Limit, bug: Option<Bug>, before: &[Command], command: Command) -> Result<(), String> {
    let mut replica = replica_with(limit, bug);
    for command in before.iter().cloned().chain([command]) {
        is_accepted(&mut replica, limit, command)?;
    }
    Ok(())
}

/// A limit on one command: as much as it says is fine, one more is not.
fn at_bound(limit: Limit, bug: Option<Bug>, command: impl Fn(u64) -> Command) -> Result<(), String> {
    accepts(limit, bug, &[], command(VALUE))?;
    refuses(limit, bug, &[], command(VALUE + 1))
}

/// A limit on how many there are: so many commands are fine, the next is not.
fn up_to(limit: Limit, bug: Option<Bug>, command: impl Fn(u64) -> Command) -> Result<(), String> {
    after(&[], limit, bug, command)
}

fn after(before: &[Command], limit: Limit, bug: Option<Bug>, command: impl Fn(u64) -> Command) -> Result<(), String> {
    let before: Vec<Command> = before.iter().cloned().chain((1..=VALUE).map(&command)).collect();
    refuses(limit, bug, &before, command(VALUE + 1))
}
