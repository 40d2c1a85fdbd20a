//! Keeps lines to the leaders of all groups, in addition to the pilot's own line.
//!
//! If there is one group there is nothing to do. Invariant: there is at most one line to a node; a line that is no
//! longer wanted stays until the operations on it are answered. A line that is missing or breaks costs a detour over
//! the pilot's own line, whose node passes operations on. Not here: the leaders of groups (`chart`).

use super::{Hints, OPEN_PATIENCE, open};
use crate::chart::Chart;
use crate::endpoint::Endpoint;
use crate::endpoints::Endpoints;
use crate::line::Line;
use crate::random;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Pause between two attempts to open a line, and between two checks for lines that are no longer wanted.
const PAUSE: Duration = Duration::from_secs(1);

/// Lines by endpoint.
pub(super) type Lines = BTreeMap<Endpoint, Arc<Line>>;

/// Task that keeps the lines.
pub(super) struct Tender {
    pub(super) endpoints: Arc<Endpoints>,
    pub(super) chart: watch::Receiver<Arc<Chart>>,
    /// The pilot's own line.
    pub(super) main: watch::Receiver<Option<Arc<Line>>>,
    pub(super) lines: watch::Sender<Lines>,
    pub(super) hints: Arc<Hints>,
    pub(super) kept: Arc<AtomicUsize>,
}

impl Tender {
    pub(super) async fn run(mut self) {
        loop {
            let wanted = self.wanted();
            self.let_go(&wanted);
            let missing: Vec<Endpoint> =
                wanted.into_iter().filter(|endpoint| !self.lines.borrow().contains_key(endpoint)).collect();
            self.open(missing).await;
            if self.until_changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the endpoints of all leaders except the one that the pilot's own line goes to.
    fn wanted(&mut self) -> BTreeSet<Endpoint> {
        let chart = Arc::clone(&self.chart.borrow_and_update());
        if chart.is_single() {
            return BTreeSet::new();
        }
        let mut wanted = chart.leaders();
        if let Some(main) = &*self.main.borrow_and_update() {
            wanted.remove(main.endpoint());
        }
        wanted
    }

    /// Drops lines that are broken, or neither wanted nor in use.
    fn let_go(&self, wanted: &BTreeSet<Endpoint>) {
        let kept = self.kept.load(Ordering::Relaxed) > 0;
        let stays = |endpoint: &Endpoint, line: &Arc<Line>| {
            !line.is_broken() && (kept || wanted.contains(endpoint) || line.under_way() > 0)
        };
        self.lines.send_if_modified(|lines| {
            let before = lines.len();
            lines.retain(|endpoint, line| stays(endpoint, line));
            lines.len() != before
        });
    }

    async fn open(&self, missing: Vec<Endpoint>) {
        let mut opening: JoinSet<_> = missing.into_iter().map(open).collect();
        while let Some(opened) = opening.join_next().await {
            let Ok((endpoint, opened)) = opened else { continue };
            let trouble = opened.as_ref().err().map(|error| error.message().to_owned());
            self.endpoints.note(&endpoint, trouble);
            if let Ok(line) = opened {
                self.lines.send_modify(|lines| {
                    lines.insert(endpoint, line);
                });
            }
        }
    }

    /// Waits until there may be something to do. Returns an error once the pilot is gone.
    async fn until_changed(&mut self) -> Result<(), watch::error::RecvError> {
        let lines: Vec<Arc<Line>> = self.lines.borrow().values().cloned().collect();
        let single = self.chart.borrow().is_single();
        let mut breaking: JoinSet<()> =
            lines.into_iter().map(|line| async move { line.until_broken().await }).collect();
        let pause = random::jittered(PAUSE.max(OPEN_PATIENCE / 2));
        tokio::select! {
            changed = self.chart.changed() => changed,
            changed = self.main.changed() => changed,
            Some(_) = breaking.join_next() => {
                // The node of the broken line may no longer lead: search for the leader.
                self.hints.told.notify_one();
                Ok(())
            }
            () = tokio::time::sleep(pause), if !single => Ok(()),
        }
    }
}
