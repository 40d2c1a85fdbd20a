//! Everything, round by round: each service is started, measured and ended in each.

use crate::arguments::Arguments;
use crate::contender::{
    Contender, Durability, EtcdCluster, Kind, Recipe, RedisServers, TollgateCluster, ZooKeeperEnsemble,
};
use crate::figure::Figure;
use crate::machine;
use crate::result::{Results, Sample};
use std::io::Write;
use std::time::Duration;
use tollgate_bench::{Failure, Plan, Processes, Report, Workload, failover, run};

/// How long each service is driven before anything is measured: a virtual machine translates what it runs often.
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
                let samples = measure(*kind, &figures, arguments).await;
                results.samples.extend(samples);
            }
        }
    }
    Ok(results)
}

/// All figures of one service, on one cluster of it.
async fn measure(kind: Kind, figures: &[Figure], arguments: &Arguments) -> Vec<Sample> {
    let samples = match kind {
        Kind::Tollgate => {
            drive(kind, TollgateCluster::start(&arguments.tollgate).await, figures, arguments).await
        }
        Kind::Etcd => drive(kind, EtcdCluster::start().await, figures, arguments).await,
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
    let (plan, blow) = (figure.plan(arguments), figure.blow());
    let peer = service.connect(plan.connections, blow.is_some()).await;
    let peer = peer.map_err(|error| Failure::says(format!("{error:#}")))?;
    match blow {
        Some(blow) => failover(&peer, service, &plan, &[blow], &mut |_| {}).await,
        None => run(&peer, &plan, &Processes { servers: service.pids() }, &mut |_| {}).await,
    }
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
