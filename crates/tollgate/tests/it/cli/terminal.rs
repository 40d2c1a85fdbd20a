//! On a terminal: the command has it, Ctrl-C reaches it, and Ctrl-Z stops the job. `script` makes the terminals.

use super::{Running, shared};
use crate::cluster::BINARY;
use std::process::Command;

/// A command line on a terminal of its own; what is written to it is typed.
fn on_a_terminal(cli: &super::Cli, line: &str) -> Running {
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", line, "/dev/null"]);
    let plain = cli.command(&[]);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.env("TERM", "xterm").env("SHELL", "/bin/sh").env_remove("NO_COLOR");
    Running::start(script)
}

#[test]
fn the_command_is_in_the_foreground_and_reads_the_keyboard() {
    let cli = shared();
    let line = format!(
        "{BINARY} run terminal/read -- sh -c 'echo stat $(ps -o stat= -p $$); read x; echo got $x; exit 6'"
    );
    let mut terminal = on_a_terminal(&cli, &line);
    let stat = terminal.until_tells("stat ");
    assert!(stat.contains('+'), "it is in the background: {stat}");
    terminal.write("hello\n");
    terminal.until_says("got hello");
    terminal.end().with(6);
}

#[test]
fn ctrl_c_reaches_the_command_and_not_only_run() {
    let cli = shared();
    let line = format!(
        "{BINARY} run terminal/int -- sh -c 'trap \"echo int; exit 9\" INT; echo up; while :; do sleep 0.01; done'"
    );
    let mut terminal = on_a_terminal(&cli, &line);
    terminal.until_says("up");
    terminal.write("\u{3}");
    terminal.end().with(9);
}

#[test]
fn ctrl_c_ends_a_wait_and_the_wait_is_told() {
    let cli = shared();
    let holder =
        cli.start(&["run", "terminal/wait", "--why", "tests", "--", "sh", "-c", "echo up; read _; exit 0"]);
    holder.until_says("up");
    let mut terminal = on_a_terminal(&cli, &format!("{BINARY} run terminal/wait -- true"));
    cli.until_counts("terminal/wait", (1, 1));
    // The line has no end while it changes: what makes it one is the end.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    terminal.write("\u{3}");
    let ended = terminal.end().with(130);
    assert!(ended.stdout.contains("waiting for terminal/wait: held by"), "{:?}", ended.stdout);
    assert!(ended.stdout.contains("position 1 of 1"), "{:?}", ended.stdout);
    holder.end().with(0);
}

#[test]
fn ctrl_z_stops_the_job_and_fg_takes_it_up_again() {
    let cli = shared();
    let line = format!("{BINARY} run terminal/stop -- sh -c 'echo up; read x; echo got $x; exit 6'");
    let shell = format!(
        "bash --norc --noprofile -c 'set -m; {}; echo stopped $?; fg; echo ended $?'",
        line.replace('\'', "'\\''")
    );
    let mut terminal = on_a_terminal(&cli, &shell);
    terminal.until_says("up");
    terminal.write("\u{1a}");
    // 128 + SIGSTOP, as a shell tells of a job that stands still.
    terminal.until_says("stopped 147");
    assert_eq!(cli.counts("terminal/stop"), (1, 0));
    terminal.write("hello\n");
    terminal.until_says("got hello");
    terminal.until_says("ended 6");
    terminal.end().with(0);
}

#[test]
fn a_job_in_the_background_that_reads_the_terminal_is_brought_back_by_fg() {
    let cli = shared();
    let line = format!("{BINARY} run terminal/back -- sh -c 'read x; echo got $x; exit 6'");
    let shell = format!(
        "bash --norc --noprofile -c 'set -m; {} & until jobs -s | grep -q .; do sleep 0.02; done; \
         echo stopped; fg; echo ended $?'",
        line.replace('\'', "'\\''")
    );
    let mut terminal = on_a_terminal(&cli, &shell);
    terminal.until_says("stopped");
    terminal.write("hello\n");
    terminal.until_says("got hello");
    terminal.until_says("ended 6");
    terminal.end().with(0);
}

/// Two that want the terminal, in the background of a script: each has it in turn.
#[test]
fn runs_inside_that_want_the_terminal_wait_for_each_other() {
    let cli = shared();
    let dir = tempfile::TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let read = file("read", "echo $1 $$; read x </dev/tty; echo got $x");
    let inner = |name: &str| format!("{BINARY} run {name} -- sh {read} {name} &\n");
    let both = file("both", &format!("{}{}wait; exit 6", inner("terminal/one"), inner("terminal/two")));
    let mut terminal = on_a_terminal(&cli, &format!("{BINARY} run terminal/around -- sh {both}"));
    let readers = ["terminal/one ", "terminal/two "].map(|begin| terminal.until_tells(begin));
    let stands_still = |pid: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains(") T ")
    };
    super::until("one stands still, for the other has the terminal", || readers.iter().any(stands_still));
    terminal.write("first\n");
    terminal.until_says("got first");
    terminal.write("second\n");
    terminal.until_says("got second");
    terminal.end().with(6);
}

/// A shell with job control gives the terminal to each job, and can't take it back if it dies with one.
fn a_terminal_is_had_again_when_its_shell_and_job_are_killed(name: &str, victims: &str, around: &str) {
    let cli = shared();
    let dir = tempfile::TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let job = file("job", "kill -KILL $* $$");
    let shell = file("shell", &format!("set -m; sh {job} {victims}; echo not reached"));
    let script = file(
        "script",
        &format!(
            "{BINARY} run {name}/inner -- bash --norc --noprofile {shell}; echo killed $?
            read x </dev/tty; echo got $x; exit 6"
        ),
    );
    let line = file("line", &format!("{around}{BINARY} run {name}/outer -- sh {script}; exit $?"));
    let mut terminal = on_a_terminal(&cli, &format!("bash --norc --noprofile {line}"));
    terminal.until_says("killed 137");
    terminal.write("hello\n");
    terminal.until_says("got hello");
    terminal.end().with(6);
}

#[test]
fn a_terminal_that_a_killed_job_had_goes_back_to_the_run_around_it() {
    a_terminal_is_had_again_when_its_shell_and_job_are_killed("terminal/killed", "$$", "");
}

#[test]
fn a_terminal_that_a_killed_job_had_is_taken_by_who_wants_it_if_the_run_around_it_was_killed_too() {
    a_terminal_is_had_again_when_its_shell_and_job_are_killed("terminal/all", "$PPID $$", "");
}

/// A shell that would notice if the outer `run` stopped, which has nothing to wait for.
#[test]
fn a_terminal_that_a_killed_job_had_is_taken_under_a_shell_too() {
    a_terminal_is_had_again_when_its_shell_and_job_are_killed("terminal/shell", "$PPID $$", "set -m; ");
}

#[test]
fn colours_are_for_terminals() {
    let cli = shared();
    let holder = cli.start(&["run", "terminal/colour", "--", "sh", "-c", "echo up; read _; exit 0"]);
    holder.until_says("up");
    let coloured = |arguments: &str| {
        let ended = on_a_terminal(&cli, &format!("{BINARY} ls terminal/colour {arguments}")).end().with(0);
        ended.stdout.contains("\u{1b}[")
    };
    assert!(coloured(""));
    assert!(!coloured("--color never"));
    assert!(!cli.call(&["ls", "terminal/colour"]).with(0).stdout.contains('\u{1b}'));
    assert!(cli.call(&["ls", "terminal/colour", "--color", "always"]).with(0).stdout.contains('\u{1b}'));
    holder.end().with(0);
}
