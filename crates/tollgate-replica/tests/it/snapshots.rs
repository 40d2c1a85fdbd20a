//! Snapshots, log compaction, and catching up by snapshot.

use crate::cluster::{Cluster, GROUP, node};
use tollgate_replica::{Done, HostConfig, HostEvent, Job};

pub(crate) fn small(config: &mut HostConfig) {
    config.snapshot_log_bytes = 4_000;
    config.log_kept_bytes = 1_000;
    config.chunk_bytes = 300;
    config.chunks_in_flight_max = 3;
}

fn fill(cluster: &mut Cluster, from: u64, to: u64) {
    for round in from..to {
        cluster.lock(&format!("job{round}"), 1);
    }
}

/// Three nodes, one of which was down while the others went far beyond the logs that they keep. Returns the leader and
/// the dead follower too.
fn with_a_dead_follower() -> (Cluster, u64, u64) {
    let mut cluster = Cluster::with(3, &[], 1, small);
    cluster.grant_lease(1, 600_000);
    let leader = cluster.leader();
    let dead = if leader == 1 { 2 } else { 1 };
    cluster.crash(dead);
    fill(&mut cluster, 0, 300);
    (cluster, leader, dead)
}

#[test]
fn the_log_stays_short_and_old_snapshots_go() {
    let mut cluster = Cluster::with(3, &[], 1, small);
    cluster.grant_lease(1, 600_000);
    fill(&mut cluster, 0, 300);
    cluster.run_ms(100);
    for number in 1..=3 {
        let status = cluster.status(number);
        assert!(status.first_index > 200, "node {number}: {}", status.first_index);
        let files = cluster.nodes[&node(number)].disk.snapshots(GROUP);
        assert_eq!(files, [status.snapshot_index], "node {number}");
    }
}

#[test]
fn a_dead_follower_does_not_stop_the_log_from_shrinking_and_comes_back_by_a_snapshot() {
    let (mut cluster, leader, dead) = with_a_dead_follower();
    assert!(cluster.status(leader).first_index > 200);
    cluster.start(dead);
    cluster.until("it has caught up", Cluster::agree);
    assert!(
        cluster
            .events
            .iter()
            .any(|(id, event)| { *id == node(dead) && matches!(event, HostEvent::SnapshotInstalled { .. }) })
    );
    // The installed snapshot survives a crash.
    cluster.crash(dead);
    cluster.start(dead);
    cluster.until("it has caught up", Cluster::agree);
}

#[test]
fn a_transfer_survives_lost_pieces() {
    let (mut cluster, leader, dead) = with_a_dead_follower();
    cluster.start(dead);
    for round in 0..40 {
        // From time to time nothing gets through, in either direction.
        cluster.run_ms(37);
        cluster.cut.insert((node(leader), node(dead)));
        cluster.cut.insert((node(dead), node(leader)));
        cluster.run_ms(3 + round % 5);
        cluster.heal();
    }
    cluster.until("it has caught up", Cluster::agree);
}

#[test]
fn p15_a_damaged_snapshot_is_never_installed() {
    let (mut cluster, leader, dead) = with_a_dead_follower();
    cluster.nodes.get_mut(&node(leader)).unwrap().disk.damage_snapshots();
    cluster.start(dead);
    cluster.until("it was noticed", |cluster| {
        let damaged = |(id, event): &(_, HostEvent)| {
            *id == node(dead) && matches!(event, HostEvent::SnapshotDamaged { .. })
        };
        cluster.events.iter().any(damaged)
    });
    assert!(cluster.status(dead).snapshot_index < 200);
    // A new snapshot repairs the damage.
    fill(&mut cluster, 300, 302);
    cluster.act(leader, |host| host.take_snapshot(GROUP));
    cluster.until("it has caught up", Cluster::agree);
}

#[test]
fn a_crash_during_an_installation_loses_nothing() {
    let (mut cluster, _, dead) = with_a_dead_follower();
    for wait_ms in (0..200).step_by(7) {
        cluster.start(dead);
        cluster.run_ms(wait_ms);
        cluster.crash(dead);
    }
    cluster.start(dead);
    cluster.until("it has caught up", Cluster::agree);
}

#[test]
fn a_follower_catches_up_although_snapshots_are_taken_faster_than_they_travel() {
    let mut cluster = Cluster::with(3, &[], 1, |config| {
        small(config);
        config.log_kept_bytes = 100;
        config.chunk_bytes = 128;
        config.chunks_in_flight_max = 1;
    });
    cluster.grant_lease(1, 600_000);
    let leader = cluster.leader();
    let dead = if leader == 1 { 2 } else { 1 };
    cluster.crash(dead);
    fill(&mut cluster, 0, 100);
    cluster.start(dead);
    // A client works all the while.
    for round in 100.. {
        assert!(round < 3_000, "it never catches up");
        cluster.lock(&format!("job{}", round % 100), 1);
        cluster.apply(crate::cluster::unlock(&format!("job{}", round % 100), 1));
        if cluster.status(dead).applied + 5 >= cluster.status(leader).applied {
            break;
        }
    }
}

/// A follower with a received snapshot that is installed but not yet durable.
fn installed_and_not_durable() -> (Cluster, u64, u64) {
    let mut cluster = Cluster::with(3, &[], 1, small);
    cluster.grant_lease(1, 600_000);
    let leader = cluster.leader();
    let late = if leader == 3 { 2 } else { 3 };
    cluster.crash(late);
    fill(&mut cluster, 0, 100);
    cluster.start(late);
    cluster.until("the snapshot is there", |cluster| {
        cluster.nodes[&node(late)].done.iter().any(|done| matches!(done, Done::Completed { .. }))
    });
    cluster.nodes.get_mut(&node(late)).unwrap().disk_held = true;
    cluster.step();
    assert!(cluster.status(late).snapshot_index > 50);
    (cluster, leader, late)
}

#[test]
fn an_election_waits_until_an_installed_snapshot_is_durable() {
    for connection_breaks in [true, false] {
        let (mut cluster, leader, late) = installed_and_not_durable();
        cluster.crash(leader);
        if connection_breaks {
            cluster.act(late, |host| host.connection_lost(node(leader)));
        }
        cluster.run_ms(3_000);
        cluster.nodes.get_mut(&node(late)).unwrap().disk_held = false;
        cluster.until("the two elect a leader", |cluster| cluster.leader_now().is_some());
    }
}

#[test]
fn a_snapshot_that_takes_long_to_load_is_not_sent_again_meanwhile() {
    let mut cluster = Cluster::with(3, &[], 1, small);
    cluster.grant_lease(1, 600_000);
    let leader = cluster.leader();
    let late = if leader == 3 { 2 } else { 3 };
    cluster.crash(late);
    fill(&mut cluster, 0, 100);
    cluster.start(late);
    cluster.nodes.get_mut(&node(late)).unwrap().disk_held = true;
    let completing = |cluster: &Cluster| {
        cluster.nodes[&node(late)].jobs.iter().any(|job| matches!(job, Job::Complete { .. }))
    };
    for _ in 0..10_000 {
        cluster.step();
        if completing(&cluster) {
            // Longer than a transfer may make no progress.
            cluster.run_ms(2 * cluster.nodes[&node(late)].config.transfer_timeout_ms);
        }
        cluster.nodes.get_mut(&node(late)).unwrap().work();
        if cluster.status(late).snapshot_index > 50 {
            return;
        }
    }
    panic!("it is never installed");
}

#[test]
fn a_disk_that_is_behind_with_snapshots_is_asked_to_read_nothing_twice() {
    let (mut cluster, leader, dead) = with_a_dead_follower();
    cluster.nodes.get_mut(&node(leader)).unwrap().jobs_held = true;
    cluster.start(dead);
    // Longer than the time after which a sender repeats pieces, and shorter than the time after which it gives up.
    cluster.run_ms(4_000);
    let sender = cluster.nodes.get_mut(&node(leader)).unwrap();
    let reads = sender.jobs.iter().filter(|job| matches!(job, Job::Read { .. })).count();
    assert!(reads > 0 && reads <= sender.config.chunks_in_flight_max as usize, "{reads} reads wait");
    sender.jobs_held = false;
    cluster.until("it has caught up", Cluster::agree);
}

#[test]
fn while_a_snapshot_is_on_its_way_older_ones_are_removed_once() {
    let (mut cluster, leader, dead) = with_a_dead_follower();
    cluster.start(dead);
    cluster.nodes.get_mut(&node(dead)).unwrap().jobs_held = true;
    cluster.until("a snapshot is on its way", |cluster| !cluster.nodes[&node(dead)].jobs.is_empty());
    let (before, first) = (cluster.nodes[&node(leader)].removals, cluster.status(leader).snapshot_index);
    fill(&mut cluster, 300, 400);
    assert!(cluster.status(leader).snapshot_index > first, "newer ones were taken meanwhile");
    let removals = cluster.nodes[&node(leader)].removals - before;
    assert!(removals <= 1, "{removals} removals of what the transfer holds back");
    cluster.nodes.get_mut(&node(dead)).unwrap().jobs_held = false;
    cluster.until("it has caught up", Cluster::agree);
}
