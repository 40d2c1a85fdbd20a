//! Watch streams: any number of watches on one stream, each told of its events in order.
//!
//! Invariant: what waits for a client that does not read is bounded: a watch has credit for a number of events, and
//! gets more when they were sent. One that stays behind until history is gone is told so, and is over. Not here: what
//! a watch sees (`tollgate_replica::Desk`), how an event is worded (`operation`).

use crate::operation::{self, WatchOpen, WatchOrder};
use crate::router::Router;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_core::Event;
use tollgate_node::{Answer, Ask, Caller, NodeHandle, Sink};
use tollgate_proto::BadField;
use tollgate_proto::convert::WatchFilters;
use tollgate_proto::v1::{Error, ErrorReason, WatchRequest, WatchResponse};
use tollgate_replica::WatchNumber;
use tollgate_types::{GroupId, Revision};
use tonic::{Status, Streaming};

/// Events of one watch that may be under way.
const CREDIT: u64 = 256;

/// Answers that wait for a client that does not read.
const ANSWERS_MAX: usize = 16;

/// What the node has to tell the stream's watches.
#[derive(Default)]
struct Mailbox {
    inner: Mutex<(Vec<(WatchNumber, Answer)>, bool)>,
    filled: Notify,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, (Vec<(WatchNumber, Answer)>, bool)> {
        self.inner.lock().expect("nobody panics with it")
    }
}

impl Sink for Mailbox {
    fn answer(&self, watch: u64, answer: Answer) -> bool {
        let mut inner = self.lock();
        inner.0.push((watch, answer));
        !std::mem::replace(&mut inner.1, true)
    }

    fn flush(&self) {
        self.lock().1 = false;
        self.filled.notify_one();
    }
}

/// A watch of the stream, over the groups that it follows.
struct Watch {
    filters: WatchFilters,
    prev_kv: bool,
    /// The node's number of it in each group.
    numbers: BTreeMap<GroupId, WatchNumber>,
    /// What it wants next of each group; as far as it is known.
    next: BTreeMap<GroupId, Revision>,
    created: bool,
}

/// Serves a stream until either side ends it.
pub(super) fn serve(
    router: Router,
    watches_max: usize,
    incoming: Streaming<WatchRequest>,
) -> ReceiverStream<Result<WatchResponse, Status>> {
    let (outgoing, answers) = mpsc::channel(ANSWERS_MAX);
    let mailbox = Arc::new(Mailbox::default());
    let stream = Stream {
        router,
        watches_max,
        outgoing,
        mailbox,
        watches: BTreeMap::new(),
        ids: BTreeMap::new(),
        next_id: 1 << 32,
    };
    tokio::spawn(stream.run(incoming));
    ReceiverStream::new(answers)
}

struct Stream {
    router: Router,
    watches_max: usize,
    outgoing: mpsc::Sender<Result<WatchResponse, Status>>,
    mailbox: Arc<Mailbox>,
    /// By the client's number.
    watches: BTreeMap<u64, Watch>,
    /// The client's number and the group, by the node's.
    ids: BTreeMap<WatchNumber, (u64, GroupId)>,
    /// The next number for a watch whose client chose none: above those that people choose.
    next_id: u64,
}

/// The stream's other side is gone.
struct Gone;

impl Stream {
    async fn run(mut self, mut incoming: Streaming<WatchRequest>) {
        loop {
            let done = tokio::select! {
                request = incoming.next() => match request {
                    Some(Ok(request)) => self.request(&request).await,
                    _ => Err(Gone),
                },
                () = self.mailbox.filled.notified() => self.tell().await,
                () = self.outgoing.closed() => Err(Gone),
            };
            if done.is_err() {
                return;
            }
        }
    }

    fn node(&self) -> &NodeHandle {
        self.router.node()
    }

    async fn send(&self, response: WatchResponse) -> Result<(), Gone> {
        self.outgoing.send(Ok(response)).await.map_err(|_| Gone)
    }

    async fn request(&mut self, request: &WatchRequest) -> Result<(), Gone> {
        match operation::read_watch(request, self.router.groups()) {
            Ok(WatchOrder::Open(open)) => self.open(open).await,
            Ok(WatchOrder::Cancel { watch_id }) => self.cancel(watch_id).await,
            Ok(WatchOrder::Progress { watch_id }) => self.progress(watch_id).await,
            Err(error) => self.refuse(request.watch_id, error).await,
        }
    }

    /// The last answer of a watch that never was, or is no more.
    async fn refuse(&self, watch_id: u64, error: Error) -> Result<(), Gone> {
        let header = self.router.header(GroupId::new(0), None);
        let compact_revision = error.compact_revision;
        let header = header.at(header.revision);
        let error = Some(error);
        let response = WatchResponse {
            header,
            watch_id,
            canceled: true,
            compact_revision,
            error,
            ..WatchResponse::default()
        };
        self.send(response).await
    }

    async fn open(&mut self, open: WatchOpen) -> Result<(), Gone> {
        let WatchOpen { mut watch_id, filter, groups, filters, prev_kv } = open;
        if self.watches.len() >= self.watches_max {
            let says = format!("a stream has at most {} watches: open another", self.watches_max);
            return self.refuse(watch_id, operation::overloaded(says)).await;
        }
        if watch_id == 0 {
            self.next_id += 1;
            watch_id = self.next_id;
        }
        if self.watches.contains_key(&watch_id) {
            let says = "the stream has a watch with this number: cancel that first, or choose another";
            return self.refuse(watch_id, BadField::new("watch_id", says).into()).await;
        }
        let mut numbers = BTreeMap::new();
        for (group, from) in &groups {
            let (group, from, filter) = (*group, *from, filter.clone());
            let watch = self.node().fresh_watch();
            let ask = Ask::Watch { watch, group, from, filter, credit: CREDIT };
            if self.node().ask(self.caller(watch), ask).is_err() {
                for number in numbers.values() {
                    self.node().tell(Ask::Unwatch { watch: *number });
                }
                return self.refuse(watch_id, operation::overloaded("the node has too much to do")).await;
            }
            numbers.insert(group, watch);
        }
        self.ids.extend(numbers.iter().map(|(group, number)| (*number, (watch_id, *group))));
        let watch = Watch { filters, prev_kv, numbers, next: BTreeMap::new(), created: false };
        self.watches.insert(watch_id, watch);
        Ok(())
    }

    fn caller(&self, watch: WatchNumber) -> Caller {
        Caller::Of(Arc::clone(&self.mailbox) as Arc<dyn Sink>, watch)
    }

    /// Forgets a watch; false if there is none of this number.
    fn forget(&mut self, watch_id: u64) -> bool {
        let Some(watch) = self.watches.remove(&watch_id) else { return false };
        for number in watch.numbers.values() {
            self.ids.remove(number);
            self.node().tell(Ask::Unwatch { watch: *number });
        }
        true
    }

    async fn cancel(&mut self, watch_id: u64) -> Result<(), Gone> {
        if !self.forget(watch_id) {
            let says = "the stream has no watch with this number";
            return self.refuse(watch_id, BadField::new("watch_id", says).into()).await;
        }
        let header = self.router.header(GroupId::new(0), None);
        let header = header.at(header.revision);
        self.send(WatchResponse { header, watch_id, canceled: true, ..WatchResponse::default() }).await
    }

    /// Says how far watches have come.
    async fn progress(&mut self, watch_id: u64) -> Result<(), Gone> {
        let wanted: Vec<u64> =
            self.watches.keys().copied().filter(|id| watch_id == 0 || *id == watch_id).collect();
        if wanted.is_empty() && watch_id != 0 {
            let says = "the stream has no watch with this number";
            return self.refuse(watch_id, BadField::new("watch_id", says).into()).await;
        }
        for watch_id in wanted {
            let Some(watch) = self.watches.get(&watch_id) else { continue };
            let Some((group, next)) = watch.next.first_key_value() else { continue };
            let cursor = operation::write_cursor(&watch.next);
            let header = self.router.header(*group, None).at(next.previous());
            self.send(WatchResponse { header, watch_id, cursor, ..WatchResponse::default() }).await?;
        }
        Ok(())
    }

    /// Passes on what the node told.
    async fn tell(&mut self) -> Result<(), Gone> {
        let answers = std::mem::take(&mut self.mailbox.lock().0);
        for (number, answer) in answers {
            let Some((watch_id, group)) = self.ids.get(&number).copied() else { continue };
            match answer {
                Answer::Events { events, next, .. } => {
                    self.events(watch_id, group, number, &events, next).await?;
                }
                Answer::Compacted { min_revision, .. } => {
                    self.forget(watch_id);
                    let says = "the history that was asked for is gone: read the state, and watch from there";
                    let error = Error::new(ErrorReason::Compacted, says);
                    let (compact_revision, group_id) = (min_revision.get(), group.number());
                    self.refuse(watch_id, Error { compact_revision, group_id, ..error }).await?;
                }
                Answer::NotRead { error, .. } => {
                    self.forget(watch_id);
                    self.refuse(watch_id, operation::error_of_read(&error)).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn events(
        &mut self,
        watch_id: u64,
        group: GroupId,
        number: WatchNumber,
        events: &[Event],
        next: Revision,
    ) -> Result<(), Gone> {
        let Some(watch) = self.watches.get_mut(&watch_id) else { return Ok(()) };
        watch.next.insert(group, next);
        let told: Vec<_> =
            events.iter().filter_map(|event| operation::event(event, watch.filters, watch.prev_kv)).collect();
        let complete = watch.next.len() == watch.numbers.len();
        let created = complete && !watch.created;
        watch.created |= complete;
        if created || !told.is_empty() {
            let cursor = if complete { operation::write_cursor(&watch.next) } else { String::new() };
            let header = self.router.header(group, None).at(next.previous());
            let response =
                WatchResponse { header, watch_id, events: told, created, cursor, ..WatchResponse::default() };
            self.send(response).await?;
        }
        if !events.is_empty() {
            self.node().tell(Ask::WatchCredit { watch: number, events: events.len() as u64 });
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        for number in self.ids.keys() {
            self.router.node().tell(Ask::Unwatch { watch: *number });
        }
    }
}
