//! Requests that no well-behaved client sends: wrong fields, garbage, frames too large, silent connections.
//!
//! Each wrong request gets a precise error, and a node survives the rest without growing.

use crate::cluster::{self, Cluster, Making, Node, PATIENCE};
use crate::observing::in_one_frame;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::election_service_client::ElectionServiceClient;
use tollgate_proto::v1::register_service_client::RegisterServiceClient;
use tollgate_proto::v1::{self, ErrorReason};
use tollgate_proto::v1::{operation::Op, operation_result::Result as OpResult};
use tonic::{Code, Status};

/// A wrong request and its error: the code, the reason to match on, and the field to blame.
type Wrong = (Op, Code, ErrorReason, &'static str);

fn bad(op: Op, field: &'static str) -> Wrong {
    (op, Code::InvalidArgument, ErrorReason::BadField, field)
}

fn too_large(op: Op, field: &'static str) -> Wrong {
    (op, Code::ResourceExhausted, ErrorReason::LimitExceeded, field)
}

/// Returns requests with one error each. Lease 7 exists.
fn wrong() -> Vec<Wrong> {
    let lock = || v1::LockRequest { name: "jobs".into(), lease_id: 7, ..Default::default() };
    let named = |name: &str| v1::LockRequest { name: name.into(), ..lock() };
    let stranger = |op| (op, Code::NotFound, ErrorReason::LeaseNotFound, "");
    let ttl = |ttl_ms| Op::LeaseGrant(v1::LeaseGrantRequest { ttl_ms, ..Default::default() });
    let out_of_range = |op| (op, Code::InvalidArgument, ErrorReason::TtlOutOfRange, "");
    let put = |key: &[u8], bytes| {
        Op::Put(v1::PutRequest { key: key.to_vec(), value: vec![7; bytes], ..Default::default() })
    };
    let unlock =
        |name: &str, lease_id| v1::UnlockRequest { name: name.into(), lease_id, ..Default::default() };
    let force = |name: &str, fencing_token, reason: &str| {
        Op::ForceRelease(v1::ForceReleaseRequest { name: name.into(), fencing_token, reason: reason.into() })
    };
    let numbered = |seq, lease_id| Some(v1::Request { seq, lease_id, ..Default::default() });
    vec![
        bad(Op::Lock(named("")), "name"),
        bad(Op::Lock(named("a\nb")), "name"),
        too_large(Op::Lock(named(&"x".repeat(513))), "name"),
        bad(Op::Lock(v1::LockRequest { mode: 99, ..lock() }), "mode"),
        bad(Op::Lock(v1::LockRequest { mode: -1, ..lock() }), "mode"),
        bad(Op::Lock(v1::LockRequest { permits: 3, of: 2, ..lock() }), "permits"),
        bad(Op::Lock(v1::LockRequest { timeout_ms: -2, ..lock() }), "timeout_ms"),
        bad(Op::Lock(v1::LockRequest { lock_delay_ms: -1, ..lock() }), "lock_delay_ms"),
        bad(Op::Lock(v1::LockRequest { max_hold_ms: -1, ..lock() }), "max_hold_ms"),
        too_large(Op::Lock(v1::LockRequest { owner: "o".repeat(600), ..lock() }), "owner"),
        too_large(Op::Lock(v1::LockRequest { metadata: "m".repeat(5_000), ..lock() }), "metadata"),
        too_large(Op::Lock(v1::LockRequest { names: vec!["n".into(); 65], ..named("") }), "names"),
        bad(Op::Lock(v1::LockRequest { lease_id: 0, ..lock() }), "lease_id"),
        bad(Op::Lock(v1::LockRequest { names: vec!["a".into(), String::new()], ..named("") }), "names"),
        bad(Op::Lock(v1::LockRequest { request: numbered(0, 0), ..lock() }), "request.seq"),
        stranger(Op::Lock(v1::LockRequest { lease_id: 404, ..lock() })),
        bad(Op::TryLock(v1::LockRequest { timeout_ms: 5, ..lock() }), "timeout_ms"),
        bad(Op::TryLock(named("")), "name"),
        stranger(Op::TryLock(v1::LockRequest { lease_id: 404, ..lock() })),
        bad(Op::Unlock(unlock("", 7)), "name"),
        (Op::Unlock(unlock("jobs", 7)), Code::NotFound, ErrorReason::NotHeld, ""),
        bad(
            Op::Convert(v1::ConvertRequest {
                name: "jobs".into(),
                lease_id: 7,
                mode: 99,
                ..Default::default()
            }),
            "mode",
        ),
        bad(Op::Convert(v1::ConvertRequest { lease_id: 7, ..Default::default() }), "name"),
        bad(Op::CancelWait(v1::CancelWaitRequest { name: "jobs".into(), ..Default::default() }), "lease_id"),
        bad(force("jobs", 0, "why"), "fencing_token"),
        bad(force("jobs", 7, " "), "reason"),
        bad(force("", 7, "why"), "name"),
        bad(Op::GetLock(v1::GetLockRequest::default()), "name"),
        bad(ttl(-5), "ttl_ms"),
        bad(Op::LeaseGrant(v1::LeaseGrantRequest { ttl: -1, ..Default::default() }), "ttl"),
        bad(ttl(0), "ttl_ms"),
        out_of_range(ttl(1)),
        out_of_range(ttl(25 * 3_600_000)),
        bad(Op::LeaseRevoke(v1::LeaseRevokeRequest { id: 0 }), "id"),
        stranger(Op::LeaseRevoke(v1::LeaseRevokeRequest { id: 404 })),
        bad(Op::LeaseTimeToLive(v1::LeaseTimeToLiveRequest::default()), "id"),
        stranger(Op::LeaseTimeToLive(v1::LeaseTimeToLiveRequest { id: 404, ..Default::default() })),
        bad(put(b"", 1), "key"),
        too_large(put(b"k", (64 << 10) + 1), "value"),
        bad(Op::Get(v1::GetRequest::default()), "key"),
        bad(Op::Range(v1::RangeRequest::default()), "key"),
        bad(Op::Campaign(v1::CampaignRequest { lease_id: 7, ..Default::default() }), "name"),
        stranger(Op::Campaign(v1::CampaignRequest { name: "e".into(), lease_id: 404, ..Default::default() })),
    ]
}

/// Makes the single call for an operation.
async fn unary(node: &Node, op: Op) -> Result<(), Status> {
    let (mut locks, channel) = (node.locks(), node.channel(PATIENCE));
    let (mut registers, mut elections) =
        (RegisterServiceClient::new(channel.clone()), ElectionServiceClient::new(channel));
    match op {
        Op::Lock(it) => locks.lock(it).await.map(drop),
        Op::TryLock(it) => locks.try_lock(it).await.map(drop),
        Op::Unlock(it) => locks.unlock(it).await.map(drop),
        Op::Convert(it) => locks.convert(it).await.map(drop),
        Op::CancelWait(it) => locks.cancel_wait(it).await.map(drop),
        Op::ForceRelease(it) => locks.force_release(it).await.map(drop),
        Op::GetLock(it) => locks.get_lock(it).await.map(drop),
        Op::LeaseGrant(it) => locks.lease_grant(it).await.map(drop),
        Op::LeaseRevoke(it) => locks.lease_revoke(it).await.map(drop),
        Op::LeaseTimeToLive(it) => locks.lease_time_to_live(it).await.map(drop),
        Op::Put(it) => registers.put(it).await.map(drop),
        Op::Get(it) => registers.get(it).await.map(drop),
        Op::Range(it) => registers.range(it).await.map(drop),
        Op::Campaign(it) => elections.campaign(it).await.map(drop),
        other => panic!("no case has {other:?}"),
    }
}

/// Returns the revision of the state, which any change would raise.
async fn revision(node: &Node) -> u64 {
    let read = v1::GetLockRequest { name: "jobs".into(), ..Default::default() };
    node.locks().get_lock(read).await.unwrap().into_inner().header.unwrap().revision
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_field_is_named_and_changes_nothing_by_call_and_by_session_at_leader_and_follower() {
    let cluster = cluster::three().await;
    let lease = v1::LeaseGrantRequest { id: 7, ttl_ms: 600_000, ..Default::default() };
    cluster.nodes[0].locks().lease_grant(lease).await.unwrap();
    let before = revision(&cluster.nodes[0]).await;
    let mut mistakes = Vec::new();
    for (index, node) in cluster.nodes.iter().enumerate() {
        let by_session = in_one_frame(node, wrong().into_iter().map(|(op, ..)| op).collect()).await;
        for ((op, code, reason, field), told) in wrong().into_iter().zip(by_session) {
            let asked = format!("{op:?}").chars().take(100).collect::<String>();
            let OpResult::Error(by_session) = told else {
                mistakes.push(format!("node {index}, session: {asked}: {told:?}"));
                continue;
            };
            let by_call = unary(node, op).await.unwrap_err();
            let by_call = (by_call.code(), error_of_status(&by_call).unwrap_or_default());
            for (code_told, error) in [(Code::from(by_session.code), by_session), by_call] {
                let was = (code_told, error.reason(), error.field.as_str());
                if was != (code, reason, field) || error.message.is_empty() {
                    mistakes.push(format!("node {index}: {asked}: {was:?} {}", error.message));
                }
            }
        }
        assert_eq!(revision(node).await, before, "something was changed");
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_field_over_http_is_named_and_the_status_fits() {
    let cluster = Cluster::start(Making::nodes(1)).await;
    let node = &cluster.nodes[0];
    let before = revision(node).await;
    let long = format!(r#"{{"name": "{}", "lease_id": "7"}}"#, "x".repeat(513));
    let asks = [
        ("/v1/lock", r#"{"name": "", "lease_id": "7"}"#, 400, "name"),
        ("/v1/lock", &long, 413, "name_bytes_max"),
        ("/v1/lock", r#"{"name": "jobs", "lease_id": "404"}"#, 404, "LEASE_NOT_FOUND"),
        ("/v1/lock", r#"{"name": "jobs", "lease_id": "7", "mode": "SIDEWAYS"}"#, 400, "mode"),
        ("/v1/lock", r#"{"name": "jobs", "lease_id": "seven"}"#, 400, "lease_id"),
        ("/v1/lock", r#"{"name": "jobs", "leese_id": "7"}"#, 400, "leese_id"),
        ("/v1/lock", r#"{"name": "jobs", "lease_id": "7", "timeout_ms": -2}"#, 400, "timeout_ms"),
        ("/v1/lock", r#"{"name": "jobs", "lease_id": "0"}"#, 400, "lease_id"),
        ("/v1/lock", "not json", 400, ""),
        ("/v1/try-lock", r#"{"name": "jobs", "lease_id": "7", "timeout_ms": 5}"#, 400, "timeout_ms"),
        ("/v1/unlock", r#"{"name": "", "lease_id": "7"}"#, 400, "name"),
        ("/v1/unlock", r#"{"name": "jobs", "lease_id": "7"}"#, 404, "LEASE_NOT_FOUND"),
        ("/v1/force-release", r#"{"name": "jobs", "reason": "why"}"#, 400, "fencing_token"),
        ("/v1/lease/revoke", r#"{"id": "404"}"#, 404, "LEASE_NOT_FOUND"),
        ("/v1/lease/keep-alive", r#"{"id": "0"}"#, 400, "id"),
        ("/v1/lease/grant", r#"{"ttl_ms": -5}"#, 400, "ttl_ms"),
        ("/v1/lease/grant", r#"{"ttl_ms": 1}"#, 400, "TTL_OUT_OF_RANGE"),
        ("/v1/nowhere", "{}", 404, "/v1/nowhere"),
    ];
    for (path, body, status, names) in asks {
        let (was, answer) = node.http("POST", path, body).await.unwrap();
        let shown = &body[..body.len().min(80)];
        assert_eq!(was, status, "{path} {shown}: {answer}");
        assert!(answer.contains(names), "{path} {shown}: {answer}");
        assert!(serde_json::from_str::<serde_json::Value>(&answer).is_ok(), "{answer}");
    }
    assert_eq!(revision(node).await, before, "something was changed");
}

/// Sends bytes and reads the answer until the other side closes, or for a moment.
async fn send(port: u16, bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let said = async {
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
    };
    let _ = tokio::time::timeout(Duration::from_millis(100), said).await;
}

/// Checks that the node answers a linearizable read.
async fn lives(node: &mut Node) {
    assert!(node.exited().is_none(), "it died");
    let read = v1::GetLockRequest { name: "jobs".into(), ..v1::GetLockRequest::default() };
    node.locks().get_lock(read).await.unwrap();
    assert!(node.is_ready().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_every_port_neither_kills_a_node_nor_makes_it_grow() {
    let mut cluster = cluster::three().await;
    let mut rng = crate::rng::Rng::new(1);
    let ports = cluster.nodes[0].ports;
    let garbage: Vec<u8> = (0..200_000).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
    // A correct preface, then a frame header that announces 16 MB.
    let mut huge_frame = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    huge_frame.extend([0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]);
    huge_frame.extend(&garbage);
    // A hello between nodes with the wrong cluster, followed by a frame length of 4 GB.
    let mut hello = b"TOLLGATE\x03\0".to_vec();
    hello.extend([1; 33]);
    hello.extend([0xff; 64]);
    let endless_header = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 300_000]].concat();
    let zeros = vec![0; 70_000];
    let messages = [garbage.as_slice(), &huge_frame, &hello, &endless_header, b"", &zeros];
    // The first round fills caches and pools that stay.
    let mut sizes = Vec::new();
    for _ in 0..4 {
        let mut all = tokio::task::JoinSet::new();
        for message in messages {
            for port in [ports.client, ports.peer, ports.http] {
                for _ in 0..8 {
                    let message = message.to_vec();
                    all.spawn(async move { send(port, &message).await });
                }
            }
        }
        all.join_all().await;
        lives(&mut cluster.nodes[0]).await;
        sizes.push(cluster.nodes[0].rss_bytes());
    }
    println!("resident after each round: {sizes:?}");
    assert!(sizes[3] < sizes[0] + (32 << 20), "it grows: {sizes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_limit_is_refused_and_others_are_served() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    let before = cluster.nodes[0].rss_bytes();
    for _ in 0..20 {
        let lock = v1::LockRequest { name: "x".repeat(5 << 20), lease_id: 7, ..v1::LockRequest::default() };
        let status = cluster.nodes[0].locks().lock(lock).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        let error = error_of_status(&status).unwrap();
        let limit = (error.reason(), error.limit.as_str(), error.limit_value, error.may_have_happened);
        assert_eq!(limit, (ErrorReason::LimitExceeded, "frame_bytes_max", 4 << 20, false));
    }
    let body = format!(r#"{{"name": "{}"}}"#, "x".repeat(5 << 20));
    if let Some((status, answer)) = cluster.nodes[0].http("POST", "/v1/lock", &body).await {
        assert_eq!(status, 413, "{answer}");
        assert!(answer.contains("body_bytes_max"), "{answer}");
    }
    lives(&mut cluster.nodes[0]).await;
    let after = cluster.nodes[0].rss_bytes();
    assert!(after < before + (96 << 20), "it grew from {before} to {after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_keep_nobody_out() {
    let mut cluster = cluster::three().await;
    let ports = cluster.nodes[0].ports;
    let mut held = Vec::new();
    for _ in 0..300 {
        for port in [ports.client, ports.peer, ports.http] {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await {
                let _ = stream.write_all(b"P").await;
                held.push(stream);
            }
        }
    }
    lives(&mut cluster.nodes[0]).await;
    // Strangers on the peer port must not keep the members from coming back.
    cluster.nodes[1].kill();
    cluster.restart(1);
    cluster.until_ready().await;
    let behind = cluster.nodes[0].replica().await.unwrap();
    assert_ne!(behind.leader_id, 0);
    drop(held);
    lives(&mut cluster.nodes[0]).await;
}
