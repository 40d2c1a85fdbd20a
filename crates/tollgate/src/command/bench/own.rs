//! A cluster that is started to be measured, whose leader may be killed or stopped.

use super::super::child_cluster::{self, ChildCluster};
use nix::sys::signal::Signal;
use std::time::Duration;
use tokio::time::Instant;
use tollgate_bench::{Blow, Failure, Patient};
use tollgate_client::Client;

/// A cluster that is not whole after this time has failed.
const WHOLE_PATIENCE: Duration = Duration::from_secs(30);

/// Rest after a node came back: in that time it catches up.
const REST: Duration = Duration::from_secs(1);

const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Own {
    pub(super) cluster: ChildCluster,
    /// Client for status calls, not for locks.
    pub(super) client: Client,
    /// The node that was struck last, and the kind of blow.
    pub(super) struck: Option<(usize, Blow)>,
}

fn told(error: &anyhow::Error) -> Failure {
    Failure::says(format!("{error:#}"))
}

impl Patient for Own {
    async fn strike(&mut self, blow: Blow) -> Result<Instant, Failure> {
        let leader = child_cluster::leader(&self.client).await;
        let leader = leader.ok_or_else(|| Failure::says("nobody leads"))?;
        let struck = Instant::now();
        match blow {
            Blow::Kill => self.cluster.kill(leader).map(drop),
            Blow::Stop => self.cluster.signal(leader, Signal::SIGSTOP),
        }
        .map_err(|error| told(&error))?;
        self.struck = Some((leader, blow));
        Ok(struck)
    }

    async fn heal(&mut self) -> Result<(), Failure> {
        match self.struck.take() {
            Some((node, Blow::Kill)) => self.cluster.restart(node),
            Some((node, Blow::Stop)) => self.cluster.signal(node, Signal::SIGCONT),
            None => Ok(()),
        }
        .map_err(|error| told(&error))?;
        let whole = async {
            while child_cluster::whole(&self.client).await.is_none() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        let whole = tokio::time::timeout(WHOLE_PATIENCE, whole).await;
        whole.map_err(|_| Failure::says(format!("the cluster is not whole after {WHOLE_PATIENCE:?}")))?;
        tokio::time::sleep(REST).await;
        Ok(())
    }
}
