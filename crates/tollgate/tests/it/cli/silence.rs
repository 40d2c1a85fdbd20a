//! A cluster that does not answer: commands end when their user's patience does, and report what they wait for.

use super::{Cli, until};
use crate::cluster::{self, Cluster, Making};
use std::time::{Duration, Instant};

/// Much less than 15 seconds, for which a call without a deadline of its own is tried.
const SOON: Duration = Duration::from_secs(9);

/// Returns one node of three, which answers and knows no leader.
async fn leaderless() -> (Cluster, Cli) {
    let mut cluster = cluster::three().await;
    let leader = cluster.leader().await;
    let survivor = (leader + 1) % 3;
    for node in (0..3).filter(|node| *node != survivor) {
        cluster.nodes[node].kill();
    }
    let cli = Cli::at(cluster.nodes[survivor].endpoint());
    (cluster, cli)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_the_wait_is_as_long_as_the_user_said() {
    let (_cluster, cli) = leaderless().await;
    let began = Instant::now();
    let calls = [
        &["run", "silence/wait", "--wait", "3s", "--", "true"][..],
        &["run", "silence/try", "--try", "--", "true"],
        &["run", "silence/zero", "--wait", "0s", "--", "true"],
        &["lock", "silence/lock", "--wait", "3s"],
        &["elect", "silence/elect", "--wait", "3s"],
    ];
    let started: Vec<_> = calls.iter().map(|arguments| (arguments, cli.start(arguments))).collect();
    for (arguments, running) in started {
        let ended = running.end().with(69);
        assert!(began.elapsed() < SOON, "{arguments:?} took {:?}", began.elapsed());
        assert!(ended.stderr.contains("leader"), "{arguments:?}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_knows_can_be_asked_for_without_a_majority() {
    let (_cluster, cli) = leaderless().await;
    for arguments in [&["ls", "--stale"][..], &["get", "silence/stale", "--stale"]] {
        let told = cli.call(arguments).with(0);
        assert!(told.stderr.contains("may be old"), "{arguments:?}: {}", told.stderr);
    }
    let json = cli.call(&["get", "silence/stale", "--stale", "-q", "-o", "json"]).with(0);
    assert_eq!((json.json()["holder_count"].as_u64(), json.stderr.as_str()), (Some(0), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_has_ended_is_not_held_up_by_a_cluster_that_is_gone() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    let cli = Cli::at(cluster.endpoints().join(","));
    let script = "echo up; read _; exit 3";
    let running = cli.start(&["run", "silence/gone", "--ttl", "60s", "--", "sh", "-c", script]);
    running.until_says("up");
    let holding = cli.start(&["lock", "silence/held", "--ttl", "60s"]);
    until("it is held", || holding.stdout().ends_with('\n'));
    cluster.nodes[0].kill();
    let began = Instant::now();
    holding.signal("TERM");
    for (ended, name) in [(running.end().with(3), "silence/gone"), (holding.end().with(69), "silence/held")] {
        // Releasing and ending the lease used to have five seconds each.
        assert!(began.elapsed() < Duration::from_secs(7), "it took {:?}", began.elapsed());
        let says = format!("giving {name} back; the cluster has not answered yet");
        assert!(ended.stderr.contains(&says), "{}", ended.stderr);
        assert!(ended.stderr.contains("free when its lease ends, in"), "{}", ended.stderr);
    }
}
