//! Streams that a gateway passes on from a node, frame by frame.
//!
//! Invariant: a client that does not read is not read for, and what waits for it counts with what all others leave
//! unread. A stream that loses its node ends with UNAVAILABLE, and its reader begins anew where it was, here or
//! elsewhere: see `tollgate_gateway::Relay` for why. Not here: which node (`tollgate_gateway`).

use crate::grpc::watch::too_much_unread;
use crate::session::{FrameSender, FrameStream, OpenAccount, frames_queue};
use prost::Message;
use tokio::sync::OwnedSemaphorePermit;
use tokio_stream::StreamExt;
use tollgate_gateway::{RELAYED_BYTES_MAX, Relay, Serving};
use tollgate_proto::v1::election_service_client::ElectionServiceClient;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{Error, ObserveRequest, ObserveResponse, WatchRequest, WatchResponse};
use tonic::{Status, Streaming};

/// What a stream keeps as long as it lives: its place among all, and the account of what it leaves unread.
pub(super) type Kept = (OwnedSemaphorePermit, OpenAccount);

/// A watch stream, both ways.
pub(super) async fn watch(
    relay: &Relay,
    kept: Kept,
    incoming: Streaming<WatchRequest>,
) -> Result<FrameStream<WatchResponse>, Status> {
    // Its end is the end of the client's requests, in whatever way.
    let requests = incoming.map_while(Result::ok);
    let (serving, changes) = relay
        .open(move |channel| {
            let mut client = LockServiceClient::new(channel).max_decoding_message_size(RELAYED_BYTES_MAX);
            async move { client.watch(requests).await }
        })
        .await?;
    Ok(pass_on(relay.clone(), kept, serving, changes))
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
    Ok(pass_on(relay.clone(), kept, serving, changes))
}

fn pass_on<T: Message + 'static>(
    relay: Relay,
    (place, opened): Kept,
    serving: Serving,
    changes: Streaming<T>,
) -> FrameStream<T> {
    let (outgoing, answers) = frames_queue();
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = copy(&relay, serving, changes, &outgoing, &opened) => ended,
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
    outgoing: &FrameSender<T>,
    opened: &OpenAccount,
) -> Result<(), Error> {
    loop {
        let change = tokio::select! {
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
            None => return Ok(()),
        }
    }
}
