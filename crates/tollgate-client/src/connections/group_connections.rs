//! Keeps streams to the leaders of all groups, in addition to the main stream.
//!
//! If there is one group there is nothing to do. Invariant: there is at most one stream to a node; a stream that is no
//! longer wanted stays until the operations on it are answered. A stream that is missing or breaks costs an extra hop
//! over the main stream, whose node passes operations on. Not here: the leaders of groups (`routing_table`).

use super::{Hints, OPEN_PATIENCE, open};
use crate::endpoint::Endpoint;
use crate::endpoints::Endpoints;
use crate::random;
use crate::routing_table::RoutingTable;
use crate::session_stream::SessionStream;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Pause between two attempts to open a stream, and between two checks for streams that are no longer wanted.
const PAUSE: Duration = Duration::from_secs(1);

/// Streams by endpoint.
pub(super) type Streams = BTreeMap<Endpoint, Arc<SessionStream>>;

/// Task that keeps the streams.
pub(super) struct GroupConnections {
    pub(super) endpoints: Arc<Endpoints>,
    pub(super) routing_table: watch::Receiver<Arc<RoutingTable>>,
    /// The main stream.
    pub(super) main: watch::Receiver<Option<Arc<SessionStream>>>,
    pub(super) streams: watch::Sender<Streams>,
    pub(super) hints: Arc<Hints>,
    pub(super) kept: Arc<AtomicUsize>,
}

impl GroupConnections {
    pub(super) async fn run(mut self) {
        loop {
            let wanted = self.wanted();
            self.let_go(&wanted);
            let missing: Vec<Endpoint> =
                wanted.into_iter().filter(|endpoint| !self.streams.borrow().contains_key(endpoint)).collect();
            self.open(missing).await;
            if self.until_changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the endpoints of all leaders except the one that the main stream goes to.
    fn wanted(&mut self) -> BTreeSet<Endpoint> {
        let routing_table = Arc::clone(&self.routing_table.borrow_and_update());
        if routing_table.is_single() {
            return BTreeSet::new();
        }
        let mut wanted = routing_table.leaders();
        if let Some(main) = &*self.main.borrow_and_update() {
            wanted.remove(main.endpoint());
        }
        wanted
    }

    /// Drops streams that are broken, or neither wanted nor in use.
    fn let_go(&self, wanted: &BTreeSet<Endpoint>) {
        let kept = self.kept.load(Ordering::Relaxed) > 0;
        let stays = |endpoint: &Endpoint, stream: &Arc<SessionStream>| {
            !stream.is_broken() && (kept || wanted.contains(endpoint) || stream.under_way() > 0)
        };
        self.streams.send_if_modified(|streams| {
            let before = streams.len();
            streams.retain(|endpoint, stream| stays(endpoint, stream));
            streams.len() != before
        });
    }

    async fn open(&self, missing: Vec<Endpoint>) {
        let mut opening: JoinSet<_> = missing.into_iter().map(open).collect();
        while let Some(opened) = opening.join_next().await {
            let Ok((endpoint, opened)) = opened else { continue };
            let trouble = opened.as_ref().err().map(|error| error.message().to_owned());
            self.endpoints.note(&endpoint, trouble);
            if let Ok(stream) = opened {
                self.streams.send_modify(|streams| {
                    streams.insert(endpoint, stream);
                });
            }
        }
    }

    /// Waits until there may be something to do. Returns an error once the connections are gone.
    async fn until_changed(&mut self) -> Result<(), watch::error::RecvError> {
        let streams: Vec<Arc<SessionStream>> = self.streams.borrow().values().cloned().collect();
        let single = self.routing_table.borrow().is_single();
        let mut breaking: JoinSet<()> =
            streams.into_iter().map(|stream| async move { stream.until_broken().await }).collect();
        let pause = random::jittered(PAUSE.max(OPEN_PATIENCE / 2));
        tokio::select! {
            changed = self.routing_table.changed() => changed,
            changed = self.main.changed() => changed,
            Some(_) = breaking.join_next() => {
                // The node of the broken stream may no longer lead: search for the leader.
                self.hints.told.notify_one();
                Ok(())
            }
            () = tokio::time::sleep(pause), if !single => Ok(()),
        }
    }
}
