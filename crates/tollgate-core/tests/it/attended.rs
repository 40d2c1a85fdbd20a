//! Attended waits, whose callers stand by: how a leader finds them, and which waits it may end.

use crate::commands::{Replica, acquire, convert, grant, lock, lock_as, name, request};
use tollgate_core::{AcquireLock, Command, ConvertLock, Reply, WaitView};
use tollgate_types::{Limits, Mode, Revision};

fn attended(id: u64, text: &str) -> AcquireLock {
    AcquireLock { attended: true, ..acquire(id, &[text]) }
}

fn found(replica: &Replica) -> Vec<WaitView> {
    let (mut waits, mut from) = (Vec::new(), Some(0));
    while let Some(at) = from {
        let (part, next) = replica.state.attended_waits(at, 1);
        waits.extend(part);
        from = next;
    }
    waits.sort_by_key(|wait| wait.create_revision);
    waits
}

fn queued_at(replica: &mut Replica, command: Command) -> Revision {
    match replica.at(0, command).reply {
        Reply::Queued { create_revision, .. } => create_revision,
        other => panic!("it should wait: {other:?}"),
    }
}

#[test]
fn a_wait_is_attended_until_one_asks_who_does_not_stand_by() {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    for id in 1..=5 {
        replica.at(0, grant(id, 60_000));
    }
    replica.at(0, lock(1, "a"));
    replica.at(0, lock_as(2, "b", Mode::Shared));
    replica.at(0, lock_as(3, "b", Mode::Shared));
    let numbered = AcquireLock { request: request(1), ..attended(2, "a") };
    let first = queued_at(&mut replica, Command::AcquireLock(numbered.clone()));
    queued_at(&mut replica, lock(3, "a"));
    let third = queued_at(&mut replica, Command::AcquireLock(attended(4, "a")));
    let upgrade = ConvertLock { attended: true, ..convert(2, "b", Mode::Exclusive) };
    let upgrade = queued_at(&mut replica, Command::ConvertLock(upgrade));
    let revisions =
        |waits: Vec<WaitView>| waits.into_iter().map(|wait| wait.create_revision).collect::<Vec<_>>();
    assert_eq!(revisions(found(&replica)), [first, third, upgrade]);
    replica.restore(100).unwrap();
    assert_eq!(revisions(found(&replica)), [first, third, upgrade]);
    let wait = replica.state.wait(&name("b"), upgrade).unwrap();
    assert_eq!((wait.lease.get(), wait.attended, wait.asks), (2, true, 2), "the acquire and the convert");

    // A repeat from a caller that stands by changes the count alone; a repeat from a session takes the wait over.
    queued_at(&mut replica, Command::AcquireLock(numbered.clone()));
    let asked =
        |replica: &Replica| replica.state.wait(&name("a"), first).map(|wait| (wait.attended, wait.asks));
    assert_eq!(asked(&replica), Some((true, 2)));
    queued_at(&mut replica, Command::AcquireLock(AcquireLock { attended: false, ..numbered }));
    assert_eq!(asked(&replica), Some((false, 3)));
    replica.restore(100).unwrap();
    assert_eq!(asked(&replica), Some((false, 3)));
    queued_at(&mut replica, lock(4, "a"));
    assert_eq!(revisions(found(&replica)), [upgrade]);
    assert_eq!(replica.state.wait(&name("a"), upgrade), None, "of another lock");
}
