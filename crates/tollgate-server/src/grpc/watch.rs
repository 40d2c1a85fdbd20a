//! Watch streams: any number of watches on one stream, each told of its events in order.
//!
//! Invariant: what waits for a client that does not read is bounded: a watch has credit for a number of events, and
//! gets more when they were sent; all streams of the node together have a limit (`session::Unread`), past which the one
//! with the most unread ends. While a watch is open, its stream ends with an error that says why; a client that only
//! asks for nothing more still wants to be told. A watch that stays behind until history is gone is told so, and is
//! over. No event is told twice (P11), whichever of the node's watches brings it. Not here: what a watch sees
//! (`tollgate_replica::Desk`), how an event is worded (`operation`), what goes into one answer (`pieces`).

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

/// Events of one watch that may be under way.
const CREDIT: u64 = 256;

/// Room for the watches of all clients of a node.
#[derive(Debug, Clone)]
pub(crate) struct Watchers {
    places: Arc<Semaphore>,
    max: usize,
}

impl Watchers {
    pub(crate) fn new(max: usize) -> Watchers {
        Watchers { places: Arc::new(Semaphore::new(max)), max }
    }

    /// A place for one more, free again when it is dropped.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.places(1)
    }

    /// Places for one that follows so many groups: each is a watch of its own to the node.
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
    /// The node's number of it in each group.
    numbers: BTreeMap<GroupId, WatchNumber>,
    /// The numbers that it will have once their first answers are there: see [`Stream::progress`].
    probes: BTreeMap<GroupId, WatchNumber>,
    /// What it wants next of each group; as far as it is known.
    next: BTreeMap<GroupId, Revision>,
    created: bool,
    /// Its groups have no credit yet: none is told of events before all have begun, so that the first answer says so.
    held_back: bool,
    _place: OwnedSemaphorePermit,
}

/// Serves a stream until either side ends it, or until all have too much unread and this one the most.
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
            // Nothing would ever be told here again: its client begins anew elsewhere, where its cursor says.
            error = router.until_over() => outgoing.cut(error.into()),
            () = opened.until_cut() => {
                tracing::warn!(bytes = opened.account().bytes(), "a watch whose client does not read was ended");
                outgoing.cut(too_much_unread(opened.bytes_max()).into());
            }
        }
    });
    answers
}

/// Why a stream ended that had more unread than all others when it was too much.
pub(super) fn too_much_unread(bytes_max: usize) -> Error {
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
    /// By the client's number.
    watches: BTreeMap<u64, Watch>,
    /// The client's number and the group, by the node's.
    ids: BTreeMap<WatchNumber, (u64, GroupId)>,
    /// The next number for a watch whose client chose none: above those that people choose.
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

    /// Ends when its client is gone or has nothing left to be told; with an error if that is for what the client sent,
    /// of which `bytes_max` is the longest message.
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

    /// The last answer of a watch that never was, or is no more. Never of one that goes on: that would end it for its
    /// client, so what was wrong with its number is told without one.
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
        // Those that go on from a cursor begin at once, and are told at once.
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

    /// Forgets a watch; false if there is none of this number.
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

    /// Says how far watches have come.
    ///
    /// The node tells a watch nothing of revisions in which nothing happened for it. So the watch begins anew where it
    /// is: the first answer tells how far there is nothing more. Until then the old one goes on.
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

    /// Begins a watch anew where it is, in all its groups; not one whose first answer is still to come.
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
            // Where the node has too much to do, what is known is told.
            if self.node.ask(self.caller(number), ask).is_ok() {
                probes.insert(group, number);
            }
        }
        self.ids.extend(probes.iter().map(|(group, number)| (*number, (watch_id, *group))));
        if let Some(watch) = self.watches.get_mut(&watch_id) {
            watch.probes.extend(probes);
        }
    }

    /// Says how far a watch has come, once that is known of all its groups.
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

    /// Whether this is a probe of the watch, which ends with this.
    fn end_probe(&mut self, watch_id: u64, group: GroupId, number: WatchNumber) -> bool {
        let Some(watch) = self.watches.get_mut(&watch_id) else { return false };
        let is_probe = watch.probes.get(&group) == Some(&number);
        if is_probe {
            watch.probes.remove(&group);
        }
        is_probe
    }

    /// Puts a probe in the place of the watch that it looked after.
    fn adopt(&mut self, watch_id: u64, group: GroupId, number: WatchNumber) {
        let Some(watch) = self.watches.get_mut(&watch_id) else { return };
        if let Some(old) = watch.numbers.insert(group, number) {
            self.ids.remove(&old);
            self.node.tell(Ask::Unwatch { watch: old });
        }
    }

    /// Passes on what the node told.
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
                // The watch itself goes on: it knows that nothing happened for it in what is gone.
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

    /// Tells what of a batch was not told yet.
    ///
    /// A probe begins where the watch was when it was asked for, and the watch goes on until the probe has its place:
    /// so the probe's batches can begin far behind, not only the first.
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
        // One who resumed inside a revision would see its beginning again.
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
