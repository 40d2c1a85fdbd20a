//! Replicas that compare their states.

use crate::cluster::{Cluster, GROUP, node};
use tollgate_replica::HostEvent;

fn comparing() -> Cluster {
    Cluster::with(3, &[], 1, |config| config.compare_ms = 1_000)
}

/// Lets leases come and go for a while: the log grows, and the state changes.
fn busy(cluster: &mut Cluster, from: u64) {
    for number in from..from + 30 {
        cluster.grant_lease(number, 600_000);
        cluster.run_ms(100);
    }
}

#[test]
fn p12_replicas_compare_their_states_and_agree() {
    let mut cluster = comparing();
    let leader = cluster.leader();
    busy(&mut cluster, 1);
    for number in 1..=3 {
        let agreed = |(of, event): &&(_, HostEvent)| {
            *of == node(number) && matches!(event, HostEvent::StateAgrees { group: GROUP, .. })
        };
        let count = cluster.events.iter().filter(agreed).count();
        // Three seconds, with a comparison each second; the leader compares with two peers.
        let at_least = if number == leader { 4 } else { 2 };
        assert!((at_least..=3 * at_least).contains(&count), "node {number}: {count}");
    }
    assert!(!cluster.events.iter().any(|(_, event)| matches!(event, HostEvent::StateDiverged { .. })));
}

#[test]
fn an_idle_group_hashes_nothing() {
    let mut cluster = comparing();
    cluster.leader();
    cluster.run_ms(60_000);
    // At most the state after the first entry is hashed; there are no others.
    let count =
        cluster.events.iter().filter(|(_, event)| matches!(event, HostEvent::StateAgrees { .. })).count();
    assert!(count <= 4, "{count}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn p12_a_replica_that_left_out_an_entry_is_found_by_itself_and_by_its_leader() {
    use tollgate_replica::Bug;
    let found = |kept_back: bool| {
        let mut cluster = comparing();
        let leader = cluster.leader();
        busy(&mut cluster, 1);
        let wrong = leader % 3 + 1;
        cluster.crash(wrong);
        cluster.start(wrong);
        let mut plant = |number: u64, bug| {
            cluster.nodes.get_mut(&node(number)).unwrap().host.as_mut().unwrap().plant(bug);
        };
        plant(wrong, Bug::SkipsEntry);
        if kept_back {
            plant(leader, Bug::HashKeptBack);
        }
        busy(&mut cluster, 100);
        let diverged = |of: u64, by: u64| {
            cluster.events.iter().any(|(at, event)| {
                let HostEvent::StateDiverged { peer, leads, .. } = event else { return false };
                *at == node(of) && *peer == node(by) && *leads == (of == leader)
            })
        };
        assert!(!diverged(6 - leader - wrong, leader), "the third is as it should be");
        (diverged(wrong, leader), diverged(leader, wrong))
    };
    assert_eq!(found(false), (true, true));
    // With the bug in the leader, the wrong replica does not learn of the difference.
    assert_eq!(found(true), (false, true));
}
