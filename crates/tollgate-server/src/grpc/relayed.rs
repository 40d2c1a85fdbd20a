//! Streams that a gateway passes on from a node, frame by frame.
//!
//! Invariant: for a client that does not read, the node's stream is not read either, and the frames that wait for it
//! count with the unread frames of all others. A client that has closed its sending side still receives; only then may
//! the node end its stream well. A stream that loses its node ends with UNAVAILABLE, and its client begins anew where
//! it was, here or elsewhere: see `tollgate_gateway::Relay` for the reason. Not here: the choice of the node
//! (`tollgate_gateway`).

use crate::grpc::{undelivered, watch::backlog_too_large};
use crate::session::{FrameSender, FrameStream, OpenAccount, frames_queue};
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_stream::{Stream, StreamExt};
use tollgate_gateway::{RELAYED_BYTES_MAX, Relay, Serving};
use tollgate_proto::v1::election_service_client::ElectionServiceClient;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{Error, ObserveRequest, ObserveResponse, WatchRequest, WatchResponse};
use tonic::{Status, Streaming};

/// Resources that a stream holds as long as it lives: its place among all streams, and the account of its unread bytes.
pub(super) type Kept = (OwnedSemaphorePermit, OpenAccount);

/// End of the client's side of a stream: the client has nothing more to ask, or sent something that can't be passed on.
type RequestInfo = Result<(), Status>;

/// Relays a watch stream, both ways. `bytes_max`: maximum length of a client's message.
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

/// Splits the incoming requests into the stream that goes to the node, and a notice of how that stream ended. There is
/// no notice if the node takes no more requests.
fn forwarded(
    incoming: Streaming<WatchRequest>,
) -> (impl Stream<Item = WatchRequest> + Send + 'static, oneshot::Receiver<RequestInfo>) {
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

/// Relays the changes of an election's leader.
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

/// `asks`: for a client that may send more requests, the notice of their end, and the maximum length of a message.
fn pass_on<T: Message + 'static>(
    relay: Relay,
    (place, opened): Kept,
    serving: Serving,
    changes: Streaming<T>,
    asks: Option<(oneshot::Receiver<RequestInfo>, usize)>,
) -> FrameStream<T> {
    let (outgoing, answers) = frames_queue();
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = copy(&relay, serving, changes, asks, (&outgoing, &opened)) => ended,
            error = relay.lost_touch(serving) => Err(error),
            () = opened.until_cut() => Err(backlog_too_large(opened.bytes_max())),
        };
        if let Err(error) = ended {
            outgoing.cut(error.into());
        }
        drop(place);
    });
    answers
}

/// Copies until the node's stream ends, or nobody reads it.
async fn copy<T: Message>(
    relay: &Relay,
    serving: Serving,
    mut changes: Streaming<T>,
    asks: Option<(oneshot::Receiver<RequestInfo>, usize)>,
    (outgoing, opened): (&FrameSender<T>, &OpenAccount),
) -> Result<(), Error> {
    let (mut asks, bytes_max) = asks.unzip();
    let mut is_asked_all = false;
    loop {
        let change = tokio::select! {
            // The end of the client's requests must be known before the node's reaction to it.
            biased;
            asked = until_asked(&mut asks) => match asked {
                Ok(()) => {
                    is_asked_all = true;
                    continue;
                }
                // Any other failure means that the client is gone.
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

/// Waits for the end of the client's requests, which is reported once.
async fn until_asked(asks: &mut Option<oneshot::Receiver<RequestInfo>>) -> RequestInfo {
    if let Some(asked) = asks
        && let Ok(asked) = asked.await
    {
        *asks = None;
        return asked;
    }
    // The node takes no more requests, and says why; or the client never sends any.
    *asks = None;
    std::future::pending().await
}
