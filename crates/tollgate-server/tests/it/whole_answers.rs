//! Answers about a lease, a lock or deadlocks are complete even if the data is in several groups or at several nodes;
//! otherwise they say what is missing.

use crate::many_groups::{GROUPS, acquired, ask, cluster, lock, names};
use crate::sessions::{Cluster, PATIENCE};
use std::collections::BTreeSet;
use std::time::Duration;
use tollgate_node::Consistency;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{self, missing::Who, operation::Op, operation_result::Result as OpResult};
use tollgate_server::Router;
use tollgate_types::{Address, GroupId, GroupMap, Name};

const TTL_MS: i64 = 600_000;

/// Returns three names in each group.
fn many_names() -> Vec<String> {
    let map = GroupMap::even(GROUPS).unwrap();
    let is_in = |name: &str, group| map.group_of(Name::new(name).unwrap().slot()) == GroupId::new(group);
    let all = |group| (0..).map(|number| format!("work-{number}")).filter(move |name| is_in(name, group));
    (0..GROUPS).flat_map(|group| all(group).take(3).collect::<Vec<_>>()).collect()
}

/// Grants a lease to a client at a known address; it holds each of these names, and another lease waits for each.
async fn hold_all(router: &Router, names: &[String]) -> Address {
    let from = Address::new("10.0.0.9:4000").unwrap();
    for id in [1, 2] {
        let grant = v1::LeaseGrantRequest { id, ttl_ms: TTL_MS, ..Default::default() };
        let granted = router.execute(Op::LeaseGrant(grant), &from).await;
        assert!(matches!(granted, OpResult::LeaseGrant(_)), "{granted:?}");
    }
    for name in names {
        assert!(acquired(&router.execute(lock(name, 1, 0), &from).await));
    }
    from
}

async fn time_to_live(router: &Router, keys: bool) -> v1::LeaseTimeToLiveResponse {
    let asked = v1::LeaseTimeToLiveRequest { id: 1, keys };
    match ask(router, Op::LeaseTimeToLive(asked)).await {
        OpResult::LeaseTimeToLive(told) => told,
        other => panic!("{other:?}"),
    }
}

fn assert_whole(lock: &v1::LockState, from: &Address) {
    let holder = &lock.holders[0];
    assert!((1..=TTL_MS).contains(&holder.remaining_ms) && holder.held_ms >= 0, "{lock:?}");
    assert_eq!(holder.address, from.to_string(), "{lock:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_lease_lives_in_another_group_is_told_of_whole_by_any_node() {
    let cluster = cluster().await;
    let names = many_names();
    let from = hold_all(cluster.servers[0].router(), &names).await;
    for (number, server) in cluster.servers.iter().enumerate() {
        let mut session = cluster.session(number).await;
        for name in &names {
            for consistency in [0, v1::Consistency::Stale.into()] {
                let get = || Op::GetLock(v1::GetLockRequest { name: name.clone(), consistency });
                for told in [ask(server.router(), get()).await, session.ask(get()).await] {
                    let OpResult::GetLock(told) = told else { panic!("{told:?}") };
                    // A stale answer may lack the grant.
                    let lock = told.lock.unwrap_or_default();
                    if consistency == 0 || !lock.holders.is_empty() {
                        assert_whole(&lock, &from);
                    }
                    assert_eq!(told.missing, []);
                }
            }
            let explain = v1::ExplainRequest { name: name.clone() };
            let told = tollgate_server::lists::explain(
                server.router(),
                tollgate_server::lists::Asker::Client,
                explain,
            )
            .await
            .unwrap();
            assert_whole(&told.lock.unwrap(), &from);
            assert!(told.lines[0].contains(" s unless its lease is renewed"), "{:?}", told.lines);
        }
        let list = v1::ListLocksRequest::default();
        let told =
            tollgate_server::lists::locks(server.router(), tollgate_server::lists::Asker::Client, list)
                .await
                .unwrap();
        assert_eq!((told.locks.len(), &told.missing), (names.len(), &vec![]));
        told.locks.iter().for_each(|lock| assert_whole(lock, &from));
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hangs_on_a_lease_is_listed_and_counted_in_all_groups_by_any_node() {
    let cluster = cluster().await;
    let names = many_names();
    hold_all(cluster.servers[0].router(), &names).await;
    let mut expected = names.clone();
    expected.sort();
    for (number, server) in cluster.servers.iter().enumerate() {
        let told = time_to_live(server.router(), true).await;
        let listed: Vec<&String> = told.keys.iter().map(|claim| &claim.name).collect();
        assert_eq!(listed, expected.iter().collect::<Vec<_>>(), "by node {number}");
        let lease = told.lease.unwrap();
        assert_eq!((lease.claims, lease.other_group_ids.len(), told.missing), (12, 3, vec![]));
        assert!(told.keys.iter().all(|claim| claim.fencing_token > 0));
        assert!((1..=TTL_MS).contains(&told.ttl_ms) && told.ttl == told.ttl_ms / 1_000);
        let counted = time_to_live(server.router(), false).await;
        assert_eq!((counted.keys, counted.lease.unwrap().claims), (vec![], 12));
        let mut session = cluster.session(number).await;
        let asked = v1::LeaseTimeToLiveRequest { id: 1, keys: true };
        let OpResult::LeaseTimeToLive(told) = session.ask(Op::LeaseTimeToLive(asked)).await else { panic!() };
        assert_eq!((told.keys.len(), told.lease.unwrap().claims), (12, 12));
        let list = v1::LeaseListRequest::default();
        let listed =
            tollgate_server::lists::leases(server.router(), tollgate_server::lists::Asker::Client, list)
                .await
                .unwrap();
        let claims: BTreeSet<(u64, u64)> =
            listed.leases.iter().map(|lease| (lease.id, lease.claims)).collect();
        assert_eq!((claims, listed.missing), (BTreeSet::from([(1, 12), (2, 0)]), vec![]));
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_can_not_be_asked_is_named_with_the_reason() {
    let cluster = cluster().await;
    let router = cluster.servers[0].router();
    hold_all(router, &names()).await;
    let mut lease = time_to_live(router, false).await.lease.unwrap();
    // As if the lease had a lock in a group that nobody serves.
    (lease.claims, lease.other_group_ids) = (1, vec![1, 77]);
    let mut leases = [lease];
    let missing = router.complete_leases(&mut leases, Consistency::Linearizable).await;
    let [v1::Missing { who: Some(Who::GroupId(77)), message }] = &missing[..] else { panic!("{missing:?}") };
    assert!(message.contains("group 77"), "{message}");
    assert_eq!(leases[0].claims, 2, "the other is counted");
    cluster.stop().await;
}

/// Each of two owners holds in one group what the other waits for in another group.
async fn deadlock(cluster: &Cluster) -> v1::Error {
    let router = cluster.servers[0].router().clone();
    for id in [1, 2] {
        let grant = v1::LeaseGrantRequest { id, ttl_ms: TTL_MS, ..Default::default() };
        ask(&router, Op::LeaseGrant(grant)).await;
    }
    let names = names();
    let lock = |name: &str, lease_id, timeout_ms| {
        let (name, owner) = (name.to_owned(), "worker".to_owned());
        Op::Lock(v1::LockRequest { name, owner, lease_id, timeout_ms, ..Default::default() })
    };
    assert!(acquired(&ask(&router, lock(&names[1], 1, 0)).await));
    assert!(acquired(&ask(&router, lock(&names[2], 2, 0)).await));
    let waits = |server: usize, op| {
        let router = cluster.servers[server].router().clone();
        async move { ask(&router, op).await }
    };
    let refused = tokio::select! {
        refused = waits(1, lock(&names[2], 1, -1)) => refused,
        refused = waits(2, lock(&names[1], 2, -1)) => refused,
        () = tokio::time::sleep(PATIENCE) => panic!("nobody was ended"),
    };
    match refused {
        OpResult::Error(error) => error,
        other => panic!("{other:?}"),
    }
}

async fn deadlocks(cluster: &Cluster, server: usize) -> v1::DeadlocksResponse {
    let mut admin = AdminServiceClient::new(cluster.channel(server).await);
    admin.deadlocks(v1::DeadlocksRequest::default()).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_refused_for_a_deadlock_over_groups_is_told_the_circle() {
    let cluster = cluster().await;
    let refused = Box::pin(deadlock(&cluster)).await;
    assert_eq!((refused.reason(), refused.may_have_happened), (v1::ErrorReason::Deadlock, false));
    let [one, other] = &refused.cycle[..] else { panic!("{refused:?}") };
    assert_eq!((one.lease_id, one.blocker_lease_id), (other.blocker_lease_id, other.lease_id));
    assert!(one.blocker_fencing_token > 0 && one.owner == "worker" && names().contains(&one.name));
    assert!(refused.message.contains(&format!("wants {}", one.name)), "{}", refused.message);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_tells_of_the_deadlocks_that_any_node_has_found_each_once() {
    let mut cluster = cluster().await;
    let refused = Box::pin(deadlock(&cluster)).await;
    let asked = async {
        for server in 0..3 {
            let mut told = deadlocks(&cluster, server).await;
            // The node that found the deadlock reports it a moment after it was broken.
            while told.found == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                told = deadlocks(&cluster, server).await;
            }
            let circles: Vec<_> = told.deadlocks.iter().map(|deadlock| &deadlock.cycle).collect();
            assert_eq!((told.found, circles), (1, vec![&refused.cycle]), "by node {server}");
            assert_eq!(told.missing, []);
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("it is known");
    cluster.servers.pop().unwrap().stop().await;
    let told = deadlocks(&cluster, 0).await;
    let [v1::Missing { who: Some(Who::NodeId(3)), message }] = &told.missing[..] else { panic!("{told:?}") };
    assert!(message.contains("can't be reached"), "{message}");
    cluster.stop().await;
}
