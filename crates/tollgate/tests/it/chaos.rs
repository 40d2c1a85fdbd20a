//! Chaos test: real processes, real clients, and faults of every kind drawn from a seed, for minutes.
//!
//! Faults come in lanes, as many as nodes may be broken at once without the loss of a majority; a fault that breaks
//! more than that has all lanes to itself. Nodes are replaced by others meanwhile, and gateways are killed. While all
//! of that goes on, clients lock, wait, cancel, convert, write under their locks and watch, in several groups and also
//! across them; some connect through nodes only, some through gateways only. All answers that they got are judged at
//! the end, beside a read of every group's whole state, and the run fails on the first broken promise. `make chaos`
//! runs it for a given time; a short run is in `make test`.
//!
//! The faults are drawn from the seed, the timing of the processes is not: the same seed gives the same faults in the
//! same order, while processes and clocks behave as they do. Not covered: the network between clients, gateways and
//! nodes, which never breaks; and a node that joined later is dialled by all others at one address, so it is cut off
//! from all of them or, if only some are to lose it, on its own side only. Not here: faults one at a time (`crashes`,
//! `pauses`, `partitions`, `membership`, `gateways`), and simulations that repeat to the bit (`tollgate-sim`).

mod access;
mod arena;
mod arrival;
mod clients;
mod fault_log;
mod faults;
mod lane;
mod operator;
mod plan;
mod report;

use crate::cluster::{Cluster, Making};
use crate::load::{Load, Weight, read_all};
use crate::pace::Pace;
use crate::record::{Recorder, explain};
use crate::work::Ground;
use access::Access;
use arena::Arena;
use clients::Clients;
use plan::Plan;
use report::Report;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate_check::Event;

#[tokio::test(flavor = "multi_thread")]
async fn twenty_seconds_of_faults_break_no_promise() {
    run(&Plan::short(7, Duration::from_secs(20))).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes as long as it is told to: make chaos runs it"]
async fn faults_of_every_kind_for_minutes_break_no_promise() {
    let plan = Plan::from_env();
    let report = run(&plan).await;
    report.assert_enough_faults(&plan);
}

/// Runs a plan, and fails on every violation.
async fn run(plan: &Plan) -> Report {
    println!("{plan}");
    let groups = plan.groups.to_string();
    // Small logs, so that snapshots are taken and sent as well.
    let small_logs = ["--raft-snapshot-log-bytes", "1048576"];
    let flags = [&["--cluster-groups", &groups], &small_logs[..]].concat();
    let mut cluster = Cluster::start(Making::nodes(plan.nodes).proxied().flags(&flags)).await;
    for _ in 0..plan.gateways {
        cluster.add_gateway_to(&(0..plan.nodes).collect::<Vec<_>>(), &[]).await;
    }
    let access = Access::to(&cluster);
    let recorder = Recorder::of_groups(plan.groups);
    let ground = plan.ground(&recorder);
    let weight = Weight { seed: plan.seed, clients: 3, tasks: 2, ttl_ms: 3_000, ground: ground.clone() };
    let load = Load::on(&access.all(), &recorder, &weight);
    let clients = Clients::start(plan, &access, &recorder, &ground).await;

    let arena = Arena::around(&mut cluster, access, &small_logs, Arc::clone(&recorder));
    lane::run_all(plan, &arena).await;
    let (log, mut problems) = arena.give_back(&mut cluster).await;

    recorder.record(Event::Healed);
    problems.extend(clients.end().await);
    let watches = load.end().await;
    read_all(&recorder, &cluster).await;
    recorder.record(Event::End);
    drop(watches);
    let history = recorder.history();
    let began = Instant::now();
    let judged = history.judge();
    let report = Report::new(plan, &history, &judged, &log, problems, began.elapsed());
    println!("{report}");
    if !report.is_clean() {
        explain(&history, &judged);
        cluster.keep_logs();
        panic!("promises were broken; the same faults again: {}", plan.again());
    }
    report
}

/// The locks and registers that the clients compete for.
impl Plan {
    fn ground(&self, recorder: &Recorder) -> Ground {
        let pace = Some(Arc::new(Pace::per_second(self.rate_per_s)));
        Ground { locks: 2, tags: self.tags(recorder), registers: 2, think_ms_max: 10, pace }
    }
}
