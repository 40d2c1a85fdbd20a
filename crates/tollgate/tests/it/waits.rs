//! Callers of single gRPC calls that wait in line: they survive the loss of a leader, and leave the queue when they
//! hang up or are lost with their node.

use crate::cluster::{self, Cluster, Making, PATIENCE};
use std::time::Duration;
use tollgate_proto::v1::{GetLockRequest, LeaseGrantRequest, LockRequest, LockState, Request, UnlockRequest};

pub(crate) async fn leases(cluster: &Cluster, ids: &[u64]) {
    for id in ids {
        let lease = LeaseGrantRequest { id: *id, ttl_ms: 600_000, ..LeaseGrantRequest::default() };
        cluster.nodes[0].locks().lease_grant(lease).await.unwrap();
    }
}

pub(crate) fn jobs(lease_id: u64, timeout_ms: i64) -> LockRequest {
    LockRequest { name: "jobs".into(), lease_id, timeout_ms, ..LockRequest::default() }
}

pub(crate) async fn look(cluster: &Cluster, node: usize) -> Option<LockState> {
    let read = GetLockRequest { name: "jobs".into(), ..GetLockRequest::default() };
    cluster.nodes[node].locks().get_lock(read).await.ok()?.into_inner().lock
}

pub(crate) async fn until_waiting(cluster: &Cluster, node: usize, count: u64) {
    cluster::until(&format!("{count} wait in line"), || async {
        look(cluster, node).await.is_some_and(|lock| lock.waiter_count == count)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_call_at_a_follower_is_granted_though_the_leader_was_killed_meanwhile() {
    let mut cluster = cluster::three().await;
    leases(&cluster, &[1, 2]).await;
    let leader = cluster.leader().await;
    let (asked, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let held = cluster.nodes[other].locks().lock(jobs(1, 0)).await.unwrap().into_inner();
    assert!(held.acquired);
    let mut follower = cluster.nodes[asked].locks();
    let waiting = tokio::spawn(async move { follower.lock(jobs(2, -1)).await });
    until_waiting(&cluster, other, 1).await;
    cluster.nodes[leader].kill();
    cluster.leader_but(Some(leader)).await;
    let unlock = UnlockRequest { name: "jobs".into(), lease_id: 1, ..UnlockRequest::default() };
    cluster.nodes[other].locks().unlock(unlock).await.unwrap();
    let granted = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap().into_inner();
    assert!(granted.acquired && granted.fencing_token > held.fencing_token, "{granted:?}");
    let lock = look(&cluster, other).await.unwrap();
    assert_eq!((lock.holders[0].lease_id, lock.holder_count, lock.waiter_count), (2, 1, 0));
}

/// Lets a caller at `asked` wait and hang up.
async fn hangs_up(cluster: &Cluster, asked: usize) {
    let mut service = cluster.nodes[asked].locks();
    let waiting = tokio::spawn(async move { service.lock(jobs(2, -1)).await });
    until_waiting(cluster, 0, 1).await;
    waiting.abort();
    until_waiting(cluster, 0, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_hangs_up_leaves_the_queue_wherever_it_asked() {
    let cluster = cluster::three().await;
    leases(&cluster, &[1, 2, 3]).await;
    let leader = cluster.leader().await;
    assert!(cluster.nodes[0].locks().lock(jobs(1, 0)).await.unwrap().into_inner().acquired);
    hangs_up(&cluster, leader).await;
    hangs_up(&cluster, (leader + 1) % 3).await;
    // A caller that has left does not delay the next in line.
    let mut service = cluster.nodes[0].locks();
    let next = tokio::spawn(async move { service.lock(jobs(3, -1)).await });
    until_waiting(&cluster, 0, 1).await;
    let unlock = UnlockRequest { name: "jobs".into(), lease_id: 1, ..UnlockRequest::default() };
    cluster.nodes[0].locks().unlock(unlock).await.unwrap();
    let granted = tokio::time::timeout(PATIENCE, next).await.unwrap().unwrap().unwrap();
    assert!(granted.into_inner().acquired);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_times_out_is_an_answer_that_names_the_holder() {
    let cluster = cluster::three().await;
    leases(&cluster, &[1, 2]).await;
    let held = cluster.nodes[1].locks().lock(jobs(1, 0)).await.unwrap().into_inner();
    for node in 0..3 {
        let began = std::time::Instant::now();
        let answer = cluster.nodes[node].locks().lock(jobs(2, 200)).await.unwrap().into_inner();
        assert!(!answer.acquired && began.elapsed() >= Duration::from_millis(198), "{answer:?}");
        assert_eq!(answer.holders[0].fencing_token, held.fencing_token);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_follower_is_killed_leaves_the_queue() {
    let mut cluster = Cluster::start(Making::nodes(3).flags(&["--raft-unattended-ms", "1000"])).await;
    leases(&cluster, &[1, 2]).await;
    let leader = cluster.leader().await;
    assert!(cluster.nodes[leader].locks().lock(jobs(1, 0)).await.unwrap().into_inner().acquired);
    let asked = (leader + 1) % 3;
    let mut service = cluster.nodes[asked].locks();
    let waiting = tokio::spawn(async move { service.lock(jobs(2, -1)).await });
    until_waiting(&cluster, leader, 1).await;
    cluster.nodes[asked].kill();
    assert!(waiting.await.unwrap().is_err());
    // No caller is attached to the request any more.
    until_waiting(&cluster, leader, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_node_is_killed_as_leader_leaves_the_queue_of_the_next() {
    let mut cluster = Cluster::start(Making::nodes(3).flags(&["--raft-unattended-ms", "1000"])).await;
    leases(&cluster, &[1, 2]).await;
    let leader = cluster.leader().await;
    assert!(cluster.nodes[leader].locks().lock(jobs(1, 0)).await.unwrap().into_inner().acquired);
    let mut service = cluster.nodes[leader].locks();
    let waiting = tokio::spawn(async move { service.lock(jobs(2, -1)).await });
    until_waiting(&cluster, leader, 1).await;
    cluster.nodes[leader].kill();
    assert!(waiting.await.unwrap().is_err());
    let next = cluster.leader_but(Some(leader)).await;
    until_waiting(&cluster, next, 0).await;
}

/// Returns a waiting request with a number.
fn numbered(attempt: u32) -> LockRequest {
    let request = Some(Request { seq: 1, attempt, ..Request::default() });
    LockRequest { request, ..jobs(2, -1) }
}

#[tokio::test(flavor = "multi_thread")]
async fn p10_a_repeat_at_another_node_keeps_its_place_when_the_first_caller_hangs_up() {
    let cluster = cluster::three().await;
    leases(&cluster, &[1, 2]).await;
    let leader = cluster.leader().await;
    for (first, second) in [(1, 2), (0, 1), (2, 0)] {
        assert!(cluster.nodes[leader].locks().lock(jobs(1, 0)).await.unwrap().into_inner().acquired);
        let mut service = cluster.nodes[(leader + first) % 3].locks();
        let first = tokio::spawn(async move { service.lock(numbered(0)).await });
        until_waiting(&cluster, leader, 1).await;
        let mut service = cluster.nodes[(leader + second) % 3].locks();
        let second = tokio::spawn(async move { service.lock(numbered(1)).await });
        // Neither the arrival of the repeat nor the hang-up has an effect that could be waited for.
        tokio::time::sleep(Duration::from_millis(300)).await;
        first.abort();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let unlock = UnlockRequest { name: "jobs".into(), lease_id: 1, ..UnlockRequest::default() };
        cluster.nodes[leader].locks().unlock(unlock).await.unwrap();
        let granted = tokio::time::timeout(PATIENCE, second).await.unwrap().unwrap().unwrap().into_inner();
        assert!(granted.acquired, "the repeat was taken out of the queue with the first: {granted:?}");
        // A new lease for the next round, whose request has the same number.
        let revoke = tollgate_proto::v1::LeaseRevokeRequest { id: 2 };
        cluster.nodes[leader].locks().lease_revoke(revoke).await.unwrap();
        leases(&cluster, &[2]).await;
    }
}
