//! Linearizable reads: on any node, never stale, batched, retried, and timed out.

use crate::cluster::{Cluster, GROUP, node, renew};
use tollgate_core::Reply;
use tollgate_replica::{ReadError, ReadId};
use tollgate_types::Name;

#[test]
fn p13_a_read_on_any_node_sees_what_was_acknowledged_before() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 60_000);
    cluster.run_ms(300);
    for (round, number) in [1, 2, 3].into_iter().enumerate() {
        let name = format!("job{round}");
        assert!(matches!(cluster.lock(&name, 1), Reply::Acquired { .. }));
        let read = cluster.read(number);
        cluster.until("the read is answered", |cluster| cluster.reads.contains_key(&read));
        assert!(cluster.reads[&read].result.is_ok());
        let state = cluster.host(number).state(GROUP).unwrap();
        assert!(state.lock(&Name::new(&name).unwrap()).is_some(), "node {number} is behind");
    }
}

#[test]
fn p13_a_leader_that_lost_its_majority_answers_no_read() {
    let mut cluster = Cluster::new(3, &[], 1);
    let old = cluster.leader();
    cluster.isolate(old);
    let read = cluster.read(old);
    // Long enough for the others to have a new leader and for the old one to believe that it still leads.
    cluster.run_ms(4_500);
    assert!(!cluster.reads.contains_key(&read));
    cluster.run_ms(1_000);
    assert_eq!(cluster.reads[&read].result, Err(ReadError::TimedOut { group: GROUP }));
}

#[test]
fn a_read_that_was_lost_is_asked_again() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    cluster.run_ms(300);
    let follower = if leader == 1 { 2 } else { 1 };
    cluster.cut.insert((node(follower), node(leader)));
    let read = cluster.read(follower);
    cluster.run_ms(50);
    cluster.heal();
    cluster.until("the read is answered", |cluster| cluster.reads.contains_key(&read));
    assert!(cluster.reads[&read].result.is_ok());
}

/// The messages of a follower wait for its disk, those to the leader about reads as well.
#[test]
fn p13_a_read_at_a_follower_whose_disk_is_slower_than_the_retry_is_answered() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 60_000);
    let leader = cluster.leader();
    let follower = if leader == 1 { 2 } else { 1 };
    let retry_ms = cluster.host(follower).config().read_retry_ms;
    cluster.nodes.get_mut(&node(follower)).unwrap().disk_held = true;
    let (mut read, mut under_way) = (None, 0);
    for ms in 0..12 * retry_ms {
        // There is always something to write, and a write takes from two to four retries.
        if ms % 10 == 0 {
            cluster.propose(leader, renew(1));
        }
        if ms % (2 * retry_ms) == 0 {
            let slow = cluster.nodes.get_mut(&node(follower)).unwrap();
            let later = slow.writes.split_off(under_way);
            slow.work();
            slow.writes = later;
            under_way = slow.writes.len();
        }
        if ms == retry_ms / 2 {
            read = Some(cluster.read(follower));
        }
        cluster.step();
    }
    let read = cluster.reads.get(&read.unwrap()).expect("it is answered, long before it would time out");
    assert!(read.result.is_ok(), "{read:?}");
}

#[test]
fn reads_of_one_turn_cost_one_round() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    cluster.run_ms(300);
    let rounds = |reads: u64, cluster: &mut Cluster| {
        let before = cluster.frames;
        cluster
            .act(leader, |host| (0..reads).for_each(|read| host.read(GROUP, ReadId(before * 10_000 + read))));
        cluster.run_ms(10);
        cluster.frames - before
    };
    let one = rounds(1, &mut cluster);
    let many = rounds(1_000, &mut cluster);
    assert!(many <= one + 4, "1,000 reads: {many} frames, one read: {one}");
    assert_eq!(cluster.reads.len(), 1_001);
}

#[test]
fn p16_reads_past_the_limit_are_refused() {
    let mut cluster = Cluster::with(3, &[], 1, |config| config.reads_max = 5);
    let leader = cluster.leader();
    cluster.act(leader, |host| (0..6).for_each(|read| host.read(GROUP, ReadId(read))));
    assert_eq!(cluster.reads[&ReadId(5)].result, Err(ReadError::Overloaded { group: GROUP }));
}
