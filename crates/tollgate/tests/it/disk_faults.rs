//! Disks that fail, and disks that are slow. Full disks are tested in `disk_full`.

use crate::cluster::{self, Cluster, Making};
use crate::load::{Load, Weight};
use crate::strace::Tampering;
use std::time::{Duration, Instant};
use tollgate_proto::v1::LeaseGrantRequest;

/// Makes an fsync of this node fail while clients are at work: the node must stop and say why, and the others go on.
async fn fail(cluster: &mut Cluster, load: &Load, index: usize) {
    let tampering = Tampering::with_fsync(&cluster.nodes[index], "error=EIO");
    let status = cluster.nodes[index].until_exited().await;
    drop(tampering);
    let says = cluster.nodes[index].log();
    assert_eq!(status.code(), Some(70), "{status}: {says}");
    assert!(says.contains("fsync failed") && says.contains("check the disk"), "{says}");
    assert!(!says.contains("panicked"), "{says}");
    load.progress(40).await;
    cluster.restart(index);
    cluster.until_ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p15_a_failed_fsync_stops_the_process_with_70_and_the_others_go_on() {
    let mut cluster = cluster::three().await;
    let load = Load::start(&cluster, Weight::usual());
    load.progress(20).await;
    let follower = cluster.follower().await;
    fail(&mut cluster, &load, follower).await;
    let leader = cluster.leader().await;
    fail(&mut cluster, &load, leader).await;
    load.progress(20).await;
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_nothing_is_acknowledged_before_its_fsync() {
    let cluster = Cluster::start(Making::nodes(1)).await;
    let delay = Duration::from_millis(700);
    let how = format!("delay_enter={}", delay.as_micros());
    let tampering = Tampering::with_fsync(&cluster.nodes[0], &how);
    let mut service = cluster.nodes[0].locks();
    for id in 1..=2 {
        let began = Instant::now();
        let lease = LeaseGrantRequest { id, ttl_ms: 60_000, ..LeaseGrantRequest::default() };
        service.lease_grant(lease).await.unwrap();
        assert!(began.elapsed() >= delay, "acknowledged after {:?}", began.elapsed());
    }
    drop(tampering);
}

/// Delays every fsync of one node. Returns the time that `grants` grants take then.
async fn slow(cluster: &Cluster, load: &Load, index: usize, delay_ms: u64, grants: u64) -> Duration {
    let how = format!("delay_enter={}", delay_ms * 1_000);
    let tampering = Tampering::with_fsync(&cluster.nodes[index], &how);
    let began = Instant::now();
    load.progress(grants).await;
    let took = began.elapsed();
    println!("{grants} grants with {delay_ms} ms more for each fsync of node {index}: {took:?}");
    drop(tampering);
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_slow_disks_of_a_follower_and_of_the_leader_break_no_promise() {
    let cluster = cluster::three().await;
    let load = Load::start(&cluster, Weight::usual());
    load.progress(20).await;
    slow(&cluster, &load, cluster.follower().await, 400, 40).await;
    for delay_ms in [400, 900] {
        // A leader can't apply entries that it has not written, so it transfers leadership to a node that can: without
        // that, 40 grants on three locks take some 40 delays.
        let took = slow(&cluster, &load, cluster.leader().await, delay_ms, 40).await;
        assert!(took < Duration::from_millis(20 * delay_ms), "it led on: {took:?}");
    }
    load.progress(20).await;
    load.finish(&cluster).await;
}
