//! Binaries of two apply versions in one group (P12): all make the same state of the same entries, the version is
//! raised when the last old member is gone and not before, and who does not know it stops.
//!
//! There is one version so far: these tests need the feature `next-version`, which makes another.

#![cfg(feature = "next-version")]

use crate::cluster::{Cluster, GROUP, node};
use tollgate_core::{APPLY_VERSION_SUPPORTED, Command};
use tollgate_replica::{MemberChange, ProposeError, ReplicaKind, Whereabouts};
use tollgate_types::LeaseId;

const NEW: u32 = APPLY_VERSION_SUPPORTED;
const OLD: u32 = NEW - 1;

/// Three members that run the old binary.
fn old_cluster() -> Cluster {
    let mut cluster = Cluster::with(3, &[], 1, |config| config.apply_version = OLD);
    cluster.leader();
    cluster.run_ms(300);
    cluster
}

/// The node stops, and comes back with this version.
fn replace(cluster: &mut Cluster, number: u64, version: u32) {
    cluster.crash(number);
    cluster.run_ms(200);
    cluster.nodes.get_mut(&node(number)).unwrap().config.apply_version = version;
    cluster.start(number);
    // Who was connected to it hears that it went.
    for other in cluster.nodes.keys().map(|id| id.number()).collect::<Vec<_>>() {
        if other != number && cluster.nodes[&node(other)].host.is_some() {
            cluster.act(other, |host| host.connection_lost(node(number)));
        }
    }
    cluster.run_ms(4_000);
}

fn versions(cluster: &Cluster) -> Vec<u32> {
    let hosts = cluster.nodes.values().filter_map(|node| node.host.as_ref());
    hosts.filter_map(|host| Some(host.state(GROUP)?.apply_version())).collect()
}

/// Some work, after which all who run must be the same.
fn work(cluster: &mut Cluster, round: u64) {
    for number in 0..5 {
        cluster.grant_lease(round * 10 + number + 1, 600_000);
        cluster.lock(&format!("job/{round}/{number}"), round * 10 + number + 1);
    }
    cluster.until("all have applied the same", |cluster| {
        let mut applied = cluster.nodes.keys().map(|id| cluster.status(id.number()).applied);
        let first = applied.next();
        applied.all(|other| Some(other) == first)
    });
    assert!(cluster.agree(), "P12: the same entries made different states");
}

fn ttl_ms(cluster: &Cluster, number: u64, lease: u64) -> u64 {
    let state = cluster.host(number).state(GROUP).unwrap();
    state.lease(LeaseId::new(lease).unwrap()).unwrap().ttl.ms()
}

#[test]
fn p12_old_and_new_binaries_make_the_same_state_and_the_last_to_be_replaced_raises_the_version() {
    let mut cluster = old_cluster();
    work(&mut cluster, 0);
    for number in 1..=3 {
        assert_eq!(versions(&cluster), [OLD; 3], "{} of 3 are replaced", number - 1);
        replace(&mut cluster, number, NEW);
        work(&mut cluster, number);
    }
    cluster.until("the group moves on by itself", |cluster| versions(cluster) == [NEW; 3]);
    work(&mut cluster, 4);
    // Each entry by the rules that were in force when it came, on every replica.
    for number in 1..=3 {
        assert_eq!(ttl_ms(&cluster, number, 21), 600_000, "granted while one was old");
        assert_eq!(ttl_ms(&cluster, number, 41), 600_001, "granted by the new rules");
    }
    // Also after all of them have read it again.
    for number in 1..=3 {
        replace(&mut cluster, number, NEW);
    }
    work(&mut cluster, 5);
    assert_eq!(versions(&cluster), [NEW; 3]);
}

#[test]
fn p12_a_member_that_is_away_and_a_learner_that_is_old_hold_the_version_back() {
    let mut cluster = old_cluster();
    cluster.add_joining(4, ReplicaKind::Full, 1);
    let leader = cluster.leader();
    let add = MemberChange::AddLearner { node: node(4), witness: false, whereabouts: Whereabouts::UNKNOWN };
    let id = cluster.change(leader, add);
    cluster.until("the learner is added", |cluster| cluster.replies.contains_key(&id));
    cluster.run_ms(1_000);
    for number in 1..=3 {
        replace(&mut cluster, number, NEW);
    }
    cluster.run_ms(3_000);
    assert_eq!(versions(&cluster), [OLD; 4], "the learner is old");
    let leader = cluster.leader();
    let id = cluster.propose(leader, Command::RaiseApplyVersion(NEW));
    let refused = cluster.replies.remove(&id).map(Result::unwrap_err);
    assert_eq!(refused, Some(ProposeError::VersionUnsupported { node: node(4), version: NEW }));
    cluster.crash(4);
    cluster.run_ms(5_000);
    assert_eq!(versions(&cluster), [OLD; 3], "the learner is away, and may come back as it was");
    cluster.nodes.get_mut(&node(4)).unwrap().config.apply_version = NEW;
    cluster.start(4);
    cluster.until("all are there and know it", |cluster| versions(cluster) == [NEW; 4]);
}

#[test]
#[should_panic(expected = "the group moved on to apply version 2 and this binary knows 1: upgrade it")]
fn an_old_binary_that_meets_a_newer_version_in_the_log_stops() {
    let mut cluster = Cluster::with(3, &[], 1, |config| config.apply_version = NEW);
    cluster.until("the group is at the new version", |cluster| versions(cluster) == [NEW; 3]);
    cluster.crash(3);
    cluster.nodes.get_mut(&node(3)).unwrap().config.apply_version = OLD;
    // What its log says is applied in its first turns.
    cluster.start(3);
    cluster.run_ms(3_000);
}

#[test]
#[should_panic(expected = "the group moved on to apply version 2 and this binary knows 1: upgrade it")]
fn an_old_binary_that_meets_a_newer_version_in_a_snapshot_stops() {
    let mut cluster = Cluster::with(3, &[], 1, |config| {
        config.apply_version = NEW;
        (config.snapshot_log_bytes, config.log_kept_bytes) = (2_000, 0);
    });
    cluster.until("the group is at the new version", |cluster| versions(cluster) == [NEW; 3]);
    for round in 1..=20 {
        work(&mut cluster, round);
    }
    assert!(cluster.status(cluster.leader_now().unwrap()).first_index > 10, "the log was shortened");
    // A new member with an old binary has to be brought the state.
    cluster.add_joining(4, ReplicaKind::Full, 1);
    cluster.crash(4);
    cluster.nodes.get_mut(&node(4)).unwrap().config.apply_version = OLD;
    cluster.start(4);
    let leader = cluster.leader();
    cluster.change(
        leader,
        MemberChange::AddLearner { node: node(4), witness: false, whereabouts: Whereabouts::UNKNOWN },
    );
    cluster.run_ms(5_000);
}

/// The test above must be able to fail.
#[cfg(feature = "planted-bugs")]
#[test]
#[should_panic(expected = "P12: the same entries made different states")]
fn p12_a_binary_that_applies_what_it_knows_instead_of_what_is_in_force_is_noticed() {
    let mut cluster = old_cluster();
    replace(&mut cluster, 2, NEW);
    let host = cluster.nodes.get_mut(&node(2)).unwrap().host.as_mut().unwrap();
    host.plant_in_states(tollgate_core::Bug::RulesNotInForce);
    work(&mut cluster, 1);
}
