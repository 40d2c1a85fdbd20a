//! What operators and those who observe ask a node.

use crate::many_groups;
use crate::sessions::{Cluster, PATIENCE};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::election_service_client::ElectionServiceClient;
use tollgate_proto::v1::{self, ErrorReason};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_are_changed_at_once_are_all_changed() {
    let cluster = Cluster::start_with(&[false; 3], &[]).await;
    let channel = cluster.channel(cluster.leader().await).await;
    let names = ["locks_max", "leases_max", "registers_max", "txn_ops_max"];
    for round in 0..5 {
        let value = 200 + round;
        let changes = names.map(|name| {
            let mut admin = AdminServiceClient::new(channel.clone());
            let limits = vec![v1::Limit { name: name.to_owned(), value, ..Default::default() }];
            let request = v1::SetLimitsRequest { limits, ..Default::default() };
            tokio::spawn(async move { admin.set_limits(request).await.map(drop) })
        });
        for change in changes {
            change.await.unwrap().unwrap();
        }
        let mut admin = AdminServiceClient::new(channel.clone());
        let now = admin.get_limits(v1::GetLimitsRequest::default()).await.unwrap().into_inner().limits;
        let ours = now.iter().filter(|limit| names.contains(&limit.name.as_str()));
        assert!(ours.clone().all(|limit| limit.value == value), "{:?}", ours.collect::<Vec<_>>());
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_observes_where_there_is_nothing_to_see_is_told_why() {
    let cluster = Cluster::start_with(&[false, false, true], &[]).await;
    let mut elections = ElectionServiceClient::new(cluster.channel(2).await);
    let request = v1::ObserveRequest { name: "boss".into() };
    let mut leaders = elections.observe(request).await.unwrap().into_inner();
    let ended = tokio::time::timeout(PATIENCE, leaders.message()).await.unwrap();
    let status = ended.expect_err("a witness keeps no locks, and says so");
    assert_eq!(error_of_status(&status).unwrap().reason(), ErrorReason::NoSuchGroup, "{status:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_observes_is_told_at_first_that_nobody_leads() {
    let cluster = Cluster::start_with(&[false], &[]).await;
    let mut elections = ElectionServiceClient::new(cluster.channel(0).await);
    let request = v1::ObserveRequest { name: "boss".into() };
    let mut leaders = elections.observe(request).await.unwrap().into_inner();
    let first = tokio::time::timeout(PATIENCE, leaders.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(first.leader, None);
    cluster.stop().await;
}

fn limit(name: &str, value: u64) -> Vec<v1::Limit> {
    vec![v1::Limit { name: name.to_owned(), value, ..Default::default() }]
}

/// Has another node lead each group, as far as there are nodes.
async fn spread_leaders(cluster: &Cluster) {
    for group_id in 0..many_groups::GROUPS {
        let mut admin = AdminServiceClient::new(cluster.channel(0).await);
        let node_id = u64::from(group_id % 3) + 1;
        let request = v1::TransferRequest { group_id, node_id, passed_on: false };
        assert_eq!(admin.transfer(request).await.unwrap().into_inner().leader_id, node_id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_read_and_changed_in_all_groups_by_any_node_wherever_their_leaders_are() {
    let cluster = many_groups::cluster().await;
    spread_leaders(&cluster).await;
    let (name, all_groups) = ("waiters_per_lock_max", true);
    for (server, value) in (0..3).zip(700..) {
        let mut admin = AdminServiceClient::new(cluster.channel(server).await);
        let request = v1::SetLimitsRequest { limits: limit(name, value), ..Default::default() };
        let changed = admin.set_limits(request).await.unwrap().into_inner();
        assert!(changed.limits.iter().all(|limit| limit.by_group.is_empty()), "{changed:?}");
        for group_id in 0..many_groups::GROUPS {
            let request = v1::GetLimitsRequest { group_id, all_groups: false };
            let limits = admin.get_limits(request).await.unwrap().into_inner().limits;
            assert_eq!(limits.iter().find(|limit| limit.name == name).unwrap().value, value, "{group_id}");
        }
        // In one group only: the others stay, and a look at all says so.
        let request = v1::SetLimitsRequest { limits: limit(name, 9), group_ids: vec![2], passed_on: false };
        admin.set_limits(request).await.unwrap();
        let request = v1::GetLimitsRequest { group_id: 0, all_groups };
        let limits = admin.get_limits(request).await.unwrap().into_inner().limits;
        let differ: Vec<_> = limits.iter().filter(|limit| !limit.by_group.is_empty()).collect();
        let told: Vec<_> = differ[0].by_group.iter().map(|of| (of.group_id, of.value)).collect();
        assert_eq!((differ.len(), differ[0].name.as_str()), (1, name));
        assert_eq!(told, [(0, value), (1, value), (2, 9), (3, value)]);
        // What can't be is refused before any group has changed, with the names that there are.
        let unknown = v1::SetLimitsRequest { limits: limit("waiters_max", 1), ..Default::default() };
        let error = error_of_status(&admin.set_limits(unknown).await.unwrap_err()).unwrap();
        assert_eq!((error.reason(), error.field.as_str()), (ErrorReason::BadField, "limits"));
        assert!(error.message.contains(name) && !error.may_have_happened, "{error:?}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_handed_on_by_any_node_and_what_can_not_be_is_refused_at_once() {
    let cluster = Cluster::start_with(&[false, false, false, true], &[]).await;
    let mut led = BTreeSet::new();
    for server in 0..3 {
        let mut admin = AdminServiceClient::new(cluster.channel(server).await);
        // Nodes 1 to 3 are full, 4 is a witness.
        for node_id in [1, 2, 3] {
            let request = v1::TransferRequest { group_id: 0, node_id, passed_on: false };
            led.insert(admin.transfer(request).await.unwrap().into_inner().leader_id);
        }
        let began = Instant::now();
        let refuse = async |admin: &mut AdminServiceClient<_>, node_id| {
            let request = v1::TransferRequest { group_id: 0, node_id, passed_on: false };
            error_of_status(&admin.transfer(request).await.unwrap_err()).unwrap()
        };
        let stranger = refuse(&mut admin, 77).await;
        assert_eq!(stranger.reason(), ErrorReason::MemberRefused);
        assert!(stranger.message.contains("these nodes: 1, 2, 3, 4"), "{stranger:?}");
        let witness = refuse(&mut admin, 4).await;
        assert!(witness.message.contains("keeps no locks"), "{witness:?}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    assert_eq!(led, [1, 2, 3].into());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_answers_by_the_names_that_it_was_given_and_by_no_other() {
    let cluster = Cluster::start_with(&[false], &[("node.hosts", "Locks.example")]).await;
    let address = cluster.servers[0].addresses().http;
    let status = async |host: &str, path: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    for (host, path, expected) in [
        ("locks.example", "/v1/locks", "200"),
        ("LOCKS.example:7402", "/v1/locks", "200"),
        ("evil.example", "/v1/locks", "403"),
        ("evil.example", "/openapi.json", "403"),
        ("evil.example", "/livez", "200"),
        ("evil.example", "/metrics", "200"),
    ] {
        assert_eq!(status(host, path).await, expected, "{host}{path}");
    }
    cluster.stop().await;
}
