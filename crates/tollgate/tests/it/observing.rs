//! Observability for operators: metrics that change, log lines with their fields, health checks that are true.

use crate::cluster::{self, Cluster, Making, Node, PATIENCE};
use crate::waits::{jobs, leases, until_waiting};
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::session_service_client::SessionServiceClient;
use tollgate_proto::v1::{
    self, ForceReleaseRequest, LeaseGrantRequest, LeaseRevokeRequest, LockRequest, TransferRequest,
    UnlockRequest, operation::Op, operation_result::Result as OpResult,
};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Returns the value of a series in `/metrics`; 0 for a missing one.
async fn metric(node: &Node, series: &str) -> u64 {
    let (status, text) = node.http("GET", "/metrics", "").await.unwrap();
    assert_eq!(status, 200);
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

async fn until_above(node: &Node, series: &str, before: u64) {
    cluster::until(series, || async { metric(node, series).await > before }).await;
}

/// Sends operations in one frame of a new session. Returns their final results, in the order of the operations.
pub(crate) async fn in_one_frame(node: &Node, ops: Vec<Op>) -> Vec<OpResult> {
    let (requests, outgoing) = mpsc::channel(1);
    let mut service = SessionServiceClient::new(node.channel(PATIENCE));
    let mut answers = service.session(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
    let count = ops.len();
    let operations =
        (0..).zip(ops).map(|(id, op)| v1::Operation { id, op: Some(op), ..Default::default() }).collect();
    requests.send(v1::SessionRequest { operations, ..Default::default() }).await.unwrap();
    let mut results = Vec::new();
    while results.len() < count {
        let frame = answers.message().await.unwrap().expect("an answer");
        let is_final = |it: &v1::OperationResult| !matches!(it.result, Some(OpResult::Queued(_)));
        results.extend(frame.results.into_iter().filter(is_final));
    }
    results.sort_by_key(|result| result.id);
    results.into_iter().map(|result| result.result.unwrap()).collect()
}

fn unlock(lease_id: u64, fencing_token: u64) -> UnlockRequest {
    UnlockRequest { name: "jobs".into(), lease_id, fencing_token, ..UnlockRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_moves_when_its_thing_happens_and_none_names_a_lock() {
    let cluster = Cluster::start(Making::nodes(1)).await;
    let node = &cluster.nodes[0];
    let handled = |method: &str, code: &str| {
        format!(
            "grpc_server_handled_total{{grpc_type=\"unary\",grpc_service=\"tollgate.v1.LockService\",\
             grpc_method=\"{method}\",grpc_code=\"{code}\"}}"
        )
    };
    let handling = "grpc_server_handling_seconds_count{grpc_type=\"unary\",\
                    grpc_service=\"tollgate.v1.LockService\",grpc_method=\"Lock\"}";
    assert!(metric(node, "tollgate_elections_won_total").await >= 1);
    assert!(metric(node, "tollgate_leader_changes_total").await >= 1);
    let counts =
        ["tollgate_proposals_total", "tollgate_commit_seconds_count", "tollgate_fsync_seconds_count"];
    let mut before = Vec::new();
    for series in counts {
        before.push(metric(node, series).await);
    }
    leases(&cluster, &[1, 2]).await;
    let mut service = node.locks();

    let held = service.lock(jobs(1, 0)).await.unwrap().into_inner();
    assert_eq!(metric(node, "tollgate_grants_total").await, 1);
    assert_eq!(metric(node, "tollgate_wait_seconds_count").await, 1);
    assert_eq!(metric(node, &handled("Lock", "OK")).await, 1);
    assert_eq!(metric(node, handling).await, 1);
    for (series, before) in counts.into_iter().zip(before) {
        until_above(node, series, before).await;
    }

    // A queue of one waiter, which a release empties.
    let mut waiter = node.locks();
    let waiting = tokio::spawn(async move { waiter.lock(jobs(2, -1)).await });
    until_waiting(&cluster, 0, 1).await;
    assert_eq!(metric(node, "tollgate_parked_callers").await, 1);
    service.unlock(unlock(1, held.fencing_token)).await.unwrap();
    let granted = waiting.await.unwrap().unwrap().into_inner();
    assert!(granted.acquired);
    assert_eq!(metric(node, "tollgate_parked_callers").await, 0);
    assert_eq!(metric(node, "tollgate_grants_total").await, 2);
    assert_eq!(metric(node, "tollgate_releases_total").await, 1);
    assert_eq!(metric(node, "tollgate_hold_seconds_count").await, 1);

    // A busy answer without a log entry; then a lock that looked busy and was free when the log was consulted.
    assert!(!service.try_lock(jobs(1, 0)).await.unwrap().into_inner().acquired);
    assert_eq!(metric(node, "tollgate_fast_answers_total").await, 1);
    assert_eq!(metric(node, "tollgate_fast_misses_total").await, 0);
    let told = in_one_frame(node, vec![Op::Unlock(unlock(2, 0)), Op::TryLock(jobs(1, 0))]).await;
    assert!(matches!(&told[1], OpResult::Lock(it) if it.acquired), "{told:?}");
    assert_eq!(metric(node, "tollgate_fast_misses_total").await, 1);
    cluster::until("the session has ended", || async { metric(node, "tollgate_sessions").await == 0 }).await;

    let stranger = service.lock(jobs(404, 0)).await;
    assert!(stranger.is_err());
    assert_eq!(metric(node, "tollgate_failures_total{reason=\"LEASE_NOT_FOUND\"}").await, 1);
    assert_eq!(metric(node, &handled("Lock", "NotFound")).await, 1);
    let nameless = service.lock(LockRequest { lease_id: 1, ..LockRequest::default() }).await;
    assert!(nameless.is_err());
    assert_eq!(metric(node, "tollgate_failures_total{reason=\"BAD_FIELD\"}").await, 1);

    service.lease_revoke(LeaseRevokeRequest { id: 2 }).await.unwrap();
    until_above(node, "tollgate_lease_ends_total{reason=\"LEASE_REVOKED\"}", 0).await;
    let short = LeaseGrantRequest { id: 3, ttl_ms: 100, ..LeaseGrantRequest::default() };
    service.lease_grant(short).await.unwrap();
    until_above(node, "tollgate_lease_ends_total{reason=\"LEASE_EXPIRED\"}", 0).await;
    // This value is updated every few seconds.
    until_above(node, "tollgate_group_locks{group=\"0\"}", 0).await;

    let (_, text) = node.http("GET", "/metrics", "").await.unwrap();
    assert!(text.contains("tollgate_state_hash_mismatches_total 0"), "{text}");
    assert!(text.contains("tollgate_inbox_depth "), "{text}");
    assert!(!text.contains("jobs"), "a metric names a lock");
}

/// Returns the log lines with this message, as objects.
fn said(node: &Node, message: &str) -> Vec<Value> {
    let log = node.log();
    let lines =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")));
    lines.filter(|line: &Value| line["message"] == message).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_lease_ends_and_forced_releases_have_one_log_line_each_with_their_fields() {
    let cluster = Cluster::start(Making::nodes(3).flags(&["--log-format", "json"])).await;
    leases(&cluster, &[1]).await;
    let old = cluster.leader().await;
    let follower = (old + 1) % 3;
    let held = cluster.nodes[old].locks().lock(jobs(1, 0)).await.unwrap().into_inner();
    let force = |fencing_token| ForceReleaseRequest {
        name: "jobs".into(),
        fencing_token,
        reason: "the host burns".into(),
    };
    // Requested at a follower, logged by the leader; a failed request is not logged.
    assert!(cluster.nodes[follower].locks().force_release(force(held.fencing_token + 1)).await.is_err());
    cluster.nodes[follower].locks().force_release(force(held.fencing_token)).await.unwrap();
    let forced = said(&cluster.nodes[old], "a lock was released by force");
    assert_eq!(forced.len(), 1, "{forced:?}");
    let line = &forced[0];
    assert_eq!((&line["name"], &line["reason"]), (&"jobs".into(), &"the host burns".into()), "{line}");
    assert_eq!(line["token"], held.fencing_token.to_string(), "{line}");
    for field in ["group", "from", "revision", "timestamp", "level", "target"] {
        assert!(!line[field].is_null(), "{field}: {line}");
    }

    let mut service = cluster.nodes[old].locks();
    let short = LeaseGrantRequest { id: 3, ttl_ms: 100, ..LeaseGrantRequest::default() };
    service.lease_grant(short).await.unwrap();
    service.lease_revoke(LeaseRevokeRequest { id: 1 }).await.unwrap();
    let ended = || async { !said(&cluster.nodes[old], "lease ended").is_empty() };
    cluster::until("the end is told", ended).await;
    let line = &said(&cluster.nodes[old], "lease ended")[0];
    assert_eq!((&line["reason"], &line["lease"]), (&"lease expired".into(), &lease_text(3).into()), "{line}");
    assert!(!line["group"].is_null(), "{line}");
    // Logged on the node that decided it, and nowhere else.
    for node in [follower, (old + 2) % 3] {
        assert!(said(&cluster.nodes[node], "lease ended").is_empty());
        assert!(said(&cluster.nodes[node], "a lock was released by force").is_empty());
    }

    let gained = said(&cluster.nodes[follower], "this node leads").len();
    let transfer = TransferRequest { group_id: 0, node_id: follower as u64 + 1, passed_on: false };
    AdminServiceClient::new(cluster.nodes[old].channel(PATIENCE)).transfer(transfer).await.unwrap();
    cluster::until("the follower leads", || async { cluster.leader().await == follower }).await;
    let told = || async { said(&cluster.nodes[follower], "this node leads").len() == gained + 1 };
    cluster::until("it says so", told).await;
    let leads = said(&cluster.nodes[follower], "this node leads");
    assert!(leads.last().unwrap()["term"].is_u64() && !leads.last().unwrap()["group"].is_null(), "{leads:?}");
    let lost = || async { said(&cluster.nodes[old], "this node leads no more").len() == 1 };
    cluster::until("the old one says so", lost).await;
}

fn lease_text(id: u64) -> String {
    tollgate_types::LeaseId::new(id).unwrap().to_string()
}

/// Lets one client hold the lock and another wait; then the first releases the lock, and the second loses it with its
/// lease.
async fn change_hands(cluster: &Cluster, leader: usize) {
    let follower = (leader + 1) % 3;
    let mut service = cluster.nodes[follower].locks();
    for (id, ttl_ms, client_id) in [(1, 600_000, "ada"), (2, 2_000, "b\u{202e}ob")] {
        let client_id = client_id.to_owned();
        service.lease_grant(LeaseGrantRequest { id, ttl_ms, client_id, ..Default::default() }).await.unwrap();
    }
    let held = service.lock(jobs(1, 0)).await.unwrap().into_inner();
    let waits = tokio::spawn({
        let mut service = cluster.nodes[follower].locks();
        async move { service.lock(jobs(2, -1)).await.unwrap().into_inner() }
    });
    until_waiting(cluster, leader, 1).await;
    service.unlock(unlock(1, held.fencing_token)).await.unwrap();
    assert!(waits.await.unwrap().acquired);
    let ended = || async { !said(&cluster.nodes[leader], "lease ended").is_empty() };
    cluster::until("the lease has ended", ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_grant_wait_and_end_has_one_line_at_the_leader_if_all_are_asked_for() {
    let flags = ["--log-format", "json", "--log-locks", "all"];
    let cluster = Cluster::start(Making::nodes(3).flags(&flags)).await;
    let leader = cluster.leader().await;
    change_hands(&cluster, leader).await;
    let one = |message: &str, lease: u64| {
        let mut lines = said(&cluster.nodes[leader], message);
        lines.retain(|line| line["lease"] == lease_text(lease));
        assert_eq!(lines.len(), 1, "{message} {lease}: {lines:?}");
        lines.remove(0)
    };
    let granted = one("lock granted", 1);
    assert_eq!((&granted["lock"], &granted["client"]), (&"jobs".into(), &"ada".into()), "{granted}");
    assert_eq!((&granted["mode"], &granted["waited_ms"]), (&"exclusive".into(), &0.into()), "{granted}");
    let waits = one("waits for a lock", 2);
    assert_eq!(waits["client"], "b\\u{202e}ob", "what would turn the line round is spelled out");
    assert!(waits["token"].is_null(), "{waits}");
    let released = one("lock released", 1);
    assert_eq!((&released["token"], &released["reason"]), (&granted["token"], &"released".into()));
    let passed_on = one("lock granted", 2);
    let lost = one("lock lost", 2);
    assert!(passed_on["waited_ms"].is_u64() && released["held_ms"].is_u64() && lost["held_ms"].is_u64());
    assert_eq!((&lost["token"], &lost["reason"]), (&passed_on["token"], &"lease expired".into()));
    one("lease ended", 2);
    for node in (0..3).filter(|node| *node != leader) {
        assert!(said(&cluster.nodes[node], "lock granted").is_empty(), "a follower told of it as well");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_as_it_should_is_not_told_unless_it_is_asked_for_and_losses_are_unless_they_are_not() {
    for (setting, lost) in [("losses", 1), ("off", 0)] {
        let flags = ["--log-format", "json", "--log-locks", setting];
        let cluster = Cluster::start(Making::nodes(3).flags(&flags)).await;
        let leader = cluster.leader().await;
        leases(&cluster, &[1, 2]).await;
        let held = cluster.nodes[leader].locks().lock(jobs(1, 0)).await.unwrap().into_inner();
        cluster.nodes[leader].locks().unlock(unlock(1, held.fencing_token)).await.unwrap();
        let held = cluster.nodes[leader].locks().lock(jobs(2, 0)).await.unwrap().into_inner();
        let (name, fencing_token, reason) = ("jobs".into(), held.fencing_token, "the host burns".into());
        let force = ForceReleaseRequest { name, fencing_token, reason };
        cluster.nodes[leader].locks().force_release(force).await.unwrap();
        let told = || async { said(&cluster.nodes[leader], "a lock was released by force").len() == 1 };
        cluster::until("the release is told", told).await;
        cluster::until("the loss is told", || async {
            said(&cluster.nodes[leader], "lock lost").len() == lost
        })
        .await;
        for message in ["lock granted", "lock released", "waits for a lock"] {
            assert!(said(&cluster.nodes[leader], message).is_empty(), "{setting}: {message}");
        }
    }
}

async fn health(node: &Node) -> Option<i32> {
    let mut service = HealthClient::new(node.channel(Duration::from_secs(2)));
    let answer = service.check(HealthCheckRequest { service: String::new() }).await.ok()?;
    Some(answer.into_inner().status)
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_goes_with_the_quorum_and_comes_back_with_it() {
    let mut cluster = cluster::three().await;
    let (serving, not) = (ServingStatus::Serving as i32, ServingStatus::NotServing as i32);
    assert_eq!(health(&cluster.nodes[0]).await, Some(serving));
    cluster.nodes[1].kill();
    cluster.nodes[2].kill();
    let node = &cluster.nodes[0];
    cluster::until("it is not ready", || async {
        matches!(node.http("GET", "/readyz", "").await, Some((503, _)))
    })
    .await;
    let (_, why) = node.http("GET", "/readyz", "").await.unwrap();
    let why: Value = serde_json::from_str(&why).unwrap();
    assert_eq!(why["ready"], false, "{why}");
    // The node is alive all the same: nobody should restart it.
    assert!(matches!(node.http("GET", "/livez", "").await, Some((200, _))));
    cluster::until("gRPC says so too", || async { health(node).await == Some(not) }).await;
    cluster.restart(1);
    cluster.restart(2);
    cluster.until_ready().await;
    let node = &cluster.nodes[0];
    cluster::until("gRPC says so too", || async { health(node).await == Some(serving) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_told_to_stop_says_first_that_it_is_not_ready() {
    let mut cluster = cluster::three().await;
    let leader = cluster.leader().await;
    let mut service = HealthClient::new(cluster.nodes[leader].channel(PATIENCE));
    let watch = HealthCheckRequest { service: "tollgate.v1.LockService".into() };
    let mut told = service.watch(watch).await.unwrap().into_inner();
    let first = told.message().await.unwrap().unwrap();
    assert_eq!(first.status, ServingStatus::Serving as i32);
    cluster.nodes[leader].signal("TERM");
    let next = tokio::time::timeout(PATIENCE, told.message()).await.unwrap();
    let next = next.unwrap().expect("it is told before the stream ends");
    assert_eq!(next.status, ServingStatus::NotServing as i32);
    assert!(cluster.nodes[leader].until_exited().await.success());
}
