//! Metadata is any bytes: text is returned as text; other bytes are returned unchanged, beside their readable part.

use crate::http::served::Served;
use crate::sessions::Cluster;
use serde_json::{Value, json};
use tollgate_proto::error_of_status;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{self, ErrorReason, operation::Op, operation_result::Result as OpResult};
use tonic::Code;

const INDENTED: &str = "{\n\t\"build\": 42,\n\t\"by\": \"\u{1f512}\u{85}\"\n}";
const NO_TEXT: &[u8] = b"a\n\xff\x00\x80";
const NO_TEXT_ESCAPED: &str = r"a\u{a}\xff\u{0}\x80";

fn lock(name: &str, lease_id: u64) -> v1::LockRequest {
    v1::LockRequest { name: name.into(), lease_id, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_bytes_are_taken_over_grpc_and_read_back_as_they_were() {
    let cluster = Cluster::start_with(&[false], &[]).await;
    let mut session = cluster.session(0).await;
    let lease_id = session.grant(false).await;
    let mut locks = LockServiceClient::new(cluster.channel(0).await);

    let text = v1::LockRequest { metadata: INDENTED.into(), ..lock("text", lease_id) };
    assert!(locks.lock(text).await.unwrap().into_inner().acquired);
    let bytes = v1::LockRequest { metadata_bytes: NO_TEXT.to_vec(), ..lock("bytes", lease_id) };
    assert!(locks.lock(bytes).await.unwrap().into_inner().acquired);
    // Text is returned as text, whichever field it was sent in.
    let other = v1::LockRequest { metadata_bytes: INDENTED.into(), ..lock("other", lease_id) };
    let OpResult::Lock(taken) = session.ask(Op::TryLock(other)).await else { panic!("it is free") };
    assert!(taken.acquired);

    let waiting = v1::LockRequest {
        timeout_ms: -1,
        owner: "w".into(),
        metadata_bytes: NO_TEXT.to_vec(),
        ..lock("bytes", lease_id)
    };
    session.send(77, Some(Op::Lock(waiting))).await;
    session.results().await.unwrap();
    for (name, metadata, metadata_bytes) in
        [("text", INDENTED, &b""[..]), ("bytes", NO_TEXT_ESCAPED, NO_TEXT), ("other", INDENTED, b"")]
    {
        let get = v1::GetLockRequest { name: name.into(), ..Default::default() };
        let seen = locks.get_lock(get).await.unwrap().into_inner().lock.unwrap();
        let told = &seen.holders[0];
        assert_eq!((told.metadata.as_str(), &told.metadata_bytes[..]), (metadata, metadata_bytes), "{name}");
        for waiter in &seen.waiters {
            assert_eq!(
                (waiter.metadata.as_str(), &waiter.metadata_bytes[..]),
                (NO_TEXT_ESCAPED, NO_TEXT),
                "{name}"
            );
        }
        let explained = locks.explain(v1::ExplainRequest { name: name.into() }).await.unwrap().into_inner();
        let lines = explained.lines.join("|");
        assert!(!lines.contains(|c: char| c.is_control()), "{lines:?}");
        assert!(lines.contains("because \""), "{lines:?}");
    }
    let list = v1::ListLocksRequest::default();
    let listed = locks.list_locks(list).await.unwrap().into_inner().locks;
    let bytes: Vec<_> = listed.iter().map(|lock| lock.holders[0].metadata_bytes.as_slice()).collect();
    assert_eq!(bytes, [NO_TEXT, b"", b""], "bytes, other, text");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_metadata_is_limited_in_bytes_whatever_they_are_and_given_once() {
    let cluster = Cluster::start_with(&[false], &[]).await;
    let mut session = cluster.session(0).await;
    let lease_id = session.grant(false).await;
    let mut locks = LockServiceClient::new(cluster.channel(0).await);
    let text = |bytes: usize| v1::LockRequest { metadata: "\n".repeat(bytes), ..lock("t", lease_id) };
    let other = |bytes: usize| v1::LockRequest { metadata_bytes: vec![0xff; bytes], ..lock("b", lease_id) };
    for most in [text(4_096), other(4_096)] {
        assert!(locks.lock(most).await.unwrap().into_inner().acquired);
    }
    let both = v1::LockRequest { metadata_bytes: vec![1], ..text(1) };
    for (request, code, reason, field) in [
        (text(4_097), Code::ResourceExhausted, ErrorReason::LimitExceeded, "metadata"),
        (other(4_097), Code::ResourceExhausted, ErrorReason::LimitExceeded, "metadata_bytes"),
        (both, Code::InvalidArgument, ErrorReason::BadField, "metadata_bytes"),
    ] {
        let status = locks.lock(request).await.unwrap_err();
        let error = error_of_status(&status).unwrap();
        assert_eq!((status.code(), error.reason(), error.field.as_str()), (code, reason, field), "{error:?}");
    }
    // A reason stays plain text.
    let force = v1::ForceReleaseRequest { name: "t".into(), fencing_token: 1, reason: "a\nb".into() };
    let error = error_of_status(&locks.force_release(force).await.unwrap_err()).unwrap();
    assert_eq!((error.reason(), error.field.as_str()), (ErrorReason::BadField, "reason"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indented_json_and_any_bytes_are_taken_over_http_and_read_back_as_they_were() {
    let served = Served::start().await;
    let granted = served.post("/v1/lease/grant", &json!({ "ttl_ms": 60_000 })).await.json();
    let lease = granted["id"].clone();
    let indented = serde_json::to_string_pretty(&json!({ "build": 42 })).unwrap();
    let text = json!({ "name": "text", "lease_id": lease, "metadata": indented });
    let bytes = json!({ "name": "bytes", "lease_id": lease, "metadata_bytes": "YQr/AIA=" });
    for request in [&text, &bytes] {
        let answer = served.post("/v1/lock", request).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let seen = async |name: &str| {
        let lock = served.get(&format!("/v1/lock?name={name}")).await.json()["lock"].clone();
        let holder = &lock["holders"][0];
        (holder["metadata"].clone(), holder["metadata_bytes"].clone())
    };
    assert_eq!(seen("text").await, (Value::from(indented), Value::from("")));
    assert_eq!(seen("bytes").await, (Value::from(NO_TEXT_ESCAPED), Value::from("YQr/AIA=")));
    let wrong = json!({ "name": "x", "lease_id": lease, "metadata_bytes": "?" });
    let refused = served.post("/v1/lock", &wrong).await;
    assert_eq!((refused.status, &refused.json()["error"]["field"]), (400, &json!("metadata_bytes")));
}
