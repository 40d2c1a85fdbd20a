//! A server that stops: calls under way are finished, whichever node leads by then, and streams are not waited for.

use crate::sessions::{Cluster, PATIENCE};
use std::time::{Duration, Instant};
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::Address;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_under_way_is_finished_by_a_node_that_stops_and_open_streams_do_not_hold_it_up() {
    let mut cluster = Cluster::start_with(&[false; 3], &[("server.shutdown_grace_ms", "60000")]).await;
    let leader = cluster.leader().await;
    let mut session = cluster.session(leader).await;
    let (holder, waiter) = (session.grant(false).await, session.grant(false).await);
    let mut watching = cluster.watch(leader).await;
    watching.send(v1::WatchRequest::default()).await;
    assert!(watching.next().await.created);
    let lock = |lease_id| v1::LockRequest {
        name: "jobs".into(),
        lease_id,
        timeout_ms: 120_000,
        ..Default::default()
    };
    let held = session.ask(Op::Lock(lock(holder))).await;
    assert!(matches!(held, OpResult::Lock(it) if it.acquired));
    let mut locks = LockServiceClient::new(cluster.channel(leader).await);
    let waits = tokio::spawn(async move { locks.lock(lock(waiter)).await });
    let stays = cluster.servers[(leader + 1) % 3].router().clone();
    let get = || v1::GetLockRequest { name: "jobs".into(), ..Default::default() };
    let queued = async || match stays.execute(Op::GetLock(get()), &Address::NONE).await {
        OpResult::GetLock(got) => got.lock.unwrap().waiter_count == 1,
        other => panic!("{other:?}"),
    };
    let in_line = async {
        while !queued().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, in_line).await.unwrap();
    let began = Instant::now();
    let stopping = tokio::spawn(cluster.servers.remove(leader).stop());
    cluster.leader().await;
    // Longer than the time that connections have once a node has stopped.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!stopping.is_finished() && !waits.is_finished(), "the call is waited for");
    let unlock = v1::UnlockRequest { name: "jobs".into(), lease_id: holder, ..Default::default() };
    let unlocked = stays.execute(Op::Unlock(unlock), &Address::NONE).await;
    assert!(matches!(unlocked, OpResult::Unlock(_)), "{unlocked:?}");
    let granted = tokio::time::timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap();
    assert!(granted.into_inner().acquired);
    tokio::time::timeout(PATIENCE, stopping).await.expect("nothing else is waited for").unwrap();
    println!("stopped after {:?}", began.elapsed());
    cluster.stop().await;
}
