//! Outage time of a service that loses its leader.
//!
//! The outage is measured as a client sees it: it begins just before the signal, and ends with the grant of a lock that
//! was requested after the signal, over a connection that was open before it. Not here: finding and hitting the leader,
//! which the cluster does (`Patient`).

use crate::failure::Failure;
use crate::latency::Latency;
use crate::peer::{Caller, How, Peer};
use crate::plan::Plan;
use crate::report::{Report, Series};
use crate::run::Progress;
use crate::work::fresh_prefix;
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum outage: a service that grants nothing for longer after a loss of its leader counts as failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Pause between two attempts of a caller that was refused.
const PAUSE: Duration = Duration::from_millis(2);

/// Way in which a leader is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL: the leader's connections break at once.
    Kill,
    /// SIGSTOP: the leader's connections stay open, but nobody answers.
    Stop,
}

impl Blow {
    /// All ways to take a leader out.
    pub const ALL: [Blow; 2] = [Blow::Kill, Blow::Stop];

    /// Returns the name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Blow::Kill => "kill -9 to grant",
            Blow::Stop => "SIGSTOP to grant",
        }
    }
}

/// A cluster whose leader can be taken out and brought back.
pub trait Patient: Send {
    /// Sends the signal to the leader, and returns the time taken just before sending it.
    fn strike(&mut self, blow: Blow) -> impl Future<Output = Result<Instant, Failure>> + Send;

    /// Restores the cluster, and waits until it is restored.
    fn heal(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Runs `failover`: takes the leader out as often as the plan says, in each way, with a new caller each time.
pub async fn failover<P: Peer>(
    peer: &P,
    cluster: &mut impl Patient,
    plan: &Plan,
    blows: &[Blow],
    tell: &mut dyn FnMut(Progress),
) -> Result<Report, Failure> {
    let (prefix, began) = (fresh_prefix(), Instant::now());
    let mut series = vec![Series { of: "all", latency: Latency::new() }];
    let (mut failures, mut first_failure, mut operations) = (0, None, 0);
    for blow in blows {
        let mut latency = Latency::new();
        for round in 0..plan.rounds {
            let name = format!("{prefix}/{operations}-{round}");
            let out = outage(peer, cluster, *blow, &name).await;
            cluster.heal().await?;
            match out {
                Ok(out) => latency.record(out),
                Err(failure) => {
                    failures += 1;
                    first_failure.get_or_insert_with(|| failure.to_string());
                }
            }
            operations += 1;
            tell(Progress { ready: 1, measured: began.elapsed(), operations, failures });
        }
        series[0].latency.merge(&latency);
        series.push(Series { of: blow.name(), latency });
    }
    let measured = began.elapsed();
    Ok(Report { plan: plan.clone(), measured, series, failures, first_failure, spent: None })
}

/// Returns a caller with an open connection, after one lock and unlock so that everything on the path has been used
/// once. Retries up to `PATIENCE`, because connections may still be broken from the last loss, and some clients leave
/// retries to their program.
async fn ready<P: Peer>(peer: &P, name: &str) -> Result<P::Caller, Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        let tried = async {
            let mut caller = peer.caller(0, name).await?;
            let held = caller.lock(&format!("{name}/before"), How::Exclusive).await?;
            caller.unlock(held).await?;
            Ok(caller)
        };
        match tried.await {
            Err(_) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
            tried => return tried,
        }
    }
}

async fn outage<P: Peer>(
    peer: &P,
    cluster: &mut impl Patient,
    blow: Blow,
    name: &str,
) -> Result<Duration, Failure> {
    let mut caller = ready(peer, name).await?;
    let struck = cluster.strike(blow).await?;
    let granted = tokio::time::timeout(PATIENCE, async {
        loop {
            match caller.lock(name, How::Exclusive).await {
                Ok(held) => return (struck.elapsed(), held),
                // Some clients don't retry by themselves; then their program does, as here.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    });
    let (out, held) =
        granted.await.map_err(|_| Failure::says(format!("nothing was granted for {PATIENCE:?}")))?;
    // The lock is released here, or ends with its lease: neither changes the measurement.
    let _ = tokio::time::timeout(PATIENCE, caller.unlock(held)).await;
    let _ = tokio::time::timeout(PATIENCE, caller.close()).await;
    Ok(out)
}
