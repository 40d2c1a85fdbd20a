//! Witnesses: voters that keep the log and no lock state.

use crate::cluster::{Cluster, GROUP, node};
use tollgate_core::Reply;
use tollgate_replica::{ReadError, Role};

#[test]
fn two_full_nodes_and_a_witness_survive_the_loss_of_either() {
    for lost in [1, 2] {
        let mut cluster = Cluster::new(3, &[3], 1);
        cluster.grant_lease(1, 600_000);
        assert!(matches!(cluster.lock("jobs", 1), Reply::Acquired { .. }));
        cluster.crash(lost);
        let left = 3 - lost;
        cluster.until("the other serves", |cluster| cluster.leader_now() == Some(left));
        assert!(matches!(cluster.lock("other", 1), Reply::Acquired { .. }));
    }
}

#[test]
fn a_witness_keeps_no_state_and_serves_nobody() {
    let mut cluster = Cluster::new(3, &[3], 1);
    cluster.grant_lease(1, 600_000);
    cluster.run_ms(500);
    assert!(cluster.host(3).state(GROUP).is_none());
    assert!(cluster.status(3).applied > 1, "it follows the log all the same");
    let read = cluster.read(3);
    assert_eq!(cluster.reads[&read].result, Err(ReadError::NoState { group: GROUP }));
}

#[test]
fn a_witness_with_the_longest_log_leads_until_another_has_it() {
    let mut cluster = Cluster::new(3, &[3], 1);
    cluster.grant_lease(1, 600_000);
    let leader = cluster.leader();
    let behind = 3 - leader;
    cluster.isolate(behind);
    assert!(matches!(cluster.lock("jobs", 1), Reply::Acquired { .. }));
    cluster.crash(leader);
    cluster.heal();
    // The other full node lacks an acknowledged grant: only the witness can be elected, and it hands leadership over.
    cluster.until("the witness has led", |cluster| {
        cluster.events.iter().any(|(id, event)| {
            *id == node(3) && matches!(event, tollgate_replica::HostEvent::LeadershipGained { .. })
        })
    });
    cluster.until("the full node serves", |cluster| cluster.leader_now() == Some(behind));
    assert_ne!(cluster.status(3).role, Role::Leader);
    let Reply::Acquired { .. } = cluster.lock("jobs", 1) else { panic!("p4: the grant is there") };
}

#[test]
fn a_witness_shortens_its_log_by_snapshots_that_it_never_loads() {
    let mut cluster = Cluster::with(3, &[3], 1, |config| {
        config.snapshot_log_bytes = 4_000;
        config.log_kept_bytes = 1_000;
        config.chunk_bytes = 512;
    });
    cluster.grant_lease(1, 600_000);
    for round in 0..300 {
        cluster.lock(&format!("job{round}"), 1);
    }
    cluster.run_ms(1_000);
    let witness = cluster.status(3);
    assert!(witness.snapshot_index > 1, "the leader sent it one");
    assert!(witness.first_index > 100, "its log begins at {}", witness.first_index);
    // The witness keeps its snapshot over a restart.
    cluster.crash(3);
    cluster.start(3);
    cluster.run_ms(1_000);
    assert!(cluster.status(3).snapshot_index > 1);
}
