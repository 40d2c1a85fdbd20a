//! Lanes: each brings one fault after the other, drawn from a seed of its own.
//!
//! Invariant: a fault of one node or gateway has it to itself, and there are only as many lanes as nodes may be broken
//! while a majority is left; a fault of the whole cluster has all lanes to itself. Each fault ends before its lane
//! draws the next. Not here: the faults themselves (`faults`).

use super::arena::Arena;
use super::faults::{self, Draw, Reach};
use super::plan::Plan;
use crate::rng::Rng;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Minimum and maximum pause between two faults of a lane.
const GAP_MS: (u64, u64) = (500, 2_500);

/// Runs all lanes until the time is over and the last fault has ended.
pub(crate) async fn run_all(plan: &Plan, arena: &Arc<Arena>) {
    let until = Instant::now() + plan.span;
    let mut lanes = JoinSet::new();
    for lane in 0..plan.minority() as u64 {
        let rng = Rng::new(plan.seed.wrapping_mul(64) + lane);
        lanes.spawn(run(Arc::clone(arena), rng, until));
    }
    while let Some(ended) = lanes.join_next().await {
        ended.unwrap();
    }
}

async fn run(arena: Arc<Arena>, mut rng: Rng, until: Instant) {
    loop {
        let gap_ms = GAP_MS.0 + rng.below(GAP_MS.1 - GAP_MS.0);
        tokio::time::sleep(Duration::from_millis(gap_ms)).await;
        if Instant::now() >= until || arena.has_problems() {
            return;
        }
        let draw = Draw::from(&mut rng);
        let (_shared, _alone);
        match draw.kind.reach() {
            Reach::Node | Reach::Gateway => _shared = arena.gate.read().await,
            Reach::Cluster => _alone = arena.gate.write().await,
        }
        // The fault that held the gate before may have left something broken.
        if arena.has_problems() {
            return;
        }
        let ended = faults::run(&arena, draw).await;
        if let Err(problem) = ended {
            arena.problem(problem);
        }
    }
}
