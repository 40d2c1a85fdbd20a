//! Elections, failover, transfers.

use crate::cluster::{Cluster, GROUP, grant_lease, node};
use tollgate_replica::{Host, HostEvent, Role};

fn break_connections(cluster: &mut Cluster, dead: u64) {
    for number in (1..=3).filter(|&number| number != dead) {
        cluster.act(number, |host| host.connection_lost(node(dead)));
    }
}

#[test]
fn a_broken_connection_elects_faster_than_a_timeout() {
    let mut cluster = Cluster::new(3, &[], 1);
    let old = cluster.leader();
    cluster.run_ms(500);
    cluster.crash(old);
    let begun_us = cluster.now_us;
    break_connections(&mut cluster, old);
    let new = cluster.leader();
    let took_ms = (cluster.now_us - begun_us) / 1_000;
    assert_ne!(new, old);
    assert!(took_ms < 400, "failover took {took_ms} ms");
}

#[test]
fn a_follower_that_merely_lost_its_connection_does_not_unseat_the_leader() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    cluster.run_ms(500);
    let term = cluster.status(leader).term;
    let follower = if leader == 1 { 2 } else { 1 };
    cluster.cut.insert((node(leader), node(follower)));
    cluster.act(follower, |host| host.connection_lost(node(leader)));
    cluster.run_ms(3_000);
    cluster.heal();
    cluster.run_ms(1_000);
    assert_eq!(cluster.status(leader).term, term, "pre-vote: the others still hear the leader");
    assert_eq!(cluster.leader_now(), Some(leader));
}

#[test]
fn a_leader_without_a_majority_steps_down() {
    let mut cluster = Cluster::new(3, &[], 1);
    let old = cluster.leader();
    cluster.isolate(old);
    cluster.until("it steps down", |cluster| cluster.status(old).role != Role::Leader);
    assert!(
        cluster.events.contains(&(
            node(old),
            HostEvent::LeadershipLost { group: GROUP, term: cluster.status(old).term }
        ))
    );
}

#[test]
fn a_silent_leader_is_replaced_after_the_timeout() {
    let mut cluster = Cluster::new(3, &[], 1);
    let old = cluster.leader();
    cluster.nodes.get_mut(&node(old)).unwrap().paused = true;
    let begun_us = cluster.now_us;
    cluster.until("another leads", |cluster| cluster.leader_now().is_some_and(|leader| leader != old));
    let took_ms = (cluster.now_us - begun_us) / 1_000;
    assert!((900..2_300).contains(&took_ms), "took {took_ms} ms");
}

#[test]
fn leadership_goes_to_whom_it_is_given() {
    let mut cluster = Cluster::new(3, &[], 1);
    let old = cluster.leader();
    cluster.run_ms(300);
    let to = if old == 3 { 1 } else { 3 };
    cluster.act(old, |host| host.transfer_leadership(GROUP, Some(node(to))));
    cluster.until("it leads", |cluster| cluster.leader_now() == Some(to));
}

#[test]
fn a_leader_does_not_wait_for_a_successor_that_could_not_take_over() {
    let mut cluster = Cluster::new(5, &[5], 1);
    let old = cluster.leader();
    cluster.run_ms(300);
    let full: Vec<u64> = (1..=4).filter(|number| *number != old).collect();
    // One node is silent, the disk of another is full, and the fifth, a witness, would hand leadership over at once.
    cluster.isolate(full[0]);
    cluster.nodes.get_mut(&node(full[1])).unwrap().host.as_mut().unwrap().disk_full(true);
    cluster.run_ms(1_100);
    assert_eq!(cluster.leader_now(), Some(old));
    for to in [full[0], full[1], 5] {
        cluster.act(old, |host| host.transfer_leadership(GROUP, Some(node(to))));
        let begun_us = cluster.now_us;
        cluster.apply(grant_lease(1, 60_000));
        let took_ms = (cluster.now_us - begun_us) / 1_000;
        assert!(took_ms < 100, "nothing was proposed for {took_ms} ms, for the sake of {to}");
    }
    cluster.act(old, |host| host.transfer_leadership(GROUP, Some(node(full[2]))));
    cluster.until("the one that is well leads", |cluster| cluster.leader_now() == Some(full[2]));
}

#[test]
fn a_node_that_shuts_down_hands_leadership_on_first() {
    let mut cluster = Cluster::new(3, &[], 3);
    let old = cluster.leader();
    cluster.run_ms(500);
    cluster.act(old, Host::begin_shutdown);
    let begun_us = cluster.now_us;
    cluster.until("it leads nothing", |cluster| {
        let host = cluster.host(old);
        host.groups().all(|group| host.status(group).unwrap().role != Role::Leader)
    });
    let took_ms = (cluster.now_us - begun_us) / 1_000;
    assert!(took_ms < 100, "took {took_ms} ms");
}

#[test]
fn leaders_of_many_groups_end_up_spread_over_the_nodes_that_are_there() {
    const GROUPS: u32 = 16;
    let mut cluster = Cluster::new(3, &[], GROUPS);
    let led_by = |cluster: &Cluster, at: u64| {
        let host = cluster.host(at);
        host.groups().filter(|group| host.status(*group).is_some_and(|status| status.serves)).count()
    };
    let spread = |cluster: &Cluster, nodes: &[u64]| {
        let counts: Vec<usize> = nodes.iter().map(|number| led_by(cluster, *number)).collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        counts.iter().sum::<usize>() == GROUPS as usize && most - least <= 1
    };
    cluster.until("leaders are spread over all", |cluster| spread(cluster, &[1, 2, 3]));
    cluster.crash(2);
    cluster.until("leaders are spread over those who stayed", |cluster| spread(cluster, &[1, 3]));
    cluster.start(2);
    cluster.until("leaders are spread over all again", |cluster| spread(cluster, &[1, 2, 3]));
}

const SPREAD: u32 = 6;

/// Number of groups, out of six, that a node leads.
fn led(cluster: &Cluster, number: u64) -> usize {
    let host = cluster.host(number);
    (0..SPREAD).filter(|group| host.leads(tollgate_types::GroupId::new(*group))).count()
}

/// Three nodes that lead two groups each.
fn spread_evenly() -> Cluster {
    let mut cluster = Cluster::new(3, &[], SPREAD);
    cluster.until("leaders are spread", |cluster| (1..=3).all(|number| led(cluster, number) == 2));
    cluster
}

/// Checks that a node hands its groups over and gets none for as long as a server waits at its end. Leading no group,
/// it would be the choice of every leader.
fn is_handed_nothing(cluster: &mut Cluster, number: u64) {
    cluster.until("it has handed its groups on", |cluster| led(cluster, number) == 0);
    for ms in 0..10_000 {
        cluster.step();
        assert_eq!(led(cluster, number), 0, "after {ms} ms");
    }
}

#[test]
fn one_that_is_about_to_stop_is_handed_no_group() {
    let mut cluster = spread_evenly();
    cluster.act(3, Host::begin_shutdown);
    is_handed_nothing(&mut cluster, 3);
}

#[test]
fn one_that_can_not_write_is_handed_no_group_until_it_can() {
    let mut cluster = spread_evenly();
    for full in [true, false] {
        cluster.nodes.get_mut(&node(3)).unwrap().disk.full = full;
        cluster.act(3, |host| host.disk_full(full));
        if full {
            is_handed_nothing(&mut cluster, 3);
        }
    }
    cluster.until("it is fit again", |cluster| led(cluster, 3) == 2);
}

#[test]
fn one_that_did_not_take_over_is_left_alone_for_a_while() {
    const GROUPS: u32 = 8;
    let mut cluster = Cluster::with(3, &[], GROUPS, |config| config.balance_ms = 300);
    cluster.until("all groups are led", |cluster| {
        (0..GROUPS).all(|group| {
            let group = tollgate_types::GroupId::new(group);
            (1..=3).any(|number| cluster.host(number).status(group).unwrap().serves)
        })
    });
    // The node comes back without groups, answers heartbeats, and can't write that it asks for votes.
    cluster.crash(3);
    cluster.run_ms(3_000);
    cluster.start(3);
    cluster.run_ms(50);
    cluster.nodes.get_mut(&node(3)).unwrap().disk_held = true;
    cluster.run_ms(10_000);
    let asked = |group: &u32| {
        let status = cluster.host(3).status(tollgate_types::GroupId::new(*group)).unwrap();
        status.role == Role::Candidate
    };
    let tried = (0..GROUPS).filter(asked).count();
    assert!((1..=2).contains(&tried), "each of the two others tries it once, with one group: {tried}");
}

#[test]
fn heartbeats_of_idle_groups_travel_together() {
    let frames = |groups: u32| {
        let mut cluster = Cluster::with(3, &[], groups, |config| config.balance_ms = 0);
        let all_led = |cluster: &Cluster| {
            (0..groups).all(|group| {
                let group = tollgate_types::GroupId::new(group);
                (1..=3).any(|number| cluster.host(number).status(group).unwrap().serves)
            })
        };
        cluster.until("all groups are led", all_led);
        // One node leads them all, as in a small cluster after a restart.
        for group in 0..groups {
            for number in 1..=3 {
                let group = tollgate_types::GroupId::new(group);
                cluster.act(number, |host| host.transfer_leadership(group, Some(node(1))));
            }
        }
        cluster.run_ms(3_000);
        let before = cluster.frames;
        cluster.run_ms(10_000);
        cluster.frames - before
    };
    let (one, many) = (frames(1), frames(32));
    assert!(many < one * 2, "one group: {one} frames in 10 s, 32 groups: {many}");
}

#[test]
fn p12_the_only_voter_speaks_as_leader_only_when_its_disk_knows_the_term() {
    let mut cluster = Cluster::new(1, &[], 1);
    let leader = cluster.leader();
    cluster.change(
        leader,
        tollgate_replica::MemberChange::AddLearner {
            node: node(2),
            witness: false,
            node_addresses: tollgate_replica::NodeAddresses::UNKNOWN,
        },
    );
    cluster.add_joining(2, tollgate_replica::ReplicaKind::Full, 1);
    cluster.until("the learner has caught up", |cluster| cluster.status(2).snapshot_index > 0);
    cluster.run_ms(300);
    let term = cluster.status(2).term;
    cluster.crash(1);
    cluster.start(1);
    cluster.nodes.get_mut(&node(1)).unwrap().disk_held = true;
    cluster.until("it leads", |cluster| cluster.status(1).role == Role::Leader);
    cluster.run_ms(500);
    // If it crashed now, it would lead in the same term again, with other entries.
    assert!(cluster.status(1).term > term);
    assert_eq!(cluster.status(2).term, term, "the learner has heard of a term that may be lost");
    cluster.nodes.get_mut(&node(1)).unwrap().disk_held = false;
    cluster.until("the learner hears of it", |cluster| cluster.status(2).term > term);
    cluster.until("all agree", Cluster::agree);
}

#[test]
fn elections_of_many_groups_are_spread_over_time_and_nodes() {
    const GROUPS: u32 = 64;
    let mut cluster = Cluster::new(3, &[], GROUPS);
    let groups = || (0..GROUPS).map(tollgate_types::GroupId::new);
    cluster.until("all groups are led", |cluster| {
        let led = |group| (1..=3).any(|number| cluster.host(number).status(group).unwrap().serves);
        groups().all(led)
    });
    assert!(cluster.now_us < 6_000_000, "took {} ms", cluster.now_us / 1_000 - 1_000);
    for number in 1..=3 {
        let led = groups().filter(|&group| cluster.host(number).status(group).unwrap().serves).count();
        assert!((8..=40).contains(&led), "node {number} leads {led} of {GROUPS}");
    }
    let campaigns = |event: &HostEvent| matches!(event, HostEvent::LeadershipGained { .. });
    let terms = cluster.events.iter().filter(|(_, event)| campaigns(event)).count();
    assert!(terms <= 80, "{terms} elections for {GROUPS} groups: they got in each other's way");
}
