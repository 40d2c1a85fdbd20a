//! Leases that hold locks in several groups, with three servers in this process.

use crate::sessions::{Cluster, PATIENCE};
use std::time::Duration;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_server::Router;
use tollgate_types::{Address, GroupId, GroupMap, Name};

pub(crate) const GROUPS: u32 = 4;

pub(crate) async fn cluster() -> Cluster {
    let cluster = Cluster::start_with(&[false; 3], &[("cluster.groups", "4")]).await;
    let led = async {
        for group in (0..GROUPS).map(GroupId::new) {
            while !cluster.servers.iter().any(|server| server.router().serves(group)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, led).await.expect("every group is led");
    cluster
}

/// Returns a name in each group.
pub(crate) fn names() -> Vec<String> {
    let map = GroupMap::even(GROUPS).unwrap();
    let of = |group: u32| {
        let mut names = (0..).map(|number| format!("job-{number}"));
        names.find(|name| map.group_of(Name::new(name).unwrap().slot()) == GroupId::new(group)).unwrap()
    };
    (0..GROUPS).map(of).collect()
}

pub(crate) async fn ask(router: &Router, op: Op) -> OpResult {
    router.execute(op, &Address::NONE).await
}

pub(crate) async fn grant(router: &Router, id: u64, ttl_ms: i64) {
    let grant = v1::LeaseGrantRequest { id, ttl_ms, ..Default::default() };
    let granted = ask(router, Op::LeaseGrant(grant)).await;
    assert!(matches!(granted, OpResult::LeaseGrant(_)), "{granted:?}");
}

pub(crate) fn lock(name: &str, lease_id: u64, timeout_ms: i64) -> Op {
    Op::Lock(v1::LockRequest { name: name.into(), lease_id, timeout_ms, ..Default::default() })
}

pub(crate) fn unlock(name: &str, lease_id: u64) -> Op {
    Op::Unlock(v1::UnlockRequest { name: name.into(), lease_id, ..Default::default() })
}

pub(crate) fn acquired(result: &OpResult) -> bool {
    matches!(result, OpResult::Lock(response) if response.acquired)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_lease_holds_locks_in_every_group_by_any_node_and_a_session_too() {
    let cluster = cluster().await;
    for (lease, server) in (1..).zip(&cluster.servers) {
        grant(server.router(), lease, 600_000).await;
        for name in names() {
            let locked = ask(server.router(), lock(&name, lease, 0)).await;
            assert!(acquired(&locked), "{name}: {locked:?}");
            let released = ask(server.router(), unlock(&name, lease)).await;
            assert!(matches!(released, OpResult::Unlock(_)), "{released:?}");
        }
    }
    for server in 0..3 {
        let mut session = cluster.session(server).await;
        let lease = session.grant(false).await;
        for name in names() {
            let locked = session.ask(lock(&name, lease, 0)).await;
            assert!(acquired(&locked), "{name}: {locked:?}");
            // A lock that the lease holds already stays held, and the lease is renewed at home.
            let OpResult::Lock(again) = session.ask(lock(&name, lease, 0)).await else { panic!("no lock") };
            assert!(again.acquired && again.renewed, "{again:?}");
            assert!(matches!(session.ask(unlock(&name, lease)).await, OpResult::Unlock(_)));
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ends_frees_its_locks_in_every_group_and_the_next_in_line_has_them() {
    let cluster = cluster().await;
    let router = cluster.servers[0].router();
    grant(router, 1, 600_000).await;
    grant(router, 2, 600_000).await;
    for name in names() {
        assert!(acquired(&ask(router, lock(&name, 1, 0)).await));
    }
    let mut waiting = tokio::task::JoinSet::new();
    for (number, name) in names().into_iter().enumerate() {
        let router = cluster.servers[number % 3].router().clone();
        waiting.spawn(async move { ask(&router, lock(&name, 2, -1)).await });
    }
    ask(router, Op::LeaseRevoke(v1::LeaseRevokeRequest { id: 1 })).await;
    let all = tokio::time::timeout(PATIENCE, waiting.join_all()).await.expect("everyone is served");
    assert!(all.iter().all(acquired), "{all:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_lease_is_refused_in_every_group_and_leaves_nothing_behind() {
    let cluster = cluster().await;
    let router = cluster.servers[1].router();
    for name in names() {
        let refused = ask(router, lock(&name, 77, 1_000)).await;
        let OpResult::Error(error) = refused else { panic!("{refused:?}") };
        assert_eq!((error.reason(), error.may_have_happened), (v1::ErrorReason::LeaseNotFound, false));
    }
    let leases = v1::LeaseListRequest::default();
    let listed =
        tollgate_server::lists::leases(router, tollgate_server::lists::Asker::Client, leases).await.unwrap();
    assert!(listed.leases.is_empty(), "{listed:?}");
    cluster.stop().await;
}

pub(crate) fn lock_all(lease_id: u64, seq: u64, timeout_ms: i64) -> Op {
    let request = (seq > 0).then(|| v1::Request { seq, ..Default::default() });
    Op::Lock(v1::LockRequest { names: names(), lease_id, timeout_ms, request, ..Default::default() })
}

pub(crate) async fn is_free(router: &Router, name: &str) -> bool {
    let get = v1::GetLockRequest { name: name.into(), ..Default::default() };
    let OpResult::GetLock(seen) = ask(router, Op::GetLock(get)).await else { panic!("no answer") };
    seen.lock.is_none_or(|lock| lock.holder_count == 0 && lock.waiter_count == 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_names_over_groups_are_had_all_or_none_each_with_its_own_token() {
    let cluster = cluster().await;
    let router = cluster.servers[0].router();
    for lease in [1, 2] {
        grant(router, lease, 600_000).await;
    }
    let OpResult::Lock(got) = ask(router, lock_all(1, 1, 0)).await else { panic!("no lock") };
    let mut expected = names();
    expected.sort();
    assert!(got.acquired && got.tokens.iter().map(|it| &it.name).eq(&expected), "{got:?}");
    assert!(got.tokens.iter().all(|it| it.fencing_token > 0 && it.create_revision > 0), "{got:?}");
    // A repeat at another node returns the same grant.
    let OpResult::Lock(again) = ask(cluster.servers[1].router(), lock_all(1, 1, 0)).await else { panic!() };
    assert_eq!((again.acquired, &again.tokens), (true, &got.tokens));
    // One name of the last group is held by another lease: the request gets none, and leaves nothing behind.
    let unlock_all = v1::UnlockRequest { names: names(), lease_id: 1, ..Default::default() };
    let released = ask(router, Op::Unlock(unlock_all)).await;
    assert!(matches!(released, OpResult::Unlock(_)), "{released:?}");
    let last = names().pop().unwrap();
    assert!(acquired(&ask(router, lock(&last, 1, 0)).await));
    for seq in [0, 7] {
        let OpResult::Lock(refused) = ask(router, lock_all(2, seq, 0)).await else { panic!("no answer") };
        assert!(!refused.acquired && refused.holders[0].lease_id == 1, "{refused:?}");
        for name in names().into_iter().filter(|name| *name != last) {
            assert!(is_free(router, &name).await, "{name}, seq {seq}");
        }
    }
    cluster.stop().await;
}

/// Waits until a lock's queue has `count` waiters.
pub(crate) async fn until_queued(router: &Router, name: &str, count: u64) {
    let get = v1::GetLockRequest { name: name.into(), ..Default::default() };
    let queued = async {
        loop {
            let OpResult::GetLock(seen) = ask(router, Op::GetLock(get.clone())).await else { panic!() };
            if seen.lock.as_ref().is_some_and(|lock| lock.waiter_count == count) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, queued).await.expect("it waits");
}

/// The node that first carried the request is gone before it fails; the node that repeats it releases what the first
/// acquired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p8_a_repeat_over_groups_by_another_node_that_fails_leaves_nothing_behind() {
    let cluster = cluster().await;
    let router = cluster.servers[0].router().clone();
    grant(&router, 1, 600_000).await;
    let last = names().pop().unwrap();
    assert!(acquired(&ask(&router, lock(&last, 1, 0)).await));
    let mut session = cluster.session(1).await;
    let lease = session.grant(false).await;
    let first = tokio::spawn(async move { session.ask(lock_all(lease, 5, 2_000)).await });
    until_queued(&router, &last, 1).await;
    first.abort();
    let repeated = tokio::time::timeout(PATIENCE, ask(&router, lock_all(lease, 5, 2_000))).await;
    assert!(!acquired(&repeated.expect("the wait is over in time")));
    for name in names().into_iter().filter(|name| *name != last) {
        assert!(is_free(&router, &name).await, "{name}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p8_one_who_waits_for_names_over_groups_is_served_in_the_end_or_leaves_all_queues() {
    let cluster = cluster().await;
    let router = cluster.servers[0].router().clone();
    for lease in [1, 2, 3] {
        grant(&router, lease, 600_000).await;
    }
    let last = names().pop().unwrap();
    assert!(acquired(&ask(&router, lock(&last, 1, 0)).await));
    let waits = |lease, seq| {
        let router = cluster.servers[1].router().clone();
        tokio::spawn(async move { ask(&router, lock_all(lease, seq, -1)).await })
    };
    let in_time = async |count| until_queued(&router, &last, count).await;
    // One caller hangs up, one is cancelled by its seq, each in the last of the groups.
    let gone = waits(2, 0);
    in_time(1).await;
    gone.abort();
    in_time(0).await;
    let cancelled = waits(2, 9);
    in_time(1).await;
    let cancel = v1::CancelWaitRequest {
        lease_id: 2,
        seq: 9,
        names: names(),
        release_if_granted: true,
        ..Default::default()
    };
    let done = ask(&router, Op::CancelWait(cancel)).await;
    assert!(
        matches!(&done, OpResult::CancelWait(it) if it.outcome() == v1::CancelOutcome::Released),
        "{done:?}"
    );
    assert!(!acquired(&cancelled.await.unwrap()));
    // The locks that they had acquired are free again: the next request gets all of them.
    let served = waits(3, 1);
    in_time(1).await;
    ask(&router, unlock(&last, 1)).await;
    let served = tokio::time::timeout(PATIENCE, served).await.expect("it is served").unwrap();
    assert!(acquired(&served), "{served:?}");
    cluster.stop().await;
}

/// Two owners, each of which holds in one group what the other waits for in another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_over_groups_is_found_and_one_of_its_waits_ended() {
    let cluster = cluster().await;
    let router = cluster.servers[0].router().clone();
    for lease in [1, 2] {
        grant(&router, lease, 600_000).await;
    }
    let names = names();
    let lock = |name: &str, lease_id, timeout_ms| {
        let (name, owner) = (name.to_owned(), "worker".to_owned());
        Op::Lock(v1::LockRequest { name, owner, lease_id, timeout_ms, ..Default::default() })
    };
    assert!(acquired(&ask(&router, lock(&names[1], 1, 0)).await));
    assert!(acquired(&ask(&router, lock(&names[2], 2, 0)).await));
    let waits = |name: &str, lease| {
        let (router, op) = (router.clone(), lock(name, lease, -1));
        tokio::spawn(async move { ask(&router, op).await })
    };
    let (mut one, mut other) = (waits(&names[2], 1), waits(&names[1], 2));
    let refused = tokio::select! {
        refused = &mut one => refused.unwrap(),
        refused = &mut other => refused.unwrap(),
        () = tokio::time::sleep(PATIENCE) => panic!("nobody was ended"),
    };
    let OpResult::Error(error) = &refused else { panic!("{refused:?}") };
    assert_eq!((error.reason(), error.may_have_happened), (v1::ErrorReason::Deadlock, false), "{error:?}");
    // The other goes on waiting: only one of the two waits was ended.
    assert!(one.is_finished() != other.is_finished());
    // The node that found the deadlock reports it a moment after it was broken.
    let told = |server: &tollgate_server::Server| server.router().deadlocks(10).deadlocks;
    let found = || cluster.servers.iter().flat_map(told).any(|deadlock| deadlock.cycle.len() == 2);
    let known = async {
        while !found() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, known).await.expect("operators can look it up");
    cluster.stop().await;
}
