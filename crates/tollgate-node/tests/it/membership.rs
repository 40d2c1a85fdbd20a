//! Nodes that come and go while the others run: the peers that are dialled and accepted follow.

use crate::cluster::{Cluster, GROUP, PATIENCE, acquire, grant, node};
use std::time::Duration;
use tollgate_core::{Reply, Wait};
use tollgate_replica::MemberChange;
use tollgate_types::HostPort;

/// Starts a cluster of one node and adds node 2, which runs.
async fn grown() -> Cluster {
    let mut cluster = Cluster::start(1);
    cluster.reply(grant(1, 600_000)).await;
    assert!(matches!(cluster.reply(acquire("job", 1, Wait::No)).await, Reply::Acquired { .. }));
    let node_addresses = cluster.prepare_newcomer(2);
    cluster.change(MemberChange::AddLearner { node: node(2), witness: false, node_addresses }).await;
    cluster.begin_newcomer(2, 1);
    cluster.change(MemberChange::Promote { node: node(2) }).await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_added_catches_up_and_is_needed_for_a_quorum() {
    let mut cluster = grown().await;
    cluster
        .until(2, "it votes", |status| status.members.voters.len() == 2 && status.groups[&GROUP].has_state)
        .await;
    // The first node knows the address of the second only from the change of members.
    let members = cluster.handle(1).status().borrow().members.clone();
    assert_ne!(members.addresses_of(node(2)).peer, HostPort::NONE);
    assert!(matches!(cluster.reply(acquire("second", 1, Wait::No)).await, Reply::Acquired { .. }));
    // Both nodes know enough from their disks to find each other again.
    cluster.nodes.clear();
    cluster.restart(1).await;
    cluster.restart(2).await;
    assert!(
        matches!(cluster.reply(acquire("job", 1, Wait::No)).await, Reply::Acquired { .. }),
        "the lock is there"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_that_is_restarted_before_anything_reached_it_knows_whom_to_answer() {
    let mut cluster = Cluster::start(1);
    cluster.reply(grant(1, 600_000)).await;
    let node_addresses = cluster.prepare_newcomer(2);
    cluster.change(MemberChange::AddLearner { node: node(2), witness: false, node_addresses }).await;
    let leader = cluster.nodes.remove(&1).unwrap();
    // The only node that could send a snapshot is gone while the newcomer starts.
    let told = leader.handle().status().borrow().members.clone();
    leader.halt().await;
    cluster.begin_newcomer_told(2, &told);
    cluster.until(2, "node 1 is a member", |status| status.members.contains(node(1))).await;
    drop(cluster.nodes.remove(&2));
    cluster.restart(2).await;
    cluster.restart(1).await;
    cluster.until(2, "it has a state", |status| status.groups[&GROUP].has_state).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_removed_is_told_so_and_takes_no_part_any_more() {
    let mut cluster = grown().await;
    let leader = cluster.leader().await;
    let other = 3 - leader;
    cluster.change(MemberChange::Remove { node: node(other) }).await;
    cluster.until(other, "it was removed", |status| status.removed && status.leader(GROUP).is_none()).await;
    let term = cluster.handle(leader).status().borrow().groups[&GROUP].term;
    // Again, from the data on its disk, which may not contain its removal.
    drop(cluster.nodes.remove(&other));
    cluster.restart(other).await;
    cluster.until(other, "it was removed", |status| status.removed).await;
    assert!(matches!(cluster.reply(acquire("second", 1, Wait::No)).await, Reply::Acquired { .. }));
    let status = cluster.handle(leader).status().borrow().clone();
    assert_eq!((status.groups[&GROUP].term, status.members.all().len()), (term, 1));
    assert!(status.members.is_past(node(other)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_to_be_removed_hands_leadership_on_first() {
    let cluster = grown().await;
    cluster.until(2, "it votes", |status| status.members.voters.len() == 2).await;
    let leader = cluster.leader().await;
    let removed = tokio::time::timeout(PATIENCE, cluster.change(MemberChange::Remove { node: node(leader) }));
    removed.await.expect("the other one removes it");
    cluster.until(leader, "it was removed", |status| status.removed).await;
    assert_eq!(cluster.leader().await, 3 - leader);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_of_the_configuration_wins_over_the_one_that_the_cluster_has() {
    let mut cluster = Cluster::start(1);
    cluster.reply(grant(1, 600_000)).await;
    let real = cluster.prepare_newcomer(2);
    let wrong =
        tollgate_replica::NodeAddresses { peer: HostPort::new("127.0.0.1:1").unwrap(), ..real.clone() };
    cluster.change(MemberChange::AddLearner { node: node(2), witness: false, node_addresses: wrong }).await;
    cluster.begin_newcomer(2, 1);
    // The first node can't reach the newcomer, which therefore has no state, until the configuration has the right
    // address.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!cluster.handle(2).status().borrow().groups[&GROUP].has_state);
    drop(cluster.nodes.remove(&1));
    cluster.configure_peer(1, 2, &real.peer.to_string());
    cluster.restart(1).await;
    cluster.until(2, "it has a state", |status| status.groups[&GROUP].has_state).await;
}
