//! The exit codes of `run`, each as documented. 77 is in `denied`, 79 in `loss`.

use super::{Cli, shared};
use crate::ports;

#[test]
fn the_exit_code_is_the_commands_own() {
    let cli = shared();
    for code in [0, 1, 3, 75, 255] {
        cli.call(&["run", "exits/own", "--", "sh", "-c", &format!("exit {code}")]).with(code);
    }
    assert_eq!(cli.counts("exits/own"), (0, 0));
}

#[test]
fn a_command_that_a_signal_ended_is_128_and_its_number() {
    let cli = shared();
    cli.call(&["run", "exits/signal", "--", "sh", "-c", "kill -KILL $$"]).with(128 + 9);
    cli.call(&["run", "exits/signal", "--", "sh", "-c", "kill -TERM $$"]).with(128 + 15);
    // A signal without a name: the first real-time signal.
    cli.call(&["run", "exits/signal", "--", "sh", "-c", "kill -34 $$"]).with(128 + 34);
}

#[test]
fn wrong_usage_is_64_and_says_what_is_right() {
    let cli = shared();
    for (arguments, advice) in [
        (&["run", "x"][..], "COMMAND"),
        (&["run", "x", "--ttl", "30", "--", "true"], "30 has no unit: write 30s or 30ms"),
        (&["run", "x", "--ttl", "1w", "--", "true"], "use ms, s, m, h or d"),
        (&["run", "x", "--permits", "3", "--", "true"], "such as 1/3"),
        (&["run", "x", "--permits", "3/2", "--", "true"], "from 1 to 2"),
        (&["run", "x", "--try", "--wait", "1s", "--", "true"], "cannot be used with"),
        (&["run", "x", "--shared", "--permits", "1/2", "--", "true"], "cannot be used with"),
        (&["run", "x", "--grace", "6s", "--", "true"], "give at most 5s"),
        (&["run", "x", "--ttl", "1ms", "--", "true"], "out of range"),
        (&["run", &"x".repeat(513), "--", "true"], "512"),
        (&["run", "x", "--on-lost", "pray", "--", "true"], "term, kill, notify"),
        (&["runn"], "run"),
    ] {
        let ended = cli.call(arguments).with(64);
        assert!(ended.stderr.contains(advice), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn a_cluster_that_can_not_be_reached_is_69_and_says_where_it_was_looked_for() {
    let nowhere = format!("http://127.0.0.1:{}", ports::take());
    let ended = Cli::at(nowhere.clone()).call(&["run", "x", "--", "true"]).with(69);
    assert!(ended.stderr.contains(&nowhere) && ended.stderr.contains("tollgate dev"), "{}", ended.stderr);
    // A flag wins over the environment, before the command and after it.
    let cli = shared();
    cli.call(&["--endpoints", &nowhere, "run", "x", "--", "true"]).with(69);
    cli.call(&["run", "--endpoints", &nowhere, "x", "--", "true"]).with(69);
}

#[test]
fn a_busy_lock_is_75_or_what_the_caller_says_and_names_the_holder() {
    let cli = shared();
    let holder =
        cli.start(&["run", "exits/busy", "--why", "all mine", "--", "sh", "-c", "echo up; read _; exit 0"]);
    holder.until_says("up");
    let busy = cli.call(&["run", "exits/busy", "--try", "--", "true"]).with(75);
    assert!(busy.stderr.contains(&format!(":{}", holder.pid())), "{}", busy.stderr);
    assert!(busy.stderr.contains("all mine") && busy.stderr.contains("tollgate explain"), "{}", busy.stderr);
    cli.call(&["run", "exits/busy", "--try", "-E", "0", "--", "false"]).with(0);
    cli.call(&["run", "exits/busy", "--wait", "3s", "--", "true"]).with(75);
    cli.call(&["run", "exits/busy", "--wait", "3s", "-E", "9", "--", "true"]).with(9);
    cli.call(&["lock", "exits/busy", "--try"]).with(75);
    assert_eq!(cli.counts("exits/busy"), (1, 0), "nobody is left in the queue");
    holder.end().with(0);
    cli.call(&["run", "exits/busy", "--try", "--", "true"]).with(0);
}

#[test]
fn readers_share_and_permits_are_counted() {
    let cli = shared();
    let reader = cli.start(&["run", "exits/shared", "--shared", "--", "sh", "-c", "echo up; read _; exit 0"]);
    reader.until_says("up");
    cli.call(&["run", "exits/shared", "--shared", "--try", "--", "true"]).with(0);
    cli.call(&["run", "exits/shared", "--try", "--", "true"]).with(75);
    let two =
        cli.start(&["run", "exits/permits", "--permits", "2/3", "--", "sh", "-c", "echo up; read _; exit 0"]);
    two.until_says("up");
    cli.call(&["run", "exits/permits", "--permits", "1/3", "--try", "--", "true"]).with(0);
    cli.call(&["run", "exits/permits", "--permits", "2/3", "--try", "--", "true"]).with(75);
    reader.end().with(0);
    two.end().with(0);
}

#[test]
fn a_command_that_is_not_there_is_127_and_one_that_can_not_run_126_and_the_lock_is_free_after() {
    let cli = shared();
    let ended = cli.call(&["run", "exits/none", "--", "no-such-command"]).with(127);
    assert!(ended.stderr.contains("PATH"), "{}", ended.stderr);
    cli.call(&["run", "exits/none", "--", "/no/such/command"]).with(127);
    cli.call(&["run", "exits/none", "--", "/"]).with(126);
    cli.call(&["run", "exits/none", "--", "/etc/passwd"]).with(126);
    assert_eq!(cli.counts("exits/none"), (0, 0));
}
