//! Runs all measurements, round by round: in each round every service is started, measured and stopped.

use crate::arguments::Arguments;
use crate::contender::{
    Contender, Durability, EtcdCluster, Kind, Recipe, RedisServers, TollgateCluster, ZooKeeperEnsemble,
};
use crate::figure::Figure;
use crate::machine;
use crate::result::{Results, Sample};
use std::io::Write;
use std::time::Duration;
use tollgate_bench::{Blow, Failure, Plan, Processes, Report, Workload, failover, run};

/// Time that each service is driven before the first measurement: the Java virtual machine compiles hot code.
const HEAT: Duration = Duration::from_secs(5);
const HEAT_CLIENTS: usize = 64;

pub(crate) async fn all(arguments: &Arguments) -> anyhow::Result<Results> {
    let mut results = Results::default();
    for kind in &arguments.peers {
        results.versions.push((*kind, machine::version_of(*kind, &arguments.tollgate)));
    }
    for round in 1..=arguments.rounds {
        for kind in &arguments.peers {
            eprintln!("round {round} of {}: {}", arguments.rounds, kind.name());
            let figures: Vec<Figure> =
                arguments.all_figures().into_iter().filter(|figure| kind.has(*figure)).collect();
            if !figures.is_empty() {
                let samples = Box::pin(measure(*kind, &figures, arguments)).await;
                results.samples.extend(samples);
            }
        }
    }
    Ok(results)
}

/// Measures all figures of one service, on one cluster of it.
async fn measure(kind: Kind, figures: &[Figure], arguments: &Arguments) -> Vec<Sample> {
    let samples = match kind {
        Kind::Tollgate => {
            drive(kind, TollgateCluster::start(&arguments.tollgate).await, figures, arguments).await
        }
        Kind::Etcd => Box::pin(drive(kind, EtcdCluster::start().await, figures, arguments)).await,
        Kind::Zookeeper => {
            drive(kind, ZooKeeperEnsemble::start(Recipe::Queue).await, figures, arguments).await
        }
        Kind::ZookeeperBare => {
            drive(kind, ZooKeeperEnsemble::start(Recipe::Bare).await, figures, arguments).await
        }
        Kind::RedisMemory => {
            drive(kind, RedisServers::start(1, Durability::Nothing).await, figures, arguments).await
        }
        Kind::RedisAof => {
            drive(kind, RedisServers::start(1, Durability::EachWrite).await, figures, arguments).await
        }
        Kind::Redlock => {
            drive(kind, RedisServers::start(5, Durability::Nothing).await, figures, arguments).await
        }
    };
    samples.unwrap_or_else(|error| {
        eprintln!("  {error:#}");
        let missing = |figure: &Figure| Sample { kind, figure: *figure, report: Err(format!("{error:#}")) };
        figures.iter().map(missing).collect()
    })
}

async fn drive<C: Contender>(
    kind: Kind,
    started: anyhow::Result<C>,
    figures: &[Figure],
    arguments: &Arguments,
) -> anyhow::Result<Vec<Sample>> {
    let mut service = started?;
    let clients = HEAT_CLIENTS;
    let connections = arguments.connections_of(clients);
    let heat = Plan {
        duration: HEAT,
        warmup: Duration::ZERO,
        connections,
        ..Plan::new(Workload::Uncontended, clients)
    };
    let peer = service.connect(connections, false).await?;
    run(&peer, &heat, &Processes::default(), &mut |_| {}).await?;
    drop(peer);
    let mut samples = Vec::new();
    for figure in figures {
        eprint!("  {}: ", figure.name());
        let _ = std::io::stderr().flush();
        let report = one(&mut service, *figure, arguments).await.map_err(|failure| failure.to_string());
        eprintln!("{}", told(*figure, &report));
        samples.push(Sample { kind, figure: *figure, report });
    }
    Ok(samples)
}

async fn one<C: Contender>(
    service: &mut C,
    figure: Figure,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    let plan = figure.plan(arguments);
    if let Some(blow) = figure.blow() {
        return losses(service, blow, &plan).await;
    }
    let peer = connect(service, &plan, false).await?;
    run(&peer, &plan, &Processes { servers: service.pids() }, &mut |_| {}).await
}

/// Measures losses of the leader, each with new connections: the reaction of a client to a node that came back must not
/// affect the next loss.
async fn losses<C: Contender>(service: &mut C, blow: Blow, plan: &Plan) -> Result<Report, Failure> {
    let once = Plan { rounds: 1, ..plan.clone() };
    let mut all: Option<Report> = None;
    for _ in 0..plan.rounds {
        let peer = connect(service, plan, true).await?;
        let report = failover(&peer, service, &once, &[blow], &mut |_| {}).await?;
        match &mut all {
            None => all = Some(report),
            Some(all) => {
                for (series, more) in all.series.iter_mut().zip(&report.series) {
                    series.latency.merge(&more.latency);
                }
                all.measured += report.measured;
                all.failures += report.failures;
                all.first_failure = all.first_failure.take().or(report.first_failure);
            }
        }
    }
    all.ok_or_else(|| Failure::says("no leader was to be lost"))
}

async fn connect<C: Contender>(service: &C, plan: &Plan, restless: bool) -> Result<C::Peer, Failure> {
    let peer = service.connect(plan.connections, restless).await;
    peer.map_err(|error| Failure::says(format!("{error:#}")))
}

fn told(figure: Figure, report: &Result<Report, String>) -> String {
    match report {
        Err(says) => format!("failed: {says}"),
        Ok(report) => {
            let latency = &report.series[0].latency;
            let (p50, p99) =
                (latency.quantile(0.5).as_secs_f64() * 1e3, latency.quantile(0.99).as_secs_f64() * 1e3);
            let failed =
                if report.failures > 0 { format!(", {} failed", report.failures) } else { String::new() };
            if figure.blow().is_some() {
                format!("{p50:.0} ms, {} losses{failed}", report.operations())
            } else {
                format!("{:.0}/s, p50 {p50:.2} ms, p99 {p99:.2} ms{failed}", report.per_second())
            }
        }
    }
}
