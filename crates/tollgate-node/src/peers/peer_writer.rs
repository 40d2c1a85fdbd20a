//! The outgoing frames to one peer. The sender itself writes frames to the socket, as long as the socket takes them: a
//! task that would have to be woken for each frame costs more than the write itself. Bytes that the socket does not
//! take wait for the task behind it (`outgoing`).
//!
//! Invariant: frames go out in order, each whole or not at all on one connection; waiting bytes are bounded, and frames
//! meant for one connection never go out on another. No caller blocks. Not here: dialling (`outgoing`).

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Maximum number of bytes that wait for one peer; above it, frames are dropped.
const WAITING_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Default)]
pub(super) struct PeerWriter {
    inner: Mutex<Inner>,
    /// Signals that bytes wait that the socket did not take, or that the connection broke.
    stuck: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// The connection; none while there is none.
    stream: Option<Arc<TcpStream>>,
    /// Bytes that the socket has not taken yet, frame by frame.
    waiting: VecDeque<Vec<u8>>,
    /// Number of bytes of the first frame that the socket has taken.
    written: usize,
    /// Number of waiting bytes.
    bytes: usize,
    /// Error after which nothing more can be written to the connection.
    broken: Option<io::Error>,
}

impl PeerWriter {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Sends frames to this connection from now on.
    pub(super) fn open(&self, stream: Arc<TcpStream>) {
        *self.lock() = Inner { stream: Some(stream), ..Inner::default() };
    }

    /// Drops frames from now on, including those that wait.
    pub(super) fn close(&self) {
        *self.lock() = Inner::default();
    }

    /// Sends a frame, or drops it: without a connection, or above the limit.
    pub(super) fn send(&self, frame: &[u8]) {
        let length = u32::try_from(frame.len()).expect("a frame is a few megabytes").to_le_bytes();
        let mut inner = self.lock();
        let Inner { stream: Some(stream), waiting, bytes, broken: None, .. } = &mut *inner else { return };
        if *bytes + frame.len() > WAITING_BYTES_MAX {
            return;
        }
        let taken = if waiting.is_empty() { take(stream, &[&length, frame]) } else { Ok(0) };
        match taken {
            Ok(taken) if taken == length.len() + frame.len() => return,
            Ok(taken) => {
                let mut rest = Vec::with_capacity(length.len() + frame.len() - taken);
                rest.extend_from_slice(&length[taken.min(length.len())..]);
                rest.extend_from_slice(&frame[taken.saturating_sub(length.len())..]);
                *bytes += rest.len();
                waiting.push_back(rest);
            }
            Err(error) => inner.broken = Some(error),
        }
        drop(inner);
        self.stuck.notify_one();
    }

    /// Writes the waiting bytes, until the connection breaks.
    pub(super) async fn carry_on(&self, stream: &TcpStream) -> io::Error {
        loop {
            self.stuck.notified().await;
            loop {
                if let Err(error) = stream.writable().await {
                    return error;
                }
                match self.lock().write_waiting() {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => return error,
                }
            }
        }
    }
}

impl Inner {
    /// Writes what the socket takes at once; returns true if nothing is left. A few frames at a time, because the
    /// driver waits for the lock.
    fn write_waiting(&mut self) -> io::Result<bool> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let Some(stream) = &self.stream else { return Ok(true) };
        let first = self.waiting.front().map(|frame| &frame[self.written..]);
        let parts: Vec<&[u8]> =
            first.into_iter().chain(self.waiting.iter().skip(1).map(Vec::as_slice)).take(PARTS_MAX).collect();
        let taken = take(stream, &parts)?;
        self.bytes -= taken;
        self.written += taken;
        while let Some(frame) = self.waiting.front()
            && self.written >= frame.len()
        {
            self.written -= frame.len();
            self.waiting.pop_front();
        }
        Ok(self.waiting.is_empty())
    }
}

/// Maximum number of frames in one write.
const PARTS_MAX: usize = 16;

/// Writes to the socket without waiting; returns the number of bytes that it took.
fn take(stream: &TcpStream, parts: &[&[u8]]) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); PARTS_MAX];
    for (slice, part) in slices.iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    match stream.try_write_vectored(&slices[..parts.len().min(PARTS_MAX)]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        taken => taken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    async fn pair() -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (dialled, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let dialled = dialled.unwrap();
        dialled.writable().await.unwrap();
        (Arc::new(dialled), accepted.unwrap().0)
    }

    async fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
        let mut frame = vec![0; stream.read_u32_le().await.unwrap() as usize];
        stream.read_exact(&mut frame).await.unwrap();
        frame
    }

    #[tokio::test]
    async fn frames_arrive_whole_and_in_order_whatever_the_socket_takes() {
        let (stream, mut peer) = pair().await;
        let peer_writer = Arc::new(PeerWriter::default());
        peer_writer.open(Arc::clone(&stream));
        let behind = Arc::clone(&peer_writer);
        let task = tokio::spawn(async move { behind.carry_on(&stream).await });
        let frames: Vec<Vec<u8>> = (0..40_u8).map(|n| vec![n; 1 + 40_000 * usize::from(n)]).collect();
        for frame in &frames {
            peer_writer.send(frame);
        }
        assert!(!peer_writer.lock().waiting.is_empty(), "32 MB don't fit into a socket that nobody reads");
        for frame in &frames {
            assert_eq!(read_frame(&mut peer).await, *frame);
        }
        peer_writer.send(b"once more");
        assert_eq!(read_frame(&mut peer).await, b"once more");
        drop(peer);
        // The first write after the end may still succeed.
        while !task.is_finished() {
            peer_writer.send(b"to nobody");
            tokio::task::yield_now().await;
        }
        task.await.unwrap();
    }

    #[tokio::test]
    async fn p16_what_waits_for_a_peer_is_bounded_and_goes_with_its_connection() {
        let (stream, _peer) = pair().await;
        let peer_writer = PeerWriter::default();
        peer_writer.send(b"before there is a connection");
        peer_writer.open(stream);
        let frame = vec![7; 1 << 20];
        for _ in 0..200 {
            peer_writer.send(&frame);
        }
        let waiting = peer_writer.lock().waiting.iter().map(Vec::len).sum::<usize>();
        let bytes = peer_writer.lock().bytes;
        assert_eq!(bytes, waiting);
        assert!((WAITING_BYTES_MAX - (2 << 20)..=WAITING_BYTES_MAX + 4).contains(&waiting), "{waiting}");
        peer_writer.close();
        let inner = peer_writer.lock();
        assert_eq!((inner.bytes, inner.waiting.capacity()), (0, 0));
    }
}
