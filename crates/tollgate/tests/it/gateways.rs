//! Gateways: processes without a node, which hide the cluster from their clients. Clients here know of gateways only.

use crate::client::history::Work;
use crate::cluster::{self, BINARY, Cluster, Making, Node, PATIENCE, until};
use crate::load::{Load, Weight};
use crate::observing::in_one_frame;
use crate::waits::jobs;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio_stream::StreamExt;
use tollgate_client::{Change, Client, Watch, WatchItem};
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::operation_result::Result as OpResult;
use tollgate_proto::v1::session_service_client::SessionServiceClient;
use tollgate_proto::v1::{
    GroupsRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseTimeToLiveRequest, LockRequest, Operation,
    Request, SessionRequest, TransferRequest, UnlockRequest, WatchRequest, WatchResponse, operation::Op,
    watch_request::Target,
};
use tonic::{Code, Streaming};

/// Starts three nodes, and two gateways that know one node each.
async fn two_gateways() -> Cluster {
    let mut cluster = cluster::three().await;
    for node in [0, 1] {
        cluster.add_gateway(node, &["--cluster-name", "it"]).await;
    }
    cluster
}

async fn connect(cluster: &Cluster) -> Client {
    Client::connect(cluster.gateway_endpoints()).await.unwrap()
}

/// Runs the command line against the gateways.
fn call(cluster: &Cluster, arguments: &[&str]) -> (Option<i32>, Value) {
    let mut command = Command::new(BINARY);
    command.env("TOLLGATE_ENDPOINTS", cluster.gateway_endpoints().join(",")).args(arguments);
    let output = command.args(["-o", "json"]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), serde_json::from_str(&text).unwrap_or(json!(text)))
}

async fn grant(node: &Node, id: u64) {
    let lease = LeaseGrantRequest { id, ttl_ms: 600_000, ..LeaseGrantRequest::default() };
    node.locks().lease_grant(lease).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_a_node_serves_a_gateway_serves_and_no_client_learns_of_a_node() {
    let cluster = two_gateways().await;
    let client = connect(&cluster).await;
    locks_are_taken_awaited_and_listed(&cluster, &client).await;
    changes_are_followed(&client).await;
    elections_are_held_and_observed(&client).await;
    operators_see_the_cluster(&cluster).await;
    json_is_spoken(&cluster.gateways[1]).await;
    let mut known = client.endpoints();
    known.sort();
    let mut given = cluster.gateway_endpoints();
    given.sort();
    assert_eq!(known, given, "no node is known");
}

async fn locks_are_taken_awaited_and_listed(cluster: &Cluster, client: &Client) {
    let session = client.session().ttl(Duration::from_secs(10)).open().await.unwrap();
    let guard = session.lock("jobs/held").why("to be seen").acquire().await.unwrap();
    let waiting = tokio::spawn(session.lock("jobs/held").acquire());
    until("somebody waits", || async { client.get_lock("jobs/held").await.unwrap().waiter_count == 1 }).await;
    let (code, locks) = call(cluster, &["ls", "jobs/"]);
    assert_eq!((code, &locks[0]["name"]), (Some(0), &json!("jobs/held")), "{locks}");
    let (code, why) = call(cluster, &["explain", "jobs/held"]);
    assert!(code == Some(0) && why.to_string().contains("to be seen"), "{why}");
    let (code, leases) = call(cluster, &["lease", "ls"]);
    assert!(code == Some(0) && leases.as_array().is_some_and(|leases| !leases.is_empty()), "{leases}");
    let token = guard.token().unwrap();
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token().unwrap() > token);
    next.release().await.unwrap();
    session.close().await.unwrap();
}

async fn changes_are_followed(client: &Client) {
    let mut watch = client.watch().registers().prefix("w/").open().await.unwrap();
    for number in 0..3 {
        client.registers().put(format!("w/{number}"), "x").await.unwrap();
    }
    assert_eq!(keys(&mut watch, 3).await, ["w/0", "w/1", "w/2"]);
}

/// Returns the keys of the next registers that are put.
async fn keys(watch: &mut Watch, count: usize) -> Vec<String> {
    let mut keys = Vec::new();
    while keys.len() < count {
        let item = tokio::time::timeout(PATIENCE, watch.next()).await.expect("no event came");
        let WatchItem::Event(event) = item.unwrap().unwrap() else { panic!("compacted") };
        let Change::Register { register, .. } = event.change else { panic!("{event:?}") };
        keys.push(String::from_utf8(register.key).unwrap());
    }
    keys
}

async fn elections_are_held_and_observed(client: &Client) {
    let session = client.session().open().await.unwrap();
    let mut leaders = client.election("boss").observe();
    let leadership = session.campaign("boss").value("node-1").stand().await.unwrap();
    let token = leadership.token().unwrap();
    loop {
        let told = tokio::time::timeout(PATIENCE, leaders.next()).await.expect("the leader is told");
        if told.unwrap().unwrap().is_some_and(|leader| leader.token == token) {
            break;
        }
    }
    leadership.resign().await.unwrap();
    session.close().await.unwrap();
}

async fn operators_see_the_cluster(cluster: &Cluster) {
    let (code, status) = call(cluster, &["status"]);
    assert_eq!((code, &status["healthy"]), (Some(0), &json!(true)), "{status}");
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3, "{status}");
    let (code, members) = call(cluster, &["member", "ls"]);
    assert_eq!((code, members.as_array().map(Vec::len)), (Some(0), Some(3)), "{members}");
    let mut admin = AdminServiceClient::new(cluster.gateways[0].channel(PATIENCE));
    let groups = admin.groups(GroupsRequest::default()).await.unwrap().into_inner();
    assert!(groups.via_gateway && groups.groups[0].raft_term > 0, "{groups:?}");
    let next = (cluster.leader().await + 1) % 3;
    let transfer = TransferRequest { group_id: 0, node_id: next as u64 + 1, passed_on: false };
    assert_eq!(admin.transfer(transfer).await.unwrap().into_inner().leader_id, next as u64 + 1);
    // The gateways follow the change of leader.
    grant(&cluster.gateways[1], 71).await;
}

/// Each group has another leader, and only a leader knows the progress of the other members.
#[tokio::test(flavor = "multi_thread")]
async fn operators_see_how_far_members_are_without_dialling_a_node() {
    let flags = ["--cluster-groups", "3", "--raft-balance-ms", "0"];
    let mut cluster = Cluster::start(Making::nodes(3).flags(&flags)).await;
    cluster.add_gateway(0, &["--cluster-name", "it"]).await;
    let admin = AdminServiceClient::new(cluster.gateways[0].channel(PATIENCE));
    for group_id in 0..3 {
        let request = TransferRequest { group_id, node_id: u64::from(group_id) + 1, passed_on: false };
        until("each node leads one group", || async { admin.clone().transfer(request).await.is_ok() }).await;
    }
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=connect", "-o"]).arg(cluster.dir.path().join("trace"));
    command.args([BINARY, "member", "ls", "-o", "json"]);
    command.env("TOLLGATE_ENDPOINTS", cluster.gateway_endpoints().join(",")).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let members: Value = serde_json::from_slice(&output.stdout).unwrap();
    for member in members.as_array().unwrap() {
        // A member's progress is known from the leaders of all groups but those that it leads.
        let led = member["groups_led"].as_u64().unwrap();
        let told = member["progress"].as_array().unwrap().len() as u64;
        assert_eq!(told + led, 3, "{member}");
    }
    let dialled = std::fs::read_to_string(cluster.dir.path().join("trace")).unwrap();
    let port = |node: &Node| format!("htons({})", node.ports.client);
    assert!(dialled.contains(&port(&cluster.gateways[0])), "{dialled}");
    for node in &cluster.nodes {
        assert!(!dialled.contains(&port(node)), "a node was dialled: {dialled}");
    }
}

async fn json_is_spoken(gateway: &Node) {
    let (status, body) = gateway.http("POST", "/v1/lease/grant", r#"{"id": "70", "ttl": 60}"#).await.unwrap();
    assert_eq!(status, 200, "{body}");
    let lock = r#"{"name": "json/a", "lease_id": "70"}"#;
    let (status, body) = gateway.http("POST", "/v1/lock", lock).await.unwrap();
    assert!(status == 200 && body.contains(r#""acquired":true"#), "{body}");
    let (status, body) = gateway.http("GET", "/v1/locks?prefix=json/", "").await.unwrap();
    assert!(status == 200 && body.contains("json/a"), "{body}");
    assert_eq!(gateway.http("GET", "/v1/status", "").await.unwrap().0, 200);
    assert_eq!(gateway.http("GET", "/readyz?verbose", "").await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn p10_a_request_repeated_through_any_gateway_has_one_effect_and_one_answer() {
    let cluster = two_gateways().await;
    grant(&cluster.gateways[0], 7).await;
    let numbered = |seq, attempt| Some(Request { seq, attempt, ..Request::default() });
    let unlock = |attempt| UnlockRequest {
        name: "jobs".into(),
        lease_id: 7,
        request: numbered(2, attempt),
        ..UnlockRequest::default()
    };
    let lock = |attempt| LockRequest { request: numbered(1, attempt), ..jobs(7, 0) };
    let [mut one, mut other] = [0, 1].map(|gateway| cluster.gateways[gateway].locks());
    let first = one.lock(lock(0)).await.unwrap().into_inner();
    assert!(first.acquired);
    assert_eq!(other.lock(lock(1)).await.unwrap().into_inner().fencing_token, first.fencing_token);
    let released = one.unlock(unlock(0)).await.unwrap().into_inner();
    let again = other.unlock(unlock(1)).await.unwrap().into_inner();
    assert_eq!(released.revision, again.revision);
    // The lock is not acquired a second time: the answer is that the grant has ended.
    let again = other.lock(lock(2)).await.unwrap().into_inner();
    assert_eq!((again.acquired, again.fencing_token), (false, first.fencing_token));
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_a_gateway_costs_no_caller_an_error_and_breaks_no_promise() {
    let mut cluster = two_gateways().await;
    let work = Work::start(&cluster.gateway_endpoints()).await;
    for gateway in [0, 1, 0] {
        work.progress(80).await;
        cluster.gateways[gateway].kill();
        work.progress(80).await;
        cluster.gateways[gateway].start(&[]);
        until("the gateway is back", || cluster.gateways[gateway].is_ready()).await;
    }
    let grants = work.finish(&cluster).await;
    println!("3 gateways killed, {grants} grants, no error");
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_gateways_and_leaders_under_load_breaks_no_promise() {
    let mut cluster = two_gateways().await;
    let load = Load::start_at(cluster.gateway_endpoints(), &Weight::usual());
    load.progress(80).await;
    cluster.gateways[0].kill();
    load.progress(80).await;
    let leader = cluster.leader().await;
    cluster.nodes[leader].kill();
    load.progress(80).await;
    cluster.gateways[0].start(&[]);
    cluster.restart(leader);
    cluster.until_ready().await;
    // A paused node keeps its connections for a while.
    let leader = cluster.leader().await;
    cluster.nodes[leader].signal("STOP");
    load.progress(80).await;
    cluster.nodes[leader].signal("CONT");
    load.progress(80).await;
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_told_to_stop_hands_its_clients_on_and_ends_no_lease() {
    let mut cluster = two_gateways().await;
    let work = Work::start(&cluster.gateway_endpoints()).await;
    // Connected to the first gateway alone, until it goes away.
    let client = Client::connect([cluster.gateways[0].endpoint()]).await.unwrap();
    let bound = client.session().ttl(Duration::from_mins(1)).revoke_on_disconnect(true).open().await.unwrap();
    let guard = bound.lock("bound").acquire().await.unwrap();
    let mut watch = connect(&cluster).await.watch().registers().prefix("w/").open().await.unwrap();
    work.progress(80).await;
    cluster.gateways[0].signal("TERM");
    let status = cluster.gateways[0].until_exited().await;
    assert_eq!(status.code(), Some(0), "{}", cluster.gateways[0].log());
    assert!(
        !cluster.gateways[0].log().contains("were not finished in time"),
        "{}",
        cluster.gateways[0].log()
    );
    work.progress(80).await;
    let other = Client::connect([cluster.gateways[1].endpoint()]).await.unwrap();
    assert_eq!(other.get_lock("bound").await.unwrap().holder_count, 1, "its client lives");
    other.registers().put("w/0", "x").await.unwrap();
    assert_eq!(keys(&mut watch, 1).await, ["w/0"], "a watch goes on elsewhere");
    cluster.gateways[0].start(&[]);
    guard.release().await.unwrap();
    bound.close().await.unwrap();
    work.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ends_with_its_client_s_connection_ends_when_a_gateway_loses_it() {
    let cluster = two_gateways().await;
    let gateway = &cluster.gateways[0];
    let bound =
        |id| LeaseGrantRequest { id, ttl_ms: 600_000, revoke_on_disconnect: true, ..Default::default() };
    let lives = async |id| {
        let asked = LeaseTimeToLiveRequest { id, keys: false };
        cluster.gateways[1].locks().lease_time_to_live(asked).await.is_ok()
    };
    // Lease 1 is granted by a session that then ends; lease 2 is renewed by one.
    in_one_frame(gateway, vec![Op::LeaseGrant(bound(1))]).await;
    until("the lease ends", || async { !lives(1).await }).await;
    gateway.locks().lease_grant(bound(2)).await.unwrap();
    grant(gateway, 3).await;
    let keepalive = |id| Op::LeaseKeepAlive(LeaseKeepAliveRequest { id, ..LeaseKeepAliveRequest::default() });
    in_one_frame(gateway, vec![keepalive(2), keepalive(3)]).await;
    until("the lease ends", || async { !lives(2).await }).await;
    assert!(lives(3).await, "it does not end with a connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_hangs_up_at_a_gateway_leaves_the_queue() {
    let cluster = two_gateways().await;
    let gateway = &cluster.gateways[0];
    for id in [1, 2] {
        grant(gateway, id).await;
    }
    assert!(gateway.locks().lock(jobs(1, 0)).await.unwrap().into_inner().acquired);
    let mut service = gateway.locks();
    let waiting = tokio::spawn(async move { service.lock(jobs(2, -1)).await });
    crate::waits::until_waiting(&cluster, 0, 1).await;
    waiting.abort();
    crate::waits::until_waiting(&cluster, 0, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_in_line_behind_a_gateway_is_told_its_place() {
    let cluster = two_gateways().await;
    let gateway = &cluster.gateways[0];
    for id in [1, 2] {
        grant(gateway, id).await;
    }
    assert!(gateway.locks().lock(jobs(1, 0)).await.unwrap().into_inner().acquired);
    let wait = Operation { id: 7, op: Some(Op::Lock(jobs(2, -1))), ..Operation::default() };
    let frame = SessionRequest { operations: vec![wait], ..SessionRequest::default() };
    // Its client sends no more requests, and still waits for an answer.
    let frames = tokio_stream::iter([frame]).chain(tokio_stream::pending());
    let session = SessionServiceClient::new(gateway.channel(PATIENCE)).session(frames).await;
    let mut answers = session.unwrap().into_inner();
    let queued = loop {
        let frame = tokio::time::timeout(PATIENCE, answers.message()).await.expect("nothing was told");
        if let Some(told) = frame.unwrap().unwrap().results.pop() {
            break told;
        }
    };
    let expected =
        |result: &Option<OpResult>| matches!(result, Some(OpResult::Queued(it)) if it.position == 1);
    assert!(queued.id == 7 && expected(&queued.result), "{queued:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_a_watch_through_a_gateway_outlives_each_node_and_misses_nothing() {
    let mut cluster = two_gateways().await;
    let client = connect(&cluster).await;
    // Locks of a session can be requested again without harm when a leader goes away.
    let session = client.session().open().await.unwrap();
    let mut watch = client.watch().locks().prefix("w/").open().await.unwrap();
    for node in 0..3 {
        let names: Vec<String> = (0..3).map(|number| format!("w/{node}/{number}")).collect();
        session.lock(&names[0]).acquire().await.unwrap().release().await.unwrap();
        cluster.nodes[node].kill();
        for name in &names[1..] {
            session.lock(name).acquire().await.unwrap().release().await.unwrap();
        }
        assert_eq!(granted(&mut watch, 3).await, names);
        cluster.restart(node);
        cluster.until_ready().await;
    }
}

/// Returns the names of the next locks that are granted.
async fn granted(watch: &mut Watch, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    while names.len() < count {
        let item = tokio::time::timeout(PATIENCE, watch.next()).await.expect("no event came");
        let WatchItem::Event(event) = item.unwrap().unwrap() else { panic!("compacted") };
        if let Change::Claim { claim, .. } = &event.change
            && event.change.granted().is_some()
        {
            names.push(claim.name.clone());
        }
    }
    names
}

/// Opens watch streams through a gateway, which has them served by each node in turn. They start from a revision,
/// because watches from now on can't start while a majority is gone.
async fn streams(gateway: &Node, count: usize) -> Vec<Streaming<WatchResponse>> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let request = WatchRequest { start_revision: 1, ..WatchRequest::default() };
        let requests = tokio_stream::once(request).chain(tokio_stream::pending());
        let mut stream = gateway.locks().watch(requests).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().unwrap().created);
        streams.push(stream);
    }
    streams
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_while_a_majority_is_gone_a_gateway_is_not_ready_and_ends_no_stream_of_who_is_left() {
    let mut cluster = cluster::three().await;
    cluster.add_gateway(0, &[]).await;
    let leader = cluster.leader().await;
    let before = streams(&cluster.gateways[0], 3).await;
    for node in [leader, (leader + 1) % 3] {
        cluster.nodes[node].kill();
    }
    let gateway = &cluster.gateways[0];
    until("it is not ready", || async { !gateway.is_ready().await }).await;
    let since = streams(gateway, 3).await;
    // A node that is out of touch with the others keeps its streams for ten seconds.
    let ends = before.into_iter().chain(since).map(|mut stream| {
        tokio::spawn(tokio::time::timeout(Duration::from_secs(12), async move { stream.message().await }))
    });
    let left = format!("node {},", cluster.nodes[(leader + 2) % 3].id);
    for (number, end) in ends.collect::<Vec<_>>().into_iter().enumerate() {
        if let Ok(ended) = end.await.unwrap() {
            let why = ended.unwrap_err();
            assert!(number < 3 && !why.message().contains(&left), "stream {number} ended: {why}");
        }
    }
    cluster.restart(leader);
    let gateway = &cluster.gateways[0];
    until("it is ready", || gateway.is_ready()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_nodes_a_gateway_is_not_ready_and_says_what_it_tried() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    cluster.add_gateway(0, &[]).await;
    let gateway = &cluster.gateways[0];
    grant(gateway, 1).await;
    let node = cluster.nodes[0].ports.client.to_string();
    cluster.nodes[0].kill();
    let gateway = &cluster.gateways[0];
    until("it is not ready", || async { !gateway.is_ready().await }).await;
    assert_eq!(gateway.http("GET", "/livez", "").await.unwrap().0, 200);
    let keepalive = tokio_stream::once(LeaseKeepAliveRequest { id: 1, ..LeaseKeepAliveRequest::default() });
    let mut kept = gateway.locks().lease_keep_alive(keepalive).await.unwrap().into_inner();
    let error = kept.message().await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert!(error.message().contains(&node), "{error}");
    let error =
        gateway.locks().list_locks(tollgate_proto::v1::ListLocksRequest::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    // The gateway finds the node again by itself.
    cluster.restart(0);
    let gateway = &cluster.gateways[0];
    until("it is ready", || gateway.is_ready()).await;
    grant(gateway, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_serves_no_other_cluster_than_the_one_that_it_was_told() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    let mut gateway = cluster.prepare_gateway(&[0], &["--cluster-name", "another"]);
    gateway.start(&[]);
    until("it has looked", || async {
        gateway.log().contains("a node's answer is not taken") || gateway.is_ready().await
    })
    .await;
    assert!(!gateway.is_ready().await && gateway.runs(), "{}", gateway.log());
    assert!(gateway.log().contains("it is of cluster"), "{}", gateway.log());
    let keepalive = tokio_stream::once(LeaseKeepAliveRequest { id: 1, ..LeaseKeepAliveRequest::default() });
    let mut kept = gateway.locks().lease_keep_alive(keepalive).await.unwrap().into_inner();
    assert_eq!(kept.message().await.unwrap_err().code(), Code::Unavailable);
    cluster.gateways.push(gateway);
}

#[tokio::test(flavor = "multi_thread")]
async fn p16_locks_are_shed_where_too_much_is_under_way_and_keepalives_are_not() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    cluster.add_gateway(0, &["--server-operations-admitted-max", "2"]).await;
    let gateway = &cluster.gateways[0];
    for id in 1..=4 {
        grant(gateway, id).await;
    }
    // Waiting requests do not count.
    assert!(gateway.locks().lock(jobs(1, 0)).await.unwrap().into_inner().acquired);
    let mut waiters = Vec::new();
    for lease in 2..=4 {
        let mut service = gateway.locks();
        waiters.push(tokio::spawn(async move { service.lock(jobs(lease, -1)).await }));
        crate::waits::until_waiting(&cluster, 0, lease - 1).await;
    }
    // A paused node answers nothing: two requests are under way, and no more are let in.
    cluster.nodes[0].signal("STOP");
    let other =
        |lease_id| LockRequest { name: format!("other/{lease_id}"), lease_id, ..LockRequest::default() };
    let under_way: Vec<_> = (1..=2)
        .map(|lease| {
            // Both get in, though the request that has to be shed may be faster at first.
            let mut service = gateway.locks();
            tokio::spawn(async move {
                loop {
                    match service.lock(other(lease)).await {
                        Err(error) if error.code() == Code::ResourceExhausted => {
                            tokio::task::yield_now().await;
                        }
                        done => return done,
                    }
                }
            })
        })
        .collect();
    let shed = tokio::time::timeout(PATIENCE, async {
        loop {
            let asked =
                tokio::time::timeout(Duration::from_millis(200), gateway.locks().try_lock(other(3))).await;
            if let Ok(Err(error)) = asked {
                return error;
            }
        }
    });
    let error = shed.await.expect("a lock is shed");
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    let began = Instant::now();
    let keepalive = tokio_stream::once(LeaseKeepAliveRequest { id: 1, ..LeaseKeepAliveRequest::default() });
    let mut kept = gateway.locks().lease_keep_alive(keepalive).await.unwrap().into_inner();
    let kept = tokio::spawn(async move { kept.message().await });
    cluster.nodes[0].signal("CONT");
    let kept = tokio::time::timeout(PATIENCE, kept).await.unwrap().unwrap();
    assert!(kept.is_ok_and(|kept| kept.is_some_and(|kept| kept.ttl_ms > 0)), "after {:?}", began.elapsed());
    for lock in under_way {
        assert!(tokio::time::timeout(PATIENCE, lock).await.unwrap().unwrap().unwrap().into_inner().acquired);
    }
    let (_, metrics) = gateway.http("GET", "/metrics", "").await.unwrap();
    let shed =
        metrics.lines().find(|line| line.starts_with("tollgate_shed_operations_total{kind=\"try_lock\"}"));
    assert!(shed.is_some_and(|line| !line.ends_with(" 0")), "{shed:?}");
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn a_gateway_without_nodes_or_beyond_loopback_is_refused_with_what_to_write() {
    for (arguments, names) in [
        (&["gateway"][..], "--gateway-nodes"),
        (&["gateway", "--nodes", "localhost"], "it has no port"),
        (&["gateway", "--nodes", "a:1", "--listen", "0.0.0.0:7400"], "listen.insecure"),
    ] {
        let output = Command::new(BINARY).args(arguments).output().unwrap();
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(78), "{arguments:?}: {says}");
        assert!(says.contains(names), "{arguments:?}: {says}");
    }
}

/// Tools and many generated clients close their sending side after the request.
#[tokio::test(flavor = "multi_thread")]
async fn p11_behind_a_gateway_a_watch_is_told_on_though_its_client_has_closed_its_side() {
    let mut cluster = two_gateways().await;
    let gateway = &cluster.gateways[0];
    grant(gateway, 7).await;
    let target = Some(Target::LeaseId(7));
    let request = WatchRequest { target, watch_id: 1, ..WatchRequest::default() };
    let mut locks = gateway.locks();
    let mut answers = locks.watch(tokio_stream::once(request.clone())).await.unwrap().into_inner();
    let next = async |answers: &mut Streaming<WatchResponse>| {
        tokio::time::timeout(PATIENCE, answers.next()).await.expect("nothing came")
    };
    assert!(next(&mut answers).await.expect("the watch is open").unwrap().created);
    assert!(locks.lock(jobs(7, 0)).await.unwrap().into_inner().acquired);
    assert_eq!(next(&mut answers).await.expect("the watch is open").unwrap().events.len(), 1);
    // Without a watch, the stream ends without an error.
    let refused = WatchRequest { cursor: "nonsense".into(), ..request };
    let mut none = locks.watch(tokio_stream::once(refused)).await.unwrap().into_inner();
    assert!(next(&mut none).await.expect("it is refused").unwrap().canceled);
    assert!(next(&mut none).await.is_none());
    // Keepalives that were sent before are answered.
    let keepalive = |seq| LeaseKeepAliveRequest { id: 7, seq, ..LeaseKeepAliveRequest::default() };
    let keepalives = tokio_stream::iter((1..=100).map(keepalive));
    let mut kept = locks.lease_keep_alive(keepalives).await.unwrap().into_inner();
    let mut seqs = Vec::new();
    while let Some(answer) = tokio::time::timeout(PATIENCE, kept.next()).await.expect("nothing came") {
        seqs.push(answer.unwrap().seq);
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=100).collect::<Vec<u64>>());
    // A keepalive stream that is still open is told why it ends, and so is a watch.
    let asks = tokio_stream::once(keepalive(1)).chain(tokio_stream::pending());
    let mut kept = locks.lease_keep_alive(asks).await.unwrap().into_inner();
    assert!(kept.next().await.unwrap().is_ok());
    gateway.signal("TERM");
    let status = next(&mut answers).await.expect("it says why").unwrap_err();
    let error = tollgate_proto::error_of_status(&status).expect("in the server's own words");
    assert!(error.message.contains("the gateway is stopping"), "{error:?}");
    let ended = tokio::time::timeout(PATIENCE, kept.next()).await.expect("nothing came");
    let error = tollgate_proto::error_of_status(&ended.expect("it says why").unwrap_err()).unwrap();
    assert_eq!(error.reason(), tollgate_proto::v1::ErrorReason::ShuttingDown, "{error:?}");
    assert_eq!(cluster.gateways[0].until_exited().await.code(), Some(0));
}
