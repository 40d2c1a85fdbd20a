//! Connections of clients: accepted up to a limit, counted while they live.
//!
//! Past the limit a newcomer is accepted and closed at once: a clear cut, where a full backlog would let it hang. Not
//! here: what is said on them.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// A client's connection; its place is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

/// Connections as they come in.
pub(crate) fn accept(
    listener: TcpListener,
    connections_max: usize,
) -> ReceiverStream<io::Result<Connection>> {
    let places = Arc::new(Semaphore::new(connections_max));
    let (sender, receiver) = tokio::sync::mpsc::channel(64);
    tokio::spawn(async move {
        let mut refused: u64 = 0;
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            match (stream, Arc::clone(&places).try_acquire_owned()) {
                (Ok((stream, _)), Ok(place)) => {
                    // Small frames must not wait for more; a connection where that fails is as good as gone.
                    let _ = stream.set_nodelay(true);
                    if sender.send(Ok(Connection { stream, _place: place })).await.is_err() {
                        return;
                    }
                }
                (Ok((stream, from)), Err(_)) => {
                    drop(stream);
                    refused += 1;
                    if refused.is_power_of_two() {
                        tracing::warn!(%from, refused, "too many connections: raise server.connections_max");
                    }
                }
                (Err(error), _) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Out of file descriptors, most likely: let some end.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    });
    ReceiverStream::new(receiver)
}

/// Connections as HTTP wants them.
pub(crate) struct HttpListener {
    incoming: ReceiverStream<io::Result<Connection>>,
    address: SocketAddr,
}

impl HttpListener {
    /// Accepts so many at most.
    pub(crate) fn new(listener: TcpListener, connections_max: usize) -> io::Result<HttpListener> {
        let address = listener.local_addr()?;
        Ok(HttpListener { incoming: accept(listener, connections_max), address })
    }
}

impl axum::serve::Listener for HttpListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.incoming.next().await {
                // One that is gone already has no address.
                Some(Ok(connection)) => {
                    if let Ok(from) = connection.stream.peer_addr() {
                        return (connection, from);
                    }
                }
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// Where a connection of an [`HttpListener`] comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HttpPeer(pub(crate) SocketAddr);

impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, HttpListener>> for HttpPeer {
    fn connect_info(stream: axum::serve::IncomingStream<'_, HttpListener>) -> HttpPeer {
        HttpPeer(*stream.remote_addr())
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl Connection {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buf)
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

/// Opens a port, with an error that names it.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)
        .map_err(|error| io::Error::new(error.kind(), format!("can't listen on {address}: {error}")))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
