//! `tollgate dev`: a whole cluster in this process, with real sockets, real Raft and real disks.

use crate::exit::{Exit, WithExit};
use crate::globals::{ENDPOINT, ENDPOINTS_VARIABLE};
use crate::logging::{self, log_arguments};
use crate::output;
use crate::signals::Signals;
use anyhow::{Context, bail};
use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::task::Poll;
use std::time::{Duration, Instant};
use tollgate_server::config::{Config, ListenConfig, LogFormat, Sources};
use tollgate_server::{Addresses, Listeners, ServeError, Server};

const HELP: &str = "\
Node k serves clients at port base + 10 (k - 1), peers one above, HTTP two above. With --port-base 0 any free ports \
are taken. Without --data-dir everything is kept in a temporary directory that is removed at the end, which SIGINT, \
SIGTERM or SIGHUP bring.

In a container others must reach the ports: --listen 0.0.0.0 --insecure, and publish them under the same numbers. \
Clients are told to come to 127.0.0.1 then, or to --advertise.

Examples:
  tollgate dev
  tollgate dev --nodes 5 --port-base 9000 --data-dir ./dev-data
  tollgate dev --groups 4
  # in a container: docker run -p 7400-7402:7400-7402 ...
  tollgate dev --nodes 1 --listen 0.0.0.0 --insecure";

/// Shape of the cluster, from the flags.
struct Shape {
    nodes: u16,
    /// None means as many groups as the data has, or one for new data.
    groups: Option<u32>,
    port_base: u16,
    /// Address that all ports are opened on.
    listen: IpAddr,
    /// Host that clients are told to connect to.
    advertise: String,
    insecure: bool,
}

impl Shape {
    fn read(matches: &ArgMatches) -> anyhow::Result<Shape> {
        let listen = *matches.get_one::<IpAddr>("listen").expect("it has a default");
        let insecure = matches.get_flag("insecure");
        if !listen.is_loopback() && !insecure {
            let says = format!(
                "--listen {listen} lets everybody in who can reach this machine, for nobody is asked who he is: add \
                 --insecure if that is what you want"
            );
            return Err(WithExit(Exit::Usage, says).into());
        }
        let advertise = matches.get_one::<String>("advertise").cloned();
        Ok(Shape {
            nodes: *matches.get_one("nodes").expect("it has a default"),
            groups: matches.get_one("groups").copied(),
            port_base: *matches.get_one("port-base").expect("it has a default"),
            listen,
            advertise: advertise.unwrap_or_else(|| host(dialled(listen))),
            insecure,
        })
    }

    /// Returns the address at which clients reach a node.
    fn client(&self, addresses: Addresses) -> String {
        format!("{}:{}", self.advertise, addresses.client.port())
    }

    fn http(&self, addresses: Addresses) -> String {
        format!("{}:{}", self.advertise, addresses.http.port())
    }
}

/// Returns the address at which this machine reaches a listener on `listen`.
fn dialled(listen: IpAddr) -> IpAddr {
    match listen {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// Formats an address as it stands before a port.
fn host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// Maximum time that nodes which were cut short may delay the end.
const SHUTDOWN_PATIENCE: Duration = Duration::from_millis(500);

/// A cluster that is not ready after this time never will be.
const READY_PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn command() -> Command {
    Command::new("dev")
        .about("Run a whole cluster in one process, ready to lock")
        .arg(
            Arg::new("nodes")
                .long("nodes")
                .value_name("N")
                .value_parser(value_parser!(u16).range(1..=9))
                .default_value("3")
                .help("How many nodes"),
        )
        .arg(
            Arg::new("data-dir")
                .long("data-dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Where to keep the nodes' data; made if it is missing, and used again the next time"),
        )
        .arg(
            Arg::new("port-base")
                .long("port-base")
                .value_name("PORT")
                .value_parser(value_parser!(u16))
                .default_value("7400")
                .help("The first port"),
        )
        .arg(
            Arg::new("groups")
                .long("groups")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=1_024))
                .help("Raft groups that names are spread over, if this is the first time; 1 by default"),
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDRESS")
                .value_parser(value_parser!(IpAddr))
                .default_value("127.0.0.1")
                .help("Where to open all ports; beyond this machine only with --insecure"),
        )
        .arg(
            Arg::new("insecure")
                .long("insecure")
                .action(ArgAction::SetTrue)
                .help("Let in everybody who can reach the ports: there is no TLS and no login"),
        )
        .arg(
            Arg::new("advertise")
                .long("advertise")
                .value_name("HOST")
                .value_parser(NonEmptyStringValueParser::new())
                .help("Where clients are told to come to [default: the address of --listen, or 127.0.0.1]"),
        )
        .args(log_arguments())
        .after_help(HELP)
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<Exit> {
    let json = matches.get_one::<String>("log-format").is_some_and(|format| format == "json");
    let level = matches.get_one::<String>("log-level").map_or("warn", String::as_str);
    logging::start(if json { LogFormat::Json } else { LogFormat::Pretty }, level)?;
    let shape = Shape::read(matches)?;
    let temporary = match matches.get_one::<PathBuf>("data-dir") {
        Some(_) => None,
        None => Some(tempfile::TempDir::with_prefix("tollgate-dev-").context("no temporary directory")?),
    };
    let given = matches.get_one::<PathBuf>("data-dir").map(PathBuf::as_path);
    let dir = given.or(temporary.as_ref().map(tempfile::TempDir::path)).expect("one of the two");
    std::fs::create_dir_all(dir).with_context(|| format!("can't make the directory {}", dir.display()))?;
    tollgate_server::open_files::raise();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let exit = runtime.block_on(serve(&shape, dir));
    // The runtime ends before the temporary directory is removed: nodes that are cut short would write on.
    runtime.shutdown_timeout(SHUTDOWN_PATIENCE);
    exit
}

async fn serve(shape: &Shape, dir: &Path) -> anyhow::Result<Exit> {
    let began = Instant::now();
    let mut signals = Signals::new()?;
    let mut servers = start(shape, dir)?;
    tokio::select! {
        biased;
        fault = first_fault(&servers) => return Err(WithExit(Exit::Fault, fault).into()),
        ready = until_ready(&servers) => ready?,
        number = signals.next() => return Ok(Exit::signal(number)),
    }
    output::line(&greeting(shape, &servers, dir, began.elapsed()))?;
    let exit = tokio::select! {
        _ = signals.next() => Exit::Done,
        fault = first_fault(&servers) => {
            output::say(&format!("error: {fault}"));
            Exit::Fault
        }
    };
    // If the terminal is gone, there is nobody to read it.
    output::say("stopping");
    let stopped = signals
        .while_stopping(async {
            // Nodes stop one after another, so that leadership has somewhere to go for as long as possible.
            while let Some(server) = servers.pop() {
                server.stop().await;
            }
        })
        .await;
    Ok(stopped.map_or_else(Exit::signal, |()| exit))
}

/// Waits until one of the nodes fails, and returns its error.
async fn first_fault(servers: &[Server]) -> String {
    let fault = async |server: &Server| server.failed().await.to_string();
    let mut faults: Vec<_> = servers.iter().map(|server| Box::pin(fault(server))).collect();
    std::future::poll_fn(|cx| {
        let mut polled = faults.iter_mut().map(|fault| fault.as_mut().poll(cx));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

fn start(shape: &Shape, dir: &Path) -> anyhow::Result<Vec<Server>> {
    let mut bound = Vec::new();
    for number in 0..shape.nodes {
        let listeners =
            Listeners::bind(&listen(number, shape)?).map_err(|error| not_opened(shape, &error))?;
        bound.push((listeners.addresses()?, listeners));
    }
    let addresses: Vec<Addresses> = bound.iter().map(|(addresses, _)| *addresses).collect();
    let mut servers = Vec::new();
    for (number, (_, listeners)) in bound.into_iter().enumerate() {
        let loaded = Config::load(&sources(number, shape, &addresses, dir))
            .map_err(|problems| anyhow::anyhow!("{problems}"))?;
        servers.push(Server::start(&loaded.config, loaded.settings, listeners)?);
    }
    Ok(servers)
}

/// Explains a port that could not be opened, in the words of this command's flags.
fn not_opened(shape: &Shape, error: &ServeError) -> anyhow::Error {
    let ServeError::Listen(error) = error else { return anyhow::anyhow!("{error}") };
    if error.kind() != std::io::ErrorKind::AddrInUse {
        return anyhow::anyhow!("{error}");
    }
    let other = shape.port_base.checked_add(100).unwrap_or(10_000);
    anyhow::anyhow!(
        "{error}\nhint: does another `tollgate dev` run? --port-base {other} takes other ports, --port-base 0 any that \
        are free"
    )
}

fn listen(number: u16, shape: &Shape) -> anyhow::Result<ListenConfig> {
    let port_base = shape.port_base;
    let port = |above: u16| {
        if port_base == 0 { Some(0) } else { port_base.checked_add(10 * number)?.checked_add(above) }
    };
    let (Some(client), Some(peer), Some(http)) = (port(0), port(1), port(2)) else {
        bail!("--port-base {port_base} leaves no room for so many nodes: take a lower one");
    };
    let at = |port| SocketAddr::new(shape.listen, port);
    Ok(ListenConfig { client: at(client), peer: at(peer), http: at(http), insecure: shape.insecure })
}

/// Returns the settings of a node, as flags in the place of a configuration file.
fn sources(number: usize, shape: &Shape, addresses: &[Addresses], dir: &Path) -> Sources {
    let members = addresses.iter().enumerate().fold(String::new(), |mut text, (index, its)| {
        let (peer, client) = (SocketAddr::new(dialled(its.peer.ip()), its.peer.port()), shape.client(*its));
        // Writing to a string can't fail.
        let _ = write!(text, "{{id = {}, peer = \"{peer}\", client = \"{client}\"}}, ", index + 1);
        text
    });
    let own = addresses[number];
    let flag = |key: &str, value: String| (key.to_owned(), value);
    let mut flags = vec![
        flag("node.id", (number + 1).to_string()),
        flag("node.data_dir", dir.join(format!("node-{}", number + 1)).display().to_string()),
        flag("cluster.name", "dev".to_owned()),
        flag("cluster.members", format!("[{members}]")),
        flag("cluster.bootstrap", "true".to_owned()),
        flag("listen.client", own.client.to_string()),
        flag("listen.peer", own.peer.to_string()),
        flag("listen.http", own.http.to_string()),
        flag("listen.insecure", shape.insecure.to_string()),
    ];
    flags.extend(shape.groups.map(|groups| flag("cluster.groups", groups.to_string())));
    Sources { file: None, env: Vec::new(), flags }
}

/// Waits until every node knows a leader for all its groups, and some node serves as one.
async fn until_ready(servers: &[Server]) -> anyhow::Result<()> {
    let ready = async {
        for server in servers {
            let mut status = server.router().status().clone();
            let led = |status: &tollgate_server::NodeStatus| {
                status.groups.values().all(|group| group.leader.is_some())
            };
            status.wait_for(led).await.context("a node stopped while it started")?;
        }
        loop {
            let leads =
                |server: &Server| server.router().status().borrow().groups.values().any(|group| group.serves);
            if servers.iter().any(leads) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    match tokio::time::timeout(READY_PATIENCE, ready).await {
        Ok(ready) => ready,
        Err(_) => bail!("no leader within {READY_PATIENCE:?}: see the log (--log-level info)"),
    }
}

fn greeting(shape: &Shape, servers: &[Server], dir: &Path, took: Duration) -> String {
    let mut text = format!("{} nodes are ready after {} ms.\n\n", servers.len(), took.as_millis());
    for (index, server) in servers.iter().enumerate() {
        let (client, http) = (shape.client(server.addresses()), shape.http(server.addresses()));
        let _ = writeln!(text, "  node {}   gRPC {client}   HTTP http://{http}", index + 1);
    }
    let http = shape.http(servers[0].addresses());
    let endpoint = format!("http://{}", shape.client(servers[0].addresses()));
    let export = match endpoint.as_str() {
        ENDPOINT => String::new(),
        other => format!("  export {ENDPOINTS_VARIABLE}={other}\n\n"),
    };
    // The program's name as the user typed it here, so that the lines can be copied.
    let tollgate = std::env::args().next().unwrap_or_else(|| "tollgate".to_owned());
    let _ = write!(
        text,
        r"
Data is in {dir}. Ctrl-C stops the cluster.

Try, in other terminals:

{export}  # a command under a lock, and a second one that waits in line for it
  {tollgate} run db/migrate --why 'schema v42' -- sh -c 'echo token $TOLLGATE_FENCING_TOKEN; sleep 30'
  {tollgate} run db/migrate -- echo 'my turn'

  # who holds what, and why is it blocked?
  {tollgate} ls
  {tollgate} explain db/migrate
  {tollgate} status

  # the same without tollgate, from anywhere
  curl -s 'http://{http}/v1/lock?name=db/migrate'
  curl -s http://{http}/metrics",
        dir = dir.display()
    );
    text
}
