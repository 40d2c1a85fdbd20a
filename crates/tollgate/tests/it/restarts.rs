//! Nodes that stop and start again on their data: all at once, or after a signal that lets them shut down in order.

use crate::cluster;
use crate::load::{Load, Weight};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};
use tollgate_proto::v1::{GetLockRequest, LeaseGrantRequest, LockRequest, LockResponse};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_granted_is_held_with_the_same_token_after_all_nodes_were_killed_at_once() {
    let mut cluster = cluster::three().await;
    let mut service = cluster.nodes[0].locks();
    let lease = LeaseGrantRequest { id: 7, ttl_ms: 600_000, ..LeaseGrantRequest::default() };
    service.lease_grant(lease).await.unwrap();
    let mut granted: Vec<(String, LockResponse)> = Vec::new();
    for number in 0..20 {
        let name = format!("job/{number}");
        let lock =
            LockRequest { name: name.clone(), lease_id: 7, owner: "o".into(), ..LockRequest::default() };
        granted.push((name, service.lock(lock).await.unwrap().into_inner()));
    }
    for node in &mut cluster.nodes {
        node.kill();
    }
    for index in 0..3 {
        cluster.restart(index);
    }
    cluster.until_ready().await;
    for (name, before) in granted {
        let read = GetLockRequest { name: name.clone(), ..GetLockRequest::default() };
        let lock = cluster.nodes[1].locks().get_lock(read).await.unwrap().into_inner().lock.unwrap();
        let held: Vec<(u64, u64)> = lock.holders.iter().map(|it| (it.lease_id, it.fencing_token)).collect();
        assert_eq!(held, [(7, before.fencing_token)], "{name}");
        let again = LockRequest { name, lease_id: 7, owner: "o".into(), ..LockRequest::default() };
        let again = cluster.nodes[2].locks().lock(again).await.unwrap().into_inner();
        assert_eq!((again.acquired, again.fencing_token), (true, before.fencing_token));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_all_nodes_under_load_breaks_no_promise() {
    let mut cluster = cluster::three().await;
    let load = Load::start(&cluster, Weight::usual());
    for _ in 0..2 {
        load.progress(60).await;
        for node in &mut cluster.nodes {
            node.kill();
        }
        for index in 0..3 {
            cluster.restart(index);
        }
        cluster.until_ready().await;
    }
    load.progress(60).await;
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_hands_leadership_on_ends_with_0_and_fails_no_operation() {
    let mut cluster = cluster::three().await;
    let load = Load::start(&cluster, Weight::usual());
    for _ in 0..3 {
        load.progress(60).await;
        let leader = cluster.leader().await;
        cluster.nodes[leader].signal("TERM");
        let (began, status) = (Instant::now(), cluster.nodes[leader].until_exited().await);
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
        let next = cluster.leader().await;
        assert_ne!(next, leader);
        load.progress(60).await;
        cluster.restart(leader);
        cluster.until_ready().await;
    }
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_without_load_hands_leadership_on_within_a_blink() {
    let mut cluster = cluster::three().await;
    let leader = cluster.leader().await;
    let other = (leader + 1) % 3;
    let lease = LeaseGrantRequest { id: 7, ttl_ms: 600_000, ..LeaseGrantRequest::default() };
    let mut service = cluster.nodes[other].locks();
    service.lease_grant(lease).await.unwrap();
    cluster.nodes[leader].signal("TERM");
    // Requests through a node that stays do not fail at any time, whichever node leads.
    let until = Instant::now() + Duration::from_secs(2);
    let (mut asked, mut slowest) = (0, Duration::ZERO);
    while Instant::now() < until {
        let began = Instant::now();
        let name = format!("job/{asked}");
        let lock = LockRequest { name, lease_id: 7, ..LockRequest::default() };
        let answer = service.lock(lock).await.unwrap().into_inner();
        assert!(answer.acquired);
        slowest = slowest.max(began.elapsed());
        asked += 1;
    }
    println!("{asked} locks, the slowest took {slowest:?}");
    assert_eq!(cluster.nodes[leader].until_exited().await.code(), Some(0));
    assert!(slowest < Duration::from_secs(2), "handing on took {slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_stops_a_node_at_once() {
    let mut cluster = cluster::three().await;
    let leader = cluster.leader().await;
    // With no node to take over, the leader would wait for all of its grace.
    for other in (0..3).filter(|other| *other != leader) {
        cluster.nodes[other].kill();
    }
    cluster.nodes[leader].signal("TERM");
    cluster::until("it has taken note", || {
        let said = cluster.nodes[leader].log().contains("stopping");
        async move { said }
    })
    .await;
    let began = Instant::now();
    cluster.nodes[leader].signal("TERM");
    let status = cluster.nodes[leader].until_exited().await;
    assert_eq!((status.code(), status.signal()), (Some(128 + 15), None), "{status}");
    assert!(began.elapsed() < Duration::from_secs(1), "it took {:?}", began.elapsed());
}
