//! Streams to other nodes, over which operations are forwarded to the leader.
//!
//! There is one session stream for each node and purpose, opened when it is first needed and reopened after it broke.
//! Invariant: every call is answered once, either by the other node or because the stream broke, in which case its
//! outcome is unknown; if its caller leaves before that, the other node is told. Not here: the decision to retry
//! (`router`).

use crate::operation::{Kind, Prepared};
use crate::queue_notice::QueueNotice;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tollgate_core::Command;
use tollgate_node::planted::{Bug, planted};
use tollgate_proto::v1::session_service_client::SessionServiceClient;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{Address, GroupId, NodeId};
use tonic::Status;
use tonic::transport::Endpoint;

/// Metadata key of streams that come from a node: their operations are not forwarded again.
const FORWARDED: &str = "tollgate-forwarded";

/// Maximum time to open a connection.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Maximum number of calls that wait to be sent.
const QUEUE_MAX: usize = 4_096;

/// Maximum number of operations in one frame, and of their bytes; a longer operation goes alone.
const FRAME_OPERATIONS_MAX: usize = 512;
const FRAME_BYTES_MAX: usize = 1 << 20;

/// An operation of at least this many bytes that goes alone may be the reason that its stream broke: the other node may
/// not accept longer frames. No node has a lower limit (`server.frame_bytes_max`).
const SUSPECT_BYTES_MIN: usize = 60 << 10;

/// Maximum length of a frame from another node: more than the longest result.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Purpose of the operations on a stream between nodes. Each purpose has streams of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Sessions asked for the operations: waits continue even if the stream breaks.
    Session,
    /// Callers of unary calls asked for the operations and stay connected: a wait is ended once no caller attends it.
    Attended,
    /// The operations end leases whose clients disconnected from the sending node.
    Disconnected,
}

impl Purpose {
    /// Returns the metadata value of the purpose's streams.
    const fn word(self) -> &'static str {
        match self {
            Purpose::Session => "session",
            Purpose::Attended => "attended",
            Purpose::Disconnected => "disconnected",
        }
    }

    /// Returns the purpose of a stream; none if it does not come from another node.
    pub fn of<T>(request: &tonic::Request<T>) -> Option<Purpose> {
        let word = request.metadata().get(FORWARDED)?;
        let known = [Purpose::Attended, Purpose::Disconnected];
        Some(known.into_iter().find(|purpose| word == purpose.word()).unwrap_or(Purpose::Session))
    }

    /// Marks an operation for this purpose; its client was seen at `from`.
    pub fn apply(self, prepared: &mut Prepared, from: &Address) {
        let Kind::Command { command, .. } = &mut prepared.kind else { return };
        match (self, command) {
            (Purpose::Attended, Command::AcquireLock(acquire)) => acquire.attended = true,
            (Purpose::Attended, Command::ConvertLock(convert)) => convert.attended = true,
            (Purpose::Disconnected, Command::RevokeLease(revoke)) => revoke.disconnected = Some(from.clone()),
            _ => {}
        }
    }
}

/// Error of a call whose stream broke or could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost {
    /// True if the operation had been sent.
    sent: bool,
    /// True if the operation may have broken the stream.
    suspect: bool,
}

impl Lost {
    /// The operation was sent, and its answer was lost.
    pub(crate) const SENT: Lost = Lost { sent: true, suspect: false };

    const UNSENT: Lost = Lost { sent: false, suspect: false };

    /// Returns true if the operation may have arrived.
    pub(crate) fn was_sent(self) -> bool {
        self.sent
    }

    /// Returns true if the operation may have broken the stream, and with it every other operation on it.
    pub(crate) fn is_suspect(self) -> bool {
        self.suspect
    }

    /// Returns the error for a caller whose operation broke every stream over which it was sent.
    pub(crate) fn breaks_streams(group: GroupId) -> v1::Error {
        let says = "streams to the leader break when this operation is sent, which is a long one: nodes may take less \
                    than the one that was asked, or a gateway (server.frame_bytes_max); do it in smaller steps";
        v1::Error { group_id: group.number(), ..v1::Error::new(v1::ErrorReason::Indeterminate, says) }
    }

    /// Returns the error for a caller whose operation was sent and must not be retried.
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

/// Destination of a stream, and its purpose.
type Whom = (NodeId, Purpose);

#[derive(Debug, Clone)]
struct Link {
    calls: mpsc::Sender<Call>,
    /// Calls that overtake the others.
    urgent: mpsc::Sender<Call>,
    /// Ids of calls whose callers went. The channel needs no limit of its own: there are never more hang-ups than
    /// calls.
    hang_ups: mpsc::UnboundedSender<u64>,
    next: Arc<AtomicU64>,
}

impl Links {
    /// Queues an operation to be sent to another node.
    ///
    /// `address` is the other node's address, `from` the client's.
    pub(crate) async fn call(
        &self,
        whom: Whom,
        address: &str,
        op: Op,
        from: &Address,
        place_in_line: QueueNotice,
    ) -> Result<Awaited, Lost> {
        let link = self.link(whom, address);
        let id = link.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answer) = oneshot::channel();
        let gone = Arc::new(AtomicBool::new(false));
        let from = if tells_where(&op) { from.to_string() } else { String::new() };
        let queue = if is_urgent(&op) { &link.urgent } else { &link.calls };
        let call = Call { id, op, from, answer: sender, gone: Arc::clone(&gone), line: place_in_line };
        queue.send(call).await.map_err(|_| Lost::UNSENT)?;
        Ok(Awaited { id, gone, hang_ups: link.hang_ups, answer })
    }

    fn link(&self, whom: Whom, address: &str) -> Link {
        let mut links = self.links.lock();
        if let Some(link) = links.get(&whom).filter(|link| !link.calls.is_closed()) {
            return link.clone();
        }
        let (calls, receiver) = mpsc::channel(QUEUE_MAX);
        let (urgent, urgent_receiver) = mpsc::channel(QUEUE_MAX);
        let (hang_ups, hung_up) = mpsc::unbounded_channel();
        tokio::spawn(run(
            address.to_owned(),
            whom.1,
            Calls { ordinary: receiver, urgent: urgent_receiver, hung_up },
        ));
        let link = Link { calls, urgent, hang_ups, next: Arc::default() };
        links.insert(whom, link.clone());
        link
    }
}

/// An answer that a caller waits for. Dropping it before the answer has arrived hangs up.
pub(crate) struct Awaited {
    id: u64,
    gone: Arc<AtomicBool>,
    hang_ups: mpsc::UnboundedSender<u64>,
    answer: oneshot::Receiver<Result<OpResult, Lost>>,
}

impl Awaited {
    /// Returns the answer. Must be called only once.
    pub(crate) async fn answer(&mut self) -> Result<OpResult, Lost> {
        (&mut self.answer).await.unwrap_or(Err(Lost::SENT))
    }

    /// Tells the other node that the caller no longer wants the answer; that node answers at once. An operation that
    /// was not sent yet never will be.
    pub(crate) fn hang_up(&self) {
        // Set before the hang-up is queued: a call that is not sent yet sees the flag, and a call that was sent is
        // already pending.
        if !self.gone.swap(true, Ordering::SeqCst) {
            // Fails only if the stream is gone.
            let _ = self.hang_ups.send(self.id);
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if !self.answer.is_terminated() {
            self.hang_up();
        }
    }
}

/// An operation on its way to another node.
#[derive(Debug)]
struct Call {
    /// Number of the call on the stream.
    id: u64,
    op: Op,
    /// Address at which the client was seen, if the operation needs it.
    from: String,
    answer: oneshot::Sender<Result<OpResult, Lost>>,
    /// True once the caller no longer wants the answer.
    gone: Arc<AtomicBool>,
    /// Effects of joining a queue at the other node.
    line: QueueNotice,
}

impl Call {
    /// Reports that the call was never sent.
    fn give_up(self) {
        // Fails if the caller is gone.
        let _ = self.answer.send(Err(Lost::UNSENT));
    }
}

/// Queues that feed a stream.
struct Calls {
    ordinary: mpsc::Receiver<Call>,
    urgent: mpsc::Receiver<Call>,
    hung_up: mpsc::UnboundedReceiver<u64>,
}

impl Calls {
    /// Returns the next call, if there is one.
    fn try_next(&mut self) -> Option<Call> {
        self.urgent.try_recv().or_else(|_| self.ordinary.try_recv()).ok()
    }
}

/// Operations sent and not yet answered, by their number on the stream.
#[derive(Debug, Default)]
struct Pending {
    waiting: Mutex<BTreeMap<u64, Waiting>>,
}

/// A caller that waits for an answer.
#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Result<OpResult, Lost>>,
    line: QueueNotice,
    /// True if the operation was sent in a frame of its own that may have been too long.
    suspect: bool,
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Waiting>> {
        self.waiting.lock()
    }

    fn add(&self, Call { id, mut op, from, answer, line, .. }: Call) -> v1::Operation {
        self.lock().insert(id, Waiting { answer, line, suspect: false });
        if planted(Bug::SeqNotForwarded)
            && let Op::Unlock(v1::UnlockRequest { request, .. }) | Op::Lock(v1::LockRequest { request, .. }) =
                &mut op
        {
            *request = None;
        }
        v1::Operation { id, op: Some(op), client_address: from }
    }

    fn answered(&self, result: v1::OperationResult) {
        let Some(outcome) = result.result else { return };
        let mut all = self.lock();
        if let OpResult::Queued(queued) = outcome {
            let line = all.get(&result.id).map(|waiting| waiting.line.clone());
            drop(all);
            if let Some(line) = line {
                line.joined(queued);
            }
        } else if let Some(waiting) = all.remove(&result.id) {
            // Fails if the caller is gone.
            let _ = waiting.answer.send(Ok(outcome));
        }
    }

    /// Marks an operation as sent in a long frame of its own.
    fn suspect(&self, id: u64) {
        if let Some(waiting) = self.lock().get_mut(&id) {
            waiting.suspect = true;
        }
    }

    /// Answers all pending operations after the stream broke: their outcome is unknown.
    fn broke(&self) {
        for Waiting { answer, suspect, .. } in std::mem::take(&mut *self.lock()).into_values() {
            let _ = answer.send(Err(Lost { sent: true, suspect }));
        }
    }

    /// Returns true if an operation was sent and has no answer yet.
    fn has(&self, id: u64) -> bool {
        self.lock().contains_key(&id)
    }
}

/// Carries calls until the stream breaks; calls without an answer by then are answered with [`Lost`].
async fn run(address: String, purpose: Purpose, mut calls: Calls) {
    let pending = Arc::new(Pending::default());
    let (frames, outgoing) = mpsc::channel(16);
    if let Some(incoming) = open(&address, purpose, outgoing).await {
        carry(&pending, &mut calls, &frames, incoming).await;
    }
    calls.ordinary.close();
    calls.urgent.close();
    while let Some(call) = calls.try_next() {
        call.give_up();
    }
    pending.broke();
}

async fn carry(
    pending: &Arc<Pending>,
    calls: &mut Calls,
    frames: &mpsc::Sender<v1::SessionRequest>,
    incoming: impl Stream<Item = Result<v1::SessionResponse, Status>> + Send + 'static,
) {
    // Answers are read even while nothing can be sent: the other node stops reading while its answers are not read, and
    // if each side waited for the other, both would wait for ever.
    let mut reader = Reader(tokio::spawn(read(Arc::clone(pending), incoming)));
    let mut carried = None;
    loop {
        // A slot in the outgoing channel is reserved first: a call that is still in the queue is known not to have been
        // sent.
        let place = tokio::select! {
            place = frames.reserve() => place,
            _ = &mut reader.0 => break,
        };
        let Ok(place) = place else { break };
        let frame = if carried.is_some() {
            pack(pending, &mut carried, calls)
        } else {
            tokio::select! {
                biased;
                Some(call) = calls.urgent.recv() => {
                    carried = Some(call);
                    pack(pending, &mut carried, calls)
                }
                call = calls.ordinary.recv() => {
                    let Some(call) = call else { break };
                    carried = Some(call);
                    pack(pending, &mut carried, calls)
                }
                // There is a hang-up sender as long as there are calls.
                Some(id) = calls.hung_up.recv() => {
                    let mut frame = pack(pending, &mut carried, calls);
                    frame.hung_up.extend(Some(id).filter(|id| pending.has(*id)));
                    frame
                }
                _ = &mut reader.0 => break,
            }
        };
        if !frame.operations.is_empty() || !frame.hung_up.is_empty() {
            place.send(frame);
        }
    }
    if let Some(call) = carried {
        call.give_up();
    }
}

/// Packs a frame with calls, starting with the one carried over, and hang-ups; leaves in `carried` the call that did
/// not fit.
fn pack(pending: &Pending, carried: &mut Option<Call>, calls: &mut Calls) -> v1::SessionRequest {
    let mut frame = v1::SessionRequest::default();
    let mut bytes = 0;
    while frame.operations.len() < FRAME_OPERATIONS_MAX {
        let Some(call) = carried.take().or_else(|| calls.try_next()) else { break };
        if call.gone.load(Ordering::SeqCst) {
            call.give_up();
            continue;
        }
        let length = length(&call.op);
        if bytes + length > FRAME_BYTES_MAX && !frame.operations.is_empty() {
            *carried = Some(call);
            break;
        }
        bytes += length;
        frame.operations.push(pending.add(call));
    }
    if let [alone] = &frame.operations[..]
        && bytes >= SUSPECT_BYTES_MIN
    {
        pending.suspect(alone.id);
    }
    // Packed after the calls, so that no hang-up is for a call that is still to be sent.
    while frame.hung_up.len() < FRAME_OPERATIONS_MAX
        && let Ok(id) = calls.hung_up.try_recv()
    {
        frame.hung_up.extend(Some(id).filter(|id| pending.has(*id)));
    }
    frame
}

/// Returns true for an operation that overtakes others: a delayed keepalive ends a lease that its client keeps alive.
fn is_urgent(op: &Op) -> bool {
    matches!(op, Op::LeaseKeepAlive(_))
}

/// Returns true if the operation needs the address at which its client was seen.
fn tells_where(op: &Op) -> bool {
    matches!(op, Op::LeaseGrant(_) | Op::LeaseKeepAlive(_) | Op::LeaseRevoke(_) | Op::ForceRelease(_))
}

/// Estimates the bytes that an operation takes in a frame.
fn length(op: &Op) -> usize {
    op.encoded_len() + 96
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

/// Task that reads answers; aborted on drop.
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
    use crate::queue_notice::OnQueue;

    type Answered = oneshot::Receiver<Result<OpResult, Lost>>;

    fn call(id: u64, bytes: usize) -> (Call, Answered) {
        let (answer, answered) = oneshot::channel();
        let put = v1::PutRequest { value: vec![7; bytes], ..Default::default() };
        let (from, gone) = (String::new(), Arc::default());
        (Call { id, op: Op::Put(put), from, answer, gone, line: QueueNotice::default() }, answered)
    }

    /// Returns queues with room for `room` calls.
    fn queue(room: usize) -> (mpsc::Sender<Call>, mpsc::UnboundedSender<u64>, Calls) {
        let (queue, ordinary) = mpsc::channel(room);
        let (_, urgent) = mpsc::channel(room);
        let (hang_ups, hung_up) = mpsc::unbounded_channel();
        (queue, hang_ups, Calls { ordinary, urgent, hung_up })
    }

    fn ids(frame: &v1::SessionRequest) -> Vec<u64> {
        frame.operations.iter().map(|operation| operation.id).collect()
    }

    #[tokio::test]
    async fn answers_are_read_while_nothing_can_be_sent() {
        let pending = Arc::new(Pending::default());
        let (queue, _hang_ups, mut calls) = queue(4);
        // The channel has room for one frame, which nobody takes out.
        let (frames, _unread) = mpsc::channel(1);
        let (answers, incoming) = mpsc::channel(4);
        let carrying = Arc::clone(&pending);
        let carrier = tokio::spawn(async move {
            carry(&carrying, &mut calls, &frames, ReceiverStream::new(incoming)).await;
        });
        let (first, answered) = call(1, 1);
        queue.send(first).await.unwrap();
        let result = Some(OpResult::Put(v1::PutResponse::default()));
        while pending.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let (second, _unanswered) = call(2, 1);
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
        let (queue, _hang_ups, mut calls) = queue(8);
        let mut waiting = Vec::new();
        for (id, bytes) in (1..).zip([10, FRAME_BYTES_MAX, 10]) {
            let (call, answered) = call(id, bytes);
            queue.try_send(call).unwrap();
            waiting.push(answered);
        }
        let mut carried = None;
        assert_eq!((ids(&pack(&pending, &mut carried, &mut calls)), carried.is_some()), (vec![1], true));
        assert_eq!(ids(&pack(&pending, &mut carried, &mut calls)), [2], "a long one goes alone");
        assert_eq!((ids(&pack(&pending, &mut carried, &mut calls)), carried.is_some()), (vec![3], false));
    }

    #[test]
    fn a_long_operation_that_went_alone_may_be_why_its_stream_broke() {
        let pending = Pending::default();
        let (queue, _hang_ups, mut calls) = queue(8);
        let mut waiting = Vec::new();
        // The last two share a frame, so neither can be suspected.
        let lengths = [10, SUSPECT_BYTES_MIN, SUSPECT_BYTES_MIN, 10];
        for (at, (id, bytes)) in (1..).zip(lengths).enumerate() {
            let (call, answered) = call(id, bytes);
            queue.try_send(call).unwrap();
            waiting.push(answered);
            if at != 2 {
                pack(&pending, &mut None, &mut calls);
            }
        }
        pending.broke();
        let lost = waiting.iter_mut().map(|answered| answered.try_recv().unwrap().unwrap_err());
        let lost: Vec<(bool, bool)> = lost.map(|lost| (lost.was_sent(), lost.is_suspect())).collect();
        assert_eq!(lost, [(true, false), (true, true), (true, false), (true, false)]);
    }

    #[test]
    fn what_is_urgent_overtakes_what_waits_to_be_sent() {
        let pending = Pending::default();
        let (queue, _hang_ups, mut calls) = queue(8);
        let (urgent, urgent_queue) = mpsc::channel(8);
        calls.urgent = urgent_queue;
        let mut waiting = Vec::new();
        for (queue, id) in [(&queue, 1), (&queue, 2), (&urgent, 3)] {
            let (call, answered) = call(id, 1);
            queue.try_send(call).unwrap();
            waiting.push(answered);
        }
        assert_eq!(ids(&pack(&pending, &mut None, &mut calls)), [3, 1, 2]);
        assert!(is_urgent(&Op::LeaseKeepAlive(v1::LeaseKeepAliveRequest::default())));
    }

    #[test]
    fn what_waits_in_a_queue_elsewhere_tells_so_and_gives_its_place_to_the_next() {
        let admission = crate::admission::Admission::new(1);
        let asked = crate::request_info::RequestInfo { kind: 0, fencing_token: 0 };
        let pending = Pending::default();
        let (waits, _answered) = call(1, 1);
        let permit = Arc::new(admission.admit(asked).unwrap());
        let (tell, told) = std::sync::mpsc::channel();
        let on_queue = Some(OnQueue::new(move |queued: v1::Queued| tell.send(queued.position).unwrap()));
        let line = QueueNotice { permit: Some(Arc::clone(&permit)), on_queue };
        pending.add(Call { line, ..waits });
        assert!(admission.admit(asked).is_err());
        for position in [7, 2] {
            let queued = Some(OpResult::Queued(v1::Queued { position, create_revision: 3 }));
            pending.answered(v1::OperationResult { id: 1, result: queued });
        }
        assert!(admission.admit(asked).is_ok() && pending.has(1));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [7, 2]);
    }

    #[test]
    fn a_caller_that_goes_takes_back_what_was_not_sent_and_is_told_of_otherwise() {
        let pending = Pending::default();
        let (queue, hang_ups, mut calls) = queue(8);
        let mut callers = Vec::new();
        for id in 1..=4 {
            let (call, answer) = call(id, 1);
            callers.push(Awaited { id, gone: Arc::clone(&call.gone), hang_ups: hang_ups.clone(), answer });
            queue.try_send(call).unwrap();
        }
        callers[0].hang_up();
        let frame = pack(&pending, &mut None, &mut calls);
        assert_eq!((ids(&frame), frame.hung_up), (vec![2, 3, 4], vec![]), "the first was never sent");
        assert!(matches!(callers[0].answer.try_recv(), Ok(Err(lost)) if !lost.was_sent()));
        // One caller hangs up and keeps listening, one goes without an answer, one goes after its answer.
        callers[1].hang_up();
        let result = || Some(OpResult::Put(v1::PutResponse::default()));
        pending.answered(v1::OperationResult { id: 4, result: result() });
        assert!(matches!(callers[3].answer.try_recv(), Ok(Ok(_))));
        let left = callers.remove(1);
        callers.clear();
        let frame = pack(&pending, &mut None, &mut calls);
        assert_eq!((ids(&frame), frame.hung_up), (vec![], vec![2, 3]));
        for id in [2, 3] {
            pending.answered(v1::OperationResult { id, result: result() });
        }
        assert!(pending.lock().is_empty());
        assert!({ left }.answer.try_recv().is_ok(), "the other node had answered before it heard");
    }
}
