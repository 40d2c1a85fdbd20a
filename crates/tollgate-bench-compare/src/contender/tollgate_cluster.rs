//! Three nodes of Tollgate, as `tollgate server` runs them, used through the Tollgate client.

use super::{Contender, PAUSE, READY_PATIENCE, REST};
use crate::process::{Server, free_ports};
use anyhow::{Context, bail};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;
use tollgate_bench::{Blow, Failure, Patient, Tollgate};
use tollgate_client::{Client, Role};

const NODES: usize = 3;
const TTL: Duration = Duration::from_mins(1);

pub(crate) struct TollgateCluster {
    servers: Vec<Server>,
    endpoints: Vec<String>,
    /// Client for reading the status, not for locking.
    client: Client,
    struck: Option<(usize, Blow)>,
    _dir: TempDir,
}

impl TollgateCluster {
    pub(crate) async fn start(binary: &Path) -> anyhow::Result<TollgateCluster> {
        let dir = TempDir::with_prefix("bench-tollgate-")?;
        let ports = free_ports(3 * NODES)?;
        let address = |index: usize| format!("127.0.0.1:{}", ports[index]);
        let member = |node: usize| {
            let (client, peer) = (address(3 * node), address(3 * node + 1));
            format!("{{id = {}, peer = \"{peer}\", client = \"{client}\"}}", node + 1)
        };
        let members = (0..NODES).map(member).collect::<Vec<_>>().join(", ");
        let mut servers = Vec::new();
        for node in 0..NODES {
            let flags = [
                ("--node-id", (node + 1).to_string()),
                ("--node-data-dir", dir.path().join(format!("node-{}", node + 1)).display().to_string()),
                ("--cluster-name", "bench".to_owned()),
                ("--cluster-members", format!("[{members}]")),
                ("--listen-client", address(3 * node)),
                ("--listen-peer", address(3 * node + 1)),
                ("--listen-http", address(3 * node + 2)),
            ];
            let flags = flags.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
            let arguments = ["server".to_owned()].into_iter().chain(flags).chain(["--bootstrap".to_owned()]);
            servers.push(Server::start(
                binary,
                arguments.collect(),
                dir.path(),
                &format!("node-{}", node + 1),
            )?);
        }
        let endpoints: Vec<String> = (0..NODES).map(|node| format!("http://{}", address(3 * node))).collect();
        let client = Client::builder().endpoints(&endpoints).connect_timeout(READY_PATIENCE).connect().await;
        let client = client.with_context(|| servers[0].last_words())?;
        let cluster = TollgateCluster { servers, endpoints, client, struck: None, _dir: dir };
        cluster.until_whole().await?;
        Ok(cluster)
    }

    async fn leader(&self) -> Option<usize> {
        let all = self.client.admin().status().await;
        if all.iter().any(|node| node.status.is_err()) {
            return None;
        }
        let leads = all.iter().filter_map(|node| {
            let replica = node.status.as_ref().ok()?.replicas.first()?;
            let index = self.endpoints.iter().position(|endpoint| *endpoint == node.endpoint)?;
            (replica.role == Role::Leader && replica.serves).then_some((replica.raft_term, index))
        });
        leads.max().map(|(_, index)| index)
    }

    /// Waits until all nodes are there, and returns the leader.
    async fn until_whole(&self) -> anyhow::Result<usize> {
        let until = Instant::now() + READY_PATIENCE;
        while Instant::now() < until {
            if let Some(leader) = self.leader().await {
                return Ok(leader);
            }
            tokio::time::sleep(PAUSE).await;
        }
        bail!("the cluster is not whole after {READY_PATIENCE:?}:\n{}", self.servers[0].last_words())
    }
}

impl Contender for TollgateCluster {
    type Peer = Tollgate;

    fn pids(&self) -> Vec<u32> {
        self.servers.iter().filter_map(Server::pid).collect()
    }

    async fn connect(&self, connections: usize, _restless: bool) -> anyhow::Result<Tollgate> {
        Ok(Tollgate::connect(&self.endpoints, connections, TTL, 0).await?)
    }
}

impl Patient for TollgateCluster {
    async fn strike(&mut self, blow: Blow) -> Result<Instant, Failure> {
        let leader = self.until_whole().await.map_err(|error| Failure::says(format!("{error:#}")))?;
        let struck = Instant::now();
        super::hit(&mut self.servers[leader], blow)?;
        self.struck = Some((leader, blow));
        Ok(struck)
    }

    async fn heal(&mut self) -> Result<(), Failure> {
        if let Some((index, blow)) = self.struck.take() {
            super::mend(&mut self.servers[index], blow)?;
        }
        self.until_whole().await.map_err(|error| Failure::says(format!("{error:#}")))?;
        tokio::time::sleep(REST).await;
        Ok(())
    }
}
