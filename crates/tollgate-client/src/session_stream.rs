//! One session stream to one node: operations of all tasks go out in frames, and answers are handed to their callers.
//!
//! A frame takes all operations that are waiting when it is sent: under load many operations share a frame, and an idle
//! stream sends at once, because no timer is involved. Not here: operations and frames in flight (`multiplexer`), the
//! choice of the node (`connections`), and the decision to repeat (`call`).

use crate::endpoint::{self, Endpoint};
use crate::error::{Error, ErrorKind};
use crate::multiplexer::{Answer, Multiplexer, Outgoing, Urgency};
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio_stream::StreamExt;
use tollgate_proto::v1::{self, operation::Op};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// Maximum size of a frame of answers.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Path of the call that opens sessions. The generated client is not used, because it would build frames from operation
/// messages, and these frames are built from encoded bytes.
const SESSION: &str = "/tollgate.v1.SessionService/Session";

/// Open session stream. It closes when the last reference is dropped.
#[derive(Debug)]
pub(crate) struct SessionStream {
    endpoint: Endpoint,
    channel: Channel,
    shared: Arc<Shared>,
    closing: watch::Sender<bool>,
    to_gateway: bool,
}

#[derive(Debug)]
struct Shared {
    multiplexer: Arc<Multiplexer>,
    broken: AtomicBool,
    /// Waiters for the end of the stream.
    broke: Notify,
    /// Time when a frame last came in, in milliseconds since the stream was opened.
    heard_ms: AtomicU64,
    opened: Instant,
}

impl Shared {
    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl SessionStream {
    /// Connects to a node and opens a session. The node must answer with a first frame within `patience`.
    pub(crate) async fn open(endpoint: Endpoint, patience: Duration) -> Result<Arc<SessionStream>, Error> {
        let until = tokio::time::Instant::now() + patience;
        let channel = endpoint.dial(patience).await?;
        match tokio::time::timeout_at(until, greet(channel.clone())).await {
            Ok(Ok(greeted)) => Ok(SessionStream::start(endpoint, channel, greeted)),
            // The answer has no Tollgate error: this may not be a client port.
            Ok(Err(error)) if error.wire().is_none() => {
                Err(endpoint.what_else_it_is().await.unwrap_or(error))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let says =
                    format!("it accepts connections but does not answer within {} ms", patience.as_millis());
                Err(Error::new(ErrorKind::Unreachable, says, false))
            }
        }
    }

    fn start(endpoint: Endpoint, channel: Channel, greeted: Greeted) -> Arc<SessionStream> {
        let Greeted { outgoing, answers, to_gateway } = greeted;
        let (closing, closed) = watch::channel(false);
        let shared = Arc::new(Shared {
            multiplexer: Arc::clone(&outgoing.0),
            broken: AtomicBool::new(false),
            broke: Notify::new(),
            heard_ms: AtomicU64::new(0),
            opened: Instant::now(),
        });
        tokio::spawn(run(Open { shared: Arc::clone(&shared), _outgoing: outgoing }, answers, closed));
        Arc::new(SessionStream { endpoint, channel, shared, closing, to_gateway })
    }

    /// Returns the endpoint that the stream goes to.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// True if the stream goes to a gateway: the nodes may be unreachable then.
    pub(crate) fn is_to_gateway(&self) -> bool {
        self.to_gateway
    }

    /// Returns the connection, for calls that are not part of a session.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns the number of operations that have no answer yet.
    pub(crate) fn under_way(&self) -> usize {
        self.shared.multiplexer.under_way()
    }

    /// Returns the time since a frame last came in.
    pub(crate) fn silence(&self) -> Duration {
        let heard_ms = self.shared.heard_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.shared.elapsed_ms().saturating_sub(heard_ms))
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.shared.broken.load(Ordering::Acquire)
    }

    /// Closes the stream: all waiting callers get the error that it broke.
    pub(crate) fn abandon(&self) {
        let _ = self.closing.send(true);
    }

    /// Completes when the stream has broken.
    pub(crate) async fn until_broken(&self) {
        // Registered before the check, so that no notification is missed in between.
        let broke = self.shared.broke.notified();
        if !self.is_broken() {
            broke.await;
        }
    }

    /// Sends an operation, and waits for its final answer.
    pub(crate) async fn ask(&self, op: &Op, urgency: Urgency) -> Answer {
        self.shared.multiplexer.ask(op, urgency).await
    }
}

/// Ends the outgoing stream of frames when dropped. The transport keeps the stream, and with it the connection, until
/// the stream has ended, whether or not anybody reads the answers.
struct Ended(Arc<Multiplexer>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Marker of an open stream: dropping it marks the stream as broken.
struct Open {
    shared: Arc<Shared>,
    /// Dropped after the stream was marked as broken: a caller whose operation fails for it asks for another stream at
    /// once.
    _outgoing: Ended,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.broken.store(true, Ordering::Release);
        self.shared.broke.notify_waiters();
    }
}

/// Session that was opened.
struct Greeted {
    outgoing: Ended,
    answers: Streaming<v1::SessionResponse>,
    to_gateway: bool,
}

async fn greet(channel: Channel) -> Result<Greeted, Error> {
    let outgoing = Ended(Arc::default());
    let mut client = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    let ready = client.ready().await;
    ready.map_err(|error| Error::new(ErrorKind::Unreachable, error.to_string(), false))?;
    let request = Request::new(Outgoing(Arc::clone(&outgoing.0)));
    let path = PathAndQuery::from_static(SESSION);
    let opened = client.streaming(request, path, ProstCodec::default()).await;
    let mut answers: Streaming<v1::SessionResponse> =
        opened.map_err(|status| not_opened(&status))?.into_inner();
    match answers.next().await {
        Some(Ok(hello)) => {
            // A gateway is not a member.
            let to_gateway = hello.header.is_some_and(|header| header.member_id == 0);
            Ok(Greeted { outgoing, answers, to_gateway })
        }
        Some(Err(status)) => Err(not_opened(&status)),
        None => Err(Error::new(ErrorKind::Unreachable, "it closed the session at once", false)),
    }
}

/// Returns the reason why no session was opened: the node's own error, or the innermost cause.
fn not_opened(status: &Status) -> Error {
    let error = Error::of_status(status);
    if error.wire().is_some() || status.source().is_none() {
        return error;
    }
    Error::new(ErrorKind::Unreachable, endpoint::cause_of(status), false)
}

/// Hands out answers until the stream breaks or the stream is closed; callers that still wait get the error that it
/// broke.
async fn run(open: Open, answers: Streaming<v1::SessionResponse>, mut closed: watch::Receiver<bool>) {
    tokio::select! {
        () = read(&open.shared, answers) => {}
        // The stream was closed or dropped.
        _ = closed.wait_for(|closing| *closing) => {}
    }
}

/// Hands out answers as they arrive.
async fn read(shared: &Shared, mut answers: Streaming<v1::SessionResponse>) {
    loop {
        match answers.next().await {
            Some(Ok(frame)) => {
                shared.heard_ms.store(shared.elapsed_ms(), Ordering::Relaxed);
                shared.multiplexer.deliver(frame);
                // A caller that has its answer may send its next operation before the next frame is read.
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
