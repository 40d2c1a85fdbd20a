//! Signals in both directions, stdin, environment, and the processes that a command leaves behind.

use super::{lives, shared, until};
use std::process::Command;

#[test]
fn stdin_and_arguments_and_output_are_the_commands() {
    let cli = shared();
    let mut cat = cli.start(&["run", "signals/stdin", "--", "cat", "-", "/dev/null"]);
    cat.write("one\ntwo\n");
    let ended = cat.end().with(0);
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("one\ntwo\n", ""));
}

#[test]
fn the_command_finds_its_lock_in_the_environment() {
    let cli = shared();
    let show = "env | grep ^TOLLGATE_ | sort; read _; exit 0";
    let running = cli.start(&["run", "signals/env", "--ttl", "20s", "--", "sh", "-c", show]);
    running.until_says("TOLLGATE_LOCK_NAME=signals/env");
    let lock = cli.call(&["get", "signals/env", "-o", "json"]).with(0).json();
    let holder = &lock["holders"][0];
    let told = |name: &str| running.until_tells(&format!("TOLLGATE_{name}="));
    assert_eq!(told("FENCING_TOKEN"), holder["fencing_token"].as_str().unwrap());
    assert_eq!(told("LEASE_ID"), holder["lease_id"].as_str().unwrap());
    let status = cli.call(&["status", "-o", "json"]).with(0).json();
    assert_eq!(told("LINEAGE"), status["nodes"][0]["lineage"].as_str().unwrap());
    assert_eq!(told("OWNER"), holder["owner"].as_str().unwrap());
    assert_eq!(holder["why"].as_str(), Some("sh"), "the program, and not its arguments");
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let deadline_ms: u128 = told("DEADLINE_UNIX_MS").parse().unwrap();
    assert!((now_ms..now_ms + 20_000).contains(&deadline_ms), "{deadline_ms} at {now_ms}");
    running.end().with(0);
}

#[test]
fn signals_go_on_to_the_command_and_its_answer_comes_back() {
    let cli = shared();
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3)] {
        let script =
            format!("trap 'echo heard; exit {}' {name}; echo up; while :; do sleep 0.01; done", 20 + number);
        let running = cli.start(&["run", "signals/forward", "--", "sh", "-c", &script]);
        running.until_says("up");
        running.signal(name);
        let ended = running.end().with(20 + number);
        assert!(ended.stdout.contains("heard"), "{name}");
    }
    let script =
        "trap 'echo usr1' USR1; trap 'echo usr2; exit 6' USR2; echo up; while :; do sleep 0.01; done";
    let running = cli.start(&["run", "signals/forward", "--", "sh", "-c", script]);
    running.until_says("up");
    running.signal("USR1");
    running.until_says("usr1");
    running.signal("USR2");
    running.end().with(6);
}

#[test]
fn a_signal_ends_a_wait_and_leaves_no_waiter() {
    let cli = shared();
    let holder = cli.start(&["run", "signals/wait", "--", "sh", "-c", "echo up; read _; exit 0"]);
    holder.until_says("up");
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let waiter = cli.start(&["run", "signals/wait", "--", "echo", "ran"]);
        cli.until_counts("signals/wait", (1, 1));
        waiter.signal(name);
        let ended = waiter.end().with(code);
        assert_eq!(ended.stdout, "");
        cli.until_counts("signals/wait", (1, 0));
    }
    holder.end().with(0);
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let cli = shared();
    let mut nohup = Command::new("nohup");
    let plain = cli.command(&["run", "signals/nohup", "--", "sh", "-c", "echo up; read _; exit 4"]);
    nohup.arg(plain.get_program()).args(plain.get_args());
    nohup.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let running = super::Running::start(nohup);
    running.until_says("up");
    running.signal("HUP");
    running.signal("HUP");
    running.end().with(4);
}

#[test]
fn the_command_has_a_process_group_of_its_own_and_what_it_leaves_behind_ends_with_it() {
    let cli = shared();
    let script = "echo group $(ps -o pgid= -p $$) of $$; sleep 1000 & echo left $!; exit 5";
    let ended = cli.call(&["run", "signals/group", "--", "sh", "-c", script]).with(5);
    let words: Vec<&str> = ended.stdout.split_whitespace().collect();
    let ["group", group, "of", pid, "left", left] = words[..] else { panic!("{}", ended.stdout) };
    assert_eq!(group, pid);
    assert!(!lives(left.parse().unwrap()), "a process of the group has outlived the lock");
    assert!(ended.stderr.contains("left processes behind"), "{}", ended.stderr);
}

#[test]
fn a_lock_is_held_until_a_signal_comes() {
    let cli = shared();
    let holding = cli.start(&["lock", "signals/lock", "-o", "jsonl"]);
    until("it is held", || holding.stdout().ends_with('\n'));
    let told: serde_json::Value = serde_json::from_str(&holding.stdout()).unwrap();
    assert_eq!(told["fencing_token"].as_str(), Some(cli.token("signals/lock").as_str()));
    holding.signal("TERM");
    holding.end().with(0);
    assert_eq!(cli.counts("signals/lock"), (0, 0));
}
