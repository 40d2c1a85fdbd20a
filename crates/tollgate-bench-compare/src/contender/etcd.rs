//! Three nodes of etcd, used through its lock service, with a lease for each caller.

use super::{Contender, PAUSE, READY_PATIENCE, REST};
use crate::process::{Server, free_ports};
use anyhow::bail;
use etcd_client::{Client, ConnectOptions, LeaseKeepAliveStream, LeaseKeeper, LockOptions};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;
use tollgate_bench::{Blow, Caller, Failure, How, Patient, Peer};

const NODES: usize = 3;

/// TTL of a caller's own lease: longer than a run, so that it need not be renewed.
const OWN_TTL_S: i64 = 600;

/// TTL of the leases that are granted and renewed.
const TTL_S: i64 = 60;

/// Timeout after which a request is repeated when leaders are lost. A node without a leader leaves requests unanswered,
/// even later: a client that rarely repeats its request would measure its own interval.
const RESTLESS: Duration = Duration::from_millis(200);

/// Maximum time for a node to report its status.
const ASK_PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct EtcdCluster {
    servers: Vec<Server>,
    endpoints: Vec<String>,
    struck: Option<(usize, Blow)>,
    _dir: TempDir,
}

impl EtcdCluster {
    pub(crate) async fn start() -> anyhow::Result<EtcdCluster> {
        let dir = TempDir::with_prefix("bench-etcd-")?;
        let ports = free_ports(2 * NODES)?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let initial = (0..NODES).map(|node| format!("node-{node}={}", url(ports[2 * node + 1])));
        let initial = initial.collect::<Vec<_>>().join(",");
        let mut servers = Vec::new();
        for node in 0..NODES {
            let (client, peer) = (url(ports[2 * node]), url(ports[2 * node + 1]));
            let flags = [
                ("--name", format!("node-{node}")),
                ("--data-dir", dir.path().join(format!("node-{node}")).display().to_string()),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client),
                ("--listen-peer-urls", peer.clone()),
                ("--initial-advertise-peer-urls", peer),
                ("--initial-cluster", initial.clone()),
                ("--initial-cluster-state", "new".to_owned()),
                ("--logger", "zap".to_owned()),
                ("--log-level", "error".to_owned()),
            ];
            let flags = flags.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
            servers.push(Server::start("etcd", flags, dir.path(), &format!("node-{node}"))?);
        }
        let endpoints = (0..NODES).map(|node| url(ports[2 * node])).collect();
        let cluster = EtcdCluster { servers, endpoints, struck: None, _dir: dir };
        cluster.until_whole().await?;
        Ok(cluster)
    }

    /// Returns the leader, if all nodes answer and agree: a leader that was stopped still believes that it leads for a
    /// while.
    async fn leader(&self) -> Option<usize> {
        let (mut leader, mut named) = (None, Vec::new());
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let options = ConnectOptions::new().with_timeout(ASK_PATIENCE).with_connect_timeout(ASK_PATIENCE);
            let mut client = Client::connect([endpoint], Some(options)).await.ok()?;
            let status = client.status().await.ok()?;
            if status.header().is_some_and(|header| header.member_id() == status.leader()) {
                leader = Some(index);
            }
            named.push((status.leader(), status.raft_term()));
        }
        leader.filter(|_| named.iter().all(|name| *name == named[0]))
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
        bail!("etcd is not whole after {READY_PATIENCE:?}:\n{}", self.servers[0].last_words())
    }
}

impl Contender for EtcdCluster {
    type Peer = Etcd;

    fn pids(&self) -> Vec<u32> {
        self.servers.iter().filter_map(Server::pid).collect()
    }

    async fn connect(&self, connections: usize, restless: bool) -> anyhow::Result<Etcd> {
        let mut clients = Vec::new();
        for _ in 0..connections {
            let options = ConnectOptions::new();
            let options = if restless { options.with_timeout(RESTLESS) } else { options };
            clients.push(Client::connect(&self.endpoints, Some(options)).await?);
        }
        Ok(Etcd { clients })
    }
}

impl Patient for EtcdCluster {
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

/// The cluster, over some connections; each goes to all nodes.
pub(crate) struct Etcd {
    clients: Vec<Client>,
}

impl Peer for Etcd {
    type Caller = EtcdCaller;

    async fn caller(&self, number: usize, _near: &str) -> Result<EtcdCaller, Failure> {
        let mut client = self.clients[number % self.clients.len()].clone();
        let lease = client.lease_grant(OWN_TTL_S, None).await.map_err(told)?.id();
        Ok(EtcdCaller { client, lease })
    }
}

pub(crate) struct EtcdCaller {
    client: Client,
    lease: i64,
}

/// A lease, with a stream of its own for keepalives from the first one on.
pub(crate) struct EtcdLease {
    id: i64,
    stream: Option<(LeaseKeeper, LeaseKeepAliveStream)>,
}

#[allow(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn told(error: etcd_client::Error) -> Failure {
    Failure::says(error.to_string())
}

impl Caller for EtcdCaller {
    type Held = Vec<u8>;
    type Lease = EtcdLease;

    async fn lock(&mut self, name: &str, how: How) -> Result<Vec<u8>, Failure> {
        if how != How::Exclusive {
            return Err(Failure::says("etcd has exclusive locks only"));
        }
        let options = LockOptions::new().with_lease(self.lease);
        let answer = self.client.lock(name, Some(options)).await.map_err(told)?;
        Ok(answer.key().to_vec())
    }

    async fn unlock(&mut self, held: Vec<u8>) -> Result<(), Failure> {
        self.client.unlock(held).await.map(drop).map_err(told)
    }

    async fn grant(&mut self) -> Result<EtcdLease, Failure> {
        let id = self.client.lease_grant(TTL_S, None).await.map_err(told)?.id();
        Ok(EtcdLease { id, stream: None })
    }

    async fn keep_alive(&mut self, lease: &mut EtcdLease) -> Result<(), Failure> {
        let Some((keeper, answers)) = &mut lease.stream else {
            // The first keepalive goes out with the stream.
            lease.stream = Some(self.client.lease_keep_alive(lease.id).await.map_err(told)?);
            return Ok(());
        };
        keeper.keep_alive().await.map_err(told)?;
        match answers.message().await.map_err(told)? {
            Some(answer) if answer.ttl() > 0 => Ok(()),
            _ => Err(Failure::says("the lease has ended")),
        }
    }

    async fn revoke(&mut self, lease: EtcdLease) -> Result<(), Failure> {
        self.client.lease_revoke(lease.id).await.map(drop).map_err(told)
    }

    async fn close(mut self) {
        // A lease that can't be revoked expires by itself.
        let _ = self.client.lease_revoke(self.lease).await;
    }
}
