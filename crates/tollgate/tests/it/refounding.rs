//! A member that comes back on an empty disk, started as on its first start.

use crate::cluster::{self, BINARY, Cluster, Making};
use crate::load::{Load, Weight};
use crate::membership::grow;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tollgate_proto::v1::Role;

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_voter_bootstrapped_again_on_an_empty_disk_is_no_voter_of_the_cluster() {
    let mut cluster = cluster::three().await;
    let load = Load::start(&cluster, Weight::usual());
    load.progress(20).await;
    let wiped = cluster.follower().await;
    cluster.nodes[wiped].kill();
    std::fs::remove_dir_all(&cluster.nodes[wiped].data_dir).unwrap();
    cluster.bootstrap(wiped);
    let status = cluster.nodes[wiped].until_exited().await;
    let says = cluster.nodes[wiped].log();
    assert_eq!(status.code(), Some(70), "{says}");
    assert!(says.contains("by another disk") && says.contains("join under a new id"), "{says}");
    // A second attempt fails as well, without the flag to bootstrap.
    cluster.restart(wiped);
    assert_eq!(cluster.nodes[wiped].until_exited().await.code(), Some(70));
    let id = format!("node={}", wiped + 1);
    let told = |index: usize| {
        let log = cluster.nodes[index].log();
        log.lines().any(|line| line.contains("came back with another disk") && line.contains(&id))
    };
    assert!((0..3).filter(|index| *index != wiped).any(told), "nobody said so");
    load.progress(20).await;
    load.finish(&cluster).await;

    // With the leader gone too, only one member is left that has any data. It must not go on with the wiped one.
    let leader = cluster.leader().await;
    cluster.nodes[leader].kill();
    cluster.restart(wiped);
    assert_eq!(cluster.nodes[wiped].until_exited().await.code(), Some(70));
    let left = (0..3).find(|index| ![leader, wiped].contains(index)).unwrap();
    let replica = cluster.nodes[left].replica().await.unwrap();
    assert!(replica.role() != Role::Leader && !replica.serves, "{replica:?}");
    cluster.restart(leader);
    cluster.until_ready().await;
}

/// The wiped node's own new cluster has no other members: it waits for no other node, and regards the nodes that dial
/// it as removed.
#[tokio::test(flavor = "multi_thread")]
async fn p1_a_voter_founded_anew_as_a_cluster_of_its_own_retires_nobody() {
    let mut cluster = cluster::three().await;
    let load = Load::start(&cluster, Weight::usual());
    load.progress(20).await;
    cluster.nodes[2].kill();
    std::fs::remove_dir_all(&cluster.nodes[2].data_dir).unwrap();
    let (peer, client) = (cluster.nodes[2].ports.peer, cluster.nodes[2].ports.client);
    let alone = format!("[{{id = 3, peer = \"127.0.0.1:{peer}\", client = \"127.0.0.1:{client}\"}}]");
    cluster.nodes[2].change_flag("--cluster-members", &alone);
    cluster.bootstrap(2);
    let status = cluster.nodes[2].until_exited().await;
    let says = cluster.nodes[2].log();
    assert_eq!(status.code(), Some(70), "{says}");
    assert!(says.contains("by another disk"), "{says}");
    load.progress(20).await;
    for node in &cluster.nodes[..2] {
        assert!(!node.log().contains("was removed from the cluster"), "{}", node.log());
    }
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_a_cluster_that_grew_from_one_node_is_not_founded_a_second_time() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    for _ in 0..2 {
        let index = cluster.newcomer();
        grow(&mut cluster, index, &[]).await;
    }
    cluster.nodes[0].kill();
    std::fs::remove_dir_all(&cluster.nodes[0].data_dir).unwrap();
    // With the same file as when it was founded the first time.
    cluster.bootstrap(0);
    let status = cluster.nodes[0].until_exited().await;
    let says = cluster.nodes[0].log();
    assert_eq!(status.code(), Some(70), "{says}");
    assert!(says.contains("by another disk") && says.contains("join under a new id"), "{says}");
    // It does not serve when it is started once more, either.
    cluster.restart(0);
    assert_eq!(cluster.nodes[0].until_exited().await.code(), Some(70));
    let leader = cluster.leader().await;
    assert_ne!(leader, 0);
}

/// A `tollgate dev` process that is killed with the test.
struct Dev(Child);

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn dev(dir: &std::path::Path) -> Dev {
    let mut command = Command::new(BINARY);
    command.args(["dev", "--port-base", "0", "--data-dir"]).arg(dir);
    Dev(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

#[test]
fn p4_a_dev_cluster_one_of_whose_directories_was_wiped_says_so() {
    let dir = tempfile::TempDir::with_prefix("tollgate-it-").unwrap();
    // A second start on the same directories works.
    for _ in 0..2 {
        let mut running = dev(dir.path());
        let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().contains("3 nodes are ready"));
    }
    std::fs::remove_dir_all(dir.path().join("node-2")).unwrap();
    let mut running = dev(dir.path());
    let until = Instant::now() + Duration::from_secs(30);
    let status = loop {
        if let Some(status) = running.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < until, "it runs on as if nothing were missing");
        std::thread::sleep(Duration::from_millis(10));
    };
    let says = std::io::read_to_string(running.0.stderr.take().unwrap()).unwrap();
    assert_eq!(status.code(), Some(70), "{says}");
    assert!(says.contains("by another disk"), "{says}");
}
