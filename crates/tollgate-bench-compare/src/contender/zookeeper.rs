//! Three nodes of ZooKeeper, used for locks by its recipe, or for bare nodes.
//!
//! The recipe: an ephemeral sequential node below the lock; the lowest one holds the lock, every other watches its
//! predecessor. A caller's lease is a session: callers that share a connection share it.

use super::{Contender, PAUSE, READY_PATIENCE, REST};
use crate::process::{Server, free_ports};
use anyhow::{Context, bail};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tollgate_bench::{Blow, Caller, Failure, How, Patient, Peer};
use zookeeper_client::{Acls, Client, CreateMode, Error};

const NODES: usize = 3;
const CLASS: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// Time that a session lives without a message.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time for a node to report its status.
const ASK_PATIENCE: Duration = Duration::from_secs(1);

/// Method of taking a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipe {
    Queue,
    Bare,
}

pub(crate) struct ZooKeeperEnsemble {
    servers: Vec<Server>,
    ports: Vec<u16>,
    recipe: Recipe,
    struck: Option<(usize, Blow)>,
    _dir: TempDir,
}

impl ZooKeeperEnsemble {
    pub(crate) async fn start(recipe: Recipe) -> anyhow::Result<ZooKeeperEnsemble> {
        let dir = TempDir::with_prefix("bench-zookeeper-")?;
        let ports = free_ports(3 * NODES)?;
        let members = (0..NODES).map(|node| {
            format!("server.{}=127.0.0.1:{}:{}\n", node + 1, ports[3 * node + 1], ports[3 * node + 2])
        });
        let members: String = members.collect();
        let mut servers = Vec::new();
        for node in 0..NODES {
            let data = dir.path().join(format!("node-{}", node + 1));
            std::fs::create_dir_all(&data)?;
            std::fs::write(data.join("myid"), format!("{}\n", node + 1))?;
            // Ticks and limits are those of the sample configuration that ZooKeeper ships.
            let settings = format!(
                "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n\
                 maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n{members}",
                data.display(),
                ports[3 * node]
            );
            let file = dir.path().join(format!("node-{}.cfg", node + 1));
            std::fs::write(&file, settings)?;
            let arguments = ["-cp", JAR, CLASS].map(str::to_owned).into_iter();
            let arguments = arguments.chain([file.display().to_string()]).collect();
            servers.push(Server::start("java", arguments, dir.path(), &format!("node-{}", node + 1))?);
        }
        let ports = (0..NODES).map(|node| ports[3 * node]).collect();
        let ensemble = ZooKeeperEnsemble { servers, ports, recipe, struck: None, _dir: dir };
        ensemble.until_whole().await?;
        Ok(ensemble)
    }

    /// Returns the leader, if all nodes serve.
    async fn leader(&self) -> Option<usize> {
        let mut leader = None;
        for (index, port) in self.ports.iter().enumerate() {
            let said = tokio::time::timeout(ASK_PATIENCE, ask(*port)).await.ok()?.ok()?;
            if said.contains("Mode: leader") {
                leader = Some(index);
            } else if !said.contains("Mode: follower") {
                return None;
            }
        }
        leader
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
        bail!("ZooKeeper is not whole after {READY_PATIENCE:?}:\n{}", self.servers[0].last_words())
    }

    fn addresses(&self) -> String {
        self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }
}

/// Returns a node's own status report.
async fn ask(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"srvr").await?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    Ok(said)
}

impl Contender for ZooKeeperEnsemble {
    type Peer = ZooKeeper;

    fn pids(&self) -> Vec<u32> {
        self.servers.iter().filter_map(Server::pid).collect()
    }

    async fn connect(&self, connections: usize, restless: bool) -> anyhow::Result<ZooKeeper> {
        let mut sessions = Vec::new();
        for _ in 0..connections {
            sessions.push(session(&self.addresses()).await.context("ZooKeeper gave no session")?);
        }
        for path in [BENCH, BARE] {
            match sessions[0].create(path, &[], &CreateMode::Persistent.with_acls(Acls::anyone_all())).await {
                Ok(_) | Err(Error::NodeExists) => {}
                Err(error) => bail!("{path}: {error}"),
            }
        }
        // A session may end while there is no leader: each caller of a loss measurement has its own session.
        let sessions = if restless { Vec::new() } else { sessions };
        Ok(ZooKeeper { addresses: self.addresses(), sessions, recipe: self.recipe })
    }
}

/// Paths of the locks, as directories and as bare nodes.
const BENCH: &str = "/bench";
const BARE: &str = "/bare";

async fn session(addresses: &str) -> Result<Client, Error> {
    Client::connector().with_session_timeout(SESSION_TIMEOUT).connect(addresses).await
}

impl Patient for ZooKeeperEnsemble {
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

/// The ensemble, over some sessions; without any, each caller has its own.
pub(crate) struct ZooKeeper {
    addresses: String,
    sessions: Vec<Client>,
    recipe: Recipe,
}

impl Peer for ZooKeeper {
    type Caller = ZooKeeperCaller;

    async fn caller(&self, number: usize, _near: &str) -> Result<ZooKeeperCaller, Failure> {
        let client = match self.sessions.get(number % self.sessions.len().max(1)) {
            Some(client) => client.clone(),
            None => session(&self.addresses).await.map_err(told)?,
        };
        let addresses = self.addresses.clone();
        Ok(ZooKeeperCaller { client, addresses, recipe: self.recipe, known: Arc::default() })
    }
}

pub(crate) struct ZooKeeperCaller {
    client: Client,
    addresses: String,
    recipe: Recipe,
    /// Directories that are known to exist.
    known: Arc<Mutex<Vec<String>>>,
}

#[allow(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn told(error: Error) -> Failure {
    Failure::says(error.to_string())
}

impl ZooKeeperCaller {
    /// Joins the queue and waits; returns the path of the node that holds the lock then.
    async fn queue(&self, name: &str) -> Result<String, Error> {
        let parent = format!("{BENCH}/{}", name.replace('/', "-"));
        let mut known = self.known.lock().await;
        if !known.contains(&parent) {
            match self
                .client
                .create(&parent, &[], &CreateMode::Persistent.with_acls(Acls::anyone_all()))
                .await
            {
                Ok(_) | Err(Error::NodeExists) => known.push(parent.clone()),
                Err(error) => return Err(error),
            }
        }
        drop(known);
        let prefix = format!("{parent}/lock-");
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, sequence) = self.client.create(&prefix, &[], &options).await?;
        let own = format!("lock-{sequence}");
        loop {
            let mut waiting = self.client.list_children(&parent).await?;
            waiting.sort_unstable();
            let place = waiting.iter().position(|child| *child == own).ok_or(Error::NoNode)?;
            let Some(before) = place.checked_sub(1) else { return Ok(format!("{parent}/{own}")) };
            let before = format!("{parent}/{}", waiting[before]);
            let (stat, watcher) = self.client.check_and_watch_stat(&before).await?;
            if stat.is_some() {
                watcher.changed().await;
            }
        }
    }
}

impl Caller for ZooKeeperCaller {
    type Held = String;
    type Lease = Client;

    async fn lock(&mut self, name: &str, how: How) -> Result<String, Failure> {
        if how != How::Exclusive {
            return Err(Failure::says("only exclusive locks are compared"));
        }
        if self.client.state().is_terminated() {
            self.client = session(&self.addresses).await.map_err(told)?;
        }
        if self.recipe == Recipe::Queue {
            return self.queue(name).await.map_err(told);
        }
        let path = format!("{BARE}/{}", name.replace('/', "-"));
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        self.client.create(&path, &[], &options).await.map_err(told)?;
        Ok(path)
    }

    async fn unlock(&mut self, held: String) -> Result<(), Failure> {
        self.client.delete(&held, None).await.map_err(told)
    }

    async fn grant(&mut self) -> Result<Client, Failure> {
        session(&self.addresses).await.map_err(told)
    }

    async fn keep_alive(&mut self, _lease: &mut Client) -> Result<(), Failure> {
        Err(Failure::says("its client renews sessions by itself"))
    }

    async fn revoke(&mut self, lease: Client) -> Result<(), Failure> {
        // The session is closed in the background: a caller can't wait for that.
        drop(lease);
        Ok(())
    }

    async fn close(self) {}
}
