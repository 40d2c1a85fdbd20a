//! The `contended` workload: locks that several callers want, and the time of their hand-offs.

use super::{Scene, Work};
use crate::board::Board;
use crate::failure::Failure;
use crate::peer::{Caller, How};
use std::sync::Arc;
use tokio::time::Instant;

/// Waits for a lock that others want too, releases it at once, and queues again.
pub(crate) struct Contended<C> {
    caller: C,
    scene: Arc<Scene>,
    number: usize,
    key: usize,
}

impl<C: Caller> Work<C> for Contended<C> {
    const SERIES: &'static [&'static str] = &["hand-off", "wait"];

    async fn prepare(caller: C, number: usize, scene: Arc<Scene>) -> Result<Self, Failure> {
        let key = number % scene.names().len();
        Ok(Contended { caller, scene, number, key })
    }

    async fn once(&mut self, board: &Board) -> Result<(), Failure> {
        let began = Instant::now();
        let held = self.caller.lock(&self.scene.names()[self.key], How::Exclusive).await?;
        let granted = Instant::now();
        // A hand-off lasts from the release request of the previous holder until this caller received its grant.
        // Without a queue, a holder may well acquire the lock again itself: that is no hand-off, and is not counted.
        if let Some(released) = self.scene.handed_on_at(self.key, self.number) {
            board.done(granted, &[(0, granted.saturating_duration_since(released)), (1, granted - began)]);
        }
        self.scene.releases(self.key, self.number);
        self.caller.unlock(held).await
    }

    fn caller(self) -> C {
        self.caller
    }
}
