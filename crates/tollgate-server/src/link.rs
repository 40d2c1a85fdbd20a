//! Streams to other nodes, over which operations are forwarded to the leader.
//!
//! One session stream for each node, opened when it is first needed and again after it broke. Invariant: every call
//! is answered once, by the other node or because the stream broke, and then nobody knows what became of it. Not here:
//! whether to try again (`router`).

use crate::operation::{Kind, Prepared};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tollgate_core::Command;
use tollgate_node::planted::{Bug, planted};
use tollgate_proto::v1::session_service_client::SessionServiceClient;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{GroupId, NodeId};
use tonic::Status;
use tonic::transport::Endpoint;

/// Says that a stream comes from a node: what it carries is not forwarded again.
const FORWARDED: &str = "tollgate-forwarded";

/// How long a connection may take.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Calls that wait to be sent.
const QUEUE_MAX: usize = 4_096;

/// Operations in one frame at most, and their bytes; a longer one goes alone.
const FRAME_OPERATIONS_MAX: usize = 512;
const FRAME_BYTES_MAX: usize = 1 << 20;

/// The longest frame of another node: a result that is too long for a client is refused only at the client's node.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What the operations of a stream between nodes are for. Each purpose has streams of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Clients asked for them.
    Client,
    /// They end leases whose clients disconnected from the node that sends them.
    Disconnected,
}

impl Purpose {
    /// What the metadata of its streams says.
    const fn word(self) -> &'static str {
        match self {
            Purpose::Client => "1",
            Purpose::Disconnected => "disconnected",
        }
    }

    /// What a stream is for; none if it does not come from another node.
    pub(crate) fn of<T>(request: &tonic::Request<T>) -> Option<Purpose> {
        let word = request.metadata().get(FORWARDED)?;
        Some(if word == Purpose::Disconnected.word() { Purpose::Disconnected } else { Purpose::Client })
    }

    /// Makes an operation one for this purpose.
    pub(crate) fn apply(self, prepared: &mut Prepared) {
        if let (Purpose::Disconnected, Kind::Command { command: Command::RevokeLease(revoke), .. }) =
            (self, &mut prepared.kind)
        {
            revoke.disconnected = true;
        }
    }
}

/// The stream broke, or could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Whether the operation was sent before.
    sent: bool,
}

impl Lost {
    /// Nobody waits for the answer any more.
    pub(crate) const SENT: Lost = Lost { sent: true };

    /// Whether the operation may have arrived.
    pub(crate) fn was_sent(self) -> bool {
        self.sent
    }

    /// What to tell a caller whose operation was sent and who does not want to try again.
    pub(crate) fn unsure(group: GroupId) -> v1::Error {
        let says = "the leader went away before it answered";
        v1::Error { group_id: group.number(), ..v1::Error::new(v1::ErrorReason::Indeterminate, says) }
    }
}

/// All links of a node.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: Mutex<BTreeMap<Whom, Link>>,
}

/// To whom a stream goes, and what for.
type Whom = (NodeId, Purpose);

#[derive(Debug, Clone)]
struct Link {
    calls: mpsc::Sender<Call>,
}

impl Links {
    /// Has an operation carried out by another node.
    pub(crate) async fn call(&self, whom: Whom, address: &str, op: Op) -> Result<OpResult, Lost> {
        let link = self.link(whom, address);
        let (sender, receiver) = oneshot::channel();
        link.calls.send((op, sender)).await.map_err(|_| Lost { sent: false })?;
        receiver.await.unwrap_or(Err(Lost { sent: true }))
    }

    fn link(&self, whom: Whom, address: &str) -> Link {
        let mut links = self.links.lock().expect("nobody panics with it");
        if let Some(link) = links.get(&whom).filter(|link| !link.calls.is_closed()) {
            return link.clone();
        }
        let (calls, receiver) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(run(address.to_owned(), whom.1, receiver));
        let link = Link { calls };
        links.insert(whom, link.clone());
        link
    }
}

type Call = (Op, oneshot::Sender<Result<OpResult, Lost>>);
type Calls = mpsc::Receiver<Call>;

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
        let mut op = op;
        if planted(Bug::SeqNotForwarded)
            && let Op::Unlock(v1::UnlockRequest { request, .. }) | Op::Lock(v1::LockRequest { request, .. }) =
                &mut op
        {
            *request = None;
        }
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
async fn run(address: String, purpose: Purpose, mut calls: Calls) {
    let pending = Arc::new(Pending::default());
    let (frames, outgoing) = mpsc::channel(16);
    if let Some(incoming) = open(&address, purpose, outgoing).await {
        carry(&pending, &mut calls, &frames, incoming).await;
    }
    calls.close();
    while let Ok((_, answer)) = calls.try_recv() {
        let _ = answer.send(Err(Lost { sent: false }));
    }
    for answer in std::mem::take(&mut *pending.lock()).into_values() {
        let _ = answer.send(Err(Lost { sent: true }));
    }
}

async fn carry(
    pending: &Arc<Pending>,
    calls: &mut Calls,
    frames: &mpsc::Sender<v1::SessionRequest>,
    incoming: impl Stream<Item = Result<v1::SessionResponse, Status>> + Send + 'static,
) {
    // Answers are read whatever becomes of sending: the other node reads no further while nobody reads its answers, and
    // if each waited for the other, both would wait for ever.
    let mut reader = Reader(tokio::spawn(read(Arc::clone(pending), incoming)));
    let mut carried = None;
    loop {
        // A place first: what is not taken from the queue is known not to have been sent.
        let place = tokio::select! {
            place = frames.reserve() => place,
            _ = &mut reader.0 => break,
        };
        let Ok(place) = place else { break };
        let first = if carried.is_some() {
            carried.take()
        } else {
            tokio::select! {
                call = calls.recv() => call,
                _ = &mut reader.0 => break,
            }
        };
        let Some(first) = first else { break };
        let operations;
        (operations, carried) = pack(pending, first, calls);
        place.send(v1::SessionRequest { operations });
    }
    if let Some((_, answer)) = carried {
        let _ = answer.send(Err(Lost { sent: false }));
    }
}

/// A frame full of calls, and the call that did not fit.
fn pack(pending: &Pending, first: Call, calls: &mut Calls) -> (Vec<v1::Operation>, Option<Call>) {
    let mut bytes = length(&first.0);
    let mut operations = vec![pending.add(first.0, first.1)];
    while operations.len() < FRAME_OPERATIONS_MAX && bytes < FRAME_BYTES_MAX {
        let Ok((op, answer)) = calls.try_recv() else { break };
        bytes += length(&op);
        if bytes > FRAME_BYTES_MAX {
            return (operations, Some((op, answer)));
        }
        operations.push(pending.add(op, answer));
    }
    (operations, None)
}

/// About how many bytes an operation takes in a frame.
fn length(op: &Op) -> usize {
    op.encoded_len() + 16
}

async fn read(
    pending: Arc<Pending>,
    incoming: impl Stream<Item = Result<v1::SessionResponse, Status>> + Send,
) {
    let mut incoming = std::pin::pin!(incoming);
    while let Some(Ok(frame)) = incoming.next().await {
        frame.results.into_iter().for_each(|result| pending.answered(result));
    }
}

/// Reads as long as it is there.
struct Reader(JoinHandle<()>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn open(
    address: &str,
    purpose: Purpose,
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
    request.metadata_mut().insert(FORWARDED, tonic::metadata::MetadataValue::from_static(purpose.word()));
    let mut client = SessionServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    let session = client.session(request).await.ok()?;
    Some(session.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(bytes: usize) -> (Call, oneshot::Receiver<Result<OpResult, Lost>>) {
        let (answer, answered) = oneshot::channel();
        let put = v1::PutRequest { value: vec![7; bytes], ..Default::default() };
        ((Op::Put(put), answer), answered)
    }

    #[tokio::test]
    async fn answers_are_read_while_nothing_can_be_sent() {
        let pending = Arc::new(Pending::default());
        let (queue, mut calls) = mpsc::channel(4);
        // Room for one frame, which nobody takes out.
        let (frames, _unread) = mpsc::channel(1);
        let (answers, incoming) = mpsc::channel(4);
        let carrying = Arc::clone(&pending);
        let carrier = tokio::spawn(async move {
            carry(&carrying, &mut calls, &frames, ReceiverStream::new(incoming)).await;
        });
        let (first, answered) = call(1);
        queue.send(first).await.unwrap();
        let result = Some(OpResult::Put(v1::PutResponse::default()));
        while pending.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let (second, _unanswered) = call(1);
        queue.send(second).await.unwrap();
        let results = vec![v1::OperationResult { id: 1, result }];
        answers.send(Ok(v1::SessionResponse { results, header: None })).await.unwrap();
        assert!(matches!(answered.await, Ok(Ok(OpResult::Put(_)))));
        drop(answers);
        carrier.await.unwrap();
    }

    #[test]
    fn a_frame_is_cut_by_bytes_and_what_does_not_fit_goes_next() {
        let pending = Pending::default();
        let (queue, mut calls) = mpsc::channel(8);
        let mut waiting = Vec::new();
        for bytes in [10, FRAME_BYTES_MAX, 10] {
            let (call, answered) = call(bytes);
            queue.try_send(call).unwrap();
            waiting.push(answered);
        }
        let first = calls.try_recv().unwrap();
        let (operations, carried) = pack(&pending, first, &mut calls);
        assert_eq!((operations.len(), carried.is_some()), (1, true));
        let (operations, carried) = pack(&pending, carried.unwrap(), &mut calls);
        assert_eq!((operations.len(), carried.is_some()), (1, false), "a long one goes alone");
        let first = calls.try_recv().unwrap();
        assert_eq!(pack(&pending, first, &mut calls).0.len(), 1);
    }
}
