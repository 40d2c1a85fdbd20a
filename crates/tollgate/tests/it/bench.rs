//! `tollgate bench`, run as a user would run it: its output, its refusals, and that it leaves nothing behind.
//!
//! These tests do not check any speed.

use crate::cluster::BINARY;
use serde_json::Value;
use std::process::{Command, Output};

/// Runs the command with a directory for temporary files that must be empty afterwards.
fn bench(arguments: &[&str]) -> Output {
    let dir = tempfile::TempDir::with_prefix("tollgate-it-bench-").unwrap();
    let mut command = Command::new(BINARY);
    command.arg("bench").args(arguments).env("TMPDIR", dir.path());
    // A setting for other servers: it must not reach a cluster that is started for the benchmark.
    command.env("TOLLGATE_NODE_ID", "77");
    let output = command.output().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "bench leaves files");
    output
}

/// Returns the runs in the report of a benchmark, which must have succeeded.
fn runs(arguments: &[&str]) -> Vec<Value> {
    let Output { status, stdout, stderr } = bench(&[arguments, &["-o", "json"]].concat());
    let (said, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{arguments:?} ended with {status}:\n{said}\n{errors}");
    serde_json::from_str(&said).unwrap()
}

/// Returns the exit code and the error text of a refused benchmark.
fn refusal(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = bench(arguments);
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_run_on_a_cluster_of_its_own_has_every_figure() {
    let runs = runs(&["uncontended", "--own-cluster", "1", "--clients", "4", "--duration", "1s"]);
    let [run] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!(
        (run["workload"].as_str(), run["counts"].as_str()),
        (Some("uncontended"), Some("lock+unlock pairs"))
    );
    assert_eq!(
        (run["clients"].as_u64(), run["connections"].as_u64(), run["keys"].as_u64()),
        (Some(4), Some(1), Some(4))
    );
    assert_eq!((run["failures"].as_u64(), run["measured_ms"].as_u64()), (Some(0), Some(1_000)));
    let operations = run["operations"].as_u64().unwrap();
    assert!(operations > 0, "{run}");
    for (index, of) in ["pair", "lock", "unlock"].into_iter().enumerate() {
        let latency = &run["latencies"][index];
        assert_eq!(
            (latency["of"].as_str(), latency["count"].as_u64()),
            (Some(of), Some(operations)),
            "{run}"
        );
        let told =
            ["p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"].map(|name| latency[name].as_f64().unwrap());
        assert!(told.is_sorted() && told[0] > 0.0, "{latency}");
    }
    assert!(run["client_cpu_us_per_operation"].as_f64().is_some(), "{run}");
    assert!(run["server_cpu_us_per_operation"].as_f64().is_some(), "{run}");
    assert_eq!(run["servers"].as_array().map(Vec::len), Some(1), "{run}");
}

#[test]
fn a_sweep_is_a_run_for_each_number_of_clients_and_is_plotted() {
    let dir = tempfile::TempDir::with_prefix("tollgate-it-plots-").unwrap();
    let plots = dir.path().join("plots");
    let quick = ["--own-cluster", "1", "--duration", "200ms", "--warmup", "0s"];
    let sweep = ["contended", "--clients", "2,4", "--svg", plots.to_str().unwrap()];
    let runs = runs(&[&sweep[..], &quick].concat());
    let clients: Vec<_> = runs.iter().map(|run| run["clients"].as_u64().unwrap()).collect();
    assert_eq!(clients, [2, 4]);
    assert!(runs.iter().all(|run| run["operations"].as_u64() > Some(0)), "{runs:?}");
    for plot in ["contended-latency.svg", "contended-throughput.svg"] {
        let svg = std::fs::read_to_string(plots.join(plot)).unwrap();
        assert!(svg.starts_with("<svg"), "{plot}: {svg}");
    }
}

#[test]
fn every_other_workload_runs_by_the_stream_and_by_single_calls() {
    let quick =
        ["--own-cluster", "1", "--clients", "4", "--duration", "200ms", "--warmup", "0s", "--payload", "100"];
    let counted = |arguments: &[&str]| {
        let runs = runs(&[arguments, &quick].concat());
        assert!(runs[0]["operations"].as_u64() > Some(0), "{arguments:?}: {runs:?}");
    };
    for workload in ["mix", "semaphore", "keepalive", "leases", "watch"] {
        counted(&[workload]);
        if workload != "watch" {
            counted(&[workload, "--unary"]);
        }
    }
    counted(&["keepalive", "--leases", "40", "--paced", "--ttl", "600ms"]);
}

#[test]
fn the_loss_of_a_leader_is_timed_from_kill_and_from_stop() {
    let runs = runs(&["failover", "--own-cluster", "3", "--rounds", "1"]);
    let latencies = runs[0]["latencies"].as_array().unwrap();
    let counts: Vec<_> =
        latencies.iter().map(|of| (of["of"].as_str().unwrap(), of["count"].as_u64().unwrap())).collect();
    assert_eq!(counts, [("all", 2), ("kill -9 to grant", 1), ("SIGSTOP to grant", 1)]);
}

#[test]
fn what_can_not_be_measured_is_refused_with_what_to_write() {
    for (arguments, code, says) in [
        (&["failover"][..], 64, "--own-cluster 3"),
        (&["failover", "--own-cluster", "1"], 64, "--own-cluster 3"),
        (&["uncontended", "--keys", "3"], 64, "`contended` has them share"),
        (&["contended", "--clients", "16,1"], 64, "two or more want it"),
        (&["uncontended", "--server-pids", "1", "--own-cluster", "1"], 64, "cannot be used with"),
        (&["nonsense"], 64, "uncontended"),
        (&["uncontended", "--endpoints", "http://127.0.0.1:1"], 69, "is the cluster up?"),
        (&["uncontended", "--svg", "/dev/null/plots"], 64, "--svg /dev/null/plots can't be made"),
    ] {
        let (ended, said) = refusal(arguments);
        assert_eq!(ended, Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}
