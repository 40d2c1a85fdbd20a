//! One session stream to one node: operations of all tasks go out in frames, answers come back to whoever asked.
//!
//! Invariant: every operation is answered once, by the node or because the line broke; then the asker is told whether
//! it had been sent. Keepalives have a queue of their own, which is emptied first. A frame takes all that is queued
//! when it is made: under load many operations share one, and an idle line sends at once, for no timer is involved.
//! Not here: which node (`pilot`), and whether to ask again (`call`).

use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind};
use crate::slots::Slots;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::session_service_client::SessionServiceClient;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tonic::Streaming;
use tonic::transport::Channel;

/// Operations that wait for a frame; past that, whoever asks waits.
const QUEUE_MAX: usize = 4_096;
const URGENT_MAX: usize = 1_024;

/// Operations in one frame at most, and their bytes; a longer one goes alone. Few enough that a node deals with the
/// first while the next are asked for.
const FRAME_OPERATIONS_MAX: usize = 128;
const FRAME_BYTES_MAX: usize = 1 << 20;

/// Frames that were made and not sent.
const FRAMES_MAX: usize = 4;

/// The longest frame of answers.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The line broke before the answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Whether the operation may have reached the node.
    pub(crate) sent: bool,
}

/// How soon an operation is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// In order.
    Ordinary,
    /// Before everything that is not.
    Urgent,
}

type Answer = Result<OpResult, Broken>;
type Asked = (Op, oneshot::Sender<Answer>);

/// An open session stream. It closes when the last reference is dropped.
#[derive(Debug)]
pub(crate) struct Line {
    endpoint: Endpoint,
    channel: Channel,
    ordinary: mpsc::Sender<Asked>,
    urgent: mpsc::Sender<Asked>,
    shared: Arc<Shared>,
    closing: watch::Sender<bool>,
    to_gateway: bool,
}

#[derive(Debug)]
struct Shared {
    slots: Mutex<Slots<Answer>>,
    broken: AtomicBool,
    /// When a frame came in last, in milliseconds since the line was opened.
    heard_ms: AtomicU64,
    opened: Instant,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slots<Answer>> {
        self.slots.lock().expect("nobody panics with it")
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Line {
    /// Connects to a node and opens a session, which it has to greet.
    pub(crate) async fn open(endpoint: Endpoint, patience: Duration) -> Result<Arc<Line>, Error> {
        let until = tokio::time::Instant::now() + patience;
        let channel = endpoint.dial(patience).await?;
        let greeted = tokio::time::timeout_at(until, greet(channel.clone())).await;
        let greeted = greeted.unwrap_or_else(|_| {
            let says =
                format!("it accepts connections but does not answer within {} ms", patience.as_millis());
            Err(Error::new(ErrorKind::Unreachable, says, false))
        })?;
        Ok(Line::start(endpoint, channel, greeted))
    }

    fn start(endpoint: Endpoint, channel: Channel, greeted: Greeted) -> Arc<Line> {
        let Greeted { frames, answers, to_gateway } = greeted;
        let (ordinary, ordinary_queue) = mpsc::channel(QUEUE_MAX);
        let (urgent, urgent_queue) = mpsc::channel(URGENT_MAX);
        let (closing, closed) = watch::channel(false);
        let shared = Arc::new(Shared {
            slots: Mutex::default(),
            broken: AtomicBool::new(false),
            heard_ms: AtomicU64::new(0),
            opened: Instant::now(),
        });
        let writer =
            Writer { ordinary: ordinary_queue, urgent: urgent_queue, shared: Arc::clone(&shared), frames };
        tokio::spawn(run(writer, answers, closed));
        Arc::new(Line { endpoint, channel, ordinary, urgent, shared, closing, to_gateway })
    }

    /// Where it goes.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether a gateway is at its other end: no node may be in reach then.
    pub(crate) fn is_to_gateway(&self) -> bool {
        self.to_gateway
    }

    /// The connection, for calls that have no place in a session.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// How many operations have no answer yet.
    pub(crate) fn under_way(&self) -> usize {
        self.shared.lock().len()
    }

    /// For how long nothing has come in.
    pub(crate) fn silence(&self) -> Duration {
        let heard_ms = self.shared.heard_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.shared.elapsed_ms().saturating_sub(heard_ms))
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.shared.broken.load(Ordering::Acquire)
    }

    /// Gives the line up: whoever waits is told that it broke.
    pub(crate) fn abandon(&self) {
        let _ = self.closing.send(true);
    }

    /// Completes when the line has broken.
    pub(crate) async fn until_broken(&self) {
        self.ordinary.closed().await;
    }

    /// Has an operation carried out, and waits for its final answer.
    pub(crate) async fn ask(&self, op: Op, urgency: Urgency) -> Answer {
        let (sender, answer) = oneshot::channel();
        let queue = match urgency {
            Urgency::Ordinary => &self.ordinary,
            Urgency::Urgent => &self.urgent,
        };
        queue.send((op, sender)).await.map_err(|_| Broken { sent: false })?;
        answer.await.unwrap_or(Err(Broken { sent: true }))
    }
}

/// A session that was opened.
struct Greeted {
    frames: mpsc::Sender<v1::SessionRequest>,
    answers: Streaming<v1::SessionResponse>,
    to_gateway: bool,
}

async fn greet(channel: Channel) -> Result<Greeted, Error> {
    let (frames, outgoing) = mpsc::channel(FRAMES_MAX);
    let mut client = SessionServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    let opened = client.session(ReceiverStream::new(outgoing)).await;
    let mut answers = opened.map_err(|status| Error::of_status(&status))?.into_inner();
    match answers.next().await {
        Some(Ok(hello)) => {
            // A gateway is no member.
            let to_gateway = hello.header.is_some_and(|header| header.member_id == 0);
            Ok(Greeted { frames, answers, to_gateway })
        }
        Some(Err(status)) => Err(Error::of_status(&status)),
        None => Err(Error::new(ErrorKind::Unreachable, "it closed the session at once", false)),
    }
}

/// Carries operations and answers until the stream breaks or nobody needs it; whoever waits then is told so.
async fn run(mut writer: Writer, answers: Streaming<v1::SessionResponse>, mut closed: watch::Receiver<bool>) {
    let shared = Arc::clone(&writer.shared);
    tokio::select! {
        () = read(&shared, answers) => {}
        () = writer.run() => {}
        // Told to close, or dropped.
        _ = closed.wait_for(|closing| *closing) => {}
    }
    shared.broken.store(true, Ordering::Release);
    writer.give_up();
}

/// Hands out answers as they come.
async fn read(shared: &Shared, mut answers: Streaming<v1::SessionResponse>) {
    loop {
        match answers.next().await {
            Some(Ok(frame)) => {
                deliver(shared, frame);
                // Whoever has an answer may ask again before the next frame is looked at.
                tokio::task::yield_now().await;
            }
            Some(Err(status)) => {
                tracing::debug!(%status, "a session broke");
                return;
            }
            None => return,
        }
    }
}

fn deliver(shared: &Shared, frame: v1::SessionResponse) {
    shared.heard_ms.store(shared.elapsed_ms(), Ordering::Relaxed);
    let mut slots = shared.lock();
    for v1::OperationResult { id, result } in frame.results {
        // That something waits is no answer yet.
        let Some(result) = result.filter(|result| !matches!(result, OpResult::Queued(_))) else { continue };
        if let Some(waiting) = slots.take(id) {
            // Its asker may be gone.
            let _ = waiting.send(Ok(result));
        }
    }
}

/// Makes frames of what is asked.
struct Writer {
    ordinary: mpsc::Receiver<Asked>,
    urgent: mpsc::Receiver<Asked>,
    shared: Arc<Shared>,
    frames: mpsc::Sender<v1::SessionRequest>,
}

impl Writer {
    /// Until the stream takes no more frames, or nobody can ask any more.
    async fn run(&mut self) {
        let mut carried = None;
        loop {
            // A place first: what is still queued is known not to have been sent.
            let Ok(place) = self.frames.clone().reserve_owned().await else { break };
            let first = match carried.take() {
                Some(asked) => asked,
                None => match self.next().await {
                    Some(asked) => asked,
                    None => break,
                },
            };
            let operations;
            (operations, carried) = self.pack(first);
            place.send(v1::SessionRequest { operations, hung_up: Vec::new() });
        }
        if let Some((_, answer)) = carried {
            let _ = answer.send(Err(Broken { sent: false }));
        }
    }

    async fn next(&mut self) -> Option<Asked> {
        let asked = tokio::select! {
            biased;
            asked = self.urgent.recv() => return asked,
            asked = self.ordinary.recv() => asked?,
        };
        // Whoever is about to ask gets into the same frame.
        tokio::task::yield_now().await;
        Some(asked)
    }

    /// A frame full of operations, the urgent ones before the rest of the queue, and one that did not fit.
    fn pack(&mut self, first: Asked) -> (Vec<v1::Operation>, Option<Asked>) {
        let mut slots = self.shared.slots.lock().expect("nobody panics with it");
        let mut operations = Vec::new();
        let (mut bytes, mut next) = (0, Some(first));
        while let Some((op, answer)) = next.take() {
            bytes += op.encoded_len() + 16;
            if bytes > FRAME_BYTES_MAX && !operations.is_empty() {
                return (operations, Some((op, answer)));
            }
            // Nobody waits for it any more, so nobody minds that it is not sent.
            if !answer.is_closed() {
                operations.push(v1::Operation {
                    id: slots.add(answer),
                    op: Some(op),
                    client_address: String::new(),
                });
            }
            if operations.len() < FRAME_OPERATIONS_MAX {
                next = self.urgent.try_recv().or_else(|_| self.ordinary.try_recv()).ok();
            }
        }
        (operations, None)
    }

    /// Tells everybody who waits that nothing more will come.
    fn give_up(&mut self) {
        for queue in [&mut self.urgent, &mut self.ordinary] {
            queue.close();
            while let Ok((_, answer)) = queue.try_recv() {
                let _ = answer.send(Err(Broken { sent: false }));
            }
        }
        for answer in self.shared.lock().drain() {
            let _ = answer.send(Err(Broken { sent: true }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(id: u64) -> (Asked, oneshot::Receiver<Answer>) {
        let (sender, answer) = oneshot::channel();
        ((Op::LeaseRevoke(v1::LeaseRevokeRequest { id }), sender), answer)
    }

    fn ids(operations: &[v1::Operation]) -> Vec<u64> {
        let id = |operation: &v1::Operation| match operation.op {
            Some(Op::LeaseRevoke(revoke)) => revoke.id,
            _ => panic!("{operation:?}"),
        };
        operations.iter().map(id).collect()
    }

    fn writer() -> (Writer, mpsc::Sender<Asked>, mpsc::Sender<Asked>) {
        let (ordinary, ordinary_queue) = mpsc::channel(QUEUE_MAX);
        let (urgent, urgent_queue) = mpsc::channel(URGENT_MAX);
        let shared = Arc::new(Shared {
            slots: Mutex::default(),
            broken: AtomicBool::new(false),
            heard_ms: AtomicU64::new(0),
            opened: Instant::now(),
        });
        let (frames, _) = mpsc::channel(1);
        (Writer { ordinary: ordinary_queue, urgent: urgent_queue, shared, frames }, ordinary, urgent)
    }

    #[tokio::test]
    async fn what_is_urgent_overtakes_a_full_queue_and_everything_shares_one_frame() {
        let (mut writer, ordinary, urgent) = writer();
        let mut waiting = Vec::new();
        for id in 1..=2_000 {
            let (asked, answer) = asked(id);
            ordinary.try_send(asked).unwrap();
            waiting.push(answer);
        }
        let (keepalive, answer) = asked(7_777);
        urgent.try_send(keepalive).unwrap();
        waiting.push(answer);
        let first = writer.next().await.unwrap();
        let (operations, carried) = writer.pack(first);
        assert_eq!((operations.len(), carried.is_none()), (FRAME_OPERATIONS_MAX, true));
        assert_eq!(ids(&operations)[..3], [7_777, 1, 2]);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_sent_and_everybody_is_told_of_a_break() {
        let (mut writer, ordinary, _urgent) = writer();
        let (gone, answer) = asked(1);
        drop(answer);
        let (sent, mut told) = asked(2);
        ordinary.try_send(sent).unwrap();
        let (operations, _) = writer.pack(gone);
        assert_eq!(ids(&operations), [2]);
        let (unsent, mut told_unsent) = asked(3);
        ordinary.try_send(unsent).unwrap();
        writer.give_up();
        assert!(matches!(told.try_recv(), Ok(Err(Broken { sent: true }))));
        assert!(matches!(told_unsent.try_recv(), Ok(Err(Broken { sent: false }))));
    }
}
