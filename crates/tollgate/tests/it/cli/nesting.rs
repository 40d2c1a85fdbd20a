//! A `run` inside a `run`: it has the same lease, an owner of its own for new locks, and releases no lock that it did
//! not take.

use super::{Cli, lives, shared};
use crate::cluster::{BINARY, Cluster, Making};

/// Makes a shell script in which `$tollgate` is the binary.
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

/// Several inner runs at the same time, as under `make -j`.
#[test]
fn p1_inner_runs_that_run_at_a_time_exclude_each_other_and_keep_their_locks() {
    let cli = shared();
    let dir = tempfile::TempDir::new().unwrap();
    let log = dir.path().join("log").display().to_string();
    // Each run writes two lines: were two of them at work at once, their lines would mix.
    let part = format!("echo in $1 >> {log}; sleep 0.05; echo out $1 >> {log}");
    let text = format!(
        "for n in 1 2 3 4; do $tollgate run nesting/part -- sh -c '{part}' part $n || echo failed $n & done; wait"
    );
    let ended = run(&cli, "nesting/parallel", &text).with(0);
    assert_eq!(ended.stdout, "", "{}", ended.stderr);
    let lines = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 8);
    for pair in lines.chunks(2) {
        assert_eq!(pair[0].strip_prefix("in"), pair[1].strip_prefix("out"), "{lines:?}");
    }
}

#[test]
fn what_an_inner_run_took_is_not_lost_when_one_beside_it_ends() {
    let cli = shared();
    let dir = tempfile::TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let until = |name: &str| format!("echo {name}; until [ -e {} ]; do sleep 0.01; done", file(name));
    let text = script(&format!(
        "$tollgate run nesting/beside --shared -- sh -c '{}' &
        $tollgate run nesting/beside --shared -- sh -c '{}'
        echo ended second; wait",
        until("first"),
        until("second")
    ));
    let outer = cli.start(&["run", "nesting/around", "--", "sh", "-c", &text]);
    outer.until_says("first");
    outer.until_says("second");
    assert_eq!(cli.counts("nesting/beside"), (2, 0));
    std::fs::write(file("second"), "").unwrap();
    outer.until_says("ended second");
    assert_eq!(cli.counts("nesting/beside"), (1, 0), "the first still runs");
    std::fs::write(file("first"), "").unwrap();
    outer.end().with(0);
    assert_eq!(cli.counts("nesting/beside"), (0, 0));
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

/// Each inner run has an owner of its own, so the cluster can't know that the outer one waits for it.
#[test]
fn nested_runs_in_opposite_order_wait_until_one_gives_up() {
    let cli = shared();
    let first = script("echo up; read _; $tollgate run nesting/b -- echo both");
    let second = script("echo up; read _; $tollgate run nesting/a --wait 3s -- echo both");
    let mut first = cli.start(&["run", "nesting/a", "--", "sh", "-c", &first]);
    let mut second = cli.start(&["run", "nesting/b", "--", "sh", "-c", &second]);
    first.until_says("up");
    second.until_says("up");
    first.write("go\n");
    cli.until_counts("nesting/b", (1, 1));
    second.write("go\n");
    second.end().with(75);
    let served = first.end().with(0);
    assert!(served.stdout.contains("both"));
}

/// Both runs upgrade the lock that they hold: the owner that holds it is the one that waits.
#[test]
fn inner_runs_that_want_more_of_the_same_lock_are_a_deadlock_that_is_found() {
    let cli = shared();
    let text = script("echo up; read _; $tollgate run nesting/upgrade -- echo alone");
    let outer = ["run", "nesting/upgrade", "--shared", "--", "sh", "-c", &text];
    let (mut first, mut second) = (cli.start(&outer), cli.start(&outer));
    first.until_says("up");
    second.until_says("up");
    first.write("go\n");
    cli.until_counts("nesting/upgrade", (2, 1));
    second.write("go\n");
    let refused = second.end().with(75);
    assert!(refused.stderr.contains("there is a circle"), "{}", refused.stderr);
    assert!(first.end().with(0).stdout.contains("alone"));
    let found = cli.call(&["deadlocks", "-o", "json"]).with(0).json();
    let names = |deadlock: &serde_json::Value| deadlock["cycle"].to_string().contains("nesting/upgrade");
    assert!(found.as_array().unwrap().iter().any(names), "{found}");
}

#[test]
fn inner_runs_that_wait_for_the_same_lock_each_know_their_place() {
    let cli = shared();
    let holder = cli.start(&["run", "nesting/place", "--", "sh", "-c", "echo up; read _; exit 0"]);
    holder.until_says("up");
    let text =
        script("$tollgate run nesting/place -- true & read _; $tollgate run nesting/place -- true; wait");
    let mut outer = cli.start(&["run", "nesting/placed", "--", "sh", "-c", &text]);
    cli.until_counts("nesting/place", (1, 1));
    outer.write("go\n");
    super::until("the second tells its place", || outer.stderr().contains("position 2 of 2"));
    holder.end().with(0);
    outer.end().with(0);
}

/// The lease of an inner run does not end with it.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_inner_run_can_not_give_back_stays_until_the_outermost_ends() {
    let cluster = Cluster::start(Making::nodes(1)).await;
    let cli = Cli::at(cluster.endpoints().join(","));
    let text =
        script("$tollgate run nesting/kept -- sh -c 'echo up; read _; exit 0'; echo ended; read _; exit 3");
    let mut outer = cli.start(&["run", "nesting/keeper", "--ttl", "2m", "--", "sh", "-c", &text]);
    outer.until_says("up");
    cluster.nodes[0].signal("STOP");
    outer.write("go\n");
    outer.until_says("ended");
    cluster.nodes[0].signal("CONT");
    let said = outer.stderr();
    assert!(
        said.contains(
            "the cluster did not take nesting/kept back; it stays held until the outermost run ends"
        ),
        "{said}"
    );
    outer.end().with(3);
    cli.until_counts("nesting/kept", (0, 0));
}

#[test]
fn an_inner_run_whose_outer_lease_has_ended_is_79() {
    let cli = shared();
    let mut command = cli.command(&["run", "nesting/gone", "--", "true"]);
    command.env("TOLLGATE_LEASE_ID", "L-0000000000000123").env("TOLLGATE_OWNER", "1");
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
