//! Answers are no longer than clients accept, and refusals are counted.

use crate::sessions::Cluster;
use prost::Message;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{self, ErrorReason, operation::Op, operation_result::Result as OpResult};
use tollgate_server::metrics::Exposition;
use tollgate_types::Address;

/// Default maximum size of a message for gRPC clients.
const TAKEN_BYTES: usize = 4 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_lock_with_a_crowd_is_cut_by_bytes_and_counted_whole() {
    let cluster = Cluster::start_with(&[false], &[]).await;
    let mut session = cluster.session(0).await;
    let lease_id = session.grant(false).await;
    for number in 0..1_500_u64 {
        let lock = v1::LockRequest {
            name: "jobs".into(),
            lease_id,
            owner: format!("owner-{number}"),
            metadata: "x".repeat(4_096),
            timeout_ms: -1,
            ..Default::default()
        };
        session.send(1_000 + number, Some(Op::Lock(lock))).await;
    }
    let mut waiting = 0;
    while waiting < 1_499 {
        let results = session.results().await.unwrap();
        waiting += results.iter().filter(|it| matches!(it.result, Some(OpResult::Queued(_)))).count();
    }
    let request = v1::GetLockRequest { name: "jobs".into(), ..Default::default() };
    let in_session = match session.ask(Op::GetLock(request.clone())).await {
        OpResult::GetLock(got) => got,
        other => panic!("{other:?}"),
    };
    let mut locks = LockServiceClient::new(cluster.channel(0).await);
    let alone = locks.get_lock(request).await.unwrap().into_inner();
    let explain = v1::ExplainRequest { name: "jobs".into() };
    let explained = locks.explain(explain).await.unwrap().into_inner();
    assert!(explained.encoded_len() < TAKEN_BYTES);
    assert!(explained.lines.iter().any(|line| line == "1479 more wait."), "{:?}", explained.lines.last());
    for lock in [in_session.lock, alone.lock, explained.lock].map(Option::unwrap) {
        assert_eq!((lock.holder_count, lock.waiter_count), (1, 1_499));
        assert!(lock.encoded_len() < TAKEN_BYTES && lock.holders.len() == 1 && lock.waiters.len() > 200);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_read_that_no_client_takes_is_refused_and_says_whether_something_was_written() {
    let cluster = Cluster::start_with(&[false], &[]).await;
    let router = cluster.servers[0].router();
    let put = |key: String| v1::PutRequest { key: key.into(), value: vec![7; 60_000], ..Default::default() };
    for number in 0..70 {
        let done = router.execute(Op::Put(put(format!("k{number}"))), &Address::NONE).await;
        assert!(matches!(done, OpResult::Put(_)), "{done:?}");
    }
    let range = v1::RangeRequest { prefix: b"k".to_vec(), ..Default::default() };
    let get = v1::TxnOp { op: Some(v1::txn_op::Op::Get(range.clone())) };
    let write = v1::TxnOp { op: Some(v1::txn_op::Op::Put(put("other".into()))) };
    let txn = |then_ops| Op::Txn(v1::TxnRequest { then_ops, ..Default::default() });
    for (op, may_have_happened) in
        [(Op::Range(range.clone()), false), (txn(vec![get.clone()]), false), (txn(vec![get, write]), true)]
    {
        let refused = router.execute(op, &Address::NONE).await;
        let OpResult::Error(error) = refused else { panic!("it has 4.2 MB") };
        assert_eq!(
            (error.reason(), error.may_have_happened),
            (ErrorReason::LimitExceeded, may_have_happened)
        );
        assert!(error.message.contains("ask for less"), "{}", error.message);
    }
    let some = v1::RangeRequest { limit: 50, ..range };
    let answered = router.execute(Op::Range(some), &Address::NONE).await;
    assert!(matches!(&answered, OpResult::Range(it) if it.registers.len() == 50 && it.count == 70));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_session_is_refused_is_counted() {
    let settings = [("server.operations_admitted_max", "1"), ("server.operations_in_flight_max", "3")];
    let cluster = Cluster::start_with(&[false], &settings).await;
    let metrics = cluster.servers[0].metrics();
    let counted = |reason: &str| {
        let line = format!("tollgate_failures_total{{reason=\"{reason}\"}} ");
        let text = metrics.render(Exposition::OpenMetrics);
        text.lines().find_map(|it| it.strip_prefix(&line)?.parse().ok()).unwrap_or(0)
    };
    let mut session = cluster.session(0).await;
    let bad = session.ask(Op::Get(v1::GetRequest::default())).await;
    assert!(matches!(bad, OpResult::Error(it) if it.reason() == ErrorReason::BadField));
    assert_eq!(counted("BAD_FIELD"), 1);
    // More operations than are admitted at once, repeated until some are refused.
    let get = || Op::Get(v1::GetRequest { key: b"k".to_vec(), ..Default::default() });
    let (mut next, mut refused) = (1_000, 0);
    while refused == 0 {
        for _ in 0..100 {
            next += 1;
            session.send(next, Some(get())).await;
        }
        let mut told = 0;
        while told < 100 {
            let results = session.results().await.unwrap();
            told += results.len();
            for result in results {
                let Some(OpResult::Error(error)) = result.result else { continue };
                assert_eq!(error.reason(), ErrorReason::Overloaded);
                refused += 1;
            }
        }
    }
    assert_eq!(counted("OVERLOADED"), refused);
    cluster.stop().await;
}
