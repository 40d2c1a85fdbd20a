//! `tollgate bench`: puts load on a cluster, and reports the throughput, the latencies and the processor time.
//!
//! Invariant: it ends with 0 only if no operation failed. Not here: the load and the measurements (`tollgate-bench`);
//! the cluster that it may start for itself (`child_cluster`).

mod own;
mod progress;
mod table;

use super::child_cluster::{ChildCluster, Shape};
use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::Globals;
use crate::signals::Signals;
use crate::span;
use anyhow::Context;
use clap::builder::PossibleValue;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};
use own::Own;
use progress::ProgressLine;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tollgate_bench::{
    Blow, Failure, Plan, Processes, Report, Tollgate, Unary, Workload, failover, fan_out, latency_chart,
    pids_of_listeners, run as run_load, throughput_chart,
};
use tollgate_server::config::Key;

const HELP: &str = "\
Clients are a closed loop: each asks, waits for the answer and asks again, over a lease of its own. They share one \
connection unless --connections says more, as the tasks of a program do. CPU is processor time per operation: of this \
process, and of all servers together if they run on this machine. Locks are named bench/..., so a cluster that is in \
use can be measured; the load is real, though.

Examples:
  # three nodes, started for this and removed
  tollgate bench uncontended --own-cluster 3
  # a run for each, and plots
  tollgate bench uncontended --clients 1,64,256,1024 --svg plots
  # how fast a lock is handed on
  tollgate bench contended --clients 16
  # what the session stream saves
  tollgate bench uncontended --clients 64 --unary
  # many idle clients
  tollgate bench keepalive --leases 100000 --paced --ttl 30s
  tollgate bench watch --clients 1000 --connections 4
  # kill -9 and SIGSTOP of the leader
  tollgate bench failover --own-cluster 3 --rounds 10
  tollgate bench mix --reads 95 --keys 100 -o json | jq '.[0].operations_per_second'";

/// Background work that is not done after this time is given up at the end.
const SHUTDOWN_PATIENCE: Duration = Duration::from_millis(200);

/// A cluster that loses its leader needs this many nodes to go on.
const FAILOVER_NODES_MIN: u16 = 3;

#[derive(Debug, Args)]
struct Arguments {
    /// Number of clients that ask at once; several numbers are runs one after the other
    #[arg(long, value_name = "N,...", default_value = "64", value_delimiter = ',', num_args = 1)]
    clients: Vec<usize>,

    /// Over how many connections they do
    #[arg(long, value_name = "N", default_value = "1")]
    connections: usize,

    /// Time for which each run is measured
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "10s")]
    duration: Duration,

    /// Time that each run takes before it is measured
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "1s")]
    warmup: Duration,

    /// Number of locks [default: one for each client; 1 if contended, 16 in a mix]
    #[arg(long, value_name = "N")]
    keys: Option<usize>,

    /// Bytes of `why` that each lock carries
    #[arg(long, value_name = "BYTES", default_value = "0")]
    payload: usize,

    /// Make single gRPC calls instead of operations on a session stream, for comparison
    #[arg(long)]
    unary: bool,

    /// TTL of the leases
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "60s")]
    ttl: Duration,

    /// Of a mix: how many of a hundred locks are shared
    #[arg(long, value_name = "PERCENT", default_value = "90")]
    reads: u32,

    /// Of a semaphore: how many there are
    #[arg(long, value_name = "N", default_value = "8")]
    permits: u32,

    /// Of keepalive: how many leases [default: one for each client]
    #[arg(long, value_name = "N")]
    leases: Option<usize>,

    /// Of keepalive: renew each lease every third of its TTL, and not as fast as answers come
    #[arg(long)]
    paced: bool,

    /// Of failover: how often the leader is lost, in each way
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: u32,

    /// Threads of this process that carry the load
    #[arg(long, value_name = "N", default_value = "1", value_parser = value_parser!(u16).range(1..=64))]
    threads: u16,

    /// Start so many nodes for this, each a process with a disk of its own in a temporary directory
    #[arg(long, value_name = "NODES", value_parser = value_parser!(u16).range(1..=9))]
    own_cluster: Option<u16>,

    /// Raft groups of that cluster
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        requires = "own_cluster",
        value_parser = value_parser!(u32).range(1..=1_024)
    )]
    groups: u32,

    /// A setting of that cluster's nodes, as in their configuration file: `raft.tick_ms=100`; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "own_cluster", value_parser = flag_of_setting)]
    set: Vec<String>,

    /// Servers whose processor time is measured [default: those on this machine that are asked]
    #[arg(long, value_name = "PID,...", value_delimiter = ',', num_args = 1, conflicts_with = "own_cluster")]
    server_pids: Vec<u32>,

    /// Write plots to this directory: latency by percentile, and throughput by clients if there are several runs
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

pub(crate) fn command() -> Command {
    let workloads = Workload::ALL.map(|workload| PossibleValue::new(workload.name()).help(workload.about()));
    let workload = Arg::new("workload")
        .value_name("WORKLOAD")
        .required(true)
        .value_parser(workloads.to_vec())
        .help("What the clients do");
    Arguments::augment_args(Command::new("bench").arg(workload))
        .about("Measure a cluster: locks per second, latencies, processor time")
        .after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let arguments = Arguments::from_arg_matches(matches)?;
    let workload = matches.get_one::<String>("workload").and_then(|name| Workload::of_name(name));
    let plans = arguments.plans(workload.context("clap asks for a workload")?)?;
    if let Some(dir) = &arguments.svg {
        // Checked before the load: after it, the results would be lost if the directory can't be made.
        std::fs::create_dir_all(dir)
            .map_err(|error| wrong(&format!("--svg {} can't be made: {error}", dir.display())))?;
    }
    tollgate_server::open_files::raise();
    let runtime = arguments.runtime()?;
    let measured = runtime.block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            reports = measure(globals, &arguments, &plans) => reports.map(Ok),
            number = signals.next() => Ok(Err(Exit::signal(number))),
        }
    });
    runtime.shutdown_timeout(SHUTDOWN_PATIENCE);
    let reports = match measured? {
        Ok(reports) => reports,
        Err(exit) => return Ok(exit),
    };
    globals.output.list(&table::of(&reports), reports.iter().map(Report::json).collect())?;
    if let Some(dir) = &arguments.svg {
        plot(dir, &reports)?;
        globals.remark(&format!("tollgate: plots are in {}", dir.display()));
    }
    verdict(&reports)
}

impl Arguments {
    fn plans(&self, workload: Workload) -> anyhow::Result<Vec<Plan>> {
        if workload == Workload::Failover && self.own_cluster.is_none_or(|nodes| nodes < FAILOVER_NODES_MIN) {
            let says = format!(
                "failover kills leaders, so it needs a cluster of its own that can lose one: \
                 --own-cluster {FAILOVER_NODES_MIN}"
            );
            return Err(wrong(&says));
        }
        let plan = |clients: &usize| Plan {
            connections: self.connections,
            duration: self.duration,
            warmup: self.warmup,
            keys: self.keys,
            payload: self.payload,
            unary: self.unary,
            ttl: self.ttl,
            reads_percent: self.reads,
            permits: self.permits,
            leases: self.leases,
            paced: self.paced,
            rounds: self.rounds,
            // One client is enough to see that a lock was granted.
            ..Plan::new(workload, if workload == Workload::Failover { 1 } else { *clients })
        };
        let plans: Vec<Plan> = self.clients.iter().map(plan).collect();
        let plans = if workload == Workload::Failover { plans[..1].to_vec() } else { plans };
        plans.iter().try_for_each(Plan::validate).map_err(|error| wrong(&error.to_string()))?;
        Ok(plans)
    }

    /// Builds a runtime with one thread by default: on a machine that also runs servers, more would take their place.
    fn runtime(&self) -> std::io::Result<tokio::runtime::Runtime> {
        match self.threads {
            1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
            threads => tokio::runtime::Builder::new_multi_thread()
                .worker_threads(usize::from(threads))
                .enable_all()
                .build(),
        }
    }
}

/// Returns the flag of `tollgate server` for a setting that is given as `section.name=value`.
fn flag_of_setting(text: &str) -> Result<String, String> {
    let (path, value) = text.split_once('=').ok_or("write it as section.name=value")?;
    let key = Key::find(path)
        .ok_or_else(|| format!("there is no setting {path}: `tollgate config show` lists them"))?;
    Ok(format!("{}={value}", key.flag()))
}

fn wrong(says: &str) -> anyhow::Error {
    WithExit(Exit::Usage, says.to_owned()).into()
}

/// Runs all plans, one after the other.
async fn measure(globals: &Globals, arguments: &Arguments, plans: &[Plan]) -> anyhow::Result<Vec<Report>> {
    let mut own = match arguments.own_cluster {
        Some(nodes) => {
            let flags = arguments.set.clone();
            let shape = Shape { name: "bench", nodes: usize::from(nodes), groups: arguments.groups, flags };
            let (cluster, client, _) = ChildCluster::start(&shape).await?;
            Some(Own { cluster, client, struck: None })
        }
        None => None,
    };
    let endpoints = own.as_ref().map_or_else(|| globals.endpoints.clone(), |own| own.cluster.endpoints());
    let mut reports = Vec::new();
    for plan in plans {
        let cluster = Tollgate::connect(&endpoints, plan.connections, plan.ttl, plan.payload);
        let cluster = cluster.await.map_err(told)?;
        let servers = match &own {
            Some(own) => own.cluster.pids(),
            None if arguments.server_pids.is_empty() => {
                pids_of_listeners(&cluster.connections()[0].endpoints())
            }
            None => arguments.server_pids.clone(),
        };
        let mut line = ProgressLine::new(globals, plan);
        let ran = one(&cluster, own.as_mut(), plan, &Processes { servers }, &mut line).await;
        line.clear();
        reports.push(ran.map_err(told)?);
    }
    Ok(reports)
}

async fn one(
    cluster: &Tollgate,
    own: Option<&mut Own>,
    plan: &Plan,
    processes: &Processes,
    line: &mut ProgressLine<'_>,
) -> Result<Report, Failure> {
    let mut tell = |progress| line.show(progress);
    match (plan.workload, own) {
        (Workload::Watch, _) => fan_out(cluster, plan, processes, &mut tell).await,
        (Workload::Failover, Some(own)) => failover(cluster, own, plan, &Blow::ALL, &mut tell).await,
        _ if plan.unary => run_load(&Unary::connect(cluster).await?, plan, processes, &mut tell).await,
        _ => run_load(cluster, plan, processes, &mut tell).await,
    }
}

fn told(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Client(error) => failed(error),
        other => WithExit(Exit::Failed, other.to_string()).into(),
    }
}

fn plot(dir: &Path, reports: &[Report]) -> anyhow::Result<()> {
    let Some(workload) = reports.first().map(|report| report.plan.workload) else { return Ok(()) };
    let latency = latency_chart(&format!("{workload}: latency by percentile"), reports);
    latency.write(&dir.join(format!("{workload}-latency.svg"))).map_err(told)?;
    if reports.len() > 1 {
        let throughput = throughput_chart(&format!("{workload}: throughput by clients"), reports);
        throughput.write(&dir.join(format!("{workload}-throughput.svg"))).map_err(told)?;
    }
    Ok(())
}

fn verdict(reports: &[Report]) -> anyhow::Result<Exit> {
    let failures: u64 = reports.iter().map(|report| report.failures).sum();
    if failures == 0 {
        return Ok(Exit::Done);
    }
    let first =
        reports.iter().find_map(|report| report.first_failure.as_deref()).unwrap_or("no reason was told");
    Err(WithExit(Exit::Failed, format!("{failures} operations failed; the first: {first}")).into())
}
