//! Nodes that are killed with SIGKILL, one at a time and all at once.

use crate::cluster::{self, Cluster, Making};
use crate::load::{Load, Weight};

/// Kills the leader and a follower in turn, `rounds` times, and restarts each.
async fn kill_in_turn(mut cluster: Cluster, rounds: u32) {
    let load = Load::start(&cluster, Weight::usual());
    load.progress(80).await;
    for _ in 0..rounds {
        let leader = cluster.leader().await;
        cluster.nodes[leader].kill();
        load.progress(80).await;
        cluster.restart(leader);
        cluster.until_ready().await;
        let follower = cluster.follower().await;
        cluster.nodes[follower].kill();
        load.progress(80).await;
        cluster.restart(follower);
        cluster.until_ready().await;
    }
    load.progress(80).await;
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_leader_and_follower_in_turn_breaks_no_promise() {
    kill_in_turn(cluster::three().await, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute: make test-slow runs it"]
async fn kill_9_ten_times_over_breaks_no_promise() {
    kill_in_turn(cluster::three().await, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_nodes_serve_after_two_are_killed() {
    let mut cluster = Cluster::start(Making::nodes(5)).await;
    let load = Load::start(&cluster, Weight::usual());
    load.progress(80).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    cluster.nodes[leader].kill();
    cluster.nodes[follower].kill();
    load.progress(100).await;
    cluster.restart(leader);
    cluster.restart(follower);
    cluster.until_ready().await;
    load.finish(&cluster).await;
}
