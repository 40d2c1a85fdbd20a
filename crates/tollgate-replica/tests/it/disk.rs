//! A full disk.

use crate::cluster::{Cluster, GROUP, grant_lease, node};
use tollgate_replica::{ProposeError, Role};

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
    let second = cluster.propose(1, grant_lease(3, 10_000));
    assert_eq!(cluster.replies.remove(&second).unwrap().unwrap_err(), ProposeError::DiskFull);
    cluster.nodes.get_mut(&node(1)).unwrap().disk.full = false;
    cluster.answer(first).unwrap();
    cluster.grant_lease(3, 10_000);
    assert_eq!(cluster.host(1).state(GROUP).unwrap().lease_count(), 3);
}
