//! Tests of the exported text after some events.

use super::*;
use tollgate_proto::v1::operation::Op;
use tollgate_types::GroupId;

fn grant(group_id: u32, fencing_token: u64, waited_ms: i64) -> OpResult {
    let header = Some(v1::Header { group_id, ..Default::default() });
    OpResult::Lock(v1::LockResponse {
        header,
        acquired: true,
        fencing_token,
        waited_ms,
        ..Default::default()
    })
}

fn lock() -> Op {
    Op::Lock(v1::LockRequest { name: "secret/name".into(), lease_id: 4_711, ..Default::default() })
}

#[track_caller]
fn says(metrics: &Metrics, line: &str) {
    let text = metrics.render(Exposition::OpenMetrics);
    assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
}

const SOON: Duration = Duration::from_millis(3);

#[test]
fn a_grant_counts_once_and_its_hold_ends_with_its_release() {
    let metrics = Metrics::new();
    metrics.operation(&lock(), &grant(1, 9, 70), SOON);
    metrics.operation(&lock(), &grant(1, 9, 0), SOON);
    says(&metrics, "tollgate_grants_total 1");
    says(&metrics, "tollgate_wait_seconds_sum 0.07");
    let unlock = Op::Unlock(v1::UnlockRequest { fencing_token: 9, ..Default::default() });
    let header = Some(v1::Header { group_id: 1, ..Default::default() });
    let released = OpResult::Unlock(v1::UnlockResponse { header, revision: 10 });
    metrics.operation(&unlock, &released, SOON);
    says(&metrics, "tollgate_releases_total 1");
    says(&metrics, "tollgate_hold_seconds_count 1");
    says(&metrics, r#"tollgate_operations_total{kind="lock",outcome="done"} 2"#);
    says(&metrics, r#"tollgate_operation_seconds_count{kind="unlock"} 1"#);
}

#[test]
fn a_busy_lock_is_missed_and_a_queued_one_is_not_over() {
    let metrics = Metrics::new();
    metrics.operation(&lock(), &OpResult::Queued(v1::Queued::default()), SOON);
    metrics.operation(&lock(), &OpResult::Lock(v1::LockResponse::default()), SOON);
    says(&metrics, r#"tollgate_operations_total{kind="lock",outcome="missed"} 1"#);
    says(&metrics, r#"tollgate_operation_seconds_count{kind="lock"} 1"#);
    says(&metrics, "tollgate_grants_total 0");
}

#[test]
fn a_failure_counts_by_its_first_reason() {
    let metrics = Metrics::new();
    let error = v1::Error::rejected_before(ErrorReason::Deadlock, "again");
    metrics.operation(&lock(), &OpResult::Error(error), SOON);
    says(&metrics, r#"tollgate_failures_total{reason="DEADLOCK"} 1"#);
}

#[test]
fn p16_what_clients_call_things_makes_no_series() {
    let metrics = Metrics::new();
    metrics.operation(&lock(), &grant(0, 1, 0), SOON);
    let before = metrics.render(Exposition::OpenMetrics).lines().count();
    for token in 2..1_000 {
        metrics.operation(&lock(), &grant(0, token, 0), SOON);
    }
    let text = metrics.render(Exposition::OpenMetrics);
    assert_eq!(text.lines().count(), before);
    assert!(!text.contains("secret") && !text.contains("4711"));
}

#[test]
fn what_the_node_tells_is_counted() {
    let metrics = Metrics::new();
    let group = GroupId::new(0);
    metrics.turn(5);
    metrics.fsync(Duration::from_millis(2));
    metrics.lease_ended(EndReason::LeaseExpired);
    metrics.event(&HostEvent::LeadershipGained { group, term: 2 });
    metrics.event(&HostEvent::SnapshotSaved { group, index: 7 });
    metrics.fast_answers(3, 1);
    metrics.waiting(4, 2);
    let (peer, leads) = (tollgate_types::NodeId::new(2).unwrap(), true);
    metrics.event(&HostEvent::StateDiverged { group, index: 7, leads, ours: 1, peer, theirs: 2 });
    for line in [
        "tollgate_driver_turns_total 1",
        "tollgate_driver_turn_inputs_sum 5.0",
        "tollgate_fsync_seconds_count 1",
        r#"tollgate_lease_ends_total{reason="LEASE_EXPIRED"} 1"#,
        "tollgate_elections_won_total 1",
        r#"tollgate_snapshots_total{event="saved"} 1"#,
        "tollgate_fast_answers_total 3",
        "tollgate_fast_misses_total 1",
        "tollgate_parked_callers 4",
        "tollgate_watches 2",
        "tollgate_state_hash_mismatches_total 1",
    ] {
        says(&metrics, line);
    }
}

#[test]
fn counters_are_there_before_they_count() {
    let metrics = Metrics::new();
    for line in [
        r#"tollgate_snapshots_total{event="saved"} 0"#,
        r#"tollgate_snapshots_total{event="damaged"} 0"#,
        r#"tollgate_failures_total{reason="LIMIT_EXCEEDED"} 0"#,
        r#"tollgate_lease_ends_total{reason="LEASE_EXPIRED"} 0"#,
        r#"tollgate_connections{door="http"} 0"#,
    ] {
        says(&metrics, line);
    }
    let handled = r#"tollgate.v1.LockService",grpc_method="Lock",grpc_code="OK"} 0"#;
    assert!(metrics.render(Exposition::OpenMetrics).contains(handled));
}

#[test]
fn the_limits_in_force_are_the_lowest_of_all_groups() {
    use tollgate_types::Limits;
    let metrics = Metrics::new();
    metrics.limit("connections_max", 20_000);
    let groups = [Limits { locks_max: 9, ..Limits::DEFAULT }, Limits { locks_max: 7, ..Limits::DEFAULT }];
    metrics.limits.set_lowest(&groups.iter());
    metrics.limits.set_lowest(&[].iter());
    says(&metrics, r#"tollgate_limit{limit="locks_max"} 7"#);
    says(&metrics, r#"tollgate_limit{limit="connections_max"} 20000"#);
}

#[test]
fn the_rate_of_a_clock_is_told_for_as_long_as_it_is_known() {
    let metrics = Metrics::new();
    let node = |number| tollgate_types::NodeId::new(number).unwrap();
    metrics.clocks.set(&[(node(2), 0.0196), (node(3), -0.0004)].into());
    says(&metrics, r#"tollgate_clock_rate_difference_ratio{peer="2"} 0.0196"#);
    says(&metrics, r#"tollgate_clock_rate_difference_ratio{peer="3"} -0.0004"#);
    metrics.clocks.set(&[(node(3), 0.0)].into());
    let text = metrics.render(Exposition::OpenMetrics);
    assert!(!text.contains(r#"clock_rate_difference_ratio{peer="2"}"#), "{text}");
    says(&metrics, r#"tollgate_clock_rate_difference_ratio{peer="3"} 0.0"#);
}

#[test]
fn connections_count_while_they_are_open() {
    let metrics = Metrics::new();
    let (first, second) = (metrics.connection("grpc"), metrics.connection("grpc"));
    let session = metrics.session();
    says(&metrics, r#"tollgate_connections{door="grpc"} 2"#);
    says(&metrics, "tollgate_sessions 1");
    drop((first, session));
    says(&metrics, r#"tollgate_connections{door="grpc"} 1"#);
    says(&metrics, "tollgate_sessions 0");
    drop(second);
}

#[test]
fn the_text_ends_as_openmetrics_demands_and_knows_the_process() {
    let text = Metrics::new().render(Exposition::OpenMetrics);
    assert!(text.ends_with("# EOF\n"));
    assert!(text.contains("tollgate_build_info{version="));
    if cfg!(target_os = "linux") {
        for name in
            ["cpu_seconds_total", "start_time_seconds", "open_fds", "max_fds", "resident_memory_bytes"]
        {
            assert!(text.contains(&format!("\nprocess_{name} ")), "{name}");
        }
    }
}

/// Documentation for operators.
const PAGE: &str = include_str!("../../../../docs/operations.md");

#[test]
fn the_page_for_operators_names_every_metric_and_no_other() {
    let metrics = Metrics::new();
    // A family without members has no lines, and limits appear when they are known.
    metrics.limit("connections_max", 7);
    metrics.groups.set(&[groups::Seen::default()]);
    metrics.clocks.set(&[(tollgate_types::NodeId::new(2).unwrap(), 0.02)].into());
    let text = metrics.render(Exposition::OpenMetrics);
    let type_of = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE tollgate_")?.split_once(' ')?;
        Some(format!("tollgate_{name}{}", if kind == "info" { "_info" } else { "" }))
    };
    let mut told: Vec<String> = text.lines().filter_map(type_of).collect();
    let in_backticks = PAGE.split('`').skip(1).step_by(2);
    let mut named: Vec<String> =
        in_backticks.filter(|text| text.starts_with("tollgate_")).map(ToOwned::to_owned).collect();
    for names in [&mut told, &mut named] {
        names.sort();
        names.dedup();
    }
    assert!(told.len() > 20, "{told:?}");
    assert_eq!(named, told, "docs/operations.md (left) and the registry (right)");
}
