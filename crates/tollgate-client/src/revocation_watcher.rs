//! Detects that a lock was taken away although its lease lives: by force, or by its max hold.
//!
//! Keepalives don't report this. So every lock held for longer than `MOMENT` is watched, over one stream for all of a
//! client's locks; a lock held for less is released sooner than its loss would be reported. A watch begins at the
//! grant, so nothing is missed, however late it is opened. Invariant: the end of every grant that was not released is
//! detected within that moment plus the delivery of an event, as long as some node can be reached. Not here: the end of
//! a lease, which its keeper detects.

use crate::call::{self, Answered, Call};
use crate::clock::Clock;
use crate::connections::Connections;
use crate::grant::Grant;
use crate::lost::{Lost, LostReason};
use crate::multiplexer::Urgency;
use crate::session::Core;
use crate::session_stream::SessionStream;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult, watch_request::Target};
use tonic::Streaming;

/// Time after which a held lock is watched, and interval of the checks for such locks.
const MOMENT: Duration = Duration::from_millis(100);

/// Maximum number of requests to the stream that wait to be sent.
const REQUESTS_MAX: usize = 256;

/// Maximum number of watches for a grant of several names.
const NAMES_MAX: u64 = 64;

/// Delay before a node that had no room for a watch is asked again.
const REFUSED_FOR: Duration = Duration::from_secs(2);

/// Maximum time to wait for the state of one lock.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);

/// Watches the grants of a client for a loss.
#[derive(Debug)]
pub(crate) struct RevocationWatcher {
    posts: Arc<Posts>,
    task: JoinHandle<()>,
}

/// All grants, in the order in which they were made.
#[derive(Debug, Default)]
struct Posts {
    inner: Mutex<(u64, BTreeMap<u64, Post>)>,
    filled: Notify,
}

struct Post {
    since: Instant,
    grant: Weak<Grant>,
}

impl std::fmt::Debug for Post {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Post").field("since", &self.since).finish_non_exhaustive()
    }
}

impl Posts {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Post>)> {
        self.inner.lock()
    }

    fn get(&self, number: u64) -> Option<Arc<Grant>> {
        let grant = self.lock().1.get(&number)?.grant.clone();
        grant.upgrade()
    }
}

impl RevocationWatcher {
    pub(crate) fn start(connections: Arc<Connections>, clock: Arc<dyn Clock>) -> RevocationWatcher {
        let posts = Arc::new(Posts::default());
        let round = Round {
            posts: Arc::clone(&posts),
            connections,
            clock,
            watched: BTreeMap::new(),
            next: 0,
            refused: None,
        };
        RevocationWatcher { posts, task: tokio::spawn(round.run()) }
    }

    /// Watches a grant from now on. Returns the grant's number at the revocation watcher.
    pub(crate) fn add(&self, grant: &Arc<Grant>) -> u64 {
        let mut posts = self.posts.lock();
        posts.0 += 1;
        let number = posts.0;
        posts.1.insert(number, Post { since: Instant::now(), grant: Arc::downgrade(grant) });
        let first = posts.1.len() == 1;
        drop(posts);
        if first {
            self.posts.filled.notify_one();
        }
        number
    }

    /// Returns the grants of a session.
    pub(crate) fn of(&self, core: &Arc<Core>) -> Vec<Arc<Grant>> {
        let posts: Vec<Weak<Grant>> = self.posts.lock().1.values().map(|post| post.grant.clone()).collect();
        let grants = posts.iter().filter_map(Weak::upgrade);
        grants.filter(|grant| Arc::ptr_eq(grant.core(), core)).collect()
    }

    /// Stops watching a grant that is over.
    pub(crate) fn remove(&self, number: u64) {
        self.posts.lock().1.remove(&number);
    }
}

impl Drop for RevocationWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Task behind a revocation watcher.
struct Round {
    posts: Arc<Posts>,
    connections: Arc<Connections>,
    clock: Arc<dyn Clock>,
    /// Grants that the present stream watches, and the number of names of each.
    watched: BTreeMap<u64, usize>,
    /// Grants before this number are watched, except for those that were refused.
    next: u64,
    /// Time since when some grants are not watched because a node refused to.
    refused: Option<Instant>,
}

type Requests = mpsc::Sender<v1::WatchRequest>;

impl Round {
    async fn run(mut self) {
        loop {
            self.until_needed().await;
            let stream = self.connections.stream().await;
            self.watched.clear();
            (self.next, self.refused) = (0, None);
            if let Some((requests, answers)) = open(&stream).await {
                self.watch(&stream, &requests, answers).await;
            }
            // The pause is the same for a stream that broke and one that could not be opened.
            tokio::time::sleep(MOMENT).await;
        }
    }

    /// Waits until a lock has been held for `MOMENT`.
    async fn until_needed(&self) {
        loop {
            let oldest = self.posts.lock().1.first_key_value().map(|(_, post)| post.since);
            match oldest {
                None => self.posts.filled.notified().await,
                Some(since) if since.elapsed() >= MOMENT => return,
                Some(since) => tokio::time::sleep_until(since + MOMENT).await,
            }
        }
    }

    /// Watches until the stream breaks, or the client uses another node.
    async fn watch(
        &mut self,
        stream: &Arc<SessionStream>,
        requests: &Requests,
        mut answers: Streaming<v1::WatchResponse>,
    ) {
        loop {
            self.order(requests);
            tokio::select! {
                () = tokio::time::sleep(MOMENT) => {}
                () = stream.until_broken() => return,
                () = self.connections.replaced(stream) => return,
                answer = answers.next() => match answer {
                    Some(Ok(answer)) => self.told(&answer),
                    _ => return,
                },
            }
        }
    }

    /// Opens watches for grants held for longer than `MOMENT`, and ends the watches of grants that are over.
    fn order(&mut self, requests: &Requests) {
        self.cancel(requests);
        if self.refused.is_some_and(|at| at.elapsed() >= REFUSED_FOR) {
            (self.refused, self.next) = (None, 0);
        }
        for (number, grant) in self.due() {
            if requests.capacity() < grant.names.len() {
                return;
            }
            for request in watches(number, &grant) {
                // There is room: checked above.
                let _ = requests.try_send(request);
            }
            self.watched.insert(number, grant.names.len());
            self.next = number + 1;
        }
    }

    /// Returns grants that have been held for `MOMENT` and are not watched.
    fn due(&self) -> Vec<(u64, Arc<Grant>)> {
        let posts = self.posts.lock();
        let old_enough = posts.1.range(self.next..).take_while(|(_, post)| post.since.elapsed() >= MOMENT);
        let unwatched = old_enough.filter(|(number, _)| !self.watched.contains_key(number));
        let due = unwatched.filter_map(|(number, post)| Some((*number, post.grant.upgrade()?)));
        due.take(REQUESTS_MAX).collect()
    }

    fn cancel(&mut self, requests: &Requests) {
        let posts = self.posts.lock();
        self.watched.retain(|number, names| {
            // Without room, the cancel waits for another round.
            if posts.1.contains_key(number) || requests.capacity() < *names {
                return true;
            }
            for watch_id in (number * NAMES_MAX..).take(*names) {
                let cancel = v1::WatchRequest { watch_id, cancel: true, ..v1::WatchRequest::default() };
                // There is room: checked above.
                let _ = requests.try_send(cancel);
            }
            false
        });
    }

    fn told(&mut self, answer: &v1::WatchResponse) {
        let number = answer.watch_id / NAMES_MAX;
        let Some(grant) = self.posts.get(number) else { return };
        for event in &answer.events {
            if let Some(lost) = end_of(&grant, (answer.watch_id % NAMES_MAX) as usize, event) {
                grant.lose(lost);
                return;
            }
        }
        if !answer.canceled {
            return;
        }
        // The node has no room, or stops, or the history since the grant is compacted: retried later.
        self.watched.remove(&number);
        self.refused.get_or_insert_with(Instant::now);
        if answer.compact_revision > 0 {
            tokio::spawn(look(
                Arc::clone(&self.connections),
                Arc::clone(&self.clock),
                Arc::downgrade(&grant),
            ));
        }
    }
}

/// Returns the requests for the watches on a grant, one for each name, from the grant on.
fn watches(number: u64, grant: &Grant) -> Vec<v1::WatchRequest> {
    let state = grant.last_known();
    let filters = vec![v1::WatchFilter::NoPut.into(), v1::WatchFilter::NoWaiters.into()];
    let request = |(place, (name, seen_at)): (u64, (&String, &AtomicU64))| v1::WatchRequest {
        target: Some(Target::Key(name.clone())),
        start_revision: (state.token_of(name).get() + 1).max(seen_at.load(Ordering::Relaxed) + 1),
        watch_id: number * NAMES_MAX + place,
        filters: filters.clone(),
        ..v1::WatchRequest::default()
    };
    (0..NAMES_MAX).zip(grant.names.iter().zip(&grant.seen_at)).map(request).collect()
}

/// Returns the loss of the grant, if the event is about its end. `place` is the index of the watched name.
fn end_of(grant: &Grant, place: usize, event: &v1::Event) -> Option<Lost> {
    let Some(v1::KeyValue { kv: Some(v1::key_value::Kv::Claim(claim)) }) = &event.kv else { return None };
    let is_it = event.r#type() == v1::EventType::Delete
        && claim.lease_id == grant.core().lease.get()
        && claim.owner == grant.owner
        && Some(&claim.create_revision) == grant.create_revisions.get(place);
    is_it.then(|| {
        let note = (!event.note.is_empty()).then(|| event.note.clone());
        Lost { reason: LostReason::of_end(event.end_reason()), note }
    })
}

async fn open(stream: &SessionStream) -> Option<(Requests, Streaming<v1::WatchResponse>)> {
    let (requests, outgoing) = mpsc::channel(REQUESTS_MAX);
    let opened = LockServiceClient::new(stream.channel()).watch(ReceiverStream::new(outgoing)).await;
    Some((requests, opened.ok()?.into_inner()))
}

/// Checks whether a grant whose history is compacted still stands. If it does, later watches begin at the revision of
/// this check.
async fn look(connections: Arc<Connections>, clock: Arc<dyn Clock>, grant: Weak<Grant>) {
    let Some(names) = grant.upgrade().map(|grant| grant.names.clone()) else { return };
    for (place, name) in names.iter().cloned().enumerate() {
        let mut op = Op::GetLock(v1::GetLockRequest { name, ..v1::GetLockRequest::default() });
        let until = Some(Instant::now() + LOOK_PATIENCE);
        let asks = Call { op: &mut op, until, urgency: Urgency::Ordinary, seqs: None, begun: None };
        let looked = call::call(&connections, &*clock, asks).await;
        let Ok(Answered { result: OpResult::GetLock(seen), .. }) = looked else { return };
        let Some(grant) = grant.upgrade() else { return };
        let is_it = |holder: &v1::Holder| {
            holder.lease_id == grant.core().lease.get()
                && Some(&holder.create_revision) == grant.create_revisions.get(place)
        };
        let lock = seen.lock.unwrap_or_default();
        if !lock.holders.iter().any(is_it) {
            // A list of holders that was cut short proves nothing: the check is repeated.
            if lock.holder_count <= lock.holders.len() as u64 {
                grant.lose(Lost::new(LostReason::Forced));
            }
            return;
        }
        grant.seen_at[place].store(seen.header.map_or(0, |header| header.revision), Ordering::Relaxed);
    }
}
