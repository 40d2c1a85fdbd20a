//! The `semaphore` workload: permits of a semaphore.

use super::{Scene, Work};
use crate::board::Board;
use crate::failure::Failure;
use crate::peer::{Caller, How};
use std::sync::Arc;
use tokio::time::Instant;

/// Acquires one permit and releases it.
pub(crate) struct Semaphore<C> {
    caller: C,
    name: String,
    of: u32,
}

impl<C: Caller> Work<C> for Semaphore<C> {
    const SERIES: &'static [&'static str] = &["pair", "permit"];

    async fn prepare(caller: C, number: usize, scene: Arc<Scene>) -> Result<Self, Failure> {
        Ok(Semaphore { caller, name: scene.name_of(number).to_owned(), of: scene.plan.permits })
    }

    async fn once(&mut self, board: &Board) -> Result<(), Failure> {
        let began = Instant::now();
        let held = self.caller.lock(&self.name, How::Permit { of: self.of }).await?;
        let taken = Instant::now();
        self.caller.unlock(held).await?;
        let ended = Instant::now();
        board.done(ended, &[(0, ended - began), (1, taken - began)]);
        Ok(())
    }

    fn caller(self) -> C {
        self.caller
    }
}
