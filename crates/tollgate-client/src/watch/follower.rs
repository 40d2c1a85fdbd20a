//! The task behind a watch: opens streams, one after the other, and passes on new events.
//!
//! Invariant: the cursor moves only after everything before it was passed on. The number of items that wait for a
//! reader is bounded; past that the stream is not read, and the server holds back.

use super::position::Position;
use super::{Told, Watch, WatchItem};
use crate::client::Client;
use crate::connections::Pause;
use crate::convert;
use crate::error::{Error, ErrorKind};
use crate::failure::{Failure, classify};
use crate::reads::lock_service;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, timeout_at};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::{self, WatchRequest, WatchResponse, key_value::Kv, watch_request::Target};
use tonic::Streaming;

/// Maximum number of items that wait for a reader.
const ITEMS_MAX: usize = 256;

/// Interval at which a watch asks for its progress, so that a silent watch resumes from not too far back; and checks
/// whether the client still uses the watch's node.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Maximum time for a node to begin a watch.
const BEGIN_PATIENCE: Duration = Duration::from_secs(3);

/// Stream that has begun.
struct Open {
    answers: Streaming<WatchResponse>,
    requests: mpsc::Sender<WatchRequest>,
    endpoint: String,
}

pub(super) struct Follower {
    client: Client,
    request: WatchRequest,
    position: Position,
    told: mpsc::Sender<Told>,
    served_by: Arc<Mutex<String>>,
}

/// Reason why a stream is no longer read.
enum Stop {
    /// The stream broke: another one continues.
    Broke,
    /// Everything was reported, or the reader is gone.
    Over,
}

impl Follower {
    /// Begins the watch; from then on nothing is missed.
    pub(super) async fn start(client: Client, request: WatchRequest) -> Result<Watch, Error> {
        let (told, items) = mpsc::channel(ITEMS_MAX);
        let runtime = client.runtime().clone();
        let (position, served_by) = (Position::default(), Arc::default());
        let mut follower = Follower { client, request, position, told, served_by: Arc::clone(&served_by) };
        let (open, first) = follower.begin_in_time().await?;
        // The cursor of the first answer is valid only once the events of that answer were passed on.
        let known = first.events.is_empty() && !first.cursor.is_empty();
        let cursor = if known { &first.cursor } else { &follower.request.cursor }.clone();
        let task = runtime.spawn(follower.run(open, first));
        Ok(Watch { told: items, cursor, served_by, task })
    }

    /// Opens the first stream, whose errors go to the caller.
    async fn begin_in_time(&mut self) -> Result<(Open, WatchResponse), Error> {
        let until = Instant::now() + self.client.call_timeout();
        let mut pause = Pause::new();
        loop {
            match timeout_at(until, self.begin()).await {
                Ok(Ok(begun)) => return Ok(begun),
                Ok(Err(Failure::Lasting(error))) => return Err(error),
                Ok(Err(Failure::Passing)) if Instant::now() < until => pause.wait(Duration::ZERO).await,
                _ if self.client.connections().stream_now().is_none() => {
                    return Err(self.client.connections().endpoints().unreachable(false));
                }
                _ => {
                    let says = "no node began the watch in time: does the cluster have a leader?";
                    return Err(Error::new(ErrorKind::TimedOut, says, false));
                }
            }
        }
    }

    /// Opens a stream where the last one ended, and waits for its first answer.
    async fn begin(&mut self) -> Result<(Open, WatchResponse), Failure> {
        let stream = self.client.connections().stream().await;
        let (requests, outgoing) = mpsc::channel(1);
        requests.try_send(self.position.resume(&self.request)).expect("there is room for one");
        let endpoint = stream.endpoint().to_string();
        let begun = async {
            let mut service = lock_service(stream.channel());
            let opened = service.watch(ReceiverStream::new(outgoing)).await;
            let mut answers = opened.map_err(|status| classify(&status))?.into_inner();
            match answers.next().await {
                Some(Ok(first)) => Ok((Open { answers, requests, endpoint }, first)),
                Some(Err(status)) => Err(classify(&status)),
                None => Err(Failure::Passing),
            }
        };
        let begun = tokio::time::timeout(BEGIN_PATIENCE, begun).await;
        let (open, first) = begun.unwrap_or(Err(Failure::Passing))?;
        // A refusal comes as the end of a watch that never began; the caller gets its error at once.
        match (first.canceled && first.compact_revision == 0, first.error.clone()) {
            (false, _) => {}
            (true, Some(error)) => return Err(Failure::told(error)),
            (true, None) => return Err(Failure::Passing),
        }
        self.position.begin_stream();
        self.served_by.lock().clone_from(&open.endpoint);
        Ok((open, first))
    }

    async fn run(mut self, open: Open, first: WatchResponse) {
        let (mut open, mut first) = (open, Some(first));
        loop {
            let stop = match first.take() {
                Some(first) => match self.pass_on(first).await {
                    Ok(()) => self.follow(&mut open).await,
                    Err(stop) => stop,
                },
                None => self.follow(&mut open).await,
            };
            let Stop::Broke = stop else { return };
            match self.begin_again().await {
                Ok((next, answer)) => (open, first) = (next, Some(answer)),
                Err(error) => {
                    // The reader may be gone.
                    let _ = self.told.send(Told { item: Some(Err(error)), cursor: None }).await;
                    return;
                }
            }
        }
    }

    /// Opens another stream, however long it takes.
    async fn begin_again(&mut self) -> Result<(Open, WatchResponse), Error> {
        let mut pause = Pause::new();
        loop {
            match self.begin().await {
                Ok(begun) => return Ok(begun),
                Err(Failure::Lasting(error)) => return Err(error),
                Err(Failure::Passing) => pause.wait(Duration::ZERO).await,
            }
        }
    }

    /// Passes on answers until the stream breaks.
    async fn follow(&mut self, open: &mut Open) -> Stop {
        let mut look = tokio::time::interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let answer = tokio::select! {
                answer = open.answers.next() => answer,
                _ = look.tick() => {
                    if self.is_elsewhere(open) {
                        return Stop::Broke;
                    }
                    let watch_id = self.request.watch_id;
                    let progress = WatchRequest { watch_id, progress: true, ..Default::default() };
                    // If an earlier request is still waiting to be sent, that one is enough.
                    let _ = open.requests.try_send(progress);
                    continue;
                }
            };
            let Some(Ok(answer)) = answer else { return Stop::Broke };
            if let Err(stop) = self.pass_on(answer).await {
                return stop;
            }
        }
    }

    /// True if the client has left the watch's node for another, because that node may be cut off from the cluster.
    fn is_elsewhere(&self, open: &Open) -> bool {
        self.client
            .connections()
            .stream_now()
            .is_some_and(|stream| stream.endpoint().to_string() != open.endpoint)
    }

    async fn pass_on(&mut self, answer: WatchResponse) -> Result<(), Stop> {
        let group = answer.header.as_ref().map_or(0, |header| header.group_id);
        // Unwanted events are not counted either, because another node may not send them.
        let wanted = answer.events.into_iter().filter(|event| is_wanted(&self.request, event));
        let new: Vec<_> = wanted.filter(|event| self.position.take(group, event.revision)).collect();
        let mut left = new.len();
        if left == 0 && !answer.cursor.is_empty() {
            self.tell(Told { item: None, cursor: Some(answer.cursor.clone()) }).await?;
        }
        for event in new {
            left -= 1;
            let cursor = (left == 0 && !answer.cursor.is_empty()).then(|| answer.cursor.clone());
            let item = convert::event(event).map(WatchItem::Event);
            let failed = item.is_err();
            self.tell(Told { item: Some(item), cursor }).await?;
            if failed {
                return Err(Stop::Over);
            }
        }
        self.position.advance(&answer.cursor);
        if answer.compact_revision != 0 {
            let oldest = convert::revision(answer.compact_revision);
            let item = oldest.map(|oldest| WatchItem::Compacted { oldest });
            self.tell(Told { item: Some(item), cursor: None }).await?;
            return Err(Stop::Over);
        }
        if answer.canceled {
            return Err(self.canceled(answer.error).await);
        }
        Ok(())
    }

    /// Handles the end of the watch by the server.
    async fn canceled(&mut self, error: Option<v1::Error>) -> Stop {
        match error.map(Failure::told) {
            Some(Failure::Lasting(error)) => {
                // The reader may be gone.
                let _ = self.told.send(Told { item: Some(Err(error)), cursor: None }).await;
                Stop::Over
            }
            Some(Failure::Passing) | None => Stop::Broke,
        }
    }

    async fn tell(&self, told: Told) -> Result<(), Stop> {
        self.told.send(told).await.map_err(|_| Stop::Over)
    }
}

/// Returns false for events that the watch did not ask for. Nodes of versions that don't know watches on a lease send
/// all events.
fn is_wanted(request: &WatchRequest, event: &v1::Event) -> bool {
    let Some(Target::LeaseId(lease)) = request.target else { return true };
    let kv = event.kv.as_ref().and_then(|kv| kv.kv.as_ref());
    matches!(kv, Some(Kv::Claim(claim)) if claim.lease_id == lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_node_that_tells_everything_a_watch_on_a_lease_takes_what_is_of_its_lease() {
        let claim = |lease_id| v1::Claim { lease_id, ..Default::default() };
        let event = |kv| v1::Event { kv: Some(v1::KeyValue { kv: Some(kv) }), ..Default::default() };
        let register = || event(Kv::Register(v1::Register { lease_id: 7, ..Default::default() }));
        let request = WatchRequest { target: Some(Target::LeaseId(7)), ..Default::default() };
        assert!(is_wanted(&request, &event(Kv::Claim(claim(7)))));
        assert!(!is_wanted(&request, &event(Kv::Claim(claim(8)))));
        assert!(!is_wanted(&request, &register()));
        assert!(is_wanted(&WatchRequest::default(), &register()));
    }
}
