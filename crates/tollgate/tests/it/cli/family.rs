//! What a command started and that left its process group: it ends with the command, and before the lock does.

use super::{Cli, Running, lives, shared, until};
use crate::cluster::BINARY;
use std::process::Command;

/// Starts something in a session of its own, without a parent that would wait for it.
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
    // It must have begun: what a shell has only been asked to start is still in the group.
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

/// Some programs take a second SIGTERM for an order to drop everything.
#[test]
fn nobody_is_asked_twice() {
    let cli = shared();
    let inner = "trap \"echo asked inner\" TERM; echo up inner; while :; do sleep 0.01; done";
    let job = "trap \"echo asked job\" TERM; echo up job; while :; do sleep 0.01; done";
    let script = format!(
        "trap : TERM; {BINARY} run family/inner -- sh -c '{inner}' &
        timeout 1000 sh -c '{job}' & while :; do wait; done"
    );
    let running = start(&cli, "family/asked", &script);
    running.until_says("up inner");
    running.until_says("up job");
    release(&cli, "family/asked");
    let ended = running.end().with(79);
    for who in ["asked inner", "asked job"] {
        assert_eq!(ended.stdout.lines().filter(|line| *line == who).count(), 1, "{who}: {}", ended.stdout);
    }
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

#[test]
fn orphans_that_end_leave_no_zombies() {
    let cli = shared();
    let script = "for n in 1 2 3 4 5; do (setsid sh -c 'exit 0' &); done; echo up; read _; exit 0";
    let mut running = start(&cli, "family/zombies", script);
    running.until_says("up");
    let run = running.pid().to_string();
    until("no zombie is left", || {
        let processes = Command::new("ps").args(["-o", "stat=", "--ppid", &run]).output().unwrap();
        !String::from_utf8_lossy(&processes.stdout).contains('Z')
    });
    running.write("go\n");
    running.end().with(0);
}
