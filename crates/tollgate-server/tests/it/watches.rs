//! Watches as clients have them: what comes in one answer, and what becomes of clients that don't read.

use crate::sessions::{Cluster, PATIENCE, Watching};
use tokio_stream::StreamExt;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_server::Server;
use tollgate_types::Address;

const VALUE_BYTES: usize = 60_000;

/// Puts so many values in one transaction; its revision.
async fn put(server: &Server, prefix: &str, count: usize) -> u64 {
    let put = |number: usize| {
        let key = format!("{prefix}{number:03}").into_bytes();
        let put = v1::PutRequest { key, value: vec![7; VALUE_BYTES], ..Default::default() };
        v1::TxnOp { op: Some(v1::txn_op::Op::Put(put)) }
    };
    let txn = v1::TxnRequest { then_ops: (0..count).map(put).collect(), ..Default::default() };
    match server.router().execute(Op::Txn(txn), &Address::NONE).await {
        OpResult::Txn(done) => done.revision,
        other => panic!("{other:?}"),
    }
}

async fn follow(cluster: &Cluster, request: v1::WatchRequest) -> Watching {
    let mut watching = cluster.watch(0).await;
    let target = Some(v1::watch_request::Target::RegisterPrefix(Vec::new()));
    watching.send(v1::WatchRequest { target, ..request }).await;
    watching
}

/// Answers until so many events were told.
async fn answers(watching: &mut Watching, events: usize) -> Vec<v1::WatchResponse> {
    let (mut told, mut answers) = (0, Vec::new());
    while told < events {
        let answer = watching.next().await;
        told += answer.events.len();
        answers.push(answer);
    }
    assert_eq!(told, events);
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_a_revision_comes_in_one_answer_or_its_pieces_have_no_cursor_but_the_last() {
    let cluster = Cluster::start_with(&[false], &[]).await;
    let start = put(&cluster.servers[0], "a", 30).await;
    let long = put(&cluster.servers[0], "b", 128).await;
    let from = |start_revision| v1::WatchRequest { start_revision, ..Default::default() };
    let told = answers(&mut follow(&cluster, from(start)).await, 30 + 128).await;
    let of = |revision: u64| {
        let pieces = told.iter().filter(move |it| it.events.iter().any(|event| event.revision == revision));
        pieces.collect::<Vec<_>>()
    };
    assert_eq!(of(start).len(), 1, "1.8 MB fit one answer");
    assert!(!of(start)[0].cursor.is_empty());
    let pieces = of(long);
    assert!(pieces.len() > 1);
    let (last, rest) = pieces.split_last().unwrap();
    assert!(rest.iter().all(|piece| piece.cursor.is_empty()) && !last.cursor.is_empty());
    put(&cluster.servers[0], "c", 1).await;
    // Whoever goes on from the last cursor that it has sees whole revisions, and none again that it has seen whole.
    for (cursor, events) in [(of(start)[0].cursor.clone(), 128 + 1), (last.cursor.clone(), 1)] {
        let resumed = v1::WatchRequest { cursor, ..Default::default() };
        answers(&mut follow(&cluster, resumed).await, events).await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_watches_that_nobody_reads_end_and_others_go_on() {
    let max = 8_usize << 20;
    let cluster = Cluster::start_with(&[false], &[("server.unread_bytes_max", &max.to_string())]).await;
    let start = put(&cluster.servers[0], "a", 128).await;
    put(&cluster.servers[0], "b", 128).await;
    let mut reader = cluster.watch(0).await;
    let target = Some(v1::watch_request::Target::Key("jobs".into()));
    reader.send(v1::WatchRequest { target, ..Default::default() }).await;
    assert!(reader.next().await.created);
    let mut silent = Vec::new();
    for _ in 0..3 {
        let request = v1::WatchRequest { start_revision: start, prev_kv: true, ..Default::default() };
        silent.push(follow(&cluster, request).await);
    }
    // Each has twice the limit to be told.
    for watching in &mut silent {
        let ended = async {
            loop {
                match watching.answers.next().await {
                    Some(Ok(_)) => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
                    Some(Err(status)) => return status,
                    None => panic!("it says why it ends"),
                }
            }
        };
        let status = tokio::time::timeout(PATIENCE, ended).await.unwrap();
        let error = error_of_status(&status).unwrap();
        assert_eq!((error.reason(), error.limit_value), (v1::ErrorReason::Overloaded, max as u64));
        assert!(!error.may_have_happened);
    }
    let grant = v1::LeaseGrantRequest { id: 1, ttl_ms: 600_000, ..Default::default() };
    let router = cluster.servers[0].router();
    router.execute(Op::LeaseGrant(grant), &Address::NONE).await;
    let lock = v1::LockRequest { name: "jobs".into(), lease_id: 1, ..Default::default() };
    router.execute(Op::Lock(lock), &Address::NONE).await;
    assert_eq!(reader.next().await.events.len(), 1);
    cluster.stop().await;
}
