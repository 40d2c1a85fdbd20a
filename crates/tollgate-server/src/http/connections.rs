//! Serves HTTP/1.1 on each connection, with a time limit for everything that a client may fail to send.
//!
//! Invariant: a connection without a request under way ends soon: the head of the next request, its first byte
//! included, has a deadline and a size limit. A request that is being answered has no deadline: it may wait for a lock.
//! Not here: bodies (`endpoint`), the number of connections (`crate::connections`).

use crate::connections::{Connection, Door, accept};
use axum::extract::ConnectInfo;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tower_service::Service;

/// Maximum bytes of a request's head, and of its body that is read ahead.
const HEAD_BYTES_MAX: usize = 32 << 10;

const HEADERS_MAX: usize = 64;

/// Serves the routes until `closed` is set, and then finishes the requests under way. `patience`: time limit for the
/// head of a request, which also limits how long a connection is kept for the next one.
pub(crate) async fn serve(
    listener: TcpListener,
    door: Door,
    patience: Duration,
    routes: axum::Router,
    closed: watch::Receiver<bool>,
) {
    let mut incoming = accept(listener, door);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = until(closed.clone()) => break,
            connection = incoming.next() => match connection {
                Some(Ok(connection)) => {
                    connections.spawn(serve_one(connection, patience, routes.clone(), closed.clone()));
                }
                Some(Err(_)) => {}
                None => break,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(incoming);
    while connections.join_next().await.is_some() {}
}

async fn serve_one(
    connection: Connection,
    patience: Duration,
    routes: axum::Router,
    closed: watch::Receiver<bool>,
) {
    let from = connection.from();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(from));
        routes.clone().call(request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(connection), service);
    let mut serving = pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = until(closed) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%from, %error, "an HTTP connection ended");
    }
}

async fn until(mut closed: watch::Receiver<bool>) {
    let _ = closed.wait_for(|closed| *closed).await;
}
