//! A leader that is paused and resumed: it must not act on old state (P13), and its pause must not cost anybody a lease
//! (P5).

use crate::cluster::{self, Cluster, PATIENCE};
use crate::load::{Load, Weight};
use crate::record::Recorder;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::register_service_client::RegisterServiceClient;
use tollgate_proto::v1::{
    ErrorReason, GetLockRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LockRequest, PutRequest,
    UnlockRequest,
};
use tonic::transport::Channel;

const TTL_MS: u64 = 1_500;

/// Stops the leader for three TTLs, `rounds` times.
async fn stop_the_leader(rounds: u32) {
    let cluster = cluster::three().await;
    let load = Load::start(&cluster, Weight::usual().ttl_ms(TTL_MS));
    load.progress(60).await;
    for _ in 0..rounds {
        let leader = cluster.leader().await;
        cluster.nodes[leader].signal("STOP");
        tokio::time::sleep(Duration::from_millis(3 * TTL_MS)).await;
        cluster.leader_but(Some(leader)).await;
        load.progress(60).await;
        cluster.nodes[leader].signal("CONT");
        load.progress(60).await;
        cluster.until_ready().await;
    }
    none_lost(&load.recorder);
    load.finish(&cluster).await;
}

/// Checks that no lease ended while its client believed in it.
fn none_lost(recorder: &Recorder) {
    let lost = recorder.counts.lost_leases.load(Ordering::Relaxed);
    assert_eq!(lost, 0, "leases ended though their keepalives were acknowledged in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigstop_of_the_leader_for_three_ttls_breaks_no_promise_and_ends_no_living_lease() {
    stop_the_leader(1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute: make test-slow runs it"]
async fn sigstop_of_leader_after_leader_breaks_no_promise_and_ends_no_living_lease() {
    stop_the_leader(6).await;
}

/// Opens a connection to the node before the node is stopped, so that later requests are in its sockets when it
/// resumes.
async fn open_to(cluster: &Cluster, node: usize) -> LockServiceClient<Channel> {
    let mut service = cluster.nodes[node].locks();
    service.get_lock(GetLockRequest { name: "other".into(), ..GetLockRequest::default() }).await.unwrap();
    service
}

/// Maximum time that callers wait for their calls at the old leader, once another node leads.
const PROMPT: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread")]
async fn what_a_silent_leader_has_is_answered_as_soon_as_another_leads() {
    let cluster = cluster::three().await;
    let old = cluster.leader().await;
    let other = &cluster.nodes[(old + 1) % 3];
    let mut registers = RegisterServiceClient::new(other.channel(PATIENCE));
    let put = || PutRequest { key: b"k".to_vec(), value: b"v".to_vec(), ..PutRequest::default() };
    // The node's stream to the leader is open, and so is the keepalive stream.
    registers.put(put()).await.unwrap();
    let grant = LeaseGrantRequest { id: 1, ttl_ms: 600_000, ..LeaseGrantRequest::default() };
    other.locks().lease_grant(grant).await.unwrap();
    let keep = LeaseKeepAliveRequest { id: 1, ..LeaseKeepAliveRequest::default() };
    let (keepalives, outgoing) = tokio::sync::mpsc::channel(4);
    let kept = other.locks().lease_keep_alive(ReceiverStream::new(outgoing)).await;
    let mut kept = kept.unwrap().into_inner();
    keepalives.send(keep.clone()).await.unwrap();
    assert!(kept.message().await.unwrap().unwrap().ttl_ms > 0);

    cluster.nodes[old].signal("STOP");
    // Without a seq the call is not repeated; with a lease it could be.
    let caught = tokio::spawn(async move { registers.put(put()).await });
    keepalives.send(keep.clone()).await.unwrap();
    cluster.leader_but(Some(old)).await;
    let told = tokio::time::timeout(PROMPT, caught).await.expect("another node leads").unwrap();
    let error = error_of_status(&told.expect_err("nobody knows")).unwrap();
    assert_eq!((error.reason(), error.may_have_happened), (ErrorReason::Indeterminate, true), "{error:?}");
    for _ in 0..2 {
        let renewed = tokio::time::timeout(PATIENCE, kept.message()).await.expect("another node leads");
        assert!(renewed.expect("the stream goes on").unwrap().ttl_ms > 0);
        keepalives.send(keep.clone()).await.unwrap();
    }
    cluster.nodes[old].signal("CONT");
}

#[tokio::test(flavor = "multi_thread")]
async fn p13_a_leader_that_wakes_answers_nothing_from_memory() {
    let cluster = cluster::three().await;
    let old = cluster.leader().await;
    let mut sleeper = open_to(&cluster, old).await;
    let grant = |id, ttl_ms| LeaseGrantRequest { id, ttl_ms, ..LeaseGrantRequest::default() };
    let lock = |lease_id| LockRequest { name: "jobs".into(), lease_id, ..LockRequest::default() };
    sleeper.lease_grant(grant(1, 600_000)).await.unwrap();
    sleeper.lease_grant(grant(2, 600_000)).await.unwrap();
    sleeper.lease_grant(grant(3, 500)).await.unwrap();
    let first = sleeper.lock(lock(1)).await.unwrap().into_inner();
    assert!(first.acquired);

    cluster.nodes[old].signal("STOP");
    let next = cluster.leader_but(Some(old)).await;
    let mut awake = cluster.nodes[next].locks();
    let unlock = UnlockRequest { name: "jobs".into(), lease_id: 1, ..UnlockRequest::default() };
    awake.unlock(unlock).await.unwrap();
    let second = awake.lock(lock(2)).await.unwrap().into_inner();
    assert!(second.acquired && second.fencing_token > first.fencing_token);
    cluster::until("lease 3 has expired under the new leader", || {
        let mut awake = awake.clone();
        async move { awake.lease_revoke(tollgate_proto::v1::LeaseRevokeRequest { id: 3 }).await.is_err() }
    })
    .await;

    // Both requests are in the paused node's sockets when it resumes.
    let mut reader = sleeper.clone();
    let read = tokio::spawn(async move {
        reader.get_lock(GetLockRequest { name: "jobs".into(), ..GetLockRequest::default() }).await
    });
    let mut keeper = sleeper.clone();
    let kept = tokio::spawn(async move {
        let keepalive = LeaseKeepAliveRequest { id: 3, seq: 1, ..LeaseKeepAliveRequest::default() };
        let (requests, outgoing) = tokio::sync::mpsc::channel(1);
        requests.send(keepalive).await.unwrap();
        let outgoing = ReceiverStream::new(outgoing);
        let mut answers = keeper.lease_keep_alive(outgoing).await.unwrap().into_inner();
        answers.message().await
    });
    let mut rival = sleeper.clone();
    let busy = tokio::spawn(async move { rival.try_lock(lock(1)).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    cluster.nodes[old].signal("CONT");

    let read = tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap().unwrap().into_inner();
    let holders = read.lock.unwrap().holders;
    let tokens: Vec<u64> = holders.iter().map(|holder| holder.fencing_token).collect();
    assert_eq!(tokens, [second.fencing_token], "the read saw what the old leader remembered");
    let kept = tokio::time::timeout(PATIENCE, kept).await.unwrap().unwrap();
    let answer = kept.unwrap().expect("a keepalive is answered");
    assert_eq!((answer.id, answer.ttl_ms), (3, 0), "an ended lease was renewed");
    let busy = tokio::time::timeout(PATIENCE, busy).await.unwrap().unwrap().unwrap().into_inner();
    let named: Vec<u64> = busy.holders.iter().map(|holder| holder.fencing_token).collect();
    assert_eq!(
        (busy.acquired, named),
        (false, vec![second.fencing_token]),
        "busy, as the old leader remembered"
    );
}
