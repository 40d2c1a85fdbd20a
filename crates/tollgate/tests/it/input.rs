//! What no well-behaved client sends: wrong fields, garbage, frames too large, connections that say nothing.
//!
//! Each wrong request is told precisely what is wrong with it, and a node lives through the rest without growing.

use crate::cluster::{self, Cluster, Making, Node};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::{
    ErrorReason, GetLockRequest, LeaseGrantRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest, LockRequest,
    UnlockRequest,
};
use tonic::{Code, Status};

/// What a failed call says: its code, what to match on, and which field is to blame.
fn said<T: std::fmt::Debug>(result: Result<T, Status>) -> (Code, ErrorReason, String) {
    let status = result.unwrap_err();
    let error = error_of_status(&status).unwrap_or_else(|| panic!("no details: {status:?}"));
    assert!(!status.message().is_empty());
    (status.code(), error.reason(), error.field)
}

fn bad(field: &str) -> (Code, ErrorReason, String) {
    (Code::InvalidArgument, ErrorReason::BadField, field.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_field_over_grpc_is_named_at_leader_and_follower_alike() {
    let cluster = cluster::three().await;
    let lease = LeaseGrantRequest { id: 7, ttl_ms: 600_000, ..LeaseGrantRequest::default() };
    cluster.nodes[0].locks().lease_grant(lease).await.unwrap();
    for node in &cluster.nodes {
        let mut service = node.locks();
        let lock = |name: &str| LockRequest { name: name.into(), lease_id: 7, ..LockRequest::default() };
        assert_eq!(said(service.lock(lock("")).await), bad("name"));
        assert_eq!(said(service.lock(lock("a\nb")).await), bad("name"));
        let long = said(service.lock(lock(&"x".repeat(513))).await);
        assert!(matches!(long.0, Code::InvalidArgument | Code::ResourceExhausted), "{long:?}");
        let mode = LockRequest { mode: 99, ..lock("jobs") };
        assert_eq!(said(service.lock(mode).await), bad("mode"));
        let permits = LockRequest { permits: 3, of: 2, ..lock("jobs") };
        assert_eq!(said(service.lock(permits).await).0, Code::InvalidArgument);
        let timeout = LockRequest { timeout_ms: -2, ..lock("jobs") };
        assert_eq!(said(service.lock(timeout).await), bad("timeout_ms"));
        let waits = LockRequest { timeout_ms: 5, ..lock("jobs") };
        assert_eq!(said(service.try_lock(waits).await), bad("timeout_ms"));
        let nobody = LockRequest { lease_id: 0, ..lock("jobs") };
        assert_eq!(said(service.lock(nobody).await), bad("lease_id"));
        let stranger = LockRequest { lease_id: 404, ..lock("jobs") };
        let not_found = (Code::NotFound, ErrorReason::LeaseNotFound, String::new());
        assert_eq!(said(service.lock(stranger).await), not_found);
        assert_eq!(said(service.lease_revoke(LeaseRevokeRequest { id: 404 }).await), not_found);
        let ttl = LeaseTimeToLiveRequest { id: 404, ..LeaseTimeToLiveRequest::default() };
        assert_eq!(said(service.lease_time_to_live(ttl).await), not_found);
        let negative = LeaseGrantRequest { ttl_ms: -5, ..LeaseGrantRequest::default() };
        assert_eq!(said(service.lease_grant(negative).await), bad("ttl_ms"));
        let short = LeaseGrantRequest { ttl_ms: 1, ..LeaseGrantRequest::default() };
        let out_of_range = (Code::InvalidArgument, ErrorReason::TtlOutOfRange, String::new());
        assert_eq!(said(service.lease_grant(short).await), out_of_range);
        let not_held = UnlockRequest { name: "jobs".into(), lease_id: 7, ..UnlockRequest::default() };
        let refused = (Code::FailedPrecondition, ErrorReason::NotHeld, String::new());
        assert_eq!(said(service.unlock(not_held).await), refused);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_field_over_http_is_named_and_the_status_fits() {
    let cluster = Cluster::start(Making::nodes(1)).await;
    let node = &cluster.nodes[0];
    let long = format!(r#"{{"name": "{}", "lease_id": "7"}}"#, "x".repeat(513));
    let asks = [
        ("/v1/lock", r#"{"name": "", "lease_id": "7"}"#, 400, "name"),
        ("/v1/lock", &long, 400, "name"),
        ("/v1/lock", r#"{"name": "jobs", "lease_id": "404"}"#, 404, "LEASE_NOT_FOUND"),
        ("/v1/lock", r#"{"name": "jobs", "lease_id": "7", "mode": "SIDEWAYS"}"#, 400, "mode"),
        ("/v1/lock", r#"{"name": "jobs", "lease_id": "seven"}"#, 400, "lease_id"),
        ("/v1/lock", r#"{"name": "jobs", "leese_id": "7"}"#, 400, "leese_id"),
        ("/v1/lock", "not json", 400, ""),
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
}

/// Sends bytes and reads what comes back until the other side has had enough, or for a moment.
async fn send(port: u16, bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let said = async {
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
    };
    let _ = tokio::time::timeout(Duration::from_millis(100), said).await;
}

/// The node answers a linearizable read.
async fn lives(node: &mut Node) {
    assert!(node.exited().is_none(), "it died");
    let read = GetLockRequest { name: "jobs".into(), ..GetLockRequest::default() };
    node.locks().get_lock(read).await.unwrap();
    assert!(node.is_ready().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_every_port_neither_kills_a_node_nor_makes_it_grow() {
    let mut cluster = cluster::three().await;
    let mut rng = crate::rng::Rng::new(1);
    let ports = cluster.nodes[0].ports;
    let garbage: Vec<u8> = (0..200_000).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
    // A preface that is right, then a frame header that announces 16 MB.
    let mut huge_frame = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    huge_frame.extend([0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]);
    huge_frame.extend(&garbage);
    // A hello between nodes that is right but for the cluster, and one with a frame length of 4 GB after it.
    let mut hello = b"TOLLGATE\x01\0".to_vec();
    hello.extend([1; 24]);
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
        let lock = LockRequest { name: "x".repeat(5 << 20), lease_id: 7, ..LockRequest::default() };
        let status = cluster.nodes[0].locks().lock(lock).await.unwrap_err();
        assert!(matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted), "{status:?}");
    }
    let body = format!(r#"{{"name": "{}"}}"#, "x".repeat(5 << 20));
    if let Some((status, answer)) = cluster.nodes[0].http("POST", "/v1/lock", &body).await {
        assert!((400..500).contains(&status), "{status} {answer}");
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
