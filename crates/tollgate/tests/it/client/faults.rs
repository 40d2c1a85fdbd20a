//! Effects on a client's callers when nodes die or are paused: a delay at most. If all nodes are paused, callers are
//! told of the loss of their locks, before the cluster could grant the locks to others.

use crate::cluster::{Cluster, PATIENCE, three, until};
use std::time::{Duration, Instant};
use tollgate_client::{AcquireError, Client, ErrorKind, LostReason, Session};
use tollgate_proto::v1::TransferRequest;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;

async fn connect(cluster: &Cluster) -> Client {
    Client::connect(cluster.endpoints()).await.unwrap()
}

/// Locks and unlocks `times` times.
async fn works(session: &Session, name: &str, times: u32) {
    for _ in 0..times {
        let lock = async { session.lock(name).acquire().await.unwrap().release().await.unwrap() };
        tokio::time::timeout(PATIENCE, lock).await.expect("it locks and unlocks");
    }
}

/// Waits until the stream goes to the leader: a call that waits for consensus is then answered fast.
async fn settled(client: &Client) {
    until("calls are answered fast", || async {
        let began = Instant::now();
        client.get_lock("settled").await.unwrap();
        began.elapsed() < Duration::from_millis(50)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_costs_holders_and_waiters_nothing_but_time() {
    let mut cluster = three().await;
    let client = connect(&cluster).await;
    let session = client.session().ttl(Duration::from_secs(5)).open().await.unwrap();
    let guard = session.lock("held").acquire().await.unwrap();
    let token = guard.token().unwrap();
    let waiting = tokio::spawn(session.lock("held").acquire());
    until("somebody waits", || async { client.get_lock("held").await.unwrap().waiter_count == 1 }).await;
    for _ in 0..2 {
        let leader = cluster.leader().await;
        cluster.nodes[leader].kill();
        let began = Instant::now();
        works(&session, "other", 5).await;
        println!("served again after {:?}", began.elapsed());
        assert_eq!(guard.token().unwrap(), token);
        cluster.restart(leader);
        cluster.until_ready().await;
    }
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token().unwrap() > token);
    drop(next);
    session.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stands_still_is_left_and_short_leases_outlive_it() {
    let cluster = three().await;
    let client = connect(&cluster).await;
    settled(&client).await;
    // An election after a silent failure takes two seconds, so the TTL must be longer.
    let session = client.session().ttl(Duration::from_millis(4_500)).open().await.unwrap();
    let guard = session.lock("held").acquire().await.unwrap();
    let leader = cluster.leader().await;
    cluster.nodes[leader].signal("STOP");
    works(&session, "other", 5).await;
    // Longer than the lease lives without keepalives.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!guard.is_lost());
    cluster.nodes[leader].signal("CONT");
    works(&session, "other", 5).await;
    guard.release().await.unwrap();
    session.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_stands_still_under_a_client_costs_it_no_lease() {
    let cluster = three().await;
    let client = connect(&cluster).await;
    settled(&client).await;
    let old = cluster.leader().await;
    // Shorter than the time in which pings alone detect a dead connection.
    let session = client.session().ttl(Duration::from_secs(1)).open().await.unwrap();
    let guard = session.lock("held").acquire().await.unwrap();
    let other = (old + 1) % 3;
    let mut admin = AdminServiceClient::new(cluster.nodes[old].channel(PATIENCE));
    admin
        .transfer(TransferRequest { group_id: 0, node_id: other as u64 + 1, passed_on: false })
        .await
        .unwrap();
    cluster.leader_but(Some(old)).await;
    cluster.nodes[old].signal("STOP");
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(guard.token().err(), None);
    }
    works(&session, "other", 5).await;
    cluster.nodes[old].signal("CONT");
    guard.release().await.unwrap();
    session.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_leader_costs_no_session_that_ends_with_its_connection() {
    let cluster = three().await;
    let client = connect(&cluster).await;
    settled(&client).await;
    let fragile = client.session().ttl(Duration::from_secs(5)).revoke_on_disconnect(true);
    let fragile = fragile.open().await.unwrap();
    let guard = fragile.lock("held").acquire().await.unwrap();
    let mut leader = cluster.leader().await;
    for _ in 0..2 {
        let other = (leader + 1) % 3;
        let mut admin = AdminServiceClient::new(cluster.nodes[leader].channel(PATIENCE));
        admin
            .transfer(TransferRequest { group_id: 0, node_id: other as u64 + 1, passed_on: false })
            .await
            .unwrap();
        leader = cluster.leader_but(Some(leader)).await;
        // A stream that the client has left would be closed as soon as no request is under way on it.
        for _ in 0..10 {
            works(&fragile, "other", 1).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(guard.token().err(), None);
        }
    }
    guard.release().await.unwrap();
    fragile.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p7_when_all_nodes_stand_still_the_loss_is_told_before_the_lease_can_end() {
    let cluster = three().await;
    let client = connect(&cluster).await;
    let ttl = Duration::from_secs(2);
    let session = client.session().ttl(ttl).open().await.unwrap();
    let guard = session.lock("held").acquire().await.unwrap();
    let waiting = tokio::spawn(session.lock("held").acquire());
    until("somebody waits", || async { client.get_lock("held").await.unwrap().waiter_count == 1 }).await;
    cluster.nodes.iter().for_each(|node| node.signal("STOP"));
    // A keepalive that was sent later can't have been received.
    let stopped = Instant::now();
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap();
    let after = stopped.elapsed();
    assert_eq!(lost.reason, LostReason::Unreachable);
    assert!(after < ttl, "told only after {after:?}");
    assert!(after > ttl / 2, "the last keepalive was acknowledged a third of the TTL ago at most: {after:?}");
    assert_eq!(guard.token().unwrap_err().reason, LostReason::Unreachable);
    assert_eq!((guard.remaining(), session.remaining()), (Duration::ZERO, Duration::ZERO));
    assert_eq!(session.lost().await.reason, LostReason::Unreachable);
    let waited = waiting.await.unwrap().unwrap_err();
    assert!(
        matches!(&waited, AcquireError::Lost(lost) if lost.reason == LostReason::Unreachable),
        "{waited:?}"
    );
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    cluster.nodes.iter().for_each(|node| node.signal("CONT"));
    // The session is never believed in again; its lease is revoked, and need not expire.
    let lease = session.lease_id();
    until("the lease is gone", || async {
        matches!(client.leases().time_to_live(lease).await, Err(error) if error.kind() == ErrorKind::NotFound)
    })
    .await;
    assert!(session.check().is_err());
    let another = client.session().open().await.unwrap();
    works(&another, "held", 1).await;
    another.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_somebody_revokes_is_lost_at_the_next_word_and_one_nobody_serves_is_told_of() {
    let cluster = three().await;
    let client = connect(&cluster).await;
    let session = client.session().ttl(Duration::from_millis(900)).open().await.unwrap();
    let guard = session.lock("held").acquire().await.unwrap();
    client.leases().revoke(session.lease_id()).await.unwrap();
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap();
    assert_eq!(lost.reason, LostReason::Revoked);
    let error = Client::builder()
        .endpoints(["127.0.0.1:1", "127.0.0.1:2"])
        .connect_timeout(Duration::from_millis(300))
        .connect()
        .await
        .unwrap_err();
    assert_eq!((error.kind(), error.may_have_happened()), (ErrorKind::Unreachable, false));
    for endpoint in ["http://127.0.0.1:1: ", "http://127.0.0.1:2: "] {
        let (_, why) = error.message().split_once(endpoint).expect("each endpoint is named");
        assert!(why.to_lowercase().contains("refused"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_joined_lease_is_shared_with_its_owner_and_never_released_or_revoked() {
    let cluster = three().await;
    let (parent, child) = (connect(&cluster).await, connect(&cluster).await);
    let session = parent.session().ttl(Duration::from_secs(3)).open().await.unwrap();
    let guard = session.owner("run").lock("nested").acquire().await.unwrap();
    let joined = child.session().join(session.lease_id()).await.unwrap();
    assert_eq!((joined.ttl(), joined.incarnation()), (session.ttl(), session.incarnation()));
    let inner = joined.owner("run").lock("nested").acquire().await.unwrap();
    assert!(inner.is_inherited() && !guard.is_inherited());
    assert_eq!(inner.token(), guard.token());
    inner.release().await.unwrap();
    // The joined session releases the locks that it acquired itself.
    let own = joined.owner("run").lock("own").acquire().await.unwrap();
    assert!(!own.is_inherited());
    own.release().await.unwrap();
    assert!(child.get_lock("own").await.unwrap().is_free());
    works(&joined, "own", 3).await;
    joined.close().await.unwrap();
    assert_eq!(parent.get_lock("nested").await.unwrap().holder_count, 1);
    guard.token().unwrap();
    guard.release().await.unwrap();
    session.close().await.unwrap();
    let ended = child.session().join(tollgate_client::LeaseId::new(77).unwrap()).await.unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::NotFound);
}
