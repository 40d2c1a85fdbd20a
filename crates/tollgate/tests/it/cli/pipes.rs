//! Readers that go away: a command that waits for more to print ends at once, and releases its locks.

use super::{Cli, shared, until};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// Starts a command, reads one line of its output, and closes the pipe.
fn read_one_line(cli: &Cli, arguments: &[&str]) -> (Child, String) {
    let mut child = cli.command(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

fn ends_as_by_sigpipe(cli: &Cli, arguments: &[&str]) -> String {
    let (mut child, line) = read_one_line(cli, arguments);
    let mut ended = None;
    until(&format!("{arguments:?} has ended"), || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(128 + 13), "{arguments:?}");
    line
}

#[test]
fn a_lock_whose_reader_went_away_is_given_back() {
    let cli = shared();
    let line = ends_as_by_sigpipe(&cli, &["lock", "pipes/lock", "--ttl", "10m", "-o", "jsonl"]);
    assert!(line.contains("fencing_token"), "{line}");
    assert_eq!(cli.counts("pipes/lock"), (0, 0));
    ends_as_by_sigpipe(&cli, &["elect", "pipes/elect", "--ttl", "10m"]);
    cli.call(&["elect", "pipes/elect", "--leader"]).with(1);
}

#[test]
fn what_tells_of_changes_ends_with_its_reader_and_not_with_the_next_change() {
    let cli = shared();
    cli.call(&["run", "pipes/watch", "--", "true"]).with(0);
    let lease = cli.call(&["lease", "grant", "--ttl", "5m"]).with(0).stdout.trim().to_owned();
    for arguments in [
        &["watch", "pipes/watch", "--from", "1"][..],
        &["elect", "pipes/observe", "--observe"],
        &["lease", "keep-alive", &lease],
        &["status", "--watch", "1h", "-o", "jsonl"],
        &["get", "--watch", "1h", "pipes/watch"],
    ] {
        ends_as_by_sigpipe(&cli, arguments);
    }
    cli.call(&["lease", "revoke", &lease]).with(0);
}
