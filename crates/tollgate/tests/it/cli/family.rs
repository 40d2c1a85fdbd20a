//! Processes that a command started and that left its process group: they end with the command, and before the lock
//! does.

use super::{Cli, Running, lives, shared, until};
use crate::cluster::BINARY;
use std::process::Command;

/// Shell fragment that starts a process in a session of its own, without a parent that would wait for it.
const FAR: &str = "(setsid sh -c 'echo far $$; exec sleep 1000' &)";

fn start(cli: &Cli, name: &str, script: &str) -> Running {
    cli.start(&["run", name, "--ttl", "3s", "--grace", "300ms", "--", "sh", "-c", script])
}

fn release(cli: &Cli, name: &str) {
    let token = cli.token(name);
    cli.call(&["release", "--force", name, "--token", &token, "--reason", "for a test"]).with(0);
}

#[test]
fn what_left_its_group_ends_with_the_command() {
    let cli = shared();
    // The process must have begun: before that, it is still in the group of the shell.
    let script = format!("{FAR}; timeout 1000 sleep 1000 & read _; exit 5");
    let mut running = start(&cli, "family/end", &script);
    let far: u32 = running.until_tells("far ").parse().unwrap();
    running.write("go\n");
    let ended = running.end().with(5);
    assert!(!lives(far), "it has outlived the lock");
    assert!(ended.stderr.contains("left processes behind"), "{}", ended.stderr);
}

#[test]
fn what_left_its_group_ends_when_the_lock_is_lost() {
    let cli = shared();
    let script = format!("trap '' TERM; {FAR}; timeout 1000 sh -c 'echo job $$; exec sleep 1000'");
    let running = start(&cli, "family/lost", &script);
    let pids = ["far ", "job "].map(|begin| running.until_tells(begin).parse::<u32>().unwrap());
    release(&cli, "family/lost");
    running.end().with(79);
    assert!(!pids.iter().any(|pid| lives(*pid)), "something has outlived the lock");
}

#[test]
fn p7_what_left_its_group_is_gone_before_the_lease_ends_when_run_is_killed() {
    let cli = shared();
    let running = start(&cli, "family/killed", &format!("{FAR}; sleep 1000"));
    let far: u32 = running.until_tells("far ").parse().unwrap();
    let token = cli.token("family/killed");
    running.signal("KILL");
    until("it is gone", || !lives(far));
    assert_eq!(cli.token("family/killed"), token, "the lease had ended while it ran");
}

/// Script that reports every SIGTERM at once, and does not end before a file exists.
const RECEIVER: &str = "trap \"echo asked $1\" TERM
(trap '' TERM; until [ -e $2 ]; do sleep 0.05; done) &
echo up $1
until [ -e $2 ]; do wait; done";

/// Script in a session of its own that passes SIGTERM on to a receiver in another.
const WRAPPER: &str = "trap 'kill -TERM $child' TERM
setsid sh $1 job $2 & child=$!
echo up wrapper
until [ -e $2 ]; do wait; done";

/// Some programs take a second SIGTERM for an order to end without cleaning up.
#[test]
fn nobody_is_asked_twice() {
    let cli = shared();
    let dir = tempfile::TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let file = |name: &str, text: &str| {
        std::fs::write(path(name), text).unwrap();
        path(name)
    };
    let (receiver, wrapper, end) = (file("receiver", RECEIVER), file("wrapper", WRAPPER), path("end"));
    let script = format!(
        "trap : TERM; {BINARY} run family/inner -- sh {receiver} inner {end} &
        setsid sh {wrapper} {receiver} {end} & until [ -e {end} ]; do wait; done; wait"
    );
    let arguments = ["run", "family/asked", "--ttl", "2m", "--grace", "20s", "--", "sh", "-c", &script];
    let running = cli.start(&arguments);
    for line in ["up inner", "up job", "up wrapper"] {
        running.until_says(line);
    }
    release(&cli, "family/asked");
    running.until_says("asked inner");
    running.until_says("asked job");
    // Meanwhile the supervisor looks many times for processes to ask.
    std::thread::sleep(std::time::Duration::from_secs(1));
    std::fs::write(&end, "").unwrap();
    let ended = running.end().with(79);
    assert!(!ended.stderr.contains("killing"), "too slow to tell: {}", ended.stderr);
    for who in ["asked inner", "asked job"] {
        assert_eq!(ended.stdout.lines().filter(|line| *line == who).count(), 1, "{who}: {}", ended.stdout);
    }
}

/// The orphans are reparented to the outer `run` then, which asks nobody on behalf of the inner one.
#[test]
fn what_a_killed_inner_run_leaves_behind_is_asked_to_end() {
    let cli = shared();
    let far = "trap \"echo asked; exit 0\" TERM; echo far $$; while :; do sleep 0.01; done";
    let inner = "(setsid sh -c \"$FAR\" &); echo up; sleep 1000";
    let script = format!("{BINARY} run family/orphaned -- sh -c '{inner}' & echo inner $!; wait; read _");
    let mut command = cli.command(&["run", "family/adopter", "--ttl", "30s", "--", "sh", "-c", &script]);
    command.env("FAR", far);
    let running = Running::start(command);
    let [far, inner] = ["far ", "inner "].map(|begin| running.until_tells(begin).parse::<u32>().unwrap());
    super::signal("KILL", inner);
    until("it is gone", || !lives(far));
    running.until_says("asked");
    running.end();
}

#[test]
fn daemons_are_let_be_if_so_asked() {
    let cli = shared();
    let far = "(setsid sh -c 'echo far $$; exec sleep 1000 >/dev/null 2>&1' &)";
    let script = format!("{far}; sleep 1000 & echo near $!; read _; exit 5");
    let end = |ends: &dyn Fn(&mut Running), name: &str| {
        let arguments = ["run", name, "--ttl", "3s", "--leave-daemons", "--", "sh", "-c", &script];
        let mut running = cli.start(&arguments);
        let [far, near] = ["far ", "near "].map(|begin| running.until_tells(begin).parse::<u32>().unwrap());
        ends(&mut running);
        until("run has ended", || !lives(running.pid()));
        until("what stayed in the group is gone", || !lives(near));
        assert!(lives(far), "it was to be let be");
        super::signal("KILL", far);
        running.end()
    };
    let by_itself = end(&|running| running.write("go\n"), "family/leave-end").with(5);
    assert!(by_itself.stderr.contains("(sleep)"), "{}", by_itself.stderr);
    assert!(!by_itself.stderr.contains("--leave-daemons"), "{}", by_itself.stderr);
    end(&|_| release(&cli, "family/leave-lost"), "family/leave-lost").with(79);
    // The guardian of such a `run` does not touch daemons either.
    end(&|running| running.signal("KILL"), "family/leave-killed");
    cli.call(&["elect", "family/leave", "--leave-daemons"]).with(64);
    cli.call(&["elect", "family/leave", "--leave-daemons", "--", "true"]).with(0);
}

/// The command of a nested run has a group of its own, but has not left one: `run` puts it there.
#[test]
fn p7_a_run_that_lets_daemons_be_outlives_the_commands_of_runs_inside() {
    let cli = shared();
    let daemon = "(setsid sh -c 'echo far $$; exec sleep 1000 >/dev/null 2>&1' &)";
    let stubborn = "trap \"\" TERM; echo inner $$; while :; do sleep 1000; done";
    let inner = format!("{BINARY} run family/left-inner --ttl 2m --grace 20s -- sh -c '{stubborn}'");
    let script = format!("echo group $$; {daemon}; {inner}; exit 5");
    let end = |ends: &dyn Fn(&str), name: &str| {
        let options = ["--ttl", "2m", "--grace", "300ms", "--leave-daemons"];
        let arguments = [&["run", name], &options[..], &["--", "sh", "-c", &script]].concat();
        let running = cli.start(&arguments);
        let [far, inner] = ["far ", "inner "].map(|begin| running.until_tells(begin).parse::<u32>().unwrap());
        ends(&running.until_tells("group "));
        until("run has ended", || !lives(running.pid()));
        assert!(!lives(inner), "it has outlived the lock");
        assert!(lives(far), "it was to be let be");
        super::signal("KILL", far);
        running.end()
    };
    let kill_group = |group: &str| {
        assert!(Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).status().unwrap().success());
    };
    let killed = end(&kill_group, "family/left-killed").with(128 + 9);
    assert!(!killed.stderr.contains("--leave-daemons"), "{}", killed.stderr);
    assert!(!killed.stderr.contains("could not be ended"), "{}", killed.stderr);
    end(&|_| release(&cli, "family/left-lost"), "family/left-lost").with(79);
}

#[test]
fn what_was_there_before_the_command_is_let_be() {
    let cli = shared();
    let mut shell = Command::new("sh");
    let plain = cli.command(&[]);
    shell.args(["-c", &format!("sleep 1000 & echo before $!; exec {BINARY} run family/before -- true")]);
    shell.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let shell = Running::start(shell);
    let before: u32 = shell.until_tells("before ").parse().unwrap();
    until("run has ended", || !lives(shell.pid()));
    assert!(lives(before), "it was no part of the command");
    super::signal("KILL", before);
    shell.end().with(0);
}

/// Starts a shell that runs `before`, and then becomes a `run` of this script.
fn after(cli: &Cli, before: &str, name: &str, script: &str) -> Running {
    after_in("sh", cli, before, name, script)
}

fn after_in(shell: &str, cli: &Cli, before: &str, name: &str, script: &str) -> Running {
    let mut shell = Command::new(shell);
    shell.args(["-c", &format!("{before}; exec {BINARY} run {name} -- sh -c \"$SCRIPT\"")]);
    shell.envs(cli.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("SCRIPT", script);
    Running::start(shell)
}

/// The process is reparented to `run` when its parent ends, but does not become the command's.
#[test]
fn what_was_there_before_the_command_is_let_be_even_if_its_parent_ends() {
    let cli = shared();
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("grandchild").display().to_string();
    let before = format!(
        "sh -c 'sleep 1000 >/dev/null 2>&1 & echo $! > {file}.new; mv {file}.new {file}; exec sleep 1001' &
        CHILD=$!; export CHILD; until [ -e {file} ]; do sleep 0.01; done"
    );
    let script = "kill -KILL $CHILD; while [ -e /proc/$CHILD ]; do sleep 0.01; done; exit 4";
    after(&cli, &before, "family/grandchild", script).end().with(4);
    let grandchild: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    assert!(lives(grandchild), "it was no part of the command");
    super::signal("KILL", grandchild);
}

/// Checks a process that was started before the command (with `starts`, in this shell) and starts another (with
/// `other`), which is reparented to `run` when the first one ends.
fn what_is_started_by_one_from_before_the_command_is_let_be(shell: &str, starts: &str, other: &str) {
    let cli = shared();
    let dir = tempfile::TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (go, later) = (file("go"), file("later"));
    let before = format!(
        "{starts} sh -c 'until [ -e {go} ]; do sleep 0.01; done; {other} sleep 1000 >/dev/null 2>&1 &
        echo $! > {later}.new; mv {later}.new {later}' &"
    );
    let before = format!("{before} export CHILD=$!");
    let script = format!(
        "touch {go}; until [ -e {later} ]; do sleep 0.01; done
        while [ -e /proc/$CHILD ]; do sleep 0.01; done; exit 4"
    );
    let ended = after_in(shell, &cli, &before, "family/later", &script).end().with(4);
    let later: u32 = std::fs::read_to_string(&later).unwrap().trim().parse().unwrap();
    assert!(lives(later), "it was no part of the command: {}", ended.stderr);
    super::signal("KILL", later);
}

#[test]
fn what_is_started_by_one_from_before_the_command_is_let_be_too() {
    what_is_started_by_one_from_before_the_command_is_let_be("sh", "", "");
}

#[test]
fn what_is_started_by_one_from_before_the_command_is_let_be_in_a_session_of_its_own() {
    what_is_started_by_one_from_before_the_command_is_let_be("sh", "setsid", "");
}

#[test]
fn what_is_started_by_one_from_before_the_command_is_let_be_in_a_group_of_its_own() {
    what_is_started_by_one_from_before_the_command_is_let_be("bash", "set -m;", "");
}

/// Neither its group nor its session show whose process it is, but its environment does.
#[test]
fn what_is_started_by_one_from_before_the_command_is_let_be_even_if_it_leaves_that_one() {
    what_is_started_by_one_from_before_the_command_is_let_be("sh", "", "setsid");
}

/// Other processes from before the command do not change which processes are the command's.
#[test]
fn what_left_its_group_ends_with_the_command_even_if_others_were_there_before() {
    let cli = shared();
    let script = format!("{FAR}; read _; exit 5");
    let before = "sleep 1000 >/dev/null 2>&1 & echo before $!";
    let mut running = after(&cli, before, "family/own", &script);
    let [before, far] = ["before ", "far "].map(|begin| running.until_tells(begin).parse::<u32>().unwrap());
    running.write("go\n");
    let ended = running.end().with(5);
    assert!(!lives(far), "it has outlived the lock");
    assert!(ended.stderr.contains("left processes behind"), "{}", ended.stderr);
    assert!(lives(before), "it was no part of the command");
    super::signal("KILL", before);
}

#[test]
fn those_that_end_leave_no_zombies() {
    let cli = shared();
    let orphans =
        "for how in 'exit 0' 'kill -34 $$' 'exit 1'; do (setsid sh -c \"echo orphan \\$\\$; $how\" &); done";
    let script = format!("echo up; read _; {orphans}; echo began; read _; exit 0");
    // Neither a child from before that ends first, nor a guardian that is killed, may keep others from being reaped.
    let mut running = after(&cli, "true & echo child $!", "family/zombies", &script);
    running.until_says("up");
    let child: u32 = running.until_tells("child ").parse().unwrap();
    let guardian = super::loss::guardian(running.pid());
    super::signal("KILL", guardian);
    running.write("go\n");
    let orphans = || -> Vec<u32> {
        let lines = running.stdout();
        lines.lines().filter_map(|line| line.strip_prefix("orphan ")?.parse().ok()).collect()
    };
    until("the orphans have begun", || orphans().len() == 3);
    for pid in orphans().into_iter().chain([child, guardian]) {
        let process = format!("/proc/{pid}");
        until(&format!("{process} is gone"), || !std::path::Path::new(&process).exists());
    }
    running.write("go\n");
    running.end().with(0);
}
