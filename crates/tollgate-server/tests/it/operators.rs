//! Requests of operators and of monitoring to a node.

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
use tollgate_types::GroupId;

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
async fn one_who_observes_an_election_that_nobody_leads_is_told_so_first() {
    let cluster = Cluster::start_with(&[false; 3], &[]).await;
    for server in 0..3 {
        let mut elections = ElectionServiceClient::new(cluster.channel(server).await);
        let request = v1::ObserveRequest { name: format!("vacant/{server}") };
        let mut leaders = elections.observe(request).await.unwrap().into_inner();
        let first = tokio::time::timeout(PATIENCE, leaders.message()).await.unwrap().unwrap().unwrap();
        assert_eq!(first.leader, None);
        assert!(first.header.is_some());
    }
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
        // A change in one group only: the other groups keep their limits, and a look at all groups shows the
        // difference.
        let request = v1::SetLimitsRequest { limits: limit(name, 9), group_ids: vec![2], passed_on: false };
        admin.set_limits(request).await.unwrap();
        let request = v1::GetLimitsRequest { group_id: 0, all_groups };
        let limits = admin.get_limits(request).await.unwrap().into_inner().limits;
        let differ: Vec<_> = limits.iter().filter(|limit| !limit.by_group.is_empty()).collect();
        let told: Vec<_> = differ[0].by_group.iter().map(|of| (of.group_id, of.value)).collect();
        assert_eq!((differ.len(), differ[0].name.as_str()), (1, name));
        assert_eq!(told, [(0, value), (1, value), (2, 9), (3, value)]);
        // An impossible change is refused before any group has changed, with the names of the limits.
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

/// Waits until every server knows the same leader of group 0, and returns the leader's index.
async fn leader_known_to_all(cluster: &Cluster) -> usize {
    let began = Instant::now();
    loop {
        let known =
            cluster.servers.iter().map(|server| server.router().status().borrow().leader(GroupId::new(0)));
        let known: BTreeSet<_> = known.collect();
        if let (1, Some(Some(leader))) = (known.len(), known.first()) {
            let leader = usize::try_from(leader.number() - 1).unwrap();
            if cluster.servers[leader].router().serves(GroupId::new(0)) {
                return leader;
            }
        }
        assert!(began.elapsed() < PATIENCE, "no leader that all know: {known:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_handed_on_to_nobody_in_particular_is_told_as_done_by_every_node() {
    let cluster = Cluster::start_with(&[false; 3], &[]).await;
    for round in 0..6 {
        for asked in 0..3 {
            let before = leader_known_to_all(&cluster).await;
            let mut admin = AdminServiceClient::new(cluster.channel(asked).await);
            let request = v1::TransferRequest { group_id: 0, node_id: 0, passed_on: false };
            let handed = admin.transfer(request).await;
            let handed = handed.unwrap_or_else(|status| panic!("round {round}, node {asked}: {status:?}"));
            assert_ne!(handed.into_inner().leader_id, before as u64 + 1, "round {round}, node {asked}");
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_read_and_changed_by_a_witness_too() {
    let cluster = Cluster::start_with(&[false, false, true], &[]).await;
    let mut admin = AdminServiceClient::new(cluster.channel(2).await);
    let request = v1::SetLimitsRequest { limits: limit("locks_max", 321), ..Default::default() };
    admin.set_limits(request).await.unwrap();
    for all_groups in [false, true] {
        let request = v1::GetLimitsRequest { group_id: 0, all_groups };
        let limits = admin.get_limits(request).await.unwrap().into_inner().limits;
        assert_eq!(limits.iter().find(|limit| limit.name == "locks_max").unwrap().value, 321);
    }
    cluster.stop().await;
}

/// Returns the status and the body of an answer over HTTP.
async fn http(cluster: &Cluster, server: usize, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(cluster.servers[server].addresses().http).await.unwrap();
    let rest = format!("Host: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head} HTTP/1.1\r\n{rest}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_witness_is_not_ready_for_clients_and_none_takes_its_refusal_for_the_end_of_a_lease() {
    let cluster = Cluster::start_with(&[false, false, true], &[]).await;
    for path in ["/readyz", "/readyz?verbose"] {
        let (status, body) = http(&cluster, 2, &format!("GET {path}"), "").await;
        assert_eq!(status, 503, "{path}: {body}");
        assert!(body.contains("a witness serves no clients"), "{body}");
    }
    let (status, body) = http(&cluster, 2, "POST /v1/lease/keep-alive", r#"{"id": "7"}"#).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("NO_SUCH_GROUP"), "{body}");
    let (status, body) = http(&cluster, 2, "GET /v1/locks", "").await;
    assert!(status == 503 && body.contains("leader_address"), "a list names a full member: {status} {body}");
    // Readiness of the node as a member.
    let (status, body) = http(&cluster, 2, "GET /readyz?member", "").await;
    assert_eq!(status, 200, "{body}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_of_what_was_refused_for_a_number_has_the_status_that_it_had() {
    let cluster = Cluster::start_with(&[false], &[]).await;
    let mut admin = AdminServiceClient::new(cluster.channel(0).await);
    let request = v1::SetLimitsRequest { limits: limit("waiters_per_lock_max", 0), ..Default::default() };
    admin.set_limits(request).await.unwrap();
    for lease in ["7", "8"] {
        let grant = format!(r#"{{"id": "{lease}", "ttl": 60, "client_id": "{lease}"}}"#);
        assert_eq!(http(&cluster, 0, "POST /v1/lease/grant", &grant).await.0, 200);
    }
    let lock = |lease: &str| {
        let request = r#""request": {"seq": "1"}"#;
        format!(r#"{{"name": "jobs", "lease_id": "{lease}", "timeout_ms": 5000, {request}}}"#)
    };
    assert_eq!(http(&cluster, 0, "POST /v1/lock", &lock("7")).await.0, 200);
    let (first, told) = http(&cluster, 0, "POST /v1/lock", &lock("8")).await;
    assert_eq!(first, 429, "{told}");
    let (repeat, told) = http(&cluster, 0, "POST /v1/lock", &lock("8")).await;
    assert!(told.contains("REJECTED_BEFORE"), "{told}");
    assert_eq!(repeat, first, "{told}");
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
