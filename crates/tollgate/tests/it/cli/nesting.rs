//! A `run` inside a `run`: the same lease and owner, and nothing given back that it did not take.

use super::{Cli, lives, shared};
use crate::cluster::BINARY;

/// A shell script in which `$tollgate` is the binary.
fn script(text: &str) -> String {
    format!("tollgate={BINARY}; {text}")
}

fn run(cli: &Cli, name: &str, text: &str) -> super::Ended {
    cli.call(&["run", name, "--try", "--", "sh", "-c", &script(text)])
}

#[test]
fn an_inner_run_has_the_same_lock_and_leaves_it_to_the_outer_one() {
    let cli = shared();
    let text = "show='$TOLLGATE_FENCING_TOKEN $TOLLGATE_LEASE_ID $TOLLGATE_OWNER'
        eval echo outer $show
        $tollgate run nesting/same --try -- sh -c \"echo inner $show\"
        $tollgate get nesting/same -o jsonl
        exit 3";
    let ended = run(&cli, "nesting/same", text).with(3);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines[0].strip_prefix("outer"), lines[1].strip_prefix("inner"));
    let after: serde_json::Value = serde_json::from_str(lines[2]).unwrap();
    assert_eq!(after["holder_count"], 1, "the inner run gave back what it had inherited");
    assert_eq!(cli.counts("nesting/same"), (0, 0));
}

#[test]
fn an_inner_run_gives_back_what_it_took_itself() {
    let cli = shared();
    let text = "$tollgate run nesting/inner -- $tollgate get nesting/inner -o jsonl
        $tollgate get nesting/inner -o jsonl; $tollgate get nesting/outer -o jsonl";
    let ended = run(&cli, "nesting/outer", text).with(0);
    let locks: Vec<serde_json::Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let held: Vec<_> = locks.iter().map(|lock| lock["holder_count"].as_u64().unwrap()).collect();
    assert_eq!(held, [1, 0, 1]);
}

#[test]
fn the_lock_of_a_grandparent_is_not_given_back_either() {
    let cli = shared();
    let text = "$tollgate run nesting/second -- $tollgate run nesting/first -- true
        $tollgate get nesting/first -o jsonl";
    let ended = run(&cli, "nesting/first", text).with(0);
    let lock: serde_json::Value = serde_json::from_str(ended.stdout.trim()).unwrap();
    assert_eq!(lock["holder_count"], 1);
}

#[test]
fn an_inner_run_with_a_lease_of_its_own_waits_like_anybody() {
    let cli = shared();
    let text = "$tollgate run nesting/own --own-lease --try -- true";
    run(&cli, "nesting/own", text).with(75);
}

#[test]
fn nested_runs_in_opposite_order_are_a_deadlock_that_is_found() {
    let cli = shared();
    let first = script("echo up; read _; $tollgate run nesting/b -- echo both");
    let second = script("echo up; read _; $tollgate run nesting/a -- echo both");
    let mut first = cli.start(&["run", "nesting/a", "--", "sh", "-c", &first]);
    let mut second = cli.start(&["run", "nesting/b", "--", "sh", "-c", &second]);
    first.until_says("up");
    second.until_says("up");
    first.write("go\n");
    cli.until_counts("nesting/b", (1, 1));
    second.write("go\n");
    let refused = second.end().with(75);
    assert!(
        refused.stderr.contains("there is a circle") && refused.stderr.contains("nesting/a"),
        "{}",
        refused.stderr
    );
    let served = first.end().with(0);
    assert!(served.stdout.contains("both"));
    let found = cli.call(&["deadlocks", "-o", "json"]).with(0).json();
    let names = |deadlock: &serde_json::Value| deadlock["cycle"].to_string().contains("nesting/a");
    assert!(found.as_array().unwrap().iter().any(names), "{found}");
}

#[test]
fn an_inner_run_whose_outer_lease_has_ended_is_79() {
    let cli = shared();
    let mut command = cli.command(&["run", "nesting/gone", "--", "true"]);
    command.env("TOLLGATE_LEASE_ID", "0000000000000123").env("TOLLGATE_OWNER", "1");
    let ended = super::Ended::of(&command.output().unwrap()).with(79);
    assert!(ended.stderr.contains("--own-lease"), "{}", ended.stderr);
}

#[test]
fn the_loss_of_the_outer_lock_ends_the_inner_command_too() {
    let cli = shared();
    let text = script("$tollgate run nesting/deep -- sh -c 'echo pid $$; sleep 1000'");
    let running = cli.start(&["run", "nesting/lost", "--ttl", "3s", "--", "sh", "-c", &text]);
    let inner: u32 = running.until_tells("pid ").parse().unwrap();
    let lock = cli.call(&["get", "nesting/deep", "-o", "json"]).with(0).json();
    cli.call(&["lease", "revoke", lock["holders"][0]["lease_id"].as_str().unwrap()]).with(0);
    running.end().with(79);
    super::until("the inner command is gone", || !lives(inner));
}
