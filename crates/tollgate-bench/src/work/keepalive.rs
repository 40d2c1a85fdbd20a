//! The `keepalive` workload: leases that are kept alive, as fast as answers come or each on its own schedule.

use super::{Scene, Work};
use crate::board::Board;
use crate::failure::Failure;
use crate::peer::Caller;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Renewals of a lease within its TTL, as many as the client makes.
const TIMES: u32 = 3;

/// Renews the caller's leases, one after the other.
pub(crate) struct Keepalive<C: Caller> {
    caller: C,
    leases: Vec<C::Lease>,
    next: usize,
    pace: Option<Pace>,
}

/// Schedule of a caller: the time of its next renewal, and the interval between renewals.
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
            // Callers are spread over one interval, or all would renew at once.
            let share = f64::from(u32::try_from(number).unwrap_or(0))
                / f64::from(u32::try_from(plan.clients).unwrap_or(1));
            Pace { due: Instant::now() + step.mul_f64(share), step }
        });
        Ok(Keepalive { caller, leases, next: 0, pace })
    }

    async fn once(&mut self, board: &Board) -> Result<(), Failure> {
        let began = match &mut self.pace {
            None => Instant::now(),
            // Latency counts from the time at which the renewal was due: the wait for the previous answer must not be
            // left out.
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
