//! Operations on names of several groups: their promises while attempts, gateways and holders come and go.

use crate::many_groups::{
    acquired, ask, cluster, grant, is_free, lock, lock_all, names, unlock, until_queued,
};
use crate::sessions::{Cluster, PATIENCE};
use std::sync::Arc;
use std::time::Duration;
use tollgate_gateway::{Discovery, OperationMeter, RequestInfo};
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_server::Router;
use tollgate_types::Address;

#[derive(Debug)]
struct Unmeasured;

impl OperationMeter for Unmeasured {
    fn operation(&self, _: RequestInfo, _: &OpResult, _: Duration) {}

    fn shed(&self, _: RequestInfo) {}
}

/// Starts a gateway, which has not seen the cluster yet.
fn gateway(cluster: &Cluster) -> (Discovery, Router) {
    let nodes = cluster.servers.iter().map(|server| server.addresses().client.to_string());
    let discovery = Discovery::start(nodes.collect(), None);
    let router = Router::alone(&discovery, Arc::new(Unmeasured));
    (discovery, router)
}

/// A repeated part of a request gets the first answer, whatever has happened since: otherwise an attempt that found all
/// names free could report that it has them, while one that did not releases its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_a_try_over_groups_that_found_a_name_busy_found_it_busy_for_every_repeat() {
    let cluster = cluster().await;
    let router = cluster.servers[0].router();
    for lease in [1, 2] {
        grant(router, lease, 600_000).await;
    }
    let last = names().pop().unwrap();
    assert!(acquired(&ask(router, lock(&last, 1, 0)).await));
    let try_lock = |names: Vec<String>, all_names, attempt| {
        let request = Some(v1::Request { seq: 4, attempt, all_names, ..Default::default() });
        Op::TryLock(v1::LockRequest { names, lease_id: 2, request, ..Default::default() })
    };
    assert!(!acquired(&ask(router, try_lock(names(), Vec::new(), 0)).await));
    ask(router, unlock(&last, 1)).await;
    let repeated = ask(cluster.servers[1].router(), try_lock(vec![last.clone()], names(), 1)).await;
    assert!(!acquired(&repeated) && is_free(router, &last).await, "{repeated:?}");
    cluster.stop().await;
}

/// A program that starts again numbers from 1, and requests something else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_a_number_of_a_request_over_groups_is_that_of_the_whole_request() {
    let cluster = cluster().await;
    let router = cluster.servers[0].router();
    grant(router, 1, 600_000).await;
    let all = names();
    let (first, last) = (all[0].clone(), all[all.len() - 1].clone());
    for name in &all {
        until_known(router, name).await;
    }
    assert!(acquired(&ask(router, lock_all(1, 1, 0)).await));
    let asked = |names: Vec<String>| {
        let request = Some(v1::Request { seq: 1, attempt: 1, ..Default::default() });
        Op::Lock(v1::LockRequest { names, lease_id: 1, request, ..Default::default() })
    };
    let refused = |result: OpResult| match result {
        OpResult::Error(error) => (error.reason() == v1::ErrorReason::BadField, error.field),
        other => panic!("told of success: {other:?}"),
    };
    // The names of one part alone; fewer names; another name besides.
    for names in
        [vec![first.clone()], vec![first.clone(), last.clone()], vec![first.clone(), "other".to_owned()]]
    {
        let told = refused(ask(cluster.servers[1].router(), asked(names.clone())).await);
        assert_eq!(told, (true, "request.seq".to_owned()), "{names:?}");
    }
    // The end of the mistaken request does not release anything of the first request either.
    let cancel = v1::CancelWaitRequest {
        lease_id: 1,
        seq: 1,
        name: "other".into(),
        release_if_granted: true,
        ..Default::default()
    };
    ask(router, Op::CancelWait(cancel)).await;
    for name in &all {
        assert!(!is_free(router, name).await, "{name}");
    }
    // The request itself is still known, by any node, with its names in any order.
    let reversed = asked(all.iter().rev().cloned().collect());
    assert!(acquired(&ask(&gateway(&cluster).1, reversed).await));
    cluster.stop().await;
}

/// Waits until the group of a lock identifies requests by their content: a new group begins with older rules.
async fn until_known(router: &Router, name: &str) {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let get = v1::GetLockRequest { name: name.into(), ..Default::default() };
        let OpResult::GetLock(seen) = ask(router, Op::GetLock(get)).await else { continue };
        if seen.header.is_some_and(|header| header.lineage != 0) {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "no lineage");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A client that used another gateway before sends its request at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p8_a_gateway_that_has_not_seen_the_cluster_yet_does_what_one_that_has_would_do() {
    let cluster = cluster().await;
    let router = cluster.servers[0].router();
    for lease in [1, 2] {
        grant(router, lease, 600_000).await;
    }
    let last = names().pop().unwrap();
    assert!(acquired(&ask(&gateway(&cluster).1, lock_all(1, 1, 0)).await));
    let unlock_all = v1::UnlockRequest { names: names(), lease_id: 1, ..Default::default() };
    let released = ask(&gateway(&cluster).1, Op::Unlock(unlock_all)).await;
    assert!(matches!(released, OpResult::Unlock(_)), "{released:?}");
    for name in names() {
        assert!(is_free(router, &name).await, "{name}");
    }
    // One request waits in the last group, and is cancelled by the names of the whole request.
    assert!(acquired(&ask(router, lock(&last, 1, 0)).await));
    let waits = tokio::spawn({
        let router = router.clone();
        async move { ask(&router, lock_all(2, 5, -1)).await }
    });
    until_queued(router, &last, 1).await;
    let (lease_id, seq, release_if_granted) = (2, 5, true);
    let cancel =
        v1::CancelWaitRequest { lease_id, seq, names: names(), release_if_granted, ..Default::default() };
    ask(&gateway(&cluster).1, Op::CancelWait(cancel)).await;
    until_queued(router, &last, 0).await;
    assert!(!acquired(&waits.await.unwrap()));
    for prefix in ["", "job"] {
        let range = v1::RangeRequest { prefix: prefix.into(), all: prefix.is_empty(), ..Default::default() };
        let ranged = ask(&gateway(&cluster).1, Op::Range(range)).await;
        assert!(matches!(ranged, OpResult::Range(_)), "{ranged:?}");
    }
    let range = v1::RangeRequest { all: true, group_ids: vec![3], ..Default::default() };
    let ranged = ask(&gateway(&cluster).1, Op::Range(range)).await;
    assert!(matches!(ranged, OpResult::Range(_)), "{ranged:?}");
    cluster.stop().await;
}

/// A caller that is told that it has all names has had all of them at one moment, the last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_what_was_lost_while_the_rest_was_awaited_is_not_told_as_held() {
    let cluster = cluster().await;
    let router = cluster.servers[0].router().clone();
    for lease in [1, 2] {
        grant(&router, lease, 600_000).await;
    }
    let (first, last) = (names().remove(0), names().pop().unwrap());
    for (seq, max_hold_ms) in [(0, 200), (3, 200), (0, 0), (4, 0)] {
        assert!(acquired(&ask(&router, lock(&last, 1, 0)).await));
        let Op::Lock(asked) = lock_all(2, seq, -1) else { unreachable!() };
        let waits = tokio::spawn({
            let router = cluster.servers[1].router().clone();
            async move { ask(&router, Op::Lock(v1::LockRequest { max_hold_ms, ..asked })).await }
        });
        until_queued(&router, &last, 1).await;
        let reason = if max_hold_ms == 0 {
            force(&router, &first).await;
            v1::EndReason::Forced
        } else {
            tokio::time::sleep(Duration::from_millis(300)).await;
            v1::EndReason::MaxHold
        };
        ask(&router, unlock(&last, 1)).await;
        let told = tokio::time::timeout(PATIENCE, waits).await.expect("the wait is over").unwrap();
        let OpResult::Lock(told) = told else { panic!("{told:?}") };
        assert_eq!((told.acquired, told.end_reason()), (false, reason), "seq {seq}: {told:?}");
        for name in names() {
            assert!(is_free(&router, &name).await, "{name}, seq {seq}");
        }
    }
    // A request that lost nothing has all its names, however long it waited.
    assert!(acquired(&ask(&router, lock(&last, 1, 0)).await));
    let waits = tokio::spawn({
        let router = router.clone();
        async move { ask(&router, lock_all(2, 6, -1)).await }
    });
    until_queued(&router, &last, 1).await;
    ask(&router, unlock(&last, 1)).await;
    let told = waits.await.unwrap();
    assert!(acquired(&told), "{told:?}");
    cluster.stop().await;
}

/// Force-releases a lock.
async fn force(router: &Router, name: &str) {
    let get = v1::GetLockRequest { name: name.into(), ..Default::default() };
    let OpResult::GetLock(seen) = ask(router, Op::GetLock(get)).await else { panic!("no answer") };
    let fencing_token = seen.lock.unwrap().holders[0].fencing_token;
    let force = v1::ForceReleaseRequest { name: name.into(), fencing_token, reason: "a test".into() };
    let forced = ask(router, Op::ForceRelease(force)).await;
    assert!(matches!(forced, OpResult::ForceRelease(_)), "{forced:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_range_names_each_group_once_and_ends_when_it_is_too_long() {
    let cluster = cluster().await;
    let router = cluster.servers[0].router();
    let range = |group_ids: Vec<u32>, limit| {
        ask(router, Op::Range(v1::RangeRequest { all: true, group_ids, limit, ..Default::default() }))
    };
    for (groups, reason) in [
        (vec![1, 1], v1::ErrorReason::BadField),
        (vec![0; 100_000], v1::ErrorReason::BadField),
        (vec![1, 77], v1::ErrorReason::NoSuchGroup),
    ] {
        let refused = range(groups.clone(), 0).await;
        let OpResult::Error(error) = refused else { panic!("{refused:?}") };
        assert_eq!(error.reason(), reason, "{error:?}");
    }
    let mut session = cluster.session(1).await;
    let twice = v1::RangeRequest { all: true, group_ids: vec![2, 2], ..Default::default() };
    let refused = session.ask(Op::Range(twice)).await;
    assert!(matches!(&refused, OpResult::Error(error) if error.field == "group_ids"), "{refused:?}");
    // Each group has less data than an answer may have, and all groups together have more.
    for number in 0..80 {
        let key = format!("key-{number}").into_bytes();
        let put = v1::PutRequest { key, value: vec![7; 60 << 10], ..Default::default() };
        loop {
            match router.execute(Op::Put(put.clone()), &Address::NONE).await {
                OpResult::Put(_) => break,
                // The leader changed, beside other tests; the same value may be put twice.
                OpResult::Error(error) if error.reason() == v1::ErrorReason::Indeterminate => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let refused = range(Vec::new(), 0).await;
    assert!(
        matches!(&refused, OpResult::Error(error) if error.reason() == v1::ErrorReason::LimitExceeded),
        "not refused"
    );
    let OpResult::Range(some) = range(Vec::new(), 50).await else { panic!("what fits is told") };
    assert_eq!((some.registers.len(), some.count), (50, 80));
    let OpResult::Range(part) = range(vec![0, 3], 0).await else { panic!("two groups fit") };
    assert!(part.count < 80 && part.registers.len() as u64 == part.count);
    cluster.stop().await;
}
