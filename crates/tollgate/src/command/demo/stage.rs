//! What every play needs: a cluster that is ready, a narrator, and people who want locks.

use super::cluster::Cluster;
use super::narrator::Narrator;
use anyhow::{Context, bail};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tollgate_client::{Client, Role, Session};

/// Whatever a play waits for has come by then, or never will.
const PATIENCE: Duration = Duration::from_secs(15);

/// Between two looks at something that is waited for.
const PAUSE: Duration = Duration::from_millis(5);

/// How often another set of ports is tried.
const ATTEMPTS: usize = 5;

pub(super) struct Stage {
    pub(super) cluster: Cluster,
    pub(super) tell: Narrator,
    /// For looking, not for locking.
    pub(super) client: Client,
}

impl Stage {
    /// Starts a cluster and waits until it is ready.
    pub(super) async fn set(tell: Narrator) -> anyhow::Result<Stage> {
        tell.say("three nodes start, each a process with a disk of its own")?;
        for _ in 0..ATTEMPTS {
            let cluster = Cluster::start()?;
            let client = Client::builder().endpoints(cluster.endpoints()).client_id("demo");
            let mut stage = Stage { client: client.connect().await?, cluster, tell };
            if let Some(leader) = stage.ready().await? {
                let pids: Vec<String> = stage.cluster.pids().iter().map(u32::to_string).collect();
                stage.tell.say(&format!("ready: processes {}; node {leader} leads", pids.join(", ")))?;
                return Ok(stage);
            }
        }
        bail!("no free ports to be had: other programs were faster {ATTEMPTS} times")
    }

    /// The leader, once all nodes run and one leads; none if a port was taken.
    async fn ready(&mut self) -> anyhow::Result<Option<usize>> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(said) = self.cluster.ended()? {
                if said.contains("can't listen") {
                    return Ok(None);
                }
                bail!("a node ended:\n{said}");
            }
            let all = self.client.admin().status().await;
            let up = all.iter().all(|node| node.status.is_ok());
            if let (true, Some(leader)) = (up, self.leader().await) {
                return Ok(Some(leader));
            }
            sleep(PAUSE).await;
        }
        bail!("the cluster is not ready after {PATIENCE:?}")
    }

    /// The node that leads and serves now, if there is one: the newest, should two say so.
    pub(super) async fn leader(&self) -> Option<usize> {
        let all = self.client.admin().status().await;
        let leads = all.iter().enumerate().filter_map(|(index, node)| {
            let replica = node.status.as_ref().ok()?.replicas.first()?;
            (replica.role == Role::Leader && replica.serves).then_some((replica.raft_term, index + 1))
        });
        leads.max().map(|(_, number)| number)
    }

    /// Somebody who wants locks: a client and a lease of their own.
    pub(super) async fn person(&self, name: &str, ttl: Duration) -> anyhow::Result<Session> {
        let client = Client::builder().endpoints(self.cluster.endpoints()).client_id(name).connect().await?;
        client.session().ttl(ttl).open().await.with_context(|| format!("{name} got no lease"))
    }

    /// Waits until so many wait for a lock.
    pub(super) async fn until_waiting(&self, lock: &str, waiters: u64) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.client.get_lock(lock).await?.waiter_count == waiters {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
        bail!("nobody queued for {lock} within {PATIENCE:?}")
    }
}
