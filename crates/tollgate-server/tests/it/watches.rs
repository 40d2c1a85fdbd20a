//! Watches of clients: the content of one answer, and the fate of clients that don't read.

use crate::sessions::{Cluster, PATIENCE, Watching};
use tokio_stream::StreamExt;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_server::Server;
use tollgate_types::Address;
use tonic::Streaming;

const VALUE_BYTES: usize = 60_000;

/// Puts `count` values in one transaction, and returns its revision.
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

/// Reads answers until they have brought this many events.
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
    // A client that resumes from its last cursor sees whole revisions, and none again that it has seen in full.
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
    // The events for each stream are twice the limit.
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

/// Opens a watch stream, sends these requests and closes the client's side, as tools and many generated clients do.
async fn ask_and_close(
    cluster: &Cluster,
    server: usize,
    requests: Vec<v1::WatchRequest>,
) -> Streaming<v1::WatchResponse> {
    let channel = cluster.channel(server).await;
    LockServiceClient::new(channel).watch(tokio_stream::iter(requests)).await.unwrap().into_inner()
}

/// Returns the next answer; none at the end of the stream, which must then be OK.
async fn next(answers: &mut Streaming<v1::WatchResponse>) -> Option<v1::WatchResponse> {
    tokio::time::timeout(PATIENCE, answers.next()).await.expect("nothing came").transpose().unwrap()
}

fn on_jobs(watch_id: u64) -> v1::WatchRequest {
    let target = Some(v1::watch_request::Target::Key("jobs".into()));
    v1::WatchRequest { target, watch_id, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_a_watch_is_told_on_though_its_client_has_closed_its_side() {
    let cluster = Cluster::start_with(&[false; 3], &[("server.watchers_max", "1")]).await;
    let router = cluster.servers[0].router();
    let grant = v1::LeaseGrantRequest { id: 1, ttl_ms: 600_000, ..Default::default() };
    router.execute(Op::LeaseGrant(grant), &Address::NONE).await;
    for server in 0..3 {
        let mut answers = ask_and_close(&cluster, server, vec![on_jobs(7)]).await;
        assert!(next(&mut answers).await.expect("the watch is open").created);
        for round in 0..3 {
            let lock = v1::LockRequest { name: "jobs".into(), lease_id: 1, ..Default::default() };
            router.execute(Op::Lock(lock), &Address::NONE).await;
            assert_eq!(next(&mut answers).await.expect("the watch is open").events.len(), 1, "{round}");
            let unlock = v1::UnlockRequest { name: "jobs".into(), lease_id: 1, ..Default::default() };
            router.execute(Op::Unlock(unlock), &Address::NONE).await;
            assert_eq!(next(&mut answers).await.expect("the watch is open").events.len(), 1, "{round}");
        }
        // The only place is free again once its client has gone.
        drop(answers);
        let freed = async {
            loop {
                let mut answers = ask_and_close(&cluster, server, vec![on_jobs(0)]).await;
                if next(&mut answers).await.expect("an answer").created {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, freed).await.expect("the place is free again");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_whose_client_has_closed_its_side_ends_well_when_no_watch_is_left() {
    let cluster = Cluster::start_with(&[false], &[]).await;
    let cancel = v1::WatchRequest { watch_id: 7, cancel: true, ..Default::default() };
    let mut answers = ask_and_close(&cluster, 0, vec![on_jobs(7), cancel]).await;
    let mut last = next(&mut answers).await.unwrap();
    while let Some(answer) = next(&mut answers).await {
        last = answer;
    }
    assert!(last.canceled && last.error.is_none(), "{last:?}");
    let refused = v1::WatchRequest { cursor: "nonsense".into(), ..on_jobs(8) };
    let mut answers = ask_and_close(&cluster, 0, vec![refused]).await;
    assert!(next(&mut answers).await.unwrap().canceled);
    assert!(next(&mut answers).await.is_none());
    // Another watch that was requested before goes on without it.
    let gone = v1::WatchRequest { cursor: "nonsense".into(), ..on_jobs(8) };
    let mut answers = ask_and_close(&cluster, 0, vec![gone, on_jobs(9)]).await;
    assert!(next(&mut answers).await.unwrap().canceled);
    let created = next(&mut answers).await.expect("one is open");
    assert!(created.created && created.watch_id == 9, "{created:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_a_stream_with_a_watch_says_why_it_ends_when_its_server_stops() {
    let mut cluster = Cluster::start_with(&[false; 3], &[]).await;
    let server = cluster.leader().await;
    let mut answers = ask_and_close(&cluster, server, vec![on_jobs(7)]).await;
    assert!(next(&mut answers).await.expect("the watch is open").created);
    let stopping = tokio::spawn(cluster.servers.remove(server).stop());
    let status = tokio::time::timeout(PATIENCE, answers.next()).await.unwrap().unwrap().unwrap_err();
    let error = error_of_status(&status).unwrap_or_else(|| panic!("no details: {status:?}"));
    assert_eq!(
        (error.reason(), error.may_have_happened),
        (v1::ErrorReason::ShuttingDown, false),
        "{error:?}"
    );
    stopping.await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_keepalive_that_was_sent_before_its_client_closed_its_side_is_answered() {
    let cluster = Cluster::start_with(&[false; 3], &[]).await;
    let grant = v1::LeaseGrantRequest { id: 1, ttl_ms: 600_000, ..Default::default() };
    cluster.servers[0].router().execute(Op::LeaseGrant(grant), &Address::NONE).await;
    for server in 0..3 {
        let mut locks = LockServiceClient::new(cluster.channel(server).await);
        let keepalive = |seq| v1::LeaseKeepAliveRequest { id: 1, seq, ..Default::default() };
        let keepalives = tokio_stream::iter((1..=200).map(keepalive));
        let mut answers = locks.lease_keep_alive(keepalives).await.unwrap().into_inner();
        let mut answered = Vec::new();
        while let Some(answer) = tokio::time::timeout(PATIENCE, answers.next()).await.unwrap() {
            let answer = answer.unwrap();
            assert!(answer.ttl_ms > 0, "{answer:?}");
            answered.push(answer.seq);
        }
        answered.sort_unstable();
        assert_eq!(answered, (1..=200).collect::<Vec<u64>>());
    }
    cluster.stop().await;
}
