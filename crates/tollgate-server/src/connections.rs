//! Connections of clients: accepted up to a limit, counted while they live, closed if the client sends nothing.
//!
//! Past the limit a new connection is accepted and closed at once: a clear failure, where a full backlog would let the
//! client hang. Invariant: a connection whose other side is gone, or never sends a request, ends by itself. Not here:
//! the protocols on these connections (`grpc`, `http`), connections of other nodes (`tollgate_node`).

use crate::metrics::{Metrics, Open};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Maximum time that data may stay unacknowledged, or a receive window closed, before the other side counts as gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Maximum number of connections that the kernel queues until they are accepted; the kernel may have a lower limit of
/// its own (Linux: 4,096). If a node goes down, all its clients connect to the next node at once; those that find no
/// room try again after one second, then two, then four, or are reset.
const BACKLOG: i32 = 4_096;

/// Pause after a failure to accept a connection. One failure in `ACCEPT_PAUSES_PER_LINE` is logged.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const ACCEPT_PAUSES_PER_LINE: u64 = 200;

/// A port for clients, with its limits.
pub(crate) struct Door {
    /// Name in metrics and log lines.
    pub(crate) name: &'static str,
    /// Maximum number of concurrent connections.
    pub(crate) connections_max: usize,
    /// Number of bytes that every client must send first, and the time limit for them. None where the protocol above
    /// enforces a limit itself.
    pub(crate) first_words: Option<(usize, Duration)>,
    pub(crate) metrics: Arc<Metrics>,
}

/// A client's connection. Dropping it frees its place.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    from: SocketAddr,
    /// Bytes that the client still has to send before the deadline; none once they have arrived.
    first_words: Option<FirstWords>,
    _place: OwnedSemaphorePermit,
    _open: Open,
}

#[derive(Debug)]
struct FirstWords {
    bytes_left: usize,
    deadline: Pin<Box<Sleep>>,
}

/// Accepts connections. The stream never yields an error.
pub(crate) fn accept(listener: TcpListener, door: Door) -> ReceiverStream<io::Result<Connection>> {
    let (sender, receiver) = tokio::sync::mpsc::channel(64);
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(door.connections_max));
        let mut refusals = Refusals { door: door.name, connections_max: door.connections_max, count: 0 };
        let mut failures: u64 = 0;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Most likely the process is out of file descriptors: wait until some are closed.
                    if failures.is_multiple_of(ACCEPT_PAUSES_PER_LINE) {
                        tracing::warn!(%error, door = door.name, "a connection could not be accepted");
                    }
                    failures += 1;
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            failures = 0;
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                drop(stream);
                refusals.refused(from);
                continue;
            };
            refusals.accepted(places.available_permits());
            // A connection that can't be tuned is as good as gone, and its reader will notice.
            let _ = tune(&stream);
            let first_words = door.first_words.map(|(bytes_left, patience)| FirstWords {
                bytes_left,
                deadline: Box::pin(tokio::time::sleep(patience)),
            });
            let open = door.metrics.connection(door.name);
            let connection = Connection { stream, from, first_words, _place: place, _open: open };
            if sender.send(Ok(connection)).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(receiver)
}

/// Sets socket options: small frames don't wait for more, and a connection that silently broke is noticed.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(SILENCE_MAX))?;
    let probes = TcpKeepalive::new().with_time(SILENCE_MAX / 2).with_interval(SILENCE_MAX / 6);
    socket.set_tcp_keepalive(&probes)
}

/// Logs once that a door is full, and once that it no longer is.
struct Refusals {
    door: &'static str,
    connections_max: usize,
    /// Connections refused since the door was full.
    count: u64,
}

impl Refusals {
    fn refused(&mut self, from: SocketAddr) {
        self.count += 1;
        if self.count == 1 {
            let Refusals { door, connections_max, .. } = *self;
            tracing::warn!(
                door, connections_max, %from,
                "too many connections, new ones are closed: let some end, or raise server.connections_max"
            );
        }
    }

    /// Called after a connection was accepted, with the number of places left. Once a sixteenth of them are free, the
    /// next shortage is logged again.
    fn accepted(&mut self, places: usize) {
        if self.count > 0 && places >= self.connections_max / 16 {
            tracing::info!(door = self.door, refused = self.count, "connections are accepted again");
            self.count = 0;
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl Connection {
    /// Returns the client's address.
    pub(crate) fn from(&self) -> SocketAddr {
        self.from
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if let Some(first_words) = &mut this.first_words {
            first_words.bytes_left = first_words.bytes_left.saturating_sub(buf.filled().len() - before);
            if first_words.bytes_left == 0 {
                this.first_words = None;
            } else if read.is_pending() && first_words.deadline.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Opens a port; the error names the address.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    listen(address)
        .map_err(|error| io::Error::new(error.kind(), format!("can't listen on {address}: {error}")))
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted node can take its port while connections of its last run are still closing.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
