//! Streams that a gateway passes on from a node, frame by frame.
//!
//! Invariant: a client that does not read is not read for, and what waits for it counts with what all others leave
//! unread. A client that has nothing more to ask is told on; only then may the node end its stream well. A stream that
//! loses its node ends with UNAVAILABLE, and its reader begins anew where it was, here or
//! elsewhere: see `tollgate_gateway::Relay` for why. Not here: which node (`tollgate_gateway`).

use crate::grpc::{undelivered, watch::too_much_unread};
use crate::session::{FrameSender, FrameStream, OpenAccount, frames_queue};
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_stream::{Stream, StreamExt};
use tollgate_gateway::{RELAYED_BYTES_MAX, Relay, Serving};
use tollgate_proto::v1::election_service_client::ElectionServiceClient;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{Error, ObserveRequest, ObserveResponse, WatchRequest, WatchResponse};
use tonic::{Status, Streaming};

/// What a stream keeps as long as it lives: its place among all, and the account of what it leaves unread.
pub(super) type Kept = (OwnedSemaphorePermit, OpenAccount);

/// How the client's side of a stream ended: it has nothing more to ask, or what it sent can't be passed on.
type Asked = Result<(), Status>;

/// A watch stream, both ways. `bytes_max`: the longest message of a client.
pub(super) async fn watch(
    relay: &Relay,
    kept: Kept,
    incoming: Streaming<WatchRequest>,
    bytes_max: usize,
) -> Result<FrameStream<WatchResponse>, Status> {
    let (requests, asked) = forwarded(incoming);
    let (serving, changes) = relay
        .open(move |channel| {
            let mut client = LockServiceClient::new(channel).max_decoding_message_size(RELAYED_BYTES_MAX);
            async move { client.watch(requests).await }
        })
        .await?;
    Ok(pass_on(relay.clone(), kept, serving, changes, Some((asked, bytes_max))))
}

/// Requests as they go to the node, and how they ended. Nothing is said of it where the node takes no more of them.
fn forwarded(
    incoming: Streaming<WatchRequest>,
) -> (impl Stream<Item = WatchRequest> + Send + 'static, oneshot::Receiver<Asked>) {
    let (ended, asked) = oneshot::channel();
    let mut ended = Some(ended);
    let requests = incoming.map(Some).chain(tokio_stream::once(None)).map_while(move |next| {
        let asked = match next {
            Some(Ok(request)) => return Some(request),
            Some(Err(status)) => Err(status),
            None => Ok(()),
        };
        if let Some(ended) = ended.take() {
            // Nobody listens if the stream is over.
            let _ = ended.send(asked);
        }
        None
    });
    (requests, asked)
}

/// Who leads an election.
pub(super) async fn observe(
    relay: &Relay,
    kept: Kept,
    request: ObserveRequest,
) -> Result<FrameStream<ObserveResponse>, Status> {
    let (serving, changes) = relay
        .open(move |channel| {
            let mut client = ElectionServiceClient::new(channel).max_decoding_message_size(RELAYED_BYTES_MAX);
            async move { client.observe(request).await }
        })
        .await?;
    Ok(pass_on(relay.clone(), kept, serving, changes, None))
}

/// `asks`: of a client that goes on asking, and the longest message that it may send.
fn pass_on<T: Message + 'static>(
    relay: Relay,
    (place, opened): Kept,
    serving: Serving,
    changes: Streaming<T>,
    asks: Option<(oneshot::Receiver<Asked>, usize)>,
) -> FrameStream<T> {
    let (outgoing, answers) = frames_queue();
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = copy(&relay, serving, changes, asks, (&outgoing, &opened)) => ended,
            error = relay.lost_touch(serving) => Err(error),
            () = opened.until_cut() => Err(too_much_unread(opened.bytes_max())),
        };
        if let Err(error) = ended {
            outgoing.cut(error.into());
        }
        drop(place);
    });
    answers
}

/// Until the node has no more to say, or nobody reads it.
async fn copy<T: Message>(
    relay: &Relay,
    serving: Serving,
    mut changes: Streaming<T>,
    asks: Option<(oneshot::Receiver<Asked>, usize)>,
    (outgoing, opened): (&FrameSender<T>, &OpenAccount),
) -> Result<(), Error> {
    let (mut asks, bytes_max) = asks.unzip();
    let mut is_asked_all = false;
    loop {
        let change = tokio::select! {
            // What a client closed is known before what the node makes of it.
            biased;
            asked = until_asked(&mut asks) => match asked {
                Ok(()) => {
                    is_asked_all = true;
                    continue;
                }
                // One that is not for what it sent is a client that is gone.
                Err(status) => return undelivered(&status, bytes_max.unwrap_or_default()).map_or(Ok(()), Err),
            },
            change = changes.next() => change,
            () = outgoing.closed() => return Ok(()),
        };
        match change {
            Some(Ok(change)) => {
                let unread = opened.account().charge(change.encoded_len());
                if outgoing.send(change, unread).await.is_err() {
                    return Ok(());
                }
            }
            Some(Err(status)) => return Err(relay.ended(serving, Some(&status))),
            None if is_asked_all => return Ok(()),
            None => return Err(relay.ended(serving, None)),
        }
    }
}

/// Waits until the client has asked for all that it wants, which is told once.
async fn until_asked(asks: &mut Option<oneshot::Receiver<Asked>>) -> Asked {
    if let Some(asked) = asks
        && let Ok(asked) = asked.await
    {
        *asks = None;
        return asked;
    }
    // The node takes no more requests, and says why; or nobody asks.
    *asks = None;
    std::future::pending().await
}
