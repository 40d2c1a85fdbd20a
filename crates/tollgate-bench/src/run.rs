//! One run: prepares the callers, starts them together, measures and ends them.
//!
//! Each caller is one task for the whole run, so that the loop itself costs next to nothing. Invariant: no caller
//! starts before all are ready, and none starts another operation once the time is up.

use crate::board::Board;
use crate::cpu::{Processes, Spent};
use crate::failure::Failure;
use crate::peer::{Caller, Peer};
use crate::plan::Plan;
use crate::report::Report;
use crate::window::Window;
use crate::work::{Contended, Keepalive, Leases, Mix, Scene, Semaphore, Uncontended, Work};
use crate::workload::Workload;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Maximum number of callers that are prepared concurrently.
const PREPARED_AT_ONCE: usize = 64;

/// Interval between two progress reports.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// Pause after a failure, so that a service that refuses everything is not asked all the time.
const PAUSE: Duration = Duration::from_millis(10);

/// Time limit for the callers' last operations, and then again for ending their leases.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// Progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of callers that are ready; all of them once the run has begun.
    pub ready: usize,
    /// Elapsed part of the measured time; zero in the warm-up.
    pub measured: Duration,
    /// Number of operations so far, those of the warm-up included.
    pub operations: u64,
    /// Number of failures so far.
    pub failures: u64,
}

/// Runs a workload of callers that lock. `watch` and `failover` have functions of their own, and are refused here.
pub async fn run<P: Peer>(
    peer: &P,
    plan: &Plan,
    processes: &Processes,
    tell: &mut dyn FnMut(Progress),
) -> Result<Report, Failure> {
    match plan.workload {
        Workload::Uncontended => drive::<P, Uncontended<P::Caller>>(peer, plan, processes, tell).await,
        Workload::Contended => drive::<P, Contended<P::Caller>>(peer, plan, processes, tell).await,
        Workload::Mix => drive::<P, Mix<P::Caller>>(peer, plan, processes, tell).await,
        Workload::Semaphore => drive::<P, Semaphore<P::Caller>>(peer, plan, processes, tell).await,
        Workload::Keepalive => drive::<P, Keepalive<P::Caller>>(peer, plan, processes, tell).await,
        Workload::Leases => drive::<P, Leases<P::Caller>>(peer, plan, processes, tell).await,
        other @ (Workload::Watch | Workload::Failover) => {
            Err(Failure::says(format!("{other} is no matter of callers that lock")))
        }
    }
}

async fn drive<P: Peer, W: Work<P::Caller>>(
    peer: &P,
    plan: &Plan,
    processes: &Processes,
    tell: &mut dyn FnMut(Progress),
) -> Result<Report, Failure> {
    let scene = Arc::new(Scene::new(plan));
    let works = prepare::<P, W>(peer, plan, &scene, tell).await?;
    let board = Arc::new(Board::new(Window::after(plan.warmup, plan.duration), W::SERIES));
    let mut tasks = JoinSet::new();
    for work in works {
        tasks.spawn(repeat(work, Arc::clone(&board)));
    }
    let spent = measure(&board, processes, plan.clients, tell).await;
    let mut callers = Vec::with_capacity(plan.clients);
    let ended = tokio::time::timeout(END_PATIENCE, async {
        while let Some(ended) = tasks.join_next().await {
            callers.extend(ended.ok());
        }
    });
    if ended.await.is_err() {
        let still = tasks.len();
        tasks.abort_all();
        board.failed(&Failure::says(format!("{still} clients had no answer {END_PATIENCE:?} after the end")));
    }
    close(callers).await;
    Ok(Report {
        plan: plan.clone(),
        measured: plan.duration,
        series: board.series(),
        failures: board.failures(),
        first_failure: board.first_failure(),
        spent,
    })
}

/// Creates all callers and prepares each for its workload.
async fn prepare<P: Peer, W: Work<P::Caller>>(
    peer: &P,
    plan: &Plan,
    scene: &Arc<Scene>,
    tell: &mut dyn FnMut(Progress),
) -> Result<Vec<W>, Failure> {
    let mut works = Vec::with_capacity(plan.clients);
    let mut preparing = JoinSet::new();
    for number in 0..plan.clients {
        let caller = peer.caller(number, scene.name_of(number)).await?;
        let scene = Arc::clone(scene);
        preparing.spawn(W::prepare(caller, number, scene));
        while preparing.len() >= PREPARED_AT_ONCE || (number + 1 == plan.clients && !preparing.is_empty()) {
            let Some(prepared) = preparing.join_next().await else { break };
            works.push(prepared.map_err(|_| Failure::says("a client stopped while it got ready"))??);
            if works.len().is_multiple_of(PREPARED_AT_ONCE) {
                let (measured, operations, failures) = (Duration::ZERO, 0, 0);
                tell(Progress { ready: works.len(), measured, operations, failures });
            }
        }
    }
    Ok(works)
}

/// Runs one caller until the time is up.
async fn repeat<C: Caller, W: Work<C>>(mut work: W, board: Arc<Board>) -> C {
    while !board.window.is_over() {
        if let Err(failure) = work.once(&board).await {
            board.failed(&failure);
            tokio::time::sleep(PAUSE).await;
        }
    }
    work.caller()
}

/// Waits until the time is up while it reports progress, and returns the processor time spent in the window.
pub(crate) async fn measure(
    board: &Board,
    processes: &Processes,
    ready: usize,
    tell: &mut dyn FnMut(Progress),
) -> Option<Spent> {
    tokio::time::sleep_until(board.window.from).await;
    let before = processes.used();
    while !board.window.is_over() {
        let next = (Instant::now() + TELL_EVERY).min(board.window.until);
        tokio::time::sleep_until(next).await;
        let measured = board.window.from.elapsed().min(board.window.until - board.window.from);
        let (operations, failures) = (board.progress(), board.failures());
        tell(Progress { ready, measured, operations, failures });
    }
    let after = processes.used();
    // A server that has exited by now failed its callers, and their failures are reported.
    Some(after.ok()?.since(&before.ok()?))
}

async fn close<C: Caller>(callers: Vec<C>) {
    let mut closing: JoinSet<()> = callers.into_iter().map(Caller::close).collect();
    let closed = async { while closing.join_next().await.is_some() {} };
    // Leases that are not ended by then expire by themselves.
    let _ = tokio::time::timeout(END_PATIENCE, closed).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::How;
    use parking_lot::Mutex;
    use std::collections::BTreeMap;
    use tokio::sync::{OwnedSemaphorePermit, Semaphore as Permits};

    /// An in-process lock service that refuses every lock if it is told to.
    #[derive(Clone, Default)]
    struct Toy {
        locks: Arc<Mutex<BTreeMap<String, Arc<Permits>>>>,
        refuses: bool,
        leases: Arc<Mutex<u64>>,
    }

    const EXCLUSIVE: u32 = 1_000;

    impl Peer for Toy {
        type Caller = Toy;

        async fn caller(&self, _number: usize, _near: &str) -> Result<Toy, Failure> {
            Ok(self.clone())
        }
    }

    impl Caller for Toy {
        type Held = OwnedSemaphorePermit;
        type Lease = ();

        async fn lock(&mut self, name: &str, how: How) -> Result<OwnedSemaphorePermit, Failure> {
            if self.refuses {
                return Err(Failure::says("the toy refuses"));
            }
            let all = || Arc::new(Permits::new(EXCLUSIVE as usize));
            let lock = Arc::clone(self.locks.lock().entry(name.to_owned()).or_insert_with(all));
            tokio::time::sleep(Duration::from_millis(1)).await;
            let permits = match how {
                How::Exclusive => EXCLUSIVE,
                How::Shared => 1,
                How::Permit { of } => EXCLUSIVE / of,
            };
            Ok(lock.acquire_many_owned(permits).await.unwrap())
        }

        async fn unlock(&mut self, held: OwnedSemaphorePermit) -> Result<(), Failure> {
            drop(held);
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(())
        }

        async fn grant(&mut self) -> Result<(), Failure> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            *self.leases.lock() += 1;
            Ok(())
        }

        async fn keep_alive(&mut self, _lease: &mut ()) -> Result<(), Failure> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(())
        }

        async fn revoke(&mut self, _lease: ()) -> Result<(), Failure> {
            *self.leases.lock() -= 1;
            Ok(())
        }

        async fn close(self) {}
    }

    fn plan(workload: Workload) -> Plan {
        let (duration, warmup) = (Duration::from_millis(100), Duration::from_millis(20));
        Plan { duration, warmup, ..Plan::new(workload, 4) }
    }

    #[tokio::test(start_paused = true)]
    async fn every_workload_of_callers_is_counted() {
        for workload in Workload::ALL {
            let toy = Toy::default();
            let mut told = Vec::new();
            let ran =
                run(&toy, &plan(workload), &Processes::default(), &mut |progress| told.push(progress)).await;
            if matches!(workload, Workload::Watch | Workload::Failover) {
                assert!(ran.unwrap_err().to_string().contains("no matter of callers"));
                continue;
            }
            let report = ran.unwrap();
            assert!(report.operations() > 0, "{workload}");
            assert_eq!((report.failures, report.first_failure), (0, None), "{workload}");
            assert!(report.spent.is_some());
            let last = told.last().unwrap();
            assert!(
                last.ready == 4 && last.operations >= report.series[0].latency.count(),
                "{workload}: {last:?}"
            );
            assert_eq!(*toy.leases.lock(), if workload == Workload::Keepalive { 4 } else { 0 });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn leases_in_their_own_time_are_renewed_every_third_of_it() {
        let ttl = Duration::from_millis(120);
        let plan = Plan { leases: Some(40), paced: true, ttl, ..plan(Workload::Keepalive) };
        let report = run(&Toy::default(), &plan, &Processes::default(), &mut |_| {}).await.unwrap();
        // A window of 100 ms is two and a half thirds of the TTL: there may be fewer renewals on a busy machine, and
        // never more.
        let renewed = report.operations();
        assert!((1..=140).contains(&renewed), "{renewed}");
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_counted_and_the_first_is_told() {
        let toy = Toy { refuses: true, ..Toy::default() };
        let report =
            run(&toy, &plan(Workload::Uncontended), &Processes::default(), &mut |_| {}).await.unwrap();
        assert_eq!(report.operations(), 0);
        assert!(report.failures >= 4);
        assert_eq!(report.first_failure.as_deref(), Some("the toy refuses"));
    }
}
