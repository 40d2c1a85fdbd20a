//! Disks that are full, slow or hang.

use crate::cluster::{Cluster, GROUP, grant_lease, node, renew};
use tollgate_replica::{Host, ProposeError, Role};

#[test]
fn a_leader_with_a_full_disk_hands_on_and_recovers() {
    let mut cluster = Cluster::new(3, &[], 1);
    let old = cluster.leader();
    cluster.grant_lease(1, 600_000);
    cluster.nodes.get_mut(&node(old)).unwrap().disk.full = true;
    cluster.propose(old, grant_lease(2, 10_000));
    cluster.until("another leads", |cluster| cluster.leader_now().is_some_and(|leader| leader != old));
    cluster.lock("jobs", 1);
    let id = cluster.propose(old, grant_lease(3, 10_000));
    let error = cluster.replies.remove(&id).unwrap().unwrap_err();
    assert!(matches!(error, ProposeError::NotLeader { .. } | ProposeError::DiskFull), "{error:?}");
    cluster.nodes.get_mut(&node(old)).unwrap().disk.full = false;
    cluster
        .until("it has caught up", |cluster| cluster.agree() && cluster.status(old).role == Role::Follower);
}

#[test]
fn a_single_node_with_a_full_disk_says_so_and_goes_on_when_there_is_room() {
    let mut cluster = Cluster::new(1, &[], 1);
    cluster.grant_lease(1, 600_000);
    cluster.nodes.get_mut(&node(1)).unwrap().disk.full = true;
    let first = cluster.propose(1, grant_lease(2, 10_000));
    cluster.run_ms(10);
    let told = cluster.replies.remove(&first).expect("nobody is kept waiting for room").unwrap_err();
    assert_eq!(told, ProposeError::NoRoomMidway { group: GROUP }, "it is in the log");
    let second = cluster.propose(1, grant_lease(3, 10_000));
    let told = cluster.replies.remove(&second).unwrap().unwrap_err();
    assert_eq!(told, ProposeError::NoRoom { group: GROUP });
    cluster.nodes.get_mut(&node(1)).unwrap().disk.full = false;
    cluster.until("all goes on", |cluster| !cluster.host(1).brief(GROUP).unwrap().stuck);
    cluster.grant_lease(3, 10_000);
    assert_eq!(cluster.host(1).state(GROUP).unwrap().lease_count(), 3, "and what was in the log was applied");
}

/// True if a linearizable read on this node is answered within a second.
fn can_read(cluster: &mut Cluster, number: u64) -> bool {
    let read = cluster.read(number);
    cluster.run_ms(1_000);
    cluster.reads.remove(&read).is_some_and(|reply| reply.result.is_ok())
}

#[test]
fn full_disks_of_a_majority_cost_writes_and_neither_leader_nor_reads() {
    // Places of the full nodes, counted from the leader on.
    for full in [&[1, 2][..], &[0, 1], &[0, 1, 2]] {
        let mut cluster = Cluster::new(3, &[], 1);
        let leader = cluster.leader();
        let nth = |place: u64| (leader - 1 + place) % 3 + 1;
        cluster.grant_lease(1, 5_000);
        cluster.run_ms(300);
        for place in full {
            cluster.nodes.get_mut(&node(nth(*place))).unwrap().disk.full = true;
        }
        let midway = cluster.propose(leader, grant_lease(2, 600_000));
        cluster.run_ms(500);
        let told = cluster.replies.remove(&midway).expect("nobody is kept waiting for room").unwrap_err();
        assert_eq!(told, ProposeError::NoRoomMidway { group: GROUP }, "{full:?}");
        for _ in 0..10 {
            cluster.run_ms(2_000);
            let late = cluster.propose(leader, grant_lease(3, 600_000));
            let told = cluster.replies.remove(&late).expect("it is told at once").unwrap_err();
            assert_eq!(told, ProposeError::NoRoom { group: GROUP }, "{full:?}");
            assert_eq!(cluster.leader_now(), Some(leader), "{full:?}");
            assert!((1..=3).all(|number| can_read(&mut cluster, number)), "{full:?}");
        }
        for place in full {
            cluster.nodes.get_mut(&node(nth(*place))).unwrap().disk.full = false;
        }
        cluster.until("all goes on", |cluster| !cluster.host(leader).brief(GROUP).unwrap().stuck);
        assert_eq!(cluster.leader_now(), Some(leader), "{full:?}");
        cluster.grant_lease(3, 600_000);
        let leases = cluster.host(leader).state(GROUP).unwrap().lease_count();
        assert_eq!(leases, 3, "{full:?}: nobody could renew the first, so its time stood still");
    }
}

#[test]
fn while_a_minority_is_full_or_members_stop_nobody_speaks_of_full_disks() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    let (second, third) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.nodes.get_mut(&node(second)).unwrap().disk.full = true;
    cluster.grant_lease(1, 600_000);
    cluster.run_ms(2_000);
    cluster.grant_lease(2, 600_000);
    cluster.nodes.get_mut(&node(second)).unwrap().disk.full = false;
    cluster.until("it has caught up", Cluster::agree);
    // Nodes that are about to stop announce themselves in the same way as nodes with full disks.
    for number in [second, third] {
        cluster.act(number, Host::begin_shutdown);
    }
    cluster.run_ms(2_000);
    cluster.grant_lease(3, 600_000);
}

#[test]
fn a_leader_whose_disk_hangs_hands_on() {
    let mut cluster = Cluster::new(3, &[], 1);
    let old = cluster.leader();
    cluster.grant_lease(1, 600_000);
    cluster.run_ms(300);
    cluster.nodes.get_mut(&node(old)).unwrap().disk_held = true;
    let id = cluster.propose(old, grant_lease(2, 10_000));
    cluster.until("its caller is told that nobody knows", |cluster| cluster.replies.contains_key(&id));
    cluster.until("another leads", |cluster| cluster.leader_now().is_some_and(|leader| leader != old));
}

/// Time until the leader steps down, if the disks of these nodes hang.
fn hands_on_after_ms(hang: impl Fn(u64, u64) -> bool) -> u64 {
    let mut cluster = Cluster::new(3, &[], 1);
    let old = cluster.leader();
    cluster.grant_lease(1, 600_000);
    cluster.run_ms(300);
    for number in (1..=3).filter(|number| hang(*number, old)) {
        cluster.nodes.get_mut(&node(number)).unwrap().disk_held = true;
    }
    let began_us = cluster.now_us;
    cluster.propose(old, grant_lease(2, 10_000));
    cluster.until("it leads no more", |cluster| cluster.status(old).role != Role::Leader);
    (cluster.now_us - began_us) / 1_000
}

#[test]
fn a_leader_with_the_slowest_disk_hands_on_before_an_election_would_be_due() {
    let alone = hands_on_after_ms(|number, leader| number == leader);
    assert!((250..400).contains(&alone), "{alone} ms");
    // If no other disk is faster, there is no reason to hurry.
    let with_another = hands_on_after_ms(|number, leader| number == leader || number == leader % 3 + 1);
    assert!(with_another >= 1_000, "{with_another} ms");
}

#[test]
fn a_full_disk_does_not_eat_leases() {
    let mut cluster = Cluster::new(1, &[], 1);
    cluster.grant_lease(1, 5_000);
    cluster.nodes.get_mut(&node(1)).unwrap().disk.full = true;
    cluster.propose(1, grant_lease(2, 600_000));
    cluster.run_ms(20_000);
    cluster.nodes.get_mut(&node(1)).unwrap().disk.full = false;
    cluster.run_ms(100);
    let state = cluster.host(1).state(GROUP).unwrap();
    assert_eq!(state.lease_count(), 2, "nobody could renew it, so it had not passed its time");
}

#[test]
fn p6_a_leader_that_has_room_again_does_not_wait_for_a_successor_that_never_heard() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    cluster.grant_lease(1, 600_000);
    cluster.run_ms(300);
    for other in (1..=3).filter(|other| *other != leader) {
        cluster.cut.insert((node(leader), node(other)));
    }
    cluster.nodes.get_mut(&node(leader)).unwrap().disk.full = true;
    cluster.propose(leader, renew(1));
    cluster.until("it hands leadership on", |cluster| cluster.host(leader).hands_on(GROUP));
    cluster.nodes.get_mut(&node(leader)).unwrap().disk.full = false;
    cluster.heal();
    cluster.run_ms(20);
    let renewed = cluster.propose(leader, renew(1));
    cluster.run_ms(50);
    let reply = cluster.replies.get(&renewed).expect("it is answered at once");
    assert!(reply.is_ok(), "{reply:?}");
}

#[test]
fn p16_what_waits_for_a_disk_that_hangs_is_bounded() {
    let held = |seconds: u64| {
        let mut cluster = Cluster::new(3, &[], 1);
        let leader = cluster.leader();
        cluster.grant_lease(1, 600_000);
        let slow = if leader == 3 { 2 } else { 3 };
        cluster.nodes.get_mut(&node(slow)).unwrap().disk_held = true;
        for _ in 0..seconds * 1_000 {
            cluster.read(leader);
            cluster.step();
        }
        cluster.nodes.get_mut(&node(slow)).unwrap().disk_held = false;
        let outputs = [cluster.act(slow, |_| {}), cluster.act(slow, |_| {})];
        outputs.iter().flat_map(|output| &output.frames).map(|(_, frame)| frame.len()).sum::<usize>()
    };
    let (short, long) = (held(5), held(20));
    assert!(long <= short * 2, "{short} bytes after 5 s, {long} after 20 s");
}

#[test]
fn p16_room_for_the_entries_of_a_burst_is_given_back() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    cluster.grant_lease(1, 600_000);
    let away = if leader == 3 { 2 } else { 3 };
    cluster.isolate(away);
    let before = cluster.status(leader).last_index;
    for _ in 0..400 {
        cluster.propose(leader, renew(1));
        cluster.run_ms(5);
    }
    assert!(cluster.status(leader).last_index > before + 300, "most have an entry of their own");
    cluster.heal();
    cluster.until("all have all entries", Cluster::agree);
    for number in [1, 2, 3] {
        let room = cluster.host(number).entries_room(GROUP).unwrap();
        assert!(room <= 64, "node {number} keeps room for {room} entries");
    }
}
