//! Locks that everybody wants: how fast they are handed on.

use super::{Scene, Work};
use crate::board::Board;
use crate::failure::Failure;
use crate::peer::{Caller, How};
use std::sync::Arc;
use tokio::time::Instant;

/// Waits for a lock that others want too, gives it back at once, and queues again.
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
        // A hand-off is from when the one before asked to give it back until this one knew that it had it. Where nobody
        // queues, who gives a lock back may well take it again: that hands nothing on, and is not counted.
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
