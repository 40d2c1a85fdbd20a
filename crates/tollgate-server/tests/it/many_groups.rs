//! Leases that hold locks in several groups, with three servers in this process.

use crate::sessions::{Cluster, PATIENCE};
use std::time::Duration;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_server::Router;
use tollgate_server::operation::group_of;
use tollgate_types::{Address, GroupId, Name};

const GROUPS: u32 = 4;

async fn cluster() -> Cluster {
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

/// A name in each group.
fn names() -> Vec<String> {
    let of = |group: u32| {
        let mut names = (0..).map(|number| format!("job-{number}"));
        names.find(|name| group_of(Name::new(name).unwrap().slot(), GROUPS) == GroupId::new(group)).unwrap()
    };
    (0..GROUPS).map(of).collect()
}

async fn ask(router: &Router, op: Op) -> OpResult {
    router.execute(op, &Address::NONE).await
}

async fn grant(router: &Router, id: u64, ttl_ms: i64) {
    let grant = v1::LeaseGrantRequest { id, ttl_ms, ..Default::default() };
    let granted = ask(router, Op::LeaseGrant(grant)).await;
    assert!(matches!(granted, OpResult::LeaseGrant(_)), "{granted:?}");
}

fn lock(name: &str, lease_id: u64, timeout_ms: i64) -> Op {
    Op::Lock(v1::LockRequest { name: name.into(), lease_id, timeout_ms, ..Default::default() })
}

fn unlock(name: &str, lease_id: u64) -> Op {
    Op::Unlock(v1::UnlockRequest { name: name.into(), lease_id, ..Default::default() })
}

fn acquired(result: &OpResult) -> bool {
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
            // What it holds already it holds, and its lease is renewed at home.
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
    let listed = tollgate_server::lists::leases(router, leases).await.unwrap();
    assert!(listed.leases.is_empty(), "{listed:?}");
    cluster.stop().await;
}
