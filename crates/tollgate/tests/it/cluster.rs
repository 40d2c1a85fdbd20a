//! A cluster of real processes: each node is a `tollgate server` with a data directory and ports of its own.
//!
//! Invariant: no process outlives its test. `Drop` kills the nodes, also after a panic; should the test's process
//! itself be killed, a watchdog beside each node notices that its pipe broke and kills the node. Not here: the clients
//! (`client`), broken networks (`proxy`).

use crate::ports;
use crate::proxy::Links;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{ReplicaStatus, Role, StatusRequest};
use tonic::transport::{Channel, Endpoint};

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// A condition of a cluster that does not hold after this time never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Pause between two polls of a condition.
const PAUSE: Duration = Duration::from_millis(10);

/// Description of a cluster to start.
#[derive(Debug, Clone)]
pub(crate) struct Making {
    pub(crate) nodes: usize,
    /// Name of the cluster.
    pub(crate) name: &'static str,
    /// True if nodes reach each other through proxies, which can be cut.
    pub(crate) proxied: bool,
    /// Additional flags of every node.
    pub(crate) flags: Vec<String>,
    /// Data directories of nodes that are not to use the temporary directory.
    pub(crate) data_dirs: Vec<(usize, PathBuf)>,
    /// Binary that the nodes run at first.
    pub(crate) binary: PathBuf,
}

impl Making {
    pub(crate) fn nodes(nodes: usize) -> Making {
        let (flags, data_dirs) = (Vec::new(), Vec::new());
        Making { nodes, name: "it", proxied: false, flags, data_dirs, binary: BINARY.into() }
    }

    pub(crate) fn proxied(self) -> Making {
        Making { proxied: true, ..self }
    }

    pub(crate) fn flags(self, flags: &[&str]) -> Making {
        Making { flags: flags.iter().map(ToString::to_string).collect(), ..self }
    }
}

/// Ports that a node listens on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodePorts {
    pub(crate) client: u16,
    pub(crate) peer: u16,
    pub(crate) http: u16,
}

impl NodePorts {
    /// Takes free ports.
    pub(crate) fn take() -> NodePorts {
        NodePorts { client: ports::take(), peer: ports::take(), http: ports::take() }
    }

    pub(crate) fn endpoint(self) -> String {
        format!("http://127.0.0.1:{}", self.client)
    }

    /// Returns a connection that opens when it is first used, with a timeout for each call.
    pub(crate) fn channel(self, patience: Duration) -> Channel {
        Endpoint::from_shared(self.endpoint())
            .unwrap()
            .connect_timeout(Duration::from_millis(500))
            .timeout(patience)
            .connect_lazy()
    }

    /// True if `/readyz?member` answers 200, which it can for a witness too.
    pub(crate) async fn is_ready(self) -> bool {
        matches!(self.http("GET", "/readyz?member", "").await, Some((200, _)))
    }

    /// Returns the status of the node's replicas; empty if the node does not answer soon.
    pub(crate) async fn replicas(self) -> Vec<ReplicaStatus> {
        let mut admin = AdminServiceClient::new(self.channel(Duration::from_millis(500)));
        let status = admin.status(StatusRequest::default()).await;
        status.map(|status| status.into_inner().replicas).unwrap_or_default()
    }

    /// Makes an HTTP request. Returns the status and the body if the answer comes within a few seconds.
    pub(crate) async fn http(self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let asked = async {
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.http)).await.ok()?;
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(request.as_bytes()).await.ok()?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.ok()?;
            let answer = String::from_utf8_lossy(&answer).into_owned();
            let status = answer.split(' ').nth(1)?.parse().ok()?;
            let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            Some((status, body.to_owned()))
        };
        tokio::time::timeout(Duration::from_secs(5), asked).await.ok()?
    }
}

/// The running processes of a cluster. Nodes are numbered from 0; node k has id k + 1, unless chaos replaced it.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    /// Gateways to the cluster, if a test has some.
    pub(crate) gateways: Vec<Node>,
    /// `None` unless nodes reach each other through proxies.
    pub(crate) links: Option<Links>,
    pub(crate) dir: TempDir,
    name: String,
}

/// A node or gateway, running or not.
pub(crate) struct Node {
    /// Binary that the next process runs.
    pub(crate) binary: PathBuf,
    /// Subcommand that starts the process: `server` or `gateway`.
    command: &'static str,
    /// Id of a node, or the unique number of a gateway.
    pub(crate) id: u64,
    pub(crate) ports: NodePorts,
    pub(crate) data_dir: PathBuf,
    log: PathBuf,
    arguments: Vec<String>,
    /// Environment variables that the next process gets, beside those of the test.
    pub(crate) variables: Vec<(String, String)>,
    process: Option<Process>,
}

/// A process, and the watchdog that kills it if the test dies.
struct Process {
    child: Child,
    watchdog: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watchdog first: once the child is reaped, its number may be reused.
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts three nodes and waits until they are ready.
pub(crate) async fn three() -> Cluster {
    Cluster::start(Making::nodes(3)).await
}

impl Cluster {
    /// Starts a new cluster and waits until every node is ready. Tries again if another process took a port first.
    pub(crate) async fn start(making: Making) -> Cluster {
        for _ in 0..5 {
            let mut cluster = Cluster::prepare(&making).await;
            for node in &mut cluster.nodes {
                node.start(&["--bootstrap"]);
            }
            if cluster.until_ready_unless_clash().await {
                return cluster;
            }
        }
        panic!("no ports to be had");
    }

    /// Returns a cluster whose nodes have not been started.
    pub(crate) async fn prepare(making: &Making) -> Cluster {
        let dir = TempDir::with_prefix("tollgate-it-").unwrap();
        let ports: Vec<NodePorts> = (0..making.nodes).map(|_| NodePorts::take()).collect();
        let links = if making.proxied { Some(Links::start(&ports).await) } else { None };
        let nodes = (0..making.nodes).map(|index| {
            let given = making.data_dirs.iter().find(|(of, _)| *of == index).map(|(_, path)| path.clone());
            let data_dir = given.unwrap_or_else(|| dir.path().join(format!("node-{}", index + 1)));
            let members = members(index, &ports, links.as_ref());
            let id = index as u64 + 1;
            let mut arguments = arguments(making.name, id, ports[index], &data_dir);
            arguments.extend(["--cluster-members".to_owned(), members]);
            arguments.extend(making.flags.iter().cloned());
            let log = dir.path().join(format!("node-{id}.log"));
            let (ports, variables) = (ports[index], Vec::new());
            let binary = making.binary.clone();
            Node { binary, command: "server", id, ports, data_dir, log, arguments, variables, process: None }
        });
        let (gateways, name) = (Vec::new(), making.name.to_owned());
        Cluster { nodes: nodes.collect(), gateways, links, dir, name }
    }

    /// Prepares a node that will join this cluster. Returns its number here, one below the id that it will get.
    pub(crate) fn newcomer(&mut self) -> usize {
        let index = self.nodes.len();
        let join: Vec<String> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.ports.client)).collect();
        let flags = ["--cluster-join".to_owned(), join.join(",")];
        let node = Node::newcomer(&self.name, index as u64 + 1, NodePorts::take(), self.dir.path(), &flags);
        self.nodes.push(node);
        index
    }

    /// Waits until all nodes are ready; returns false if a node could not open its ports.
    async fn until_ready_unless_clash(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        for index in 0..self.nodes.len() {
            while !self.nodes[index].is_ready().await {
                if let Some(status) = self.nodes[index].exited() {
                    let log = self.nodes[index].log();
                    assert!(log.contains("can't listen"), "node {index} ended with {status}:\n{log}");
                    return false;
                }
                assert!(Instant::now() < until, "node {index} is not ready after {PATIENCE:?}");
                tokio::time::sleep(PAUSE).await;
            }
        }
        true
    }

    /// Returns the name of the cluster.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the client endpoints of all nodes, running or not.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(Node::endpoint).collect()
    }

    /// Returns the endpoints of clients that know of gateways only.
    pub(crate) fn gateway_endpoints(&self) -> Vec<String> {
        self.gateways.iter().map(Node::endpoint).collect()
    }

    /// Returns a gateway for some of the nodes, not started.
    pub(crate) fn prepare_gateway(&self, nodes: &[usize], flags: &[&str]) -> Node {
        let ports = NodePorts { client: ports::take(), peer: 0, http: ports::take() };
        let nodes: Vec<String> = nodes.iter().map(|node| self.nodes[*node].endpoint()).collect();
        let listen = [format!("127.0.0.1:{}", ports.client), format!("127.0.0.1:{}", ports.http)];
        let mut arguments: Vec<String> =
            ["--nodes", &nodes.join(","), "--listen", &listen[0], "--http", &listen[1]]
                .map(str::to_owned)
                .into();
        arguments.extend(flags.iter().map(ToString::to_string));
        let log = self.dir.path().join(format!("gateway-{}.log", ports.client));
        Node {
            binary: BINARY.into(),
            command: "gateway",
            id: self.gateways.len() as u64 + 1,
            ports,
            data_dir: PathBuf::new(),
            log,
            arguments,
            variables: Vec::new(),
            process: None,
        }
    }

    /// Starts a gateway that knows one node, and waits until it is ready.
    pub(crate) async fn add_gateway(&mut self, node: usize, flags: &[&str]) {
        self.add_gateway_to(&[node], flags).await;
    }

    /// Starts a gateway that knows several nodes, and waits until it is ready.
    pub(crate) async fn add_gateway_to(&mut self, nodes: &[usize], flags: &[&str]) {
        for _ in 0..5 {
            let mut gateway = self.prepare_gateway(nodes, flags);
            gateway.start(&[]);
            let until = Instant::now() + PATIENCE;
            while gateway.runs() && !gateway.is_ready().await {
                assert!(
                    Instant::now() < until,
                    "a gateway is not ready after {PATIENCE:?}:\n{}",
                    gateway.log()
                );
                let ended = gateway.exited();
                assert!(ended.is_none() || gateway.log().contains("can't listen"), "{}", gateway.log());
                tokio::time::sleep(PAUSE).await;
            }
            if gateway.runs() {
                self.gateways.push(gateway);
                return;
            }
        }
        panic!("no ports to be had");
    }

    /// Starts a node again on its data.
    pub(crate) fn restart(&mut self, index: usize) {
        self.nodes[index].start(&[]);
    }

    /// Starts a node once more as a first member, whatever data it has.
    pub(crate) fn bootstrap(&mut self, index: usize) {
        self.nodes[index].start(&["--bootstrap"]);
    }

    /// Waits until the running nodes are ready.
    pub(crate) async fn until_ready(&self) {
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.runs()) {
            let until = Instant::now() + PATIENCE;
            while !node.is_ready().await {
                assert!(Instant::now() < until, "node {index} is not ready after {PATIENCE:?}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Waits for a node that leads and serves, and returns it; the one with the highest term, should two say so.
    pub(crate) async fn leader(&self) -> usize {
        self.leader_but(None).await
    }

    /// Waits for a leader other than `old`, which may not know of the election yet.
    pub(crate) async fn leader_but(&self, old: Option<usize>) -> usize {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut found = None;
            for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.runs()) {
                if Some(index) == old {
                    continue;
                }
                let Some(replica) = node.replica().await else { continue };
                if replica.role() == Role::Leader && replica.serves {
                    found = found.max(Some((replica.raft_term, index)));
                }
            }
            if let Some((_, index)) = found {
                return index;
            }
            assert!(Instant::now() < until, "nobody leads after {PATIENCE:?}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Keeps the directory with the logs, and prints its path.
    pub(crate) fn keep_logs(&mut self) {
        self.dir.disable_cleanup(true);
        eprintln!("what the nodes said and stored is in {}", self.dir.path().display());
    }

    /// Returns a running node that does not lead.
    pub(crate) async fn follower(&self) -> usize {
        let leader = self.leader().await;
        (0..self.nodes.len()).rev().find(|index| *index != leader && self.nodes[*index].runs()).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_logs();
            for node in self.nodes.iter().chain(&self.gateways) {
                let log = node.log();
                let lines: Vec<&str> = log.lines().collect();
                let last = &lines[lines.len().saturating_sub(60)..];
                eprintln!("--- {}, last lines of its log:\n{}", node.title(), last.join("\n"));
            }
        }
    }
}

impl Node {
    /// Returns a node that will join a cluster with the given flags, not started.
    pub(crate) fn newcomer(cluster: &str, id: u64, ports: NodePorts, dir: &Path, flags: &[String]) -> Node {
        let data_dir = dir.join(format!("node-{id}"));
        let mut arguments = arguments(cluster, id, ports, &data_dir);
        arguments.extend_from_slice(flags);
        let log = dir.join(format!("node-{id}.log"));
        let (command, variables) = ("server", Vec::new());
        Node { binary: BINARY.into(), command, id, ports, data_dir, log, arguments, variables, process: None }
    }

    /// Returns the name for people, such as `node 1`.
    pub(crate) fn title(&self) -> String {
        let what = if self.command == "server" { "node" } else { "gateway" };
        format!("{what} {}", self.id)
    }

    /// Changes the value of a flag from the next start on.
    pub(crate) fn set_flag(&mut self, flag: &str, value: &str) {
        let place = self.arguments.iter().position(|argument| argument == flag).expect("it has the flag");
        value.clone_into(&mut self.arguments[place + 1]);
    }

    pub(crate) fn endpoint(&self) -> String {
        self.ports.endpoint()
    }

    pub(crate) fn start(&mut self, more: &[&str]) {
        assert!(self.process.is_none(), "it runs already");
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(&self.binary);
        command.arg(self.command).args(&self.arguments).args(more);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(Process::start(command));
    }

    /// Returns the flags with which the process is started.
    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Changes the value of a flag from the next start on.
    pub(crate) fn change_flag(&mut self, flag: &str, value: &str) {
        let place = self.arguments.iter().position(|argument| argument == flag).expect("it has that flag");
        value.clone_into(&mut self.arguments[place + 1]);
    }

    /// Adds flags from the next start on.
    pub(crate) fn add_flags(&mut self, flags: &[&str]) {
        self.arguments.extend(flags.iter().map(ToString::to_string));
    }

    /// True if the process was started and has not been stopped since. A paused process counts as running.
    pub(crate) fn runs(&self) -> bool {
        self.process.is_some()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").child.id()
    }

    /// Returns the log of all runs of the process.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        drop(self.process.take().expect("it runs"));
    }

    /// Sends a signal to the process, by name: `TERM`, `STOP`, `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(sent.unwrap().success(), "the signal {name} was not sent");
        // On a busy machine the other threads go on until the thread that received the signal gets its turn.
        let until = Instant::now() + PATIENCE;
        while name == "STOP" && !self.stands_still() {
            assert!(Instant::now() < until, "it was stopped and goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// True if all threads of the process are stopped.
    fn stands_still(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The name in front may contain brackets and spaces.
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't']))
        })
    }

    /// Returns the exit status of the process, if it ended by itself.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        let status = self.process.as_mut()?.child.try_wait().unwrap()?;
        self.process = None;
        Some(status)
    }

    /// Waits until the process has ended by itself.
    pub(crate) async fn until_exited(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.exited() {
                return status;
            }
            assert!(Instant::now() < until, "it still runs after {PATIENCE:?}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// True if `/readyz?member` answers 200, which it can for a witness too.
    pub(crate) async fn is_ready(&self) -> bool {
        self.ports.is_ready().await
    }

    /// Makes a request with [`NodePorts::http`].
    pub(crate) async fn http(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        self.ports.http(method, path, body).await
    }

    /// Opens a connection with [`NodePorts::channel`].
    pub(crate) fn channel(&self, patience: Duration) -> Channel {
        self.ports.channel(patience)
    }

    /// Returns a client for single calls.
    pub(crate) fn locks(&self) -> LockServiceClient<Channel> {
        LockServiceClient::new(self.channel(PATIENCE))
    }

    /// Returns the status of the node's replica of the first group; `None` if the node does not answer soon.
    pub(crate) async fn replica(&self) -> Option<ReplicaStatus> {
        self.ports.replicas().await.into_iter().next()
    }

    /// Returns the resident memory of the process.
    pub(crate) fn rss_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
    }
}

impl Process {
    fn start(mut command: Command) -> Process {
        let child = command.spawn().unwrap();
        let mut watchdog = Command::new("sh");
        // The pipe breaks when the test's process ends, in whatever way.
        watchdog.args(["-c", &format!("read _; kill -9 {}", child.id())]);
        let watchdog = watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Process { child, watchdog: watchdog.spawn().unwrap() }
    }
}

/// Returns the member list of a node, in which the others may be behind proxies.
fn members(of: usize, ports: &[NodePorts], links: Option<&Links>) -> String {
    let each = ports.iter().enumerate().map(|(index, own)| {
        let through = links.filter(|_| index != of).map(|links| links.ports(of, index));
        let (peer, client) = through.unwrap_or((own.peer, own.client));
        member(index as u64 + 1, peer, client)
    });
    format!("[{}]", each.collect::<Vec<_>>().join(", "))
}

/// Formats a member for `cluster.members`.
pub(crate) fn member(id: u64, peer: u16, client: u16) -> String {
    format!("{{id = {id}, peer = \"127.0.0.1:{peer}\", client = \"127.0.0.1:{client}\"}}")
}

fn arguments(name: &str, id: u64, ports: NodePorts, data_dir: &Path) -> Vec<String> {
    let flag = |name: &str, value: String| [name.to_owned(), value];
    [
        flag("--node-id", id.to_string()),
        flag("--node-data-dir", data_dir.display().to_string()),
        flag("--cluster-name", name.to_owned()),
        flag("--listen-client", format!("127.0.0.1:{}", ports.client)),
        flag("--listen-peer", format!("127.0.0.1:{}", ports.peer)),
        flag("--listen-http", format!("127.0.0.1:{}", ports.http)),
    ]
    .concat()
}

/// Waits until a condition holds; panics with `what` if it never does.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "not after {PATIENCE:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
