//! The `mix` workload: readers and writers of some locks.

use super::{Scene, Work};
use crate::board::Board;
use crate::failure::Failure;
use crate::peer::{Caller, How};
use std::sync::Arc;
use tokio::time::Instant;

/// Acquires a random lock, usually shared, and releases it.
pub(crate) struct Mix<C> {
    caller: C,
    scene: Arc<Scene>,
    dice: u64,
}

impl<C> Mix<C> {
    /// Returns the next pseudo-random number (xorshift); the series is the same in each run.
    fn roll(&mut self) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice >> 11
    }
}

impl<C: Caller> Work<C> for Mix<C> {
    const SERIES: &'static [&'static str] = &["pair", "shared lock", "exclusive lock"];

    async fn prepare(caller: C, number: usize, scene: Arc<Scene>) -> Result<Self, Failure> {
        let mut mix = Mix { caller, scene, dice: 0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1) };
        // Similar seeds produce similar first numbers, which are dropped.
        for _ in 0..8 {
            mix.roll();
        }
        Ok(mix)
    }

    async fn once(&mut self, board: &Board) -> Result<(), Failure> {
        let keys = self.scene.names().len() as u64;
        let key = usize::try_from(self.roll() % keys).expect("below a usize");
        let shared = self.roll() % 100 < u64::from(self.scene.plan.reads_percent);
        let (how, series) = if shared { (How::Shared, 1) } else { (How::Exclusive, 2) };
        let began = Instant::now();
        let held = self.caller.lock(&self.scene.names()[key], how).await?;
        let locked = Instant::now();
        self.caller.unlock(held).await?;
        let ended = Instant::now();
        board.done(ended, &[(0, ended - began), (series, locked - began)]);
        Ok(())
    }

    fn caller(self) -> C {
        self.caller
    }
}
