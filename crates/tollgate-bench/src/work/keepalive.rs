//! Leases that are kept alive, as fast as answers come or each in its own time.

use super::{Scene, Work};
use crate::board::Board;
use crate::failure::Failure;
use crate::peer::Caller;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a lease is renewed within its TTL, as clients do.
const TIMES: u32 = 3;

/// Renews its leases, one after the other.
pub(crate) struct Keepalive<C: Caller> {
    caller: C,
    leases: Vec<C::Lease>,
    next: usize,
    pace: Option<Pace>,
}

/// When the next one is due, and how long after it the one after that.
struct Pace {
    due: Instant,
    step: Duration,
}

impl<C: Caller> Work<C> for Keepalive<C> {
    const SERIES: &'static [&'static str] = &["keepalive"];

    async fn prepare(mut caller: C, number: usize, scene: Arc<Scene>) -> Result<Self, Failure> {
        let (plan, mut leases) = (&scene.plan, Vec::new());
        for _ in scene.own(number, plan.leases()) {
            leases.push(caller.grant().await?);
        }
        let pace = plan.paced.then(|| {
            let step = plan.ttl / TIMES / u32::try_from(leases.len()).unwrap_or(u32::MAX).max(1);
            // Callers are spread over a step, or all would ask at once.
            let share = f64::from(u32::try_from(number).unwrap_or(0))
                / f64::from(u32::try_from(plan.clients).unwrap_or(1));
            Pace { due: Instant::now() + step.mul_f64(share), step }
        });
        Ok(Keepalive { caller, leases, next: 0, pace })
    }

    async fn once(&mut self, board: &Board) -> Result<(), Failure> {
        let began = match &mut self.pace {
            None => Instant::now(),
            // Counted from when it was due: that one waited for the last one's answer must not be lost.
            Some(pace) => {
                let due = pace.due;
                pace.due += pace.step;
                tokio::time::sleep_until(due.min(board.window.until)).await;
                if due >= board.window.until {
                    return Ok(());
                }
                due
            }
        };
        self.caller.keep_alive(&mut self.leases[self.next]).await?;
        let ended = Instant::now();
        board.done(ended, &[(0, ended.saturating_duration_since(began))]);
        self.next = (self.next + 1) % self.leases.len();
        Ok(())
    }

    fn caller(self) -> C {
        self.caller
    }
}
