//! The `watch` workload: one writer, many watchers, and the time until each watcher is notified.
//!
//! Each write carries the time of its request in its `why`, so that watchers compute the delay with the clock of this
//! process alone. The next write waits until all watchers have received the last one: the measurement is of the
//! fan-out, and not of how long a queue can grow.

use crate::board::Board;
use crate::cpu::Processes;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::report::Report;
use crate::run::{Progress, measure};
use crate::tollgate::Tollgate;
use crate::window::Window;
use crate::work::fresh_prefix;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tollgate_client::{Change, Session, Watch, WatchItem};

const SERIES: &[&str] = &["delivery", "write"];

/// Maximum delivery time: if a watcher has not received a write by then, that is a failure, and nothing more is
/// written.
const PATIENCE: Duration = Duration::from_secs(10);

/// One write, until all watchers have received it.
#[derive(Debug, Default)]
struct Round {
    left: AtomicUsize,
    over: Notify,
}

/// Runs `watch`: as many watchers as the plan has clients, and one writer.
pub async fn fan_out(
    cluster: &Tollgate,
    plan: &Plan,
    processes: &Processes,
    tell: &mut dyn FnMut(Progress),
) -> Result<Report, Failure> {
    let name = format!("{}/watched", fresh_prefix());
    let mut opened = Vec::with_capacity(plan.clients);
    for number in 0..plan.clients {
        let client = &cluster.connections()[number % cluster.connections().len()];
        opened.push(client.watch().name(name.as_str()).without_waiters().open().await?);
    }
    let writer = cluster.connections()[0].session().ttl(plan.ttl).near(name.as_str()).open().await?;
    let board = Arc::new(Board::new(Window::after(plan.warmup, plan.duration), SERIES));
    let (round, began) = (Arc::new(Round::default()), Instant::now());
    let mut watchers = JoinSet::new();
    for watch in opened {
        watchers.spawn(be_told(watch, Arc::clone(&board), Arc::clone(&round), began));
    }
    let scribe = Scribe { session: writer, name, began, watchers: plan.clients, payload: plan.payload };
    let writing = tokio::spawn(scribe.write(Arc::clone(&board), round));
    let spent = measure(&board, processes, plan.clients, tell).await;
    if writing.await.is_err() {
        board.failed(&Failure::says("the writer stopped"));
    }
    watchers.shutdown().await;
    Ok(Report {
        plan: plan.clone(),
        measured: plan.duration,
        series: board.series(),
        failures: board.failures(),
        first_failure: board.first_failure(),
        spent,
    })
}

/// The writer: acquires and releases a lock again and again; each grant is an event for the watchers.
struct Scribe {
    session: Session,
    name: String,
    began: Instant,
    watchers: usize,
    payload: usize,
}

impl Scribe {
    async fn write(self, board: Arc<Board>, round: Arc<Round>) {
        while !board.window.is_over() {
            round.left.store(self.watchers, Ordering::Release);
            if let Err(failure) = self.once(&board).await {
                board.failed(&failure);
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
            let told = async {
                while round.left.load(Ordering::Acquire) > 0 {
                    round.over.notified().await;
                }
            };
            if tokio::time::timeout(PATIENCE, told).await.is_err() {
                let left = round.left.load(Ordering::Acquire);
                board.failed(&Failure::says(format!("{left} watchers were not told within {PATIENCE:?}")));
                break;
            }
        }
        // A lease that can't be revoked expires by itself.
        let _ = self.session.close().await;
    }

    async fn once(&self, board: &Board) -> Result<(), Failure> {
        let asked = Instant::now();
        let why = stamp(asked - self.began, self.payload);
        let guard = self.session.lock(self.name.as_str()).why(why).acquire().await?;
        board.done(Instant::now(), &[(1, asked.elapsed())]);
        Ok(guard.release().await?)
    }
}

/// Runs one watcher until its task is ended.
async fn be_told(mut watch: Watch, board: Arc<Board>, round: Arc<Round>, began: Instant) {
    loop {
        let item = watch.next().await;
        let told = Instant::now();
        match item {
            Some(Ok(WatchItem::Event(event))) => {
                let Change::Claim { claim, .. } = &event.change else { continue };
                let (Some(_), Some(asked)) = (event.change.granted(), asked_at(&claim.why)) else { continue };
                board.done(told, &[(0, told.saturating_duration_since(began + asked))]);
                if round.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    round.over.notify_one();
                }
            }
            Some(Ok(_)) => {
                return board.failed(&Failure::says("history was gone before a watcher had seen it"));
            }
            Some(Err(error)) => return board.failed(&error.into()),
            None => return board.failed(&Failure::says("a watch ended")),
        }
    }
}

/// Returns a `why` that holds the time of the request, padded to `payload` bytes, or longer if the time needs more.
fn stamp(since: Duration, payload: usize) -> String {
    format!("{:<payload$}", format!("{} ns", since.as_nanos()))
}

fn asked_at(why: &str) -> Option<Duration> {
    why.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_why_says_when_it_was_asked_for_whatever_its_size() {
        for payload in [0, 10, 4_096] {
            let since = Duration::from_nanos(1_234_567_890_123);
            let why = stamp(since, payload);
            assert_eq!(asked_at(&why), Some(since));
            assert_eq!(why.len(), payload.max(16));
        }
        assert_eq!(asked_at("someone else's"), None);
    }
}
