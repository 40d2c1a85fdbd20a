//! A cluster for the time of one command: nodes that are separate processes, with data directories and ports of their
//! own.
//!
//! Invariant: no process outlives the cluster; `Drop` kills them, and should the command itself be killed, the kernel
//! does (`node`). Not here: the use of the cluster (`demo`, `bench`).

pub(crate) mod node;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use node::NODE;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tollgate_client::{Client, Role};

/// A cluster that is not ready after this time never will be.
const READY_PATIENCE: Duration = Duration::from_secs(15);

/// Pause between two polls of a condition.
const PAUSE: Duration = Duration::from_millis(5);

/// Number of attempts to start a cluster, each with another set of ports.
const ATTEMPTS: usize = 5;

/// Shape of a cluster: its name, its nodes and its flags.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// Name of the cluster, and of its directory.
    pub(super) name: &'static str,
    pub(super) nodes: usize,
    /// Number of Raft groups.
    pub(super) groups: u32,
    /// Extra flags of all nodes, beside those that make them a cluster.
    pub(super) flags: Vec<String>,
}

pub(super) struct ChildCluster {
    nodes: Vec<Node>,
    /// Temporary directory, removed on drop, after the processes that write into it have ended.
    _dir: TempDir,
}

/// A node of the cluster, running or not.
struct Node {
    client: SocketAddr,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Process>,
}

/// A node's process, killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Addresses that a node listens on.
#[derive(Debug, Clone, Copy)]
struct Ports {
    client: SocketAddr,
    peer: SocketAddr,
    http: SocketAddr,
}

impl ChildCluster {
    /// Starts a cluster and waits until it is ready. Returns the cluster, a client of it and the number of the leader.
    pub(super) async fn start(shape: &Shape) -> anyhow::Result<(ChildCluster, Client, usize)> {
        for _ in 0..ATTEMPTS {
            let mut cluster = ChildCluster::spawn(shape)?;
            let client = Client::builder().endpoints(cluster.endpoints()).client_id(shape.name);
            let client = client.connect_timeout(READY_PATIENCE).connect().await;
            // The log of a node that found its port taken says more than a failure to connect.
            if let Some(leader) = cluster.until_ready(client.as_ref().ok()).await? {
                return Ok((cluster, client?, leader));
            }
        }
        bail!("no free ports to be had: other programs were faster {ATTEMPTS} times")
    }

    /// Returns the leader once all nodes run and one leads, or `None` if a port was taken.
    async fn until_ready(&mut self, client: Option<&Client>) -> anyhow::Result<Option<usize>> {
        let until = Instant::now() + READY_PATIENCE;
        while Instant::now() < until {
            if let Some(said) = self.ended()? {
                if said.contains("can't listen") {
                    return Ok(None);
                }
                bail!("a node ended:\n{said}");
            }
            if let Some(client) = client
                && let Some(leader) = whole(client).await
            {
                return Ok(Some(leader));
            }
            sleep(PAUSE).await;
        }
        bail!("the cluster is not ready after {READY_PATIENCE:?}")
    }

    /// Starts the nodes. They are not ready yet, and may still fail because another process took a port first.
    fn spawn(shape: &Shape) -> anyhow::Result<ChildCluster> {
        let dir =
            TempDir::with_prefix(format!("tollgate-{}-", shape.name)).context("no temporary directory")?;
        let ports = free_ports(shape.nodes).context("no free ports")?;
        let mut nodes = Vec::new();
        for (index, own) in ports.iter().enumerate() {
            let log = dir.path().join(format!("node-{}.log", index + 1));
            let arguments = arguments(shape, index, *own, dir.path(), &ports);
            nodes.push(Node { client: own.client, arguments, log, process: None });
        }
        for node in &mut nodes {
            node.start(&["--bootstrap"])?;
        }
        Ok(ChildCluster { nodes, _dir: dir })
    }

    /// Returns the client endpoints of all nodes, running or not.
    pub(super) fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("http://{}", node.client)).collect()
    }

    /// Returns the process ids of the running nodes, in the order of the nodes.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.nodes.iter().filter_map(|node| node.process.as_ref().map(|process| process.0.id())).collect()
    }

    /// Kills a node with SIGKILL and returns its process id. Nodes are numbered from 1.
    pub(super) fn kill(&mut self, number: usize) -> anyhow::Result<u32> {
        let process = self.node(number)?.process.take().context("the node does not run")?;
        Ok(process.0.id())
    }

    /// Sends a signal to a node: SIGSTOP pauses it, SIGCONT resumes it.
    pub(super) fn signal(&mut self, number: usize, signal: Signal) -> anyhow::Result<()> {
        let process = self.node(number)?.process.as_ref().context("the node does not run")?;
        let pid = Pid::from_raw(i32::try_from(process.0.id()).context("no process has such a number")?);
        kill(pid, signal).with_context(|| format!("{signal} can't be sent to node {number}"))
    }

    /// Starts a node again on its old data.
    pub(super) fn restart(&mut self, number: usize) -> anyhow::Result<()> {
        self.node(number)?.start(&[])
    }

    fn node(&mut self, number: usize) -> anyhow::Result<&mut Node> {
        self.nodes.get_mut(number.wrapping_sub(1)).with_context(|| format!("there is no node {number}"))
    }

    /// Returns the log of a node that has ended by itself, if there is one.
    pub(super) fn ended(&mut self) -> anyhow::Result<Option<String>> {
        for node in &mut self.nodes {
            let Some(process) = &mut node.process else { continue };
            if process.0.try_wait()?.is_some() {
                return Ok(Some(std::fs::read_to_string(&node.log).unwrap_or_default()));
            }
        }
        Ok(None)
    }
}

impl Node {
    fn start(&mut self, more: &[&str]) -> anyhow::Result<()> {
        if self.process.is_some() {
            bail!("the node runs already");
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(NODE).args(&self.arguments).args(more);
        // Settings for the servers of this machine are not meant for these nodes.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TOLLGATE_") {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(Process(command.spawn().context("can't start a node")?));
        Ok(())
    }
}

/// Returns the node that leads and serves now, if there is one; the one with the highest term, should two say so.
pub(super) async fn leader(client: &Client) -> Option<usize> {
    let all = client.admin().status().await;
    let leads = all.iter().enumerate().filter_map(|(index, node)| {
        let replica = node.status.as_ref().ok()?.replicas.first()?;
        (replica.role == Role::Leader && replica.serves).then_some((replica.raft_term, index + 1))
    });
    leads.max().map(|(_, number)| number)
}

/// Returns the leader, if all nodes answer and one leads.
pub(super) async fn whole(client: &Client) -> Option<usize> {
    let all = client.admin().status().await;
    if all.iter().all(|node| node.status.is_ok()) { leader(client).await } else { None }
}

/// Finds ports that are free now. Another process may take one before a node does.
fn free_ports(nodes: usize) -> anyhow::Result<Vec<Ports>> {
    // All are bound at once, so that no two are the same.
    let bound: Vec<TcpListener> =
        (0..3 * nodes).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<_, _>>()?;
    let free: Vec<SocketAddr> = bound.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
    Ok(free.chunks(3).map(|three| Ports { client: three[0], peer: three[1], http: three[2] }).collect())
}

/// Returns the command line flags of a node.
fn arguments(shape: &Shape, index: usize, own: Ports, dir: &Path, all: &[Ports]) -> Vec<String> {
    let member = |(index, ports): (usize, &Ports)| {
        format!("{{id = {}, peer = \"{}\", client = \"{}\"}}", index + 1, ports.peer, ports.client)
    };
    let members = all.iter().enumerate().map(member).collect::<Vec<_>>().join(", ");
    let data_dir = dir.join(format!("node-{}", index + 1)).display().to_string();
    let flags = [
        ("--node-id", (index + 1).to_string()),
        ("--node-data-dir", data_dir),
        ("--cluster-name", shape.name.to_owned()),
        ("--cluster-members", format!("[{members}]")),
        ("--cluster-groups", shape.groups.to_string()),
        ("--listen-client", own.client.to_string()),
        ("--listen-peer", own.peer.to_string()),
        ("--listen-http", own.http.to_string()),
    ];
    let own = flags.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    own.chain(shape.flags.iter().cloned()).collect()
}
