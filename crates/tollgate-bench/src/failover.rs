//! How long a service is out when it loses its leader.
//!
//! Measured as a client sees it: from the moment before the signal until a lock is granted that was asked for after it,
//! over a connection that was open before. Not here: how a leader is found and hit, which is the cluster's own matter.

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

/// A service that grants nothing for so long after a loss has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Between two attempts of a caller that was refused.
const PAUSE: Duration = Duration::from_millis(2);

/// How a leader is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL: its connections break at once.
    Kill,
    /// SIGSTOP: its connections stay, and nobody answers.
    Stop,
}

impl Blow {
    /// Both.
    pub const ALL: [Blow; 2] = [Blow::Kill, Blow::Stop];

    /// In reports.
    pub fn name(self) -> &'static str {
        match self {
            Blow::Kill => "kill -9 to grant",
            Blow::Stop => "SIGSTOP to grant",
        }
    }
}

/// A cluster whose leader may be hit.
pub trait Patient: Send {
    /// Hits the leader; when that was, taken before the signal.
    fn strike(&mut self, blow: Blow) -> impl Future<Output = Result<Instant, Failure>> + Send;

    /// Makes the cluster whole again, and waits until it is.
    fn heal(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Runs `failover`: hits the leader as often as the plan says, in each way, with a new caller each time.
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

/// A caller whose connection stands, with everything on the way used once. Connections may still be broken from the
/// last loss, and some clients leave it to their program to try again.
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
                // A client that does not try again by itself has its program do so.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    });
    let (out, held) =
        granted.await.map_err(|_| Failure::says(format!("nothing was granted for {PATIENCE:?}")))?;
    // It is held or will end with its lease: neither changes what was measured.
    let _ = tokio::time::timeout(PATIENCE, caller.unlock(held)).await;
    let _ = tokio::time::timeout(PATIENCE, caller.close()).await;
    Ok(out)
}
