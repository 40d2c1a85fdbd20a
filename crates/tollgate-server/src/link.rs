//! Streams to other nodes, over which operations are forwarded to the leader.
//!
//! One session stream for each node, opened when it is first needed and again after it broke. Invariant: every call
//! is answered once, by the other node or because the stream broke, and then nobody knows what became of it. Not here:
//! whether to try again (`router`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::session_service_client::SessionServiceClient;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{GroupId, NodeId};
use tonic::transport::Endpoint;

/// Says that a stream comes from a node: what it carries is not forwarded again.
pub(crate) const FORWARDED: &str = "tollgate-forwarded";

/// How long a connection may take.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Calls that wait to be sent.
const QUEUE_MAX: usize = 4_096;

/// Operations in one frame at most.
const FRAME_OPERATIONS_MAX: usize = 512;

/// The stream broke, or could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Whether the operation was sent before.
    sent: bool,
}

impl Lost {
    /// Whether the operation may have arrived.
    pub(crate) fn was_sent(self) -> bool {
        self.sent
    }

    /// What to tell a caller whose operation was sent and who does not want to try again.
    pub(crate) fn into_error(self, group: GroupId) -> v1::Error {
        let says = "the leader went away before it answered";
        v1::Error { group_id: group.number(), ..v1::Error::new(v1::ErrorReason::Indeterminate, says) }
    }
}

/// All links of a node.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: Mutex<BTreeMap<NodeId, Link>>,
}

#[derive(Debug, Clone)]
struct Link {
    calls: mpsc::Sender<(Op, oneshot::Sender<Result<OpResult, Lost>>)>,
}

impl Links {
    /// Has an operation carried out by another node.
    pub(crate) async fn call(&self, node: NodeId, address: &str, op: Op) -> Result<OpResult, Lost> {
        let link = self.link(node, address);
        let (sender, receiver) = oneshot::channel();
        link.calls.send((op, sender)).await.map_err(|_| Lost { sent: false })?;
        receiver.await.unwrap_or(Err(Lost { sent: true }))
    }

    fn link(&self, node: NodeId, address: &str) -> Link {
        let mut links = self.links.lock().expect("nobody panics with it");
        if let Some(link) = links.get(&node).filter(|link| !link.calls.is_closed()) {
            return link.clone();
        }
        let (calls, receiver) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(run(address.to_owned(), receiver));
        let link = Link { calls };
        links.insert(node, link.clone());
        link
    }
}

type Calls = mpsc::Receiver<(Op, oneshot::Sender<Result<OpResult, Lost>>)>;

/// Operations under way, by the number that the stream gives them.
#[derive(Debug, Default)]
struct Pending {
    next: AtomicU64,
    waiting: Mutex<BTreeMap<u64, oneshot::Sender<Result<OpResult, Lost>>>>,
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, oneshot::Sender<Result<OpResult, Lost>>>> {
        self.waiting.lock().expect("nobody panics with it")
    }

    fn add(&self, op: Op, answer: oneshot::Sender<Result<OpResult, Lost>>) -> v1::Operation {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().insert(id, answer);
        v1::Operation { id, op: Some(op) }
    }

    fn answered(&self, result: v1::OperationResult) {
        let Some(outcome) = result.result.filter(|outcome| !matches!(outcome, OpResult::Queued(_))) else {
            return;
        };
        if let Some(waiting) = self.lock().remove(&result.id) {
            // Its caller may be gone.
            let _ = waiting.send(Ok(outcome));
        }
    }
}

/// Carries calls until the stream breaks; whoever has no answer by then is told so.
async fn run(address: String, mut calls: Calls) {
    let pending = Arc::new(Pending::default());
    let (frames, outgoing) = mpsc::channel(16);
    let Some(mut incoming) = open(&address, outgoing).await else {
        calls.close();
        while let Ok((_, answer)) = calls.try_recv() {
            let _ = answer.send(Err(Lost { sent: false }));
        }
        return;
    };
    loop {
        tokio::select! {
            call = calls.recv() => {
                let Some((op, answer)) = call else { break };
                let mut operations = vec![pending.add(op, answer)];
                while operations.len() < FRAME_OPERATIONS_MAX && let Ok((op, answer)) = calls.try_recv() {
                    operations.push(pending.add(op, answer));
                }
                if frames.send(v1::SessionRequest { operations }).await.is_err() {
                    break;
                }
            }
            frame = incoming.next() => {
                let Some(Ok(frame)) = frame else { break };
                frame.results.into_iter().for_each(|result| pending.answered(result));
            }
        }
    }
    calls.close();
    while let Ok((_, answer)) = calls.try_recv() {
        let _ = answer.send(Err(Lost { sent: false }));
    }
    for answer in std::mem::take(&mut *pending.lock()).into_values() {
        let _ = answer.send(Err(Lost { sent: true }));
    }
}

async fn open(
    address: &str,
    outgoing: mpsc::Receiver<v1::SessionRequest>,
) -> Option<tonic::Streaming<v1::SessionResponse>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_PATIENCE)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(2))
        .keep_alive_timeout(Duration::from_secs(2));
    let channel = endpoint.connect().await.ok()?;
    let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
    request.metadata_mut().insert(FORWARDED, tonic::metadata::MetadataValue::from_static("1"));
    let session = SessionServiceClient::new(channel).session(request).await.ok()?;
    Some(session.into_inner())
}
