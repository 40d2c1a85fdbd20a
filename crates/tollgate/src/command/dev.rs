//! `tollgate dev`: a whole cluster in this process, with real sockets, real Raft and real disks.

use crate::exit::{Exit, WithExit};
use crate::globals::{ENDPOINT, ENDPOINTS_VARIABLE};
use crate::logging::{self, log_arguments};
use crate::signals::Signals;
use anyhow::{Context, bail};
use clap::{Arg, ArgMatches, Command, value_parser};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::task::Poll;
use std::time::{Duration, Instant};
use tollgate_server::config::{Config, ListenConfig, LogFormat, Sources};
use tollgate_server::{Addresses, Listeners, Server};

const HELP: &str = "Node k serves clients at port base + 10 (k - 1), peers one above, HTTP two above. With \
--port-base 0 any free ports are taken. Without --data-dir everything is kept in a temporary \
directory that is removed at the end.

Examples:
  tollgate dev
  tollgate dev --nodes 5 --port-base 9000 --data-dir ./dev-data
  tollgate dev --groups 4";

/// How large a cluster is.
#[derive(Clone, Copy)]
struct Size {
    nodes: u16,
    /// None for what the data has, or one.
    groups: Option<u32>,
}

/// How long nodes that were cut short may hold up the end.
const SHUTDOWN_PATIENCE: Duration = Duration::from_millis(500);

/// A cluster that is not ready by then never will be.
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
        .args(log_arguments())
        .after_help(HELP)
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<Exit> {
    let json = matches.get_one::<String>("log-format").is_some_and(|format| format == "json");
    let level = matches.get_one::<String>("log-level").map_or("warn", String::as_str);
    logging::start(if json { LogFormat::Json } else { LogFormat::Pretty }, level)?;
    let nodes = *matches.get_one::<u16>("nodes").expect("it has a default");
    let port_base = *matches.get_one::<u16>("port-base").expect("it has a default");
    let groups = matches.get_one::<u32>("groups").copied();
    let temporary = match matches.get_one::<PathBuf>("data-dir") {
        Some(_) => None,
        None => Some(tempfile::TempDir::with_prefix("tollgate-dev-").context("no temporary directory")?),
    };
    let given = matches.get_one::<PathBuf>("data-dir").map(PathBuf::as_path);
    let dir = given.or(temporary.as_ref().map(tempfile::TempDir::path)).expect("one of the two");
    std::fs::create_dir_all(dir).with_context(|| format!("can't make the directory {}", dir.display()))?;
    tollgate_server::open_files::raise();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let exit = runtime.block_on(serve(Size { nodes, groups }, port_base, dir));
    // Before the temporary directory is: nodes that are cut short would write on.
    runtime.shutdown_timeout(SHUTDOWN_PATIENCE);
    exit
}

async fn serve(size: Size, port_base: u16, dir: &Path) -> anyhow::Result<Exit> {
    let began = Instant::now();
    let mut signals = Signals::new()?;
    let mut servers = start(size, port_base, dir)?;
    tokio::select! {
        biased;
        fault = first_fault(&servers) => return Err(WithExit(Exit::Fault, fault).into()),
        ready = until_ready(&servers) => ready?,
        number = signals.next() => return Ok(Exit::signal(number)),
    }
    println!("{}", greeting(&servers, dir, began.elapsed()));
    let exit = tokio::select! {
        _ = signals.next() => Exit::Done,
        fault = first_fault(&servers) => {
            eprintln!("error: {fault}");
            Exit::Fault
        }
    };
    eprintln!("stopping");
    let stopped = signals
        .while_stopping(async {
            // One after another, so that leadership has somewhere to go for as long as it can.
            while let Some(server) = servers.pop() {
                server.stop().await;
            }
        })
        .await;
    Ok(stopped.map_or_else(Exit::signal, |()| exit))
}

/// Waits until one of the nodes can't go on, and says why.
async fn first_fault(servers: &[Server]) -> String {
    let fault = async |server: &Server| server.failed().await.to_string();
    let mut faults: Vec<_> = servers.iter().map(|server| Box::pin(fault(server))).collect();
    std::future::poll_fn(|cx| {
        let mut polled = faults.iter_mut().map(|fault| fault.as_mut().poll(cx));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

fn start(size: Size, port_base: u16, dir: &Path) -> anyhow::Result<Vec<Server>> {
    let mut bound = Vec::new();
    for number in 0..size.nodes {
        let listen = listen(number, port_base)?;
        let listeners = Listeners::bind(&listen)
            .with_context(|| format!("node {} can't start; --port-base 0 takes free ports", number + 1))?;
        bound.push((listeners.addresses()?, listeners));
    }
    let addresses: Vec<Addresses> = bound.iter().map(|(addresses, _)| *addresses).collect();
    let mut servers = Vec::new();
    for (number, (_, listeners)) in bound.into_iter().enumerate() {
        let loaded = Config::load(&sources(number, size.groups, &addresses, dir))
            .map_err(|problems| anyhow::anyhow!("{problems}"))?;
        servers.push(Server::start(&loaded.config, loaded.settings, listeners)?);
    }
    Ok(servers)
}

fn listen(number: u16, port_base: u16) -> anyhow::Result<ListenConfig> {
    let port = |above: u16| {
        if port_base == 0 { Some(0) } else { port_base.checked_add(10 * number)?.checked_add(above) }
    };
    let (Some(client), Some(peer), Some(http)) = (port(0), port(1), port(2)) else {
        bail!("--port-base {port_base} leaves no room for so many nodes: take a lower one");
    };
    let local = |port| ([127, 0, 0, 1], port).into();
    Ok(ListenConfig { client: local(client), peer: local(peer), http: local(http), insecure: false })
}

/// What a configuration file would say, as flags.
fn sources(number: usize, groups: Option<u32>, addresses: &[Addresses], dir: &Path) -> Sources {
    let members = addresses.iter().enumerate().fold(String::new(), |mut text, (index, its)| {
        // Writing to a string can't fail.
        let _ =
            write!(text, "{{id = {}, peer = \"{}\", client = \"{}\"}}, ", index + 1, its.peer, its.client);
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
    ];
    flags.extend(groups.map(|groups| flag("cluster.groups", groups.to_string())));
    Sources { file: None, env: Vec::new(), flags }
}

/// Waits until every node knows a leader that serves.
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

fn greeting(servers: &[Server], dir: &Path, took: Duration) -> String {
    let mut text = format!("{} nodes are ready after {} ms.\n\n", servers.len(), took.as_millis());
    for (index, server) in servers.iter().enumerate() {
        let Addresses { client, http, .. } = server.addresses();
        let _ = writeln!(text, "  node {}   gRPC {client}   HTTP http://{http}", index + 1);
    }
    let Addresses { client, http, .. } = servers[0].addresses();
    let endpoint = format!("http://{client}");
    let export = match endpoint.as_str() {
        ENDPOINT => String::new(),
        other => format!("  export {ENDPOINTS_VARIABLE}={other}\n\n"),
    };
    // As it was called here, so that the lines can be copied.
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
