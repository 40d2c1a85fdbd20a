//! Frames on their way to the client of a session, or of another stream: few, so that a client that does not read is
//! not read from either.
//!
//! Unlike a channel, this queue can be emptied: a stream that is cut keeps nothing for its client but the reason. Not
//! here: the content of frames.

use super::send_backlog::Charge;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;
use tokio_stream::Stream;
use tollgate_proto::v1::SessionResponse;
use tonic::Status;

/// Maximum number of frames that wait for a client that does not read.
const FRAMES_MAX: usize = 8;

/// Error: nobody reads the stream any more.
#[derive(Debug)]
pub(crate) struct Gone;

#[derive(Debug)]
struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// Notified when there is room, or nobody is left to read.
    changed: Notify,
}

#[derive(Debug)]
struct Queue<T> {
    frames: VecDeque<(T, Charge)>,
    /// Charge of the frame that was taken last: the reader has that frame until it asks for the next one.
    taken: Charge,
    /// True if no more frames come.
    is_over: bool,
    /// Reason for the end, if it is not the end that the client wished.
    why: Option<Status>,
    reader: Option<Waker>,
    is_gone: bool,
}

/// Sending side of a frame queue.
#[derive(Debug)]
pub(crate) struct FrameSender<T = SessionResponse>(Arc<Shared<T>>);

/// Receiving side of a frame queue.
#[derive(Debug)]
pub(crate) struct FrameStream<T = SessionResponse>(Arc<Shared<T>>);

pub(crate) fn frames<T>() -> (FrameSender<T>, FrameStream<T>) {
    let queue = Queue {
        frames: VecDeque::new(),
        taken: Charge::default(),
        is_over: false,
        why: None,
        reader: None,
        is_gone: false,
    };
    let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Notify::new() });
    (FrameSender(Arc::clone(&shared)), FrameStream(shared))
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock()
    }
}

impl<T> Queue<T> {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl<T> FrameSender<T> {
    /// Waits for room and queues a frame. Must be called by one task at a time.
    pub(crate) async fn send(&self, frame: T, charge: Charge) -> Result<(), Gone> {
        loop {
            {
                let mut queue = self.0.lock();
                if queue.is_gone {
                    return Err(Gone);
                }
                if queue.frames.len() < FRAMES_MAX {
                    queue.frames.push_back((frame, charge));
                    queue.wake();
                    return Ok(());
                }
            }
            self.0.changed.notified().await;
        }
    }

    /// Waits until nobody reads any more.
    pub(crate) async fn closed(&self) {
        while !self.0.lock().is_gone {
            self.0.changed.notified().await;
        }
    }

    /// Ends the stream with an error, which goes ahead of the waiting frames; those are dropped.
    pub(crate) fn cut(&self, status: Status) {
        let mut queue = self.0.lock();
        (queue.is_over, queue.why) = (true, Some(status));
        queue.taken = Charge::default();
        queue.frames.clear();
        queue.wake();
    }
}

impl<T> Drop for FrameSender<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_over = true;
        queue.wake();
    }
}

impl<T> Stream for FrameStream<T> {
    type Item = Result<T, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut queue = self.0.lock();
        queue.taken = Charge::default();
        if let Some((frame, charge)) = queue.frames.pop_front() {
            queue.taken = charge;
            self.0.changed.notify_one();
            return Poll::Ready(Some(Ok(frame)));
        }
        if queue.is_over {
            return Poll::Ready(queue.why.take().map(Err));
        }
        queue.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for FrameStream<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_gone = true;
        queue.taken = Charge::default();
        queue.frames.clear();
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::send_backlog::SendBacklog;
    use std::time::Duration;
    use tokio_stream::StreamExt;

    #[tokio::test]
    async fn a_full_queue_waits_and_a_cut_one_keeps_only_its_reason() {
        let opened = SendBacklog::new(1 << 20).open();
        let (sender, mut stream) = frames();
        for _ in 0..FRAMES_MAX {
            sender.send(SessionResponse::default(), opened.account().charge(10)).await.unwrap();
        }
        let one_more = sender.send(SessionResponse::default(), opened.account().charge(10));
        assert!(tokio::time::timeout(Duration::from_millis(20), one_more).await.is_err());
        assert_eq!(opened.account().bytes(), 10 * FRAMES_MAX);
        assert!(stream.next().await.unwrap().is_ok());
        assert_eq!(opened.account().bytes(), 10 * FRAMES_MAX, "whoever took it may not be done with it");
        sender.cut(Status::resource_exhausted("too much"));
        assert_eq!(opened.account().bytes(), 0);
        assert_eq!(stream.next().await.unwrap().unwrap_err().message(), "too much");
        assert!(stream.next().await.is_none());
        drop(stream);
        sender.closed().await;
        assert!(sender.send(SessionResponse::default(), Charge::default()).await.is_err());
    }

    #[tokio::test]
    async fn a_sender_that_is_gone_ends_the_stream_behind_its_frames() {
        let (sender, mut stream) = frames::<SessionResponse>();
        sender.send(SessionResponse::default(), Charge::default()).await.unwrap();
        drop(sender);
        assert!(stream.next().await.unwrap().is_ok());
        assert!(stream.next().await.is_none());
    }
}
