//! `cargo xtask mutants`: checks that a test of real nodes and processes still catches each planted bug of node, server
//! and binary.
//!
//! For every bug in `tollgate-node`'s table, one test is named here that must pass without the bug and fail with it. A
//! bug without a test is a finding, and so is a test without its bug. Not here: the bugs
//! (`tollgate-node/src/planted.rs`).

use std::process::Command;
use std::time::Instant;

/// File with the table of bugs.
const TABLE: &str = "crates/tollgate-node/src/planted.rs";

/// Environment variable that turns a bug on in a process.
const VARIABLE: &str = "TOLLGATE_BUG";

/// A bug and the test that catches it: package, kind of test, name.
type Catcher = (&'static str, &'static str, &'static str, &'static str);

const UNIT: &str = "--lib";
const PROCESS: &str = "--test=it";

const CATCHERS: [Catcher; 27] = [
    ("AckBeforeFsync", "tollgate", PROCESS, "disk_faults::p4_nothing_is_acknowledged_before_its_fsync"),
    (
        "FailedWriteTaken",
        "tollgate",
        PROCESS,
        "disk_faults::p15_a_failed_fsync_stops_the_process_with_70_and_the_others_go_on",
    ),
    (
        "FrameSenderUnchecked",
        "tollgate-node",
        PROCESS,
        "peers::a_frame_from_another_than_who_said_hello_cuts_the_connection",
    ),
    (
        "OtherClusterAccepted",
        "tollgate-node",
        UNIT,
        "peers::hello::tests::nodes_of_one_cluster_meet_and_others_are_told_why_not",
    ),
    (
        "OtherDiskAccepted",
        "tollgate-node",
        PROCESS,
        "peers::p4_a_node_with_another_disk_than_it_had_is_refused",
    ),
    (
        "FoundedAnewGoesOn",
        "tollgate-node",
        PROCESS,
        "peers::p1_a_cluster_of_one_that_grew_is_not_founded_a_second_time",
    ),
    (
        "RemovedByAnybody",
        "tollgate-node",
        PROCESS,
        "peers::p1_that_a_node_was_removed_is_believed_only_of_the_disk_that_a_peer_is_known_by",
    ),
    ("RemovedHeard", "tollgate", PROCESS, "membership::a_removed_node_that_comes_back_disturbs_nobody"),
    (
        "NewcomerNotDialled",
        "tollgate-node",
        PROCESS,
        "membership::a_node_that_is_added_catches_up_and_is_needed_for_a_quorum",
    ),
    (
        "TakesPartAtOnce",
        "tollgate-node",
        PROCESS,
        "peers::p4_first_members_take_part_when_all_of_them_have_met_and_then_for_good",
    ),
    (
        "InboxUnbounded",
        "tollgate-node",
        UNIT,
        "inbox::tests::p16_what_comes_from_outside_has_a_limit_and_the_rest_goes_in",
    ),
    ("StaleReads", "tollgate", PROCESS, "pauses::p13_a_leader_that_wakes_answers_nothing_from_memory"),
    ("KeepaliveAtOnce", "tollgate", PROCESS, "partitions::a_leader_cut_off_in_silence_breaks_no_promise"),
    (
        "AnswersMixedUp",
        "tollgate",
        PROCESS,
        "crashes::kill_9_of_leader_and_follower_in_turn_breaks_no_promise",
    ),
    // The chaos test must be able to fail, too.
    ("KeepaliveAtOnce", "tollgate", PROCESS, "chaos::twenty_seconds_of_faults_break_no_promise"),
    (
        "SeqNotForwarded",
        "tollgate",
        PROCESS,
        "repeats::p10_a_request_repeated_through_any_node_has_one_effect_and_one_answer",
    ),
    (
        "WatchResumesLate",
        "tollgate",
        PROCESS,
        "client::watches::p11_a_watch_whose_node_is_killed_sees_every_event_once",
    ),
    (
        "WatchEndsWithRequests",
        "tollgate-server",
        PROCESS,
        "watches::p11_a_watch_is_told_on_though_its_client_has_closed_its_side",
    ),
    (
        "LeaseWatchedAtHome",
        "tollgate",
        PROCESS,
        "lease_watches::p11_a_lock_taken_away_in_another_group_is_told_once_though_leader_and_node_are_killed",
    ),
    (
        "HangUpUnnoticed",
        "tollgate",
        PROCESS,
        "waits::a_caller_that_hangs_up_leaves_the_queue_wherever_it_asked",
    ),
    (
        "ListensEverywhere",
        "tollgate",
        PROCESS,
        "startup::p17_without_insecure_a_node_listens_on_loopback_only",
    ),
    (
        "RestoredFounded",
        "tollgate-server",
        PROCESS,
        "config::refusals::p2_a_cluster_with_the_id_of_a_restored_one_is_not_founded",
    ),
    ("SecondSignalIgnored", "tollgate", PROCESS, "restarts::a_second_signal_stops_a_node_at_once"),
    (
        "GatewayDropsSeq",
        "tollgate",
        PROCESS,
        "gateways::p10_a_request_repeated_through_any_gateway_has_one_effect_and_one_answer",
    ),
    (
        "OtherClusterFollowed",
        "tollgate",
        PROCESS,
        "gateways::a_gateway_serves_no_other_cluster_than_the_one_that_it_was_told",
    ),
    (
        "ClockJumpTakenForRate",
        "tollgate-node",
        UNIT,
        "clock_rate::tests::p5_jumps_of_a_clock_are_no_rate_whatever_their_size",
    ),
    (
        "WrongClockUnread",
        "tollgate-node",
        PROCESS,
        "clocks::p5_a_node_whose_clock_runs_2_percent_fast_is_named_by_all_and_by_itself",
    ),
];

/// Runs every test with and without its bug. Returns the problems found.
pub(crate) fn run(say: fn(&str)) -> Vec<String> {
    let mut problems = unmatched(&bugs());
    let mut passed = Vec::new();
    for (bug, package, kind, test) in CATCHERS {
        let began = Instant::now();
        if !passed.contains(&(package, test)) {
            match verdict(package, kind, test, None) {
                Verdict::Passed => passed.push((package, test)),
                other => problems.push(format!("{test} without a bug: {other:?}, expected Passed")),
            }
        }
        let verdict = verdict(package, kind, test, Some(bug));
        if verdict != Verdict::Failed {
            problems.push(format!("{bug} is not caught by {test}: {verdict:?}"));
        }
        say(&format!("{bug:<22} {verdict:?} {package}::{test} ({:.1} s)\n", began.elapsed().as_secs_f64()));
    }
    problems
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    /// The test did not run: it does not compile, or there is no such test.
    NotRun,
}

fn verdict(package: &str, kind: &str, test: &str, bug: Option<&str>) -> Verdict {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--package", package, kind, "--features", "planted-bugs", "--", "--exact", test]);
    cargo.current_dir(crate::tree::workspace_root()).env_remove(VARIABLE);
    if let Some(bug) = bug {
        cargo.env(VARIABLE, bug);
    }
    let said = cargo.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match said {
        Ok(said) if said.contains("test result: ok. 1 passed") => Verdict::Passed,
        Ok(said) if said.contains("test result: FAILED. 0 passed; 1 failed") => Verdict::Failed,
        _ => Verdict::NotRun,
    }
}

/// Returns the names in the table of bugs.
fn bugs() -> Vec<String> {
    let path = crate::tree::workspace_root().join(TABLE);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let name = |line: &str| {
        let (name, says) = line.trim().split_once(": \"")?;
        let is_name = name.chars().all(char::is_alphanumeric) && says.ends_with("\",");
        is_name.then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// Lists bugs without a test, and tests whose bug is gone.
fn unmatched(bugs: &[String]) -> Vec<String> {
    let named = |bug: &str| CATCHERS.iter().any(|(of, ..)| *of == bug);
    let without_test = bugs.iter().filter(|bug| !named(bug));
    let mut problems: Vec<String> =
        without_test.map(|bug| format!("{bug} has no test: name one in {}", file!())).collect();
    let gone = CATCHERS.iter().filter(|(bug, ..)| !bugs.iter().any(|known| known == bug));
    problems.extend(gone.map(|(bug, ..)| format!("there is no bug {bug} in {TABLE}")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_planted_bug_of_node_server_and_binary_has_a_test_that_must_catch_it() {
        let bugs = bugs();
        let caught: std::collections::BTreeSet<&str> = CATCHERS.iter().map(|(bug, ..)| *bug).collect();
        assert!(bugs.len() >= caught.len(), "{bugs:?}");
        assert_eq!(unmatched(&bugs), Vec::<String>::new());
        assert_eq!(unmatched(&["New".to_owned()]).len(), CATCHERS.len() + 1);
    }
}
