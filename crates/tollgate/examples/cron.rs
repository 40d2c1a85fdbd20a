//! The same schedule on three machines: whenever a time comes, one of them does the job, and does it once.
//!
//! Start a cluster with `make run`, then `cargo run -p tollgate --example cron`. To use other nodes than those of `make
//! run`, list them in `TOLLGATE_ENDPOINTS`, separated by commas.
//!
//! The lock keeps two machines from doing the job at once. A register keeps a machine whose clock is late from doing it
//! a second time: it holds the time up to which the job is done, and is written under the lock, with a compare. The
//! report is written with the fencing token.

#![allow(clippy::print_stdout, reason = "it shows what happens")]

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tollgate_client::{AcquireError, Client, Compare, Session, Token, TxnOp};
use tollgate_fence::{Fence, FencedToken, Rejected};

const EVERY: Duration = Duration::from_millis(500);
const TIMES: u32 = 4;

/// Returns the key of the register with the time up to which the job is done. Each run of the example has a key of its
/// own, as if it were a separate job.
fn done_key(run: u128) -> String {
    format!("cron/report/{run}/done")
}

/// Stands for the destination of the reports.
#[derive(Default)]
struct Reports {
    inside: Mutex<(Fence, Vec<String>)>,
}

impl Reports {
    fn add(&self, report: String, token: Token) -> Result<(), Rejected> {
        let mut inside = self.inside.lock();
        inside.0.accept(FencedToken::exclusive(token))?;
        inside.1.push(report);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    run(endpoints()).await?;
    Ok(())
}

/// Returns the reports that were written, in order.
pub(crate) async fn run(endpoints: Vec<String>) -> Result<Vec<String>> {
    let run = std::time::UNIX_EPOCH.elapsed()?.as_millis();
    let (reports, begin) = (Arc::new(Reports::default()), Instant::now() + EVERY);
    // The clock of the third machine is late.
    let machines = [("cron-1", 0), ("cron-2", 5), ("cron-3", 150)].map(|(name, late_ms)| {
        let late = Duration::from_millis(late_ms);
        tokio::spawn(machine(name, run, endpoints.clone(), begin + late, Arc::clone(&reports)))
    });
    for machine in machines {
        machine.await??;
    }
    let reports = &reports.inside.lock().1;
    println!("{TIMES} times, {} reports: {}", reports.len(), reports.join(", "));
    Ok(reports.clone())
}

/// Runs one machine with its schedule.
async fn machine(
    name: &'static str,
    run: u128,
    endpoints: Vec<String>,
    begin: Instant,
    reports: Arc<Reports>,
) -> Result<()> {
    let client = Client::builder().endpoints(endpoints).client_id(name).connect().await?;
    let session = client.session().ttl(Duration::from_secs(10)).open().await?;
    for time in 1..=TIMES {
        tokio::time::sleep_until(begin + EVERY * time).await;
        job(name, run, time, &session, &reports).await?;
    }
    session.close().await?;
    Ok(())
}

async fn job(name: &str, run: u128, time: u32, session: &Session, reports: &Reports) -> Result<()> {
    let guard = match session.lock("cron/report").why(format!("time {time}")).try_acquire().await {
        Ok(guard) => guard,
        Err(AcquireError::Busy { holders, .. }) => {
            let by = holders.first().map_or("somebody", |holder| holder.client_id.as_str());
            println!("time {time}: {name} leaves it to {by}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    // Numbered by the session: the write happens once, even if a leader dies before it has answered.
    let (registers, key) = (session.registers(), done_key(run));
    let done = registers.get(key.as_str()).await?;
    let until = done.as_ref().and_then(|done| String::from_utf8_lossy(&done.value).parse().ok()).unwrap_or(0);
    if until >= time {
        println!("time {time}: {name} is late, it was done");
        return guard.release().await.map_err(Into::into);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    reports.add(format!("{time} by {name}"), guard.token()?)?;
    let unchanged = match &done {
        Some(done) => Compare::mod_revision(key.as_str(), done.mod_revision),
        None => Compare::missing(key.as_str()),
    };
    let written =
        registers.txn().when(unchanged).then(TxnOp::put(key.as_str(), time.to_string())).commit().await?;
    ensure!(written.succeeded, "somebody wrote {key} without the lock");
    println!("time {time}: {name} did it with token {}", guard.token()?);
    guard.release().await?;
    Ok(())
}

fn endpoints() -> Vec<String> {
    let given = std::env::var("TOLLGATE_ENDPOINTS").unwrap_or_else(|_| "http://127.0.0.1:7400".to_owned());
    given.split(',').map(str::to_owned).collect()
}
