//! Callers whose requests wait, at the dispatchers of nodes whose disks fill up.

use crate::cluster::{Call, Cluster, Front, GROUP, grant_lease, lock, node};
use tollgate_core::{Command, Request, Scope, Wait};
use tollgate_replica::{Answer, ProposeError};
use tollgate_types::{DurationMs, Seq, SeqRanges};

const HOLDER: u64 = 1;
const WAITER: u64 = 2;
const CALL: Call = Call(7);
/// The default time in which callers have to come back.
const UNATTENDED_MS: u64 = 10_000;

/// A request of the waiter for the lock that the holder has.
fn waits(wait: Wait, attended: bool) -> Command {
    let Command::AcquireLock(mut acquire) = lock("jobs", WAITER) else { unreachable!("it makes one") };
    (acquire.wait, acquire.attended) = (wait, attended);
    Command::AcquireLock(acquire)
}

/// The same request with a seq.
fn numbered(seq: u64) -> Command {
    let waits = waits(Wait::Forever, false);
    let Command::AcquireLock(mut acquire) = waits else { unreachable!("it is one") };
    let seq = Seq::new(seq).unwrap();
    acquire.request = Some(Request { seq, acked: SeqRanges::default(), scope: Scope::Whole });
    Command::AcquireLock(acquire)
}

/// A cluster with a dispatcher on every node, in which a lock is held, and its leader.
fn held() -> (Cluster, u64) {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.until_founded();
    cluster.open_dispatchers();
    let leader = cluster.leader();
    for lease in [HOLDER, WAITER] {
        cluster.grant_lease(lease, 600_000);
    }
    cluster.lock("jobs", HOLDER);
    cluster.run_ms(300);
    (cluster, leader)
}

fn fill(cluster: &mut Cluster, numbers: &[u64], full: bool) {
    for number in numbers {
        cluster.nodes.get_mut(&node(*number)).unwrap().disk.full = full;
    }
}

fn waiting(cluster: &Cluster, leader: u64) -> u64 {
    cluster.host(leader).state(GROUP).unwrap().claim_count() - 1
}

#[test]
fn p8_a_wait_is_answered_while_the_disks_of_a_majority_are_full() {
    // Places of the full nodes, counted from the leader on.
    for full in [&[1, 2][..], &[0, 1], &[0, 1, 2]] {
        let (mut cluster, leader) = held();
        let full: Vec<u64> = full.iter().map(|place| (leader - 1 + place) % 3 + 1).collect();
        cluster.ask(leader, CALL, waits(Wait::For(DurationMs::from_ms(3_000)), false));
        cluster.run_ms(50);
        assert!(matches!(cluster.told(leader, CALL)[..], [Answer::Queued { .. }]), "{full:?}");
        fill(&mut cluster, &full, true);
        // A full disk is noticed only at a write.
        cluster.propose(leader, grant_lease(3, 600_000));
        cluster.run_ms(1_000);
        let told = cluster.told(leader, CALL);
        let [Answer::NotDone(error)] = &told[..] else { panic!("{full:?}: {told:?}") };
        assert_eq!(*error, ProposeError::NoRoomMidway { group: GROUP }, "{full:?}: it is in line still");
        assert_eq!(waiting(&cluster, leader), 1, "{full:?}");
        // A caller that comes back finds its place once there is room, and is told again if there is none once more.
        fill(&mut cluster, &full, false);
        cluster.until("all goes on", |cluster| !cluster.host(leader).brief(GROUP).unwrap().stuck);
        cluster.run_ms(300);
        cluster.ask(leader, CALL, waits(Wait::For(DurationMs::from_ms(3_000)), false));
        cluster.until("its time is over", |cluster| waiting(cluster, leader) == 0);
        let told = cluster.told(leader, CALL);
        assert!(matches!(told[..], [Answer::Queued { .. }, Answer::Resolved { .. }]), "{full:?}: {told:?}");
    }
}

/// A request whose caller was told that it may be queued is never reported as not executed, however often it is
/// repeated.
#[test]
fn p10_one_who_asks_again_while_disks_are_full_is_not_told_that_nothing_happened() {
    let (mut cluster, leader) = held();
    let full: Vec<u64> = (1..=3).filter(|number| *number != leader).collect();
    cluster.ask(leader, CALL, numbered(1));
    cluster.run_ms(50);
    assert!(matches!(cluster.told(leader, CALL)[..], [Answer::Queued { .. }]));
    fill(&mut cluster, &full, true);
    cluster.propose(leader, grant_lease(3, 600_000));
    cluster.run_ms(1_000);
    let midway = |answers: &[Answer<()>]| {
        let [Answer::NotDone(error)] = answers else { panic!("{answers:?}") };
        assert_eq!(*error, ProposeError::NoRoomMidway { group: GROUP });
    };
    midway(&cluster.told(leader, CALL));
    for again in 1..3 {
        cluster.ask(leader, Call(CALL.0 + again), numbered(1));
        cluster.run_ms(100);
        midway(&cluster.told(leader, Call(CALL.0 + again)));
    }
    assert_eq!(waiting(&cluster, leader), 1);
}

/// Number of waiters left a while after there is room again, if no caller has come back.
fn left_in_line(before_it_fills: bool, prepare: impl FnOnce(&mut Front)) -> u64 {
    let (mut cluster, leader) = held();
    let full: Vec<u64> = (1..=3).filter(|number| *number != leader).collect();
    prepare(cluster.nodes.get_mut(&node(leader)).unwrap().front.as_mut().unwrap());
    if before_it_fills {
        cluster.ask(leader, CALL, waits(Wait::Forever, true));
        cluster.run_ms(50);
    }
    fill(&mut cluster, &full, true);
    if before_it_fills {
        cluster.propose(leader, grant_lease(3, 600_000));
    } else {
        cluster.ask(leader, CALL, waits(Wait::Forever, true));
    }
    // Far longer than the time in which callers have to come back: without room they can't.
    cluster.run_ms(30_000);
    let error = ProposeError::NoRoomMidway { group: GROUP };
    let told = cluster.told(leader, CALL);
    assert!(matches!(told.last(), Some(Answer::NotDone(last)) if *last == error), "{told:?}");
    fill(&mut cluster, &full, false);
    cluster.until("it waits in line", |cluster| waiting(cluster, leader) == 1);
    cluster.run_ms(UNATTENDED_MS - 1_000);
    assert_eq!(waiting(&cluster, leader), 1, "it may come back yet");
    cluster.run_ms(2_000);
    waiting(&cluster, leader)
}

#[test]
fn p8_a_wait_whose_caller_was_told_that_disks_are_full_ends_if_nobody_comes_back() {
    for before_it_fills in [false, true] {
        assert_eq!(left_in_line(before_it_fills, |_| {}), 0, "{before_it_fills}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn p8_who_waits_and_is_not_told_that_nothing_can_be_written_waits_on() {
    let (mut cluster, leader) = held();
    let front = cluster.nodes.get_mut(&node(leader)).unwrap().front.as_mut().unwrap();
    front.dispatcher.plant(tollgate_replica::Bug::ParkedWithoutRoom);
    cluster.ask(leader, CALL, waits(Wait::For(DurationMs::from_ms(3_000)), false));
    cluster.run_ms(50);
    assert!(matches!(cluster.told(leader, CALL)[..], [Answer::Queued { .. }]));
    fill(&mut cluster, &[1, 2, 3], true);
    cluster.propose(leader, grant_lease(3, 600_000));
    cluster.run_ms(30_000);
    assert!(cluster.told(leader, CALL).is_empty());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn p8_waits_that_are_not_looked_for_stay_in_line() {
    for before_it_fills in [false, true] {
        let plant = |front: &mut Front| front.dispatcher.plant(tollgate_replica::Bug::UnheardForgotten);
        assert_eq!(left_in_line(before_it_fills, plant), 1, "{before_it_fills}");
    }
}
