//! Frames on their way to a session's client: few, so that one who does not read is not read from either.
//!
//! Unlike a channel it can be emptied: a session that is cut has nothing more to keep for its client but the reason.
//! Not here: what is in a frame.

use super::unread::Charge;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;
use tokio_stream::Stream;
use tollgate_proto::v1::SessionResponse;
use tonic::Status;

/// Frames that wait for a client that does not read.
const FRAMES_MAX: usize = 8;

/// Nobody reads any more.
#[derive(Debug)]
pub(super) struct Gone;

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// There is room, or nobody left to read.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<(SessionResponse, Charge)>,
    /// The frame that was taken last: whoever took it has it until it asks for the next.
    taken: Charge,
    /// No more come.
    is_over: bool,
    /// Why, if that is not what the client wished.
    why: Option<Status>,
    reader: Option<Waker>,
    is_gone: bool,
}

/// Where frames are put.
#[derive(Debug)]
pub(crate) struct FrameSender(Arc<Shared>);

/// Where they come out.
#[derive(Debug)]
pub(crate) struct FrameStream(Arc<Shared>);

pub(crate) fn frames() -> (FrameSender, FrameStream) {
    let shared = Arc::new(Shared::default());
    (FrameSender(Arc::clone(&shared)), FrameStream(shared))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nobody panics with it")
    }
}

impl Queue {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl FrameSender {
    /// Waits for room. By one task at a time.
    pub(super) async fn send(&self, frame: SessionResponse, charge: Charge) -> Result<(), Gone> {
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
    pub(super) async fn closed(&self) {
        while !self.0.lock().is_gone {
            self.0.changed.notified().await;
        }
    }

    /// Ends the stream with an error, ahead of what waits, which is forgotten.
    pub(super) fn cut(&self, status: Status) {
        let mut queue = self.0.lock();
        (queue.is_over, queue.why) = (true, Some(status));
        queue.taken = Charge::default();
        queue.frames.clear();
        queue.wake();
    }
}

impl Drop for FrameSender {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_over = true;
        queue.wake();
    }
}

impl Stream for FrameStream {
    type Item = Result<SessionResponse, Status>;

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

impl Drop for FrameStream {
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
    use crate::session::unread::Unread;
    use std::time::Duration;
    use tokio_stream::StreamExt;

    #[tokio::test]
    async fn a_full_queue_waits_and_a_cut_one_keeps_only_its_reason() {
        let opened = Unread::new(1 << 20).open(true);
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
        let (sender, mut stream) = frames();
        sender.send(SessionResponse::default(), Charge::default()).await.unwrap();
        drop(sender);
        assert!(stream.next().await.unwrap().is_ok());
        assert!(stream.next().await.is_none());
    }
}
