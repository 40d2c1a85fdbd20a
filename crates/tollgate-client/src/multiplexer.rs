//! Operations of a session stream: frames that are not sent yet, and operations that are not answered yet.
//!
//! A caller encodes its operation straight into the frame that is sent next, and waits in a slot for the answer.
//! Invariant: every operation is answered once, by the node or because the stream broke; in the latter case the caller
//! learns whether it may have arrived. The number of operations that wait to be sent is limited (P16); past the limit,
//! callers wait in line. Urgent operations have frames of their own, which go first. Not here: the stream itself
//! (`session_stream`).

use crate::in_flight::InFlight;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::sync::{Semaphore, TryAcquireError};
use tokio_stream::Stream;
use tollgate_proto::OperationFrame;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};

/// Maximum numbers of operations that wait to be sent.
const QUEUE_MAX: usize = 4_096;
const URGENT_MAX: usize = 1_024;

/// Maximum number of operations in one frame, and of their bytes; a longer operation is sent alone. Small enough that a
/// node works on the first operations while the next are encoded.
const FRAME_OPERATIONS_MAX: usize = 128;
const FRAME_BYTES_MAX: usize = 1 << 20;

/// Error for a stream that broke before the answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken {
    /// True if the operation may have reached the node.
    pub(crate) sent: bool,
}

/// Urgency of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Sent in order.
    Ordinary,
    /// Sent before all ordinary operations.
    Urgent,
}

pub(crate) type Answer = Result<OpResult, Broken>;

/// Unsent frames and unanswered operations of a stream.
#[derive(Debug)]
pub(crate) struct Multiplexer {
    inner: Mutex<Inner>,
    /// Room for further operations that wait to be sent.
    ordinary_room: Semaphore,
    urgent_room: Semaphore,
}

impl Default for Multiplexer {
    fn default() -> Multiplexer {
        Multiplexer {
            inner: Mutex::default(),
            ordinary_room: Semaphore::new(QUEUE_MAX),
            urgent_room: Semaphore::new(URGENT_MAX),
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    slots: InFlight<Answer>,
    urgent: Queue,
    ordinary: Queue,
    /// Waker of the stream that sends frames, while there is nothing to send.
    sender: Option<Waker>,
    /// True if other tasks had their turn to add operations since there is something to send.
    rested: bool,
    closed: bool,
}

/// Frames that are not sent yet; the last one is being filled.
#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<(OperationFrame, Vec<u64>)>,
    operations: usize,
}

impl Queue {
    fn push(&mut self, number: u64, op: &Op) {
        let room = |frame: &OperationFrame| {
            let bytes = frame.length() + op.encoded_len() + 16;
            frame.operations() < FRAME_OPERATIONS_MAX && bytes <= FRAME_BYTES_MAX
        };
        if !self.frames.back().is_some_and(|(frame, _)| room(frame)) {
            self.frames.push_back((OperationFrame::default(), Vec::new()));
        }
        let (frame, numbers) = self.frames.back_mut().expect("there is one now");
        frame.push(number, op);
        numbers.push(number);
        self.operations += 1;
    }

    fn pop(&mut self) -> Option<(OperationFrame, Vec<u64>)> {
        let popped = self.frames.pop_front()?;
        self.operations -= popped.0.operations();
        Some(popped)
    }
}

impl Multiplexer {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Sends an operation, and waits for its final answer. If this is dropped before that, the operation is carried out
    /// all the same, unless it was not sent yet and nobody waits for any other operation of its frame.
    pub(crate) async fn ask(&self, op: &Op, urgency: Urgency) -> Answer {
        let room = self.room(urgency);
        let place = match room.try_acquire() {
            Err(TryAcquireError::NoPermits) => room.acquire().await.ok(),
            place => place.ok(),
        };
        let Some(place) = place else { return Err(Broken { sent: false }) };
        let put = std::future::poll_fn(|context| Poll::Ready(self.put(op, urgency, context))).await;
        let Some(number) = put else { return Err(Broken { sent: false }) };
        // The place is given back when the operation is sent.
        place.forget();
        Awaited { multiplexer: self, number, seen: false }.await
    }

    fn room(&self, urgency: Urgency) -> &Semaphore {
        match urgency {
            Urgency::Ordinary => &self.ordinary_room,
            Urgency::Urgent => &self.urgent_room,
        }
    }

    /// Adds the operation to a frame. Returns its number, or none if the stream is closed.
    fn put(&self, op: &Op, urgency: Urgency, context: &Context<'_>) -> Option<u64> {
        let mut inner = self.lock();
        if inner.closed {
            return None;
        }
        let number = inner.slots.add(context.waker().clone());
        inner.queue(urgency).push(number, op);
        let sender = inner.sender.take();
        drop(inner);
        if let Some(sender) = sender {
            sender.wake();
        }
        Some(number)
    }

    /// Hands out the answers of a frame.
    pub(crate) fn deliver(&self, frame: v1::SessionResponse) {
        let mut wakers = Vec::with_capacity(frame.results.len());
        let mut inner = self.lock();
        for v1::OperationResult { id, result } in frame.results {
            // The notice that an operation waits in a queue is not an answer.
            let Some(result) = result.filter(|result| !matches!(result, OpResult::Queued(_))) else {
                continue;
            };
            wakers.extend(inner.slots.answer(id, Ok(result)));
        }
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the number of operations that have no answer yet.
    pub(crate) fn under_way(&self) -> usize {
        self.lock().slots.len()
    }

    /// Closes a stream that broke: all waiting callers, and all later ones, get the error.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        let (urgent, ordinary) = (std::mem::take(&mut inner.urgent), std::mem::take(&mut inner.ordinary));
        let unsent = urgent.frames.iter().chain(&ordinary.frames).flat_map(|(_, numbers)| numbers);
        let unsent: BTreeSet<u64> = unsent.copied().collect();
        let wakers = inner.slots.answer_all(|number| Err(Broken { sent: !unsent.contains(&number) }));
        let sender = inner.sender.take();
        drop(inner);
        wakers.into_iter().chain(sender).for_each(Waker::wake);
        self.ordinary_room.close();
        self.urgent_room.close();
    }

    /// Returns the next frame to send, with all operations added until now as far as they fit; none once the stream has
    /// broken.
    fn poll_frame(&self, context: &Context<'_>) -> Poll<Option<OperationFrame>> {
        loop {
            let mut inner = self.lock();
            if inner.closed {
                return Poll::Ready(None);
            }
            let waiting = inner.urgent.operations + inner.ordinary.operations;
            if waiting == 0 {
                inner.sender = Some(context.waker().clone());
                inner.rested = false;
                return Poll::Pending;
            }
            if waiting < FRAME_OPERATIONS_MAX && !inner.rested {
                // Operations of tasks that are about to run get into the same frame.
                inner.rested = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let urgency = if inner.urgent.operations > 0 { Urgency::Urgent } else { Urgency::Ordinary };
            let (frame, numbers) = inner.queue(urgency).pop().expect("something waits");
            let is_wanted = !inner.slots.forget_if_all_abandoned(&numbers);
            drop(inner);
            self.room(urgency).add_permits(frame.operations());
            // Operations that nobody waits for, like the keepalive of a session that is over, need not be sent.
            if is_wanted {
                return Poll::Ready(Some(frame));
            }
        }
    }
}

impl Inner {
    fn queue(&mut self, urgency: Urgency) -> &mut Queue {
        match urgency {
            Urgency::Ordinary => &mut self.ordinary,
            Urgency::Urgent => &mut self.urgent,
        }
    }
}

/// Operation that was added, until its answer was taken.
struct Awaited<'a> {
    multiplexer: &'a Multiplexer,
    number: u64,
    seen: bool,
}

impl Future for Awaited<'_> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let answer = self.multiplexer.lock().slots.poll(self.number, context);
        self.seen = answer.is_ready();
        answer
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        if !self.seen {
            self.multiplexer.lock().slots.abandon(self.number);
        }
    }
}

/// Frames of a session stream, in the form that the transport sends.
#[derive(Debug)]
pub(crate) struct Outgoing(pub(crate) Arc<Multiplexer>);

impl Stream for Outgoing {
    type Item = OperationFrame;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<OperationFrame>> {
        self.0.poll_frame(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use tokio_stream::StreamExt;

    fn revoke(id: u64) -> Op {
        Op::LeaseRevoke(v1::LeaseRevokeRequest { id })
    }

    fn ask(multiplexer: &Arc<Multiplexer>, id: u64, urgency: Urgency) -> tokio::task::JoinHandle<Answer> {
        let multiplexer = Arc::clone(multiplexer);
        tokio::spawn(async move { multiplexer.ask(&revoke(id), urgency).await })
    }

    /// Returns the leases that a frame revokes, and the numbers of its operations.
    fn read(frame: &OperationFrame) -> (Vec<u64>, Vec<u64>) {
        let request = v1::SessionRequest::decode(&frame.encode_to_vec()[..]).unwrap();
        let request = request.operations.into_iter().map(|operation| match operation.op {
            Some(Op::LeaseRevoke(revoke)) => (revoke.id, operation.id),
            _ => panic!("{operation:?}"),
        });
        request.unzip()
    }

    #[tokio::test]
    async fn what_is_urgent_goes_first_and_a_frame_takes_all_that_was_asked() {
        let (multiplexer, mut outgoing) = multiplexer();
        let asked: Vec<_> = (1..=300).map(|id| ask(&multiplexer, id, Urgency::Ordinary)).collect();
        let urgent = ask(&multiplexer, 7_777, Urgency::Urgent);
        until_under_way(&multiplexer, 301).await;
        assert_eq!(read(&outgoing.next().await.unwrap()).0, [7_777]);
        let (ids, numbers) = read(&outgoing.next().await.unwrap());
        assert_eq!(ids, (1..=128).collect::<Vec<u64>>());
        assert_eq!(read(&outgoing.next().await.unwrap()).0.len(), 128);
        assert_eq!(read(&outgoing.next().await.unwrap()).0.len(), 44);
        let done = OpResult::LeaseRevoke(v1::LeaseRevokeResponse::default());
        let result = |id: &u64| v1::OperationResult { id: *id, result: Some(done.clone()) };
        let results = numbers.iter().map(result).collect();
        multiplexer.deliver(v1::SessionResponse { results, header: None });
        for asked in asked.into_iter().take(128) {
            assert!(asked.await.unwrap().is_ok());
        }
        assert_eq!(multiplexer.under_way(), 300 - 128 + 1);
        drop(urgent);
    }

    /// Waits until this number of operations is in progress.
    async fn until_under_way(multiplexer: &Multiplexer, operations: usize) {
        while multiplexer.under_way() < operations {
            tokio::task::yield_now().await;
        }
    }

    fn multiplexer() -> (Arc<Multiplexer>, Outgoing) {
        let multiplexer = Arc::new(Multiplexer::default());
        (Arc::clone(&multiplexer), Outgoing(multiplexer))
    }

    #[tokio::test]
    async fn everybody_is_told_of_a_break_and_whether_the_operation_was_sent() {
        let (multiplexer, mut outgoing) = multiplexer();
        let sent = ask(&multiplexer, 1, Urgency::Ordinary);
        assert_eq!(read(&outgoing.next().await.unwrap()).0, [1]);
        let unsent = ask(&multiplexer, 2, Urgency::Ordinary);
        until_under_way(&multiplexer, 2).await;
        multiplexer.close();
        assert_eq!(sent.await.unwrap().unwrap_err(), Broken { sent: true });
        assert_eq!(unsent.await.unwrap().unwrap_err(), Broken { sent: false });
        assert_eq!(multiplexer.ask(&revoke(3), Urgency::Ordinary).await.unwrap_err(), Broken { sent: false });
        assert!(outgoing.next().await.is_none());
        assert_eq!(multiplexer.under_way(), 0);
    }

    #[tokio::test]
    async fn one_who_gives_up_frees_its_number_when_the_answer_comes() {
        let (multiplexer, mut outgoing) = multiplexer();
        let asked = ask(&multiplexer, 1, Urgency::Ordinary);
        let (_, numbers) = read(&outgoing.next().await.unwrap());
        asked.abort();
        let _ = asked.await;
        assert_eq!(multiplexer.under_way(), 1);
        let result = Some(OpResult::LeaseRevoke(v1::LeaseRevokeResponse::default()));
        let results = vec![v1::OperationResult { id: numbers[0], result }];
        multiplexer.deliver(v1::SessionResponse { results, header: None });
        assert_eq!(multiplexer.under_way(), 0);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_not_sent_if_nothing_else_is_in_its_frame() {
        let (multiplexer, mut outgoing) = multiplexer();
        let given_up = ask(&multiplexer, 1, Urgency::Urgent);
        until_under_way(&multiplexer, 1).await;
        given_up.abort();
        let _ = given_up.await;
        let asked = [2, 3].map(|id| ask(&multiplexer, id, Urgency::Ordinary));
        until_under_way(&multiplexer, 3).await;
        let [second, third] = asked;
        second.abort();
        let _ = second.await;
        assert_eq!(read(&outgoing.next().await.unwrap()).0, [2, 3], "one of them is awaited");
        assert_eq!(multiplexer.under_way(), 2, "the first has no number any more");
        assert_eq!(multiplexer.urgent_room.available_permits(), URGENT_MAX);
        third.abort();
    }

    #[tokio::test]
    async fn a_frame_has_so_many_bytes_at_most_and_a_longer_operation_goes_alone() {
        let (multiplexer, mut outgoing) = multiplexer();
        let put = |bytes: usize| {
            let put = v1::PutRequest { value: vec![7; bytes], ..v1::PutRequest::default() };
            let multiplexer = Arc::clone(&multiplexer);
            tokio::spawn(async move { multiplexer.ask(&Op::Put(put), Urgency::Ordinary).await })
        };
        let asked = [10, FRAME_BYTES_MAX - 100, 2 * FRAME_BYTES_MAX, 10, 10].map(put);
        until_under_way(&multiplexer, asked.len()).await;
        let mut counts = Vec::new();
        for _ in 0..3 {
            counts.push(outgoing.next().await.unwrap().operations());
        }
        assert_eq!(counts, [2, 1, 2]);
        asked.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn whoever_waits_for_room_gets_it_in_order_may_give_up_and_is_told_of_a_break() {
        let (multiplexer, mut outgoing) = multiplexer();
        let max = URGENT_MAX as u64;
        let first: Vec<_> = (1..=max).map(|id| ask(&multiplexer, id, Urgency::Urgent)).collect();
        until_under_way(&multiplexer, URGENT_MAX).await;
        let late: Vec<_> = (1..=300).map(|id| ask(&multiplexer, max + id, Urgency::Urgent)).collect();
        let ordinary = ask(&multiplexer, 7_777, Urgency::Ordinary);
        until_under_way(&multiplexer, URGENT_MAX + 1).await;
        // All of them wait for room by now; the first gives up.
        late[0].abort();
        assert_eq!(read(&outgoing.next().await.unwrap()).0.len(), FRAME_OPERATIONS_MAX);
        until_under_way(&multiplexer, URGENT_MAX + 1 + FRAME_OPERATIONS_MAX).await;
        let mut ids = Vec::new();
        while ids.len() < URGENT_MAX {
            ids.extend(read(&outgoing.next().await.unwrap()).0);
        }
        let in_order: Vec<u64> = (max + 2..).take(FRAME_OPERATIONS_MAX).collect();
        assert_eq!(ids[URGENT_MAX - FRAME_OPERATIONS_MAX..], in_order);
        multiplexer.close();
        for asked in late.into_iter().skip(1 + FRAME_OPERATIONS_MAX) {
            assert!(asked.await.unwrap().is_err());
        }
        assert!(!ordinary.await.unwrap().unwrap_err().sent);
        drop(first);
    }

    #[tokio::test]
    async fn p16_whoever_asks_when_too_much_waits_to_be_sent_waits_as_well() {
        let (multiplexer, mut outgoing) = multiplexer();
        let max = QUEUE_MAX as u64;
        let asked: Vec<_> = (1..=max + 500).map(|id| ask(&multiplexer, id, Urgency::Ordinary)).collect();
        until_under_way(&multiplexer, QUEUE_MAX).await;
        let mut seen = 0;
        while seen < max + 500 {
            seen += read(&outgoing.next().await.unwrap()).0.len() as u64;
            tokio::task::yield_now().await;
            assert!(multiplexer.lock().ordinary.operations <= QUEUE_MAX);
        }
        drop(asked);
    }
}
