//! Runs on a terminal: the command owns the terminal, Ctrl-C reaches it, and Ctrl-Z stops the job. `script` makes the
//! terminals.

use super::{Running, shared};
use crate::cluster::BINARY;
use std::process::Command;

/// Starts a command line on a terminal of its own; text written to the process is typed there.
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
    // The line has no line end while it changes: the end of the wait terminates it.
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
    // 128 + SIGSTOP, as a shell reports a stopped job.
    terminal.until_says("stopped 147");
    assert_eq!(cli.counts("terminal/stop"), (1, 0));
    terminal.write("hello\n");
    terminal.until_says("got hello");
    terminal.until_says("ended 6");
    terminal.end().with(0);
}

/// TTL of a job that loses its lease while it is stopped: short, and long enough for the job to be stopped before, also
/// on a machine where keepalives are late.
const TTL: &str = "4s";

/// A shell script that does nothing for ever in one process that receives signals. A script that starts programs, say
/// `sleep`, may be stopped in the middle of that: its child is stopped before it has become the other program, and a
/// parent that waits for it in vfork(2) can't be stopped, so that its own parent is never told that the job is stopped.
const IDLE: &str = "while :; do read nothing; done";

/// Starts a job of a shell on a terminal, and stops it with Ctrl-Z. A line typed after that resumes it in the
/// foreground.
fn stopped_job(cli: &super::Cli, line: &str) -> Running {
    let line = line.replace('\'', "'\\''");
    let shell =
        format!("bash --norc --noprofile -c 'set -m; {line}; echo stopped $?; read x; fg; echo ended $?'");
    let mut terminal = on_a_terminal(cli, &shell);
    terminal.until_says("up");
    terminal.write("\u{1a}");
    terminal.until_says("stopped 147");
    terminal
}

/// The job may neither go on without being told, nor stay stopped for ever.
#[test]
fn a_job_that_is_only_told_of_a_loss_is_told_when_it_goes_on_after_one() {
    let cli = shared();
    let name = "terminal/notify";
    let script = format!("trap \"echo told; exit 8\" USR1; echo up; {IDLE}");
    let line = format!("{BINARY} run {name} --ttl {TTL} --on-lost notify -- sh -c '{script}'");
    let mut terminal = stopped_job(&cli, &line);
    cli.until_counts(name, (0, 0));
    terminal.write("go\n");
    terminal.until_says("told");
    terminal.until_says("ended 8");
    terminal.end().with(0);
}

/// So little time is left that with `--on-lost term` the job would be asked to end: one that is never asked may go on.
#[test]
fn a_job_that_is_not_asked_to_end_goes_on_before_its_last_moment() {
    let cli = shared();
    let name = "terminal/kill";
    let script = "echo up; read x; echo got $x; exit 6";
    let line = format!("{BINARY} run {name} --ttl 12s --on-lost kill -- sh -c '{script}'");
    let mut terminal = stopped_job(&cli, &line);
    let lock = cli.call(&["get", name, "-o", "json"]).with(0).json();
    let lease = lock["holders"][0]["lease_id"].as_str().unwrap().to_owned();
    let lease = cli.call(&["lease", "ttl", &lease, "-o", "json"]).with(0).json();
    let left_ms = lease["remaining_ms"].as_u64().unwrap();
    // The job would be asked two and a half seconds before the end, and killed half a second before.
    std::thread::sleep(std::time::Duration::from_millis(left_ms.saturating_sub(2_200)));
    terminal.write("go\n");
    terminal.write("hello\n");
    terminal.until_says("got hello");
    terminal.until_says("ended 6");
    terminal.end().with(0);
}

/// A job that must be asked to end is asked, and receives the signal.
#[test]
fn a_job_that_lost_its_lock_while_it_stood_still_is_ended_when_it_goes_on() {
    let cli = shared();
    for on_lost in ["term", "kill"] {
        let name = format!("terminal/{on_lost}-lost");
        let script = format!("echo up; {IDLE}");
        let line = format!("{BINARY} run {name} --ttl {TTL} --on-lost {on_lost} -- sh -c '{script}'");
        let mut terminal = stopped_job(&cli, &line);
        cli.until_counts(&name, (0, 0));
        terminal.write("go\n");
        terminal.until_says("ended 79");
        let said = terminal.end().with(0).stdout;
        assert!(
            said.contains("stood still") && !said.contains("answer"),
            "the cluster is not to blame: {said}"
        );
    }
}

/// While its command has the terminal, `run` is in the background.
#[test]
fn what_run_says_does_not_stop_it_on_a_terminal_that_stops_who_writes_from_the_background() {
    let cli = shared();
    let name = "terminal/tostop";
    let script = "trap \"exit 0\" TERM; echo up; while :; do sleep 0.01; done";
    let line = format!("{BINARY} run {name} -- sh -c '{script}'").replace('\'', "'\\''");
    let shell = format!("bash --norc --noprofile -c 'set -m; stty tostop; {line}; echo ended $?'");
    let terminal = on_a_terminal(&cli, &shell);
    terminal.until_says("up");
    let token = cli.token(name);
    cli.call(&["release", "--force", name, "--token", &token, "--reason", "for a test"]).with(0);
    assert_eq!(terminal.until_tells("ended "), "79");
    let ended = terminal.end().with(0);
    assert!(ended.stdout.contains("lock lost"), "{}", ended.stdout);
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

/// Two runs that want the terminal, in the background of a script: each gets it in turn.
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

/// Under a shell that would notice if the outer `run` stopped, which has nothing to wait for.
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

/// On a terminal of 80 columns.
#[test]
fn what_people_read_fits_their_terminal() {
    let cli = shared();
    let name = "terminal/a-lock-with-a-name-that-is-rather-long";
    let why = "a reason that takes more room than there is on the line of a terminal";
    let holder = cli.start(&["run", name, "--why", why, "--", "sh", "-c", "echo up; read _; exit 0"]);
    holder.until_says("up");
    let waiter = cli.start(&["run", name, "--", "true"]);
    cli.until_counts(name, (1, 1));
    let watch = format!("timeout 3 {BINARY} watch {name} --from 1");
    let wait = format!("{BINARY} run {name} --wait 3s -- true");
    for command in [
        &format!("{BINARY} explain {name}"),
        &format!("{BINARY} status"),
        &format!("{BINARY} get {name}"),
        &format!("{BINARY} ls terminal/"),
        &watch,
        &wait,
    ] {
        let ended = on_a_terminal(&cli, &format!("stty cols 80; {command}")).end();
        let plain = without_colours(&ended.stdout);
        assert!(plain.contains("terminal/a-lock") || command.ends_with("status"), "{command}: {plain}");
        for line in plain.split(['\r', '\n']) {
            // Hints and commands to be pasted stay whole.
            let whole =
                line.starts_with("  tollgate ") || line.starts_with("hint: ") || line.starts_with("error: ");
            assert!(whole || line.chars().count() <= 80, "{command}: {line:?} has {}", line.chars().count());
        }
    }
    holder.end().with(0);
    waiter.end().with(0);
}

fn without_colours(text: &str) -> String {
    let mut plain = String::new();
    let mut parts = text.split("\u{1b}[");
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        plain.push_str(
            part.split_once(|letter: char| letter.is_ascii_alphabetic()).map_or("", |(_, rest)| rest),
        );
    }
    plain
}
