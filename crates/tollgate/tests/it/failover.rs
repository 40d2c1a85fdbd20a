//! Failover times of a cluster: a report, not a test. Run it with
//! `cargo test --release -p tollgate --test it -- --ignored --nocapture failover`.

use crate::cluster::{self, Cluster};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tollgate_proto::v1::{LeaseGrantRequest, LockRequest};

const RUNS: u32 = 10;

/// Times from the fault to the first grant, and to the grant that was requested in the moment of the fault.
struct Outage {
    first: Duration,
    caught: Duration,
}

/// Asks a node that stays for another lock every few milliseconds until one is granted.
async fn measure(cluster: &Cluster, stays: usize, began: Instant) -> Outage {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let service = cluster.nodes[stays].locks();
    let mut calls = JoinSet::new();
    let mut first = None;
    let mut asked = 0_u64;
    loop {
        if first.is_none() {
            let mut service = service.clone();
            let (number, nth) = (NAMES.fetch_add(1, Ordering::Relaxed), asked);
            asked += 1;
            calls.spawn(async move {
                let name = format!("failover/{number}");
                let lock = LockRequest { name, lease_id: 7, ..LockRequest::default() };
                assert!(service.lock(lock).await.unwrap().into_inner().acquired);
                (nth, began.elapsed())
            });
        }
        let pause = tokio::time::sleep(Duration::from_millis(10));
        tokio::select! {
            Some(done) = calls.join_next() => {
                let (nth, after) = done.unwrap();
                let first = *first.get_or_insert(after);
                if nth == 0 {
                    return Outage { first, caught: after };
                }
            }
            () = pause => {}
        }
    }
}

fn report(fault: &str, outages: &[Outage]) {
    for (what, pick) in [
        ("first lock granted", (|it| it.first) as fn(&Outage) -> Duration),
        ("lock asked for at once", |it| it.caught),
    ] {
        let mut times: Vec<u128> = outages.iter().map(|outage| pick(outage).as_millis()).collect();
        times.sort_unstable();
        let (min, median, max) = (times[0], times[times.len() / 2], times[times.len() - 1]);
        println!("{fault:8} {what:24} median {median:5} ms   min {min:5} ms   max {max:5} ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a report: make test-slow runs it"]
async fn failover_times_are_reported() {
    let mut cluster = cluster::three().await;
    let lease = LeaseGrantRequest { id: 7, ttl_ms: 600_000, ..LeaseGrantRequest::default() };
    cluster.nodes[0].locks().lease_grant(lease).await.unwrap();
    let (mut killed, mut stopped, mut asked_to_go) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        let leader = cluster.leader().await;
        let stays = (leader + 1 + run as usize % 2) % 3;
        cluster.nodes[leader].kill();
        killed.push(measure(&cluster, stays, Instant::now()).await);
        cluster.restart(leader);
        cluster.until_ready().await;
    }
    for run in 0..RUNS {
        let leader = cluster.leader().await;
        let stays = (leader + 1 + run as usize % 2) % 3;
        cluster.nodes[leader].signal("STOP");
        stopped.push(measure(&cluster, stays, Instant::now()).await);
        cluster.nodes[leader].signal("CONT");
        cluster.until_ready().await;
    }
    for run in 0..RUNS {
        let leader = cluster.leader().await;
        let stays = (leader + 1 + run as usize % 2) % 3;
        cluster.nodes[leader].signal("TERM");
        asked_to_go.push(measure(&cluster, stays, Instant::now()).await);
        cluster.nodes[leader].until_exited().await;
        cluster.restart(leader);
        cluster.until_ready().await;
    }
    report("kill -9", &killed);
    report("SIGSTOP", &stopped);
    report("SIGTERM", &asked_to_go);
}
