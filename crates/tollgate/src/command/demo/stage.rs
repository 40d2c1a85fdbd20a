//! Everything that a play needs: a ready cluster, a narrator, and clients that want locks.

use super::super::child_cluster::{self, ChildCluster, Shape};
use super::narrator::Narrator;
use anyhow::{Context, bail};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tollgate_client::{Client, Session};

/// An event that has not come after this time never will.
const PATIENCE: Duration = Duration::from_secs(15);

/// Pause between two polls of a condition.
const PAUSE: Duration = Duration::from_millis(5);

/// Shape of the cluster that every demo runs on.
const SHAPE: Shape = Shape { name: "demo", nodes: 3, groups: 1, flags: Vec::new() };

pub(super) struct Stage {
    pub(super) cluster: ChildCluster,
    pub(super) tell: Narrator,
    /// Client for status calls, not for locks.
    pub(super) client: Client,
}

impl Stage {
    /// Starts a cluster and waits until it is ready.
    pub(super) async fn set(tell: Narrator) -> anyhow::Result<Stage> {
        tell.say("three nodes start, each a process with a disk of its own")?;
        let (cluster, client, leader) = ChildCluster::start(&SHAPE).await?;
        let pids: Vec<String> = cluster.pids().iter().map(u32::to_string).collect();
        tell.say(&format!("ready: processes {}; node {leader} leads", pids.join(", ")))?;
        Ok(Stage { cluster, tell, client })
    }

    /// Returns the node that leads and serves now, if there is one.
    pub(super) async fn leader(&self) -> Option<usize> {
        child_cluster::leader(&self.client).await
    }

    /// Opens a session for a person of the play: a client and a lease of their own.
    pub(super) async fn person(&self, name: &str, ttl: Duration) -> anyhow::Result<Session> {
        let client = Client::builder().endpoints(self.cluster.endpoints()).client_id(name).connect().await?;
        client.session().ttl(ttl).open().await.with_context(|| format!("{name} got no lease"))
    }

    /// Waits until `waiters` requests wait for a lock.
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
