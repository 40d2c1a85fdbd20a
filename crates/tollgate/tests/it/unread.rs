//! Clients that send requests and never read: their unread answers are bounded, for each and for all together.

use crate::cluster::{self, Cluster, Making, Node, PATIENCE};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::register_service_client::RegisterServiceClient;
use tollgate_proto::v1::session_service_client::SessionServiceClient;
use tollgate_proto::v1::{self, ErrorReason, operation::Op, operation_result::Result as OpResult};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status, Streaming};

/// Maximum size of unread answers of all sessions in these tests.
const UNREAD_MAX: u64 = 32 << 20;

const VALUE_BYTES: usize = 60_000;
const VALUES: u64 = 16;

struct Session {
    requests: mpsc::Sender<v1::SessionRequest>,
    answers: Streaming<v1::SessionResponse>,
}

impl Session {
    async fn open(node: &Node) -> Session {
        Session::open_with(node, &[]).await
    }

    async fn open_with(node: &Node, metadata: &[(&'static str, &'static str)]) -> Session {
        let (requests, outgoing) = mpsc::channel(16);
        let mut service = SessionServiceClient::new(node.channel(Duration::from_mins(5)));
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        for (key, value) in metadata {
            request.metadata_mut().insert(*key, MetadataValue::from_static(value));
        }
        let answers = service.session(request).await.unwrap().into_inner();
        Session { requests, answers }
    }

    /// Requests all values `times` times, in one frame. Returns false if the frame is no longer accepted.
    async fn ask(&self, first: u64, times: u64) -> bool {
        let range = v1::RangeRequest { prefix: b"k".to_vec(), ..v1::RangeRequest::default() };
        let operation = |id| v1::Operation { id, op: Some(Op::Range(range.clone())), ..Default::default() };
        let frame = v1::SessionRequest {
            operations: (first..first + times).map(operation).collect(),
            ..Default::default()
        };
        let sent = tokio::time::timeout(Duration::from_millis(200), self.requests.send(frame)).await;
        matches!(sent, Ok(Ok(())))
    }

    /// Reads until `results` results have come, or the stream has ended with an error.
    async fn read(&mut self, results: usize) -> Result<Vec<OpResult>, Status> {
        let mut told = Vec::new();
        while told.len() < results {
            let frame = tokio::time::timeout(PATIENCE, self.answers.message()).await.expect("an answer")?;
            let frame = frame.expect("it does not just end");
            told.extend(frame.results.into_iter().filter_map(|result| result.result));
        }
        Ok(told)
    }
}

async fn filled() -> Cluster {
    let max = UNREAD_MAX.to_string();
    let cluster = Cluster::start(Making::nodes(1).flags(&["--server-unread-bytes-max", &max])).await;
    let mut registers = RegisterServiceClient::new(cluster.nodes[0].channel(PATIENCE));
    for number in 0..VALUES {
        let key = format!("k{number:02}").into_bytes();
        let put = v1::PutRequest { key, value: vec![b'x'; VALUE_BYTES], ..v1::PutRequest::default() };
        registers.put(put).await.unwrap();
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn p16_clients_that_never_read_have_a_bound_together_and_those_that_read_are_served() {
    let cluster = filled().await;
    let node = &cluster.nodes[0];
    let mut reader = Session::open(node).await;
    // Memory that one fast reader needs does not count as growth.
    for round in 0..20 {
        assert!(reader.ask(round, 1).await);
        reader.read(1).await.unwrap();
    }
    let before = node.rss_bytes();
    let mut silent = Vec::new();
    for _ in 0..12 {
        let session = Session::open(node).await;
        // Each session alone would have 200 MB unread.
        assert!(session.ask(0, 200).await);
        silent.push(session);
    }
    let ended = "a session whose client does not read was ended";
    cluster::until("some were ended", || async { node.log().contains(ended) }).await;
    let mut most = 0;
    for round in 0..50 {
        assert!(reader.ask(round, 1).await);
        let told = reader.read(1).await.unwrap();
        let OpResult::Range(range) = &told[0] else { panic!("{told:?}") };
        assert_eq!(range.registers.len() as u64, VALUES);
        most = most.max(node.rss_bytes());
    }
    println!("{before} bytes resident, at most {most} with {} silent sessions", silent.len());
    // HTTP/2 holds a frame of each session, and an encoded answer counts in addition to its source.
    assert!(most < before + 3 * UNREAD_MAX, "{before} {most}");
    let mut cut = 0;
    for session in &mut silent {
        match session.read(200).await {
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                let error = error_of_status(&status).unwrap();
                assert_eq!((error.reason(), error.limit_value), (ErrorReason::Overloaded, UNREAD_MAX));
                cut += 1;
            }
            // Sessions that were not ended got as many answers as fit, and were told to read first for the rest.
            Ok(told) => {
                let refused = |it: &&OpResult| {
                    matches!(it, OpResult::Error(it) if it.reason() == ErrorReason::Overloaded
                        && !it.may_have_happened)
                };
                let got = told.iter().filter(|it| matches!(it, OpResult::Range(_))).count();
                let refused = told.iter().filter(refused).count();
                assert_eq!(got + refused, 200);
                assert!((10..60).contains(&got), "{got}");
            }
        }
    }
    println!("{cut} of {} were ended", silent.len());
    assert!((9..12).contains(&cut), "{cut}");
}

#[tokio::test(flavor = "multi_thread")]
async fn p16_one_who_says_that_it_is_a_node_has_a_bound_too_and_takes_no_room_of_clients() {
    let cluster = filled().await;
    let node = &cluster.nodes[0];
    let client = Session::open(node).await;
    assert!(client.ask(0, 12).await);
    let mut silent = Vec::new();
    for _ in 0..4 {
        let session = Session::open_with(node, &[("tollgate-forwarded", "session")]).await;
        assert!(session.ask(0, 200).await);
        silent.push(session);
    }
    let ended = "a session whose client does not read was ended";
    cluster::until("some were ended", || async { node.log().contains(ended) }).await;
    let mut cut = 0;
    for session in &mut silent {
        if let Err(status) = session.read(200).await {
            assert_eq!(error_of_status(&status).unwrap().reason(), ErrorReason::Overloaded, "{status:?}");
            cut += 1;
        }
    }
    assert!(cut > 0);
    let mut client = client;
    assert_eq!(client.read(12).await.expect("it had no part in that").len(), 12);
}
