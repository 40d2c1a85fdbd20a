//! The `uncontended` workload: locks that no other caller wants.

use super::{Scene, Work};
use crate::board::Board;
use crate::failure::Failure;
use crate::peer::{Caller, How};
use std::sync::Arc;
use tokio::time::Instant;

/// Locks and unlocks the caller's own names, one after the other.
pub(crate) struct Uncontended<C> {
    caller: C,
    names: Vec<String>,
    next: usize,
}

impl<C: Caller> Work<C> for Uncontended<C> {
    const SERIES: &'static [&'static str] = &["pair", "lock", "unlock"];

    async fn prepare(caller: C, number: usize, scene: Arc<Scene>) -> Result<Self, Failure> {
        let names = scene.own(number, scene.names().len()).map(|key| scene.names()[key].clone()).collect();
        Ok(Uncontended { caller, names, next: 0 })
    }

    async fn once(&mut self, board: &Board) -> Result<(), Failure> {
        let began = Instant::now();
        let held = self.caller.lock(&self.names[self.next], How::Exclusive).await?;
        let locked = Instant::now();
        self.caller.unlock(held).await?;
        let ended = Instant::now();
        board.done(ended, &[(0, ended - began), (1, locked - began), (2, ended - locked)]);
        self.next = (self.next + 1) % self.names.len();
        Ok(())
    }

    fn caller(self) -> C {
        self.caller
    }
}
