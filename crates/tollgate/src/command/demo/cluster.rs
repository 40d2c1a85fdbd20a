//! Three nodes, each a process of its own with a data directory and ports of its own.
//!
//! Invariant: no process outlives the cluster; `Drop` kills them, and should the demo itself be killed, the kernel does
//! (`node`). Not here: talking to them (`stage`).

use super::node::NODE;
use anyhow::{Context, bail};
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// How many nodes a demo has.
pub(super) const NODES: usize = 3;

pub(super) struct Cluster {
    nodes: Vec<Node>,
    /// Removed when it is dropped, after the processes that write into it.
    _dir: TempDir,
}

/// One node, running or not.
struct Node {
    client: SocketAddr,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Process>,
}

/// Killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where a node listens.
#[derive(Debug, Clone, Copy)]
struct Ports {
    client: SocketAddr,
    peer: SocketAddr,
    http: SocketAddr,
}

impl Cluster {
    /// Starts the nodes. They are not ready yet, and may find that another process was faster at a port.
    pub(super) fn start() -> anyhow::Result<Cluster> {
        let dir = TempDir::with_prefix("tollgate-demo-").context("no temporary directory")?;
        let ports = free_ports().context("no free ports")?;
        let mut nodes = Vec::new();
        for (index, own) in ports.iter().enumerate() {
            let log = dir.path().join(format!("node-{}.log", index + 1));
            let arguments = arguments(index, *own, dir.path(), &ports);
            nodes.push(Node { client: own.client, arguments, log, process: None });
        }
        for node in &mut nodes {
            node.start(&["--bootstrap"])?;
        }
        Ok(Cluster { nodes, _dir: dir })
    }

    /// Where clients connect, of every node whether it runs or not.
    pub(super) fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("http://{}", node.client)).collect()
    }

    /// The numbers of the processes, by node.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.nodes.iter().filter_map(|node| node.process.as_ref().map(|process| process.0.id())).collect()
    }

    /// Kills a node without a word (SIGKILL); gives the number of its process. Nodes are numbered from 1.
    pub(super) fn kill(&mut self, number: usize) -> anyhow::Result<u32> {
        let process = self.node(number)?.process.take().context("the node does not run")?;
        Ok(process.0.id())
    }

    /// Starts a node again on its data.
    pub(super) fn restart(&mut self, number: usize) -> anyhow::Result<()> {
        self.node(number)?.start(&[])
    }

    fn node(&mut self, number: usize) -> anyhow::Result<&mut Node> {
        self.nodes.get_mut(number.wrapping_sub(1)).with_context(|| format!("there is no node {number}"))
    }

    /// What a node said before it ended, if one has ended by itself.
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
        // What is set for the servers of this machine is not meant for these.
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

/// Ports that are free now. Another process may take one before a node does.
fn free_ports() -> anyhow::Result<Vec<Ports>> {
    // All at once, so that no two are the same.
    let bound: Vec<TcpListener> =
        (0..3 * NODES).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<_, _>>()?;
    let free: Vec<SocketAddr> = bound.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
    Ok(free.chunks(3).map(|three| Ports { client: three[0], peer: three[1], http: three[2] }).collect())
}

/// The flags of a node.
fn arguments(index: usize, own: Ports, dir: &Path, all: &[Ports]) -> Vec<String> {
    let member = |(index, ports): (usize, &Ports)| {
        format!("{{id = {}, peer = \"{}\", client = \"{}\"}}", index + 1, ports.peer, ports.client)
    };
    let members = all.iter().enumerate().map(member).collect::<Vec<_>>().join(", ");
    let data_dir = dir.join(format!("node-{}", index + 1)).display().to_string();
    let flags = [
        ("--node-id", (index + 1).to_string()),
        ("--node-data-dir", data_dir),
        ("--cluster-name", "demo".to_owned()),
        ("--cluster-members", format!("[{members}]")),
        ("--listen-client", own.client.to_string()),
        ("--listen-peer", own.peer.to_string()),
        ("--listen-http", own.http.to_string()),
    ];
    flags.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}
