//! Watch streams: any number of watches on one stream, each with its events in order.
//!
//! Invariant: the memory for a client that does not read is bounded: a watch has credit for a number of events, and
//! gets more when they were sent; all streams of the node together have a limit (`session::SendBacklog`), past which
//! the stream with the most unread ends. While a watch is open, its stream ends only with an error that gives the
//! reason; a client that has closed its sending side still receives events. A watch that falls behind until history is
//! gone gets an error, and is over. No event is delivered twice (P11), whichever of the node's watches brings it. Not
//! here: the events that a watch sees (`tollgate_replica::Dispatcher`), the wire form of an event (`operation`), the
//! content of one answer (`pieces`).

mod mailbox;
mod pieces;

use crate::grpc::undelivered;
use crate::session::{Account, FrameSender, FrameStream, Gone, OpenAccount, frames_queue};
use mailbox::{Mailbox, Told};
use pieces::{Piece, pieces};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::StreamExt;
use tollgate_core::Event;
use tollgate_gateway::Router;
use tollgate_gateway::operation::{self, WatchOpen, WatchOrder};
use tollgate_node::planted::{Bug, planted};
use tollgate_node::{Answer, Ask, Caller, NodeHandle, Sink};
use tollgate_proto::BadField;
use tollgate_proto::convert::WatchFilters;
use tollgate_proto::v1::{Error, ErrorReason, WatchRequest, WatchResponse};
use tollgate_replica::WatchNumber;
use tollgate_types::{GroupId, Revision};
use tonic::Streaming;

/// Maximum number of events of one watch that may be under way.
const CREDIT: u64 = 256;

/// Places for the watches of all clients of a node.
#[derive(Debug, Clone)]
pub(crate) struct Watchers {
    places: Arc<Semaphore>,
    max: usize,
}

impl Watchers {
    pub(crate) fn new(max: usize) -> Watchers {
        Watchers { places: Arc::new(Semaphore::new(max)), max }
    }

    /// Takes one place, which is free again when the permit is dropped.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.places(1)
    }

    /// Takes the places for a watch over this many groups: for the node, each group is a watch of its own.
    pub(super) fn places(&self, groups: usize) -> Result<OwnedSemaphorePermit, Error> {
        let wanted = u32::try_from(groups).unwrap_or(u32::MAX);
        Arc::clone(&self.places).try_acquire_many_owned(wanted).map_err(|_| {
            let says = format!(
                "the node has room for {} watches, one for each group that is followed, and not for {groups} more: \
                 watch at another node",
                self.max
            );
            Error { limit_value: self.max as u64, ..operation::overloaded(says) }
        })
    }
}

/// A watch of the stream, over the groups that it follows.
struct Watch {
    filter: tollgate_core::Watch,
    filters: WatchFilters,
    prev_kv: bool,
    /// The node's watch number in each group.
    numbers: BTreeMap<GroupId, WatchNumber>,
    /// Watch numbers that replace `numbers` once their first answers are there: see [`Stream::progress`].
    probes: BTreeMap<GroupId, WatchNumber>,
    /// Next revision that the watch wants from each group, as far as it is known.
    next: BTreeMap<GroupId, Revision>,
    created: bool,
    /// True while the groups have no credit: no group delivers events before all have begun, so that the first answer
    /// announces the watch.
    held_back: bool,
    _place: OwnedSemaphorePermit,
}

/// Serves a stream until either side ends it, or until all streams together have too much unread and this stream the
/// most.
pub(super) fn serve(
    (router, node): (Router, NodeHandle),
    watchers: Watchers,
    opened: OpenAccount,
    incoming: Streaming<WatchRequest>,
    bytes_max: usize,
) -> FrameStream<WatchResponse> {
    let (outgoing, answers) = frames_queue();
    let outgoing = Arc::new(outgoing);
    let stream = Stream::new((router.clone(), node), watchers, Arc::clone(&outgoing), opened.account());
    tokio::spawn(async move {
        tokio::select! {
            undelivered = stream.run(incoming, bytes_max) => {
                if let Some(error) = undelivered {
                    outgoing.cut(error.into());
                }
            }
            // No event would ever be sent here again: the client begins anew at another node, from its cursor.
            error = router.until_over() => outgoing.cut(error.into()),
            () = opened.until_cut() => {
                tracing::warn!(bytes = opened.account().bytes(), "a watch whose client does not read was ended");
                outgoing.cut(backlog_too_large(opened.bytes_max()).into());
            }
        }
    });
    answers
}

/// Returns the error for the stream with the most unread bytes when the limit was exceeded.
pub(super) fn backlog_too_large(bytes_max: usize) -> Error {
    let says = format!(
        "this client does not read what it is told, and all streams of the node together have more than {bytes_max} \
         bytes unread: begin anew where the last cursor says, and read faster"
    );
    Error { limit_value: bytes_max as u64, ..operation::overloaded(says) }
}

struct Stream {
    router: Router,
    node: NodeHandle,
    watchers: Watchers,
    outgoing: Arc<FrameSender<WatchResponse>>,
    account: Arc<Account>,
    mailbox: Arc<Mailbox>,
    /// Watches by the client's number.
    watches: BTreeMap<u64, Watch>,
    /// The client's number and the group, by the node's watch number.
    ids: BTreeMap<WatchNumber, (u64, GroupId)>,
    /// Next number for a watch whose client chose none: above the numbers that people choose.
    next_id: u64,
}

impl Stream {
    fn new(
        (router, node): (Router, NodeHandle),
        watchers: Watchers,
        outgoing: Arc<FrameSender<WatchResponse>>,
        account: &Arc<Account>,
    ) -> Stream {
        let (account, mailbox) = (Arc::clone(account), Arc::new(Mailbox::new(Arc::clone(account))));
        Stream {
            router,
            node,
            watchers,
            outgoing,
            account,
            mailbox,
            watches: BTreeMap::new(),
            ids: BTreeMap::new(),
            next_id: 1 << 32,
        }
    }

    /// Runs until the client is gone, or has no watches left and sends no more requests. Returns an error if a message
    /// of the client could not be read; `bytes_max` is the maximum length of one.
    async fn run(mut self, mut incoming: Streaming<WatchRequest>, bytes_max: usize) -> Option<Error> {
        let mut asks = true;
        while asks || !self.watches.is_empty() {
            let done = tokio::select! {
                request = incoming.next(), if asks => match request {
                    Some(Ok(request)) => self.request(&request).await,
                    Some(Err(status)) => return undelivered(&status, bytes_max),
                    None if planted(Bug::WatchEndsWithRequests) => return None,
                    None => {
                        asks = false;
                        Ok(())
                    }
                },
                () = self.mailbox.filled.notified() => self.tell().await,
                () = self.outgoing.closed() => Err(Gone),
            };
            if done.is_err() {
                return None;
            }
        }
        None
    }

    async fn send(&self, response: WatchResponse) -> Result<(), Gone> {
        let charge = self.account.charge(response.encoded_len());
        self.outgoing.send(response, charge).await
    }

    async fn request(&mut self, request: &WatchRequest) -> Result<(), Gone> {
        match operation::read_watch(request, &self.router.map()) {
            Ok(WatchOrder::Open(open)) => self.open(open).await,
            Ok(WatchOrder::Cancel { watch_id }) => self.cancel(watch_id).await,
            Ok(WatchOrder::Progress { watch_id }) => self.progress(watch_id).await,
            Err(error) => {
                let living = self.watches.contains_key(&request.watch_id);
                self.refuse(if living { 0 } else { request.watch_id }, error).await
            }
        }
    }

    /// Sends the last answer of a watch that never began, or is over. It must not name a watch that goes on, because
    /// that would end the watch for its client: an error about the number of such a watch is sent with number 0.
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
        if self.watches.contains_key(&watch_id) {
            let says =
                format!("the stream has a watch {watch_id}: cancel that first, or choose another number");
            return self.refuse(0, BadField::new("watch_id", says).into()).await;
        }
        let place = match self.watchers.places(groups.len()) {
            Ok(place) => place,
            Err(error) => return self.refuse(watch_id, error).await,
        };
        if watch_id == 0 {
            while self.watches.contains_key(&self.next_id) {
                self.next_id += 1;
            }
            watch_id = self.next_id;
            self.next_id += 1;
        }
        // Watches that resume from a cursor begin at once, and deliver events at once.
        let held_back = groups.len() > 1 && groups.values().all(Option::is_none);
        let credit = if held_back { 0 } else { CREDIT };
        let mut numbers = BTreeMap::new();
        for (group, from) in &groups {
            let (group, mut from, filter) = (*group, *from, filter.clone());
            if planted(Bug::WatchResumesLate) {
                from = from.map(Revision::next);
            }
            let watch = self.node.fresh_watch();
            let ask = Ask::Watch { watch, group, from, filter: Box::new(filter), credit };
            if let Err(error) = self.node.ask(self.caller(watch), ask) {
                for number in numbers.values() {
                    self.node.tell(Ask::Unwatch { watch: *number });
                }
                return self.refuse(watch_id, operation::error_of_not_answered(error.into(), group)).await;
            }
            numbers.insert(group, watch);
        }
        self.ids.extend(numbers.iter().map(|(group, number)| (*number, (watch_id, *group))));
        let probes = BTreeMap::new();
        let watch = Watch {
            filter,
            filters,
            prev_kv,
            numbers,
            probes,
            next: BTreeMap::new(),
            created: false,
            held_back,
            _place: place,
        };
        self.watches.insert(watch_id, watch);
        Ok(())
    }

    fn caller(&self, watch: WatchNumber) -> Caller {
        Caller::Of(Arc::clone(&self.mailbox) as Arc<dyn Sink>, watch)
    }

    /// Removes a watch; false if there is none with this number.
    fn forget(&mut self, watch_id: u64) -> bool {
        let Some(watch) = self.watches.remove(&watch_id) else { return false };
        for number in watch.numbers.values().chain(watch.probes.values()) {
            self.ids.remove(number);
            self.node.tell(Ask::Unwatch { watch: *number });
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

    /// Reports how far watches have come.
    ///
    /// The node sends a watch nothing for revisions without events for it. So a probe begins the watch anew at its
    /// present position: the probe's first answer says up to which revision there is nothing more. Until then the old
    /// watch goes on.
    async fn progress(&mut self, watch_id: u64) -> Result<(), Gone> {
        let wanted: Vec<u64> =
            self.watches.keys().copied().filter(|id| watch_id == 0 || *id == watch_id).collect();
        if wanted.is_empty() && watch_id != 0 {
            let says = "the stream has no watch with this number";
            return self.refuse(watch_id, BadField::new("watch_id", says).into()).await;
        }
        for watch_id in wanted {
            self.probe(watch_id);
            self.probed(watch_id).await?;
        }
        Ok(())
    }

    /// Starts probes at the watch's present position, in all its groups; not if its first answer is still to come.
    fn probe(&mut self, watch_id: u64) {
        let Some(watch) = self.watches.get(&watch_id).filter(|watch| watch.created) else { return };
        let mut probes = BTreeMap::new();
        for (group, next) in watch.next.iter().filter(|(group, _)| !watch.probes.contains_key(group)) {
            let (number, group, filter) = (self.node.fresh_watch(), *group, watch.filter.clone());
            let ask = Ask::Watch {
                watch: number,
                group,
                from: Some(*next),
                filter: Box::new(filter),
                credit: CREDIT,
            };
            // If the node is too busy for a probe, the known position is reported.
            if self.node.ask(self.caller(number), ask).is_ok() {
                probes.insert(group, number);
            }
        }
        self.ids.extend(probes.iter().map(|(group, number)| (*number, (watch_id, *group))));
        if let Some(watch) = self.watches.get_mut(&watch_id) {
            watch.probes.extend(probes);
        }
    }

    /// Reports how far a watch has come, once that is known in all its groups.
    async fn probed(&self, watch_id: u64) -> Result<(), Gone> {
        let watch = self.watches.get(&watch_id).filter(|watch| watch.created && watch.probes.is_empty());
        let Some((watch, (group, next))) =
            watch.and_then(|watch| Some((watch, watch.next.first_key_value()?)))
        else {
            return Ok(());
        };
        let cursor = operation::write_cursor(&watch.next);
        let header = self.router.header(*group, None).at(next.previous());
        self.send(WatchResponse { header, watch_id, cursor, ..WatchResponse::default() }).await
    }

    /// Ends a probe of the watch; true if this number was one.
    fn end_probe(&mut self, watch_id: u64, group: GroupId, number: WatchNumber) -> bool {
        let Some(watch) = self.watches.get_mut(&watch_id) else { return false };
        let is_probe = watch.probes.get(&group) == Some(&number);
        if is_probe {
            watch.probes.remove(&group);
        }
        is_probe
    }

    /// Replaces the node's watch in a group by the probe.
    fn adopt(&mut self, watch_id: u64, group: GroupId, number: WatchNumber) {
        let Some(watch) = self.watches.get_mut(&watch_id) else { return };
        if let Some(old) = watch.numbers.insert(group, number) {
            self.ids.remove(&old);
            self.node.tell(Ask::Unwatch { watch: old });
        }
    }

    /// Passes the node's answers on to the client.
    async fn tell(&mut self) -> Result<(), Gone> {
        while let Some(Told { watch: number, answer, charge: _until_passed_on }) = self.mailbox.take() {
            let Some((watch_id, group)) = self.ids.get(&number).copied() else { continue };
            match answer {
                Answer::Events { events, next, .. } => {
                    let probed = self.end_probe(watch_id, group, number);
                    if probed {
                        self.adopt(watch_id, group, number);
                    }
                    self.events(watch_id, group, number, events, next).await?;
                    if probed {
                        self.probed(watch_id).await?;
                    }
                }
                // The watch itself goes on: it knows that the lost history had no events for it.
                Answer::Compacted { .. } | Answer::NotRead { .. }
                    if self.end_probe(watch_id, group, number) =>
                {
                    self.ids.remove(&number);
                    self.probed(watch_id).await?;
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

    /// Sends the events of a batch that were not sent yet.
    ///
    /// A probe begins at the position that the watch had when the probe was started, and the watch goes on until the
    /// probe replaces it: so any batch of the probe can begin far behind, not only the first.
    async fn events(
        &mut self,
        watch_id: u64,
        group: GroupId,
        number: WatchNumber,
        mut events: Vec<Event>,
        next: Revision,
    ) -> Result<(), Gone> {
        let Some(watch) = self.watches.get(&watch_id) else { return Ok(()) };
        let (count, told) = (events.len() as u64, watch.next.get(&group).copied());
        events.retain(|event| told.is_none_or(|told| event.revision >= told));
        let next = told.map_or(next, |told| next.max(told));
        let (filters, prev_kv) = (watch.filters, watch.prev_kv);
        let worded = events.into_iter().filter_map(|event| operation::event(&event, filters, prev_kv));
        let mut any = false;
        for piece in pieces(worded, next) {
            any = true;
            self.piece(watch_id, group, piece).await?;
        }
        if !any {
            self.piece(watch_id, group, Piece { next, is_whole: true, ..Piece::default() }).await?;
        }
        if count > 0 {
            self.node.tell(Ask::WatchCredit { watch: number, events: count });
        }
        Ok(())
    }

    async fn piece(&mut self, watch_id: u64, group: GroupId, piece: Piece) -> Result<(), Gone> {
        let Some(watch) = self.watches.get_mut(&watch_id) else { return Ok(()) };
        let Piece { events, bytes, next, is_whole } = piece;
        watch.next.insert(group, next);
        let complete = watch.next.len() == watch.numbers.len();
        let created = complete && !watch.created;
        watch.created |= complete;
        if created && std::mem::take(&mut watch.held_back) {
            for number in watch.numbers.values() {
                self.node.tell(Ask::WatchCredit { watch: *number, events: CREDIT });
            }
        }
        if !created && events.is_empty() {
            return Ok(());
        }
        // A client that resumed inside a revision would see the beginning of the revision again.
        let cursor = (complete && is_whole).then(|| operation::write_cursor(&watch.next));
        let header = self.router.header(group, None).at(next.previous());
        let cursor = cursor.unwrap_or_default();
        let response =
            WatchResponse { header, watch_id, events, created, cursor, ..WatchResponse::default() };
        self.outgoing.send(response, self.account.charge(bytes)).await
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        for number in self.ids.keys() {
            self.node.tell(Ask::Unwatch { watch: *number });
        }
    }
}

#[cfg(test)]
mod tests;
