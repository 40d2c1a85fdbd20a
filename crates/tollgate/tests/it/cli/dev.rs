//! `tollgate dev`, a cluster in one process: the place of its data, and the files that it leaves behind.

use super::{Running, until};
use crate::cluster::BINARY;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Starts one node, on free ports; temporary directories are made in `temporary`.
fn start(temporary: &Path, more: &[&str]) -> Running {
    let mut command = Command::new(BINARY);
    command.args(["dev", "--nodes", "1", "--port-base", "0"]).args(more).env("TMPDIR", temporary);
    Running::start(command)
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_data_directory_that_is_missing_is_made_and_kept() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("not/yet");
    let dev = start(dir.path(), &["--data-dir", &data.display().to_string()]);
    until("it is ready", || dev.stdout().contains("Ctrl-C stops the cluster"));
    dev.signal("TERM");
    dev.end().with(0);
    assert!(data.join("node-1").is_dir());
}

#[test]
fn a_temporary_directory_is_removed_however_early_it_ends() {
    let dir = TempDir::new().unwrap();
    let dev = start(dir.path(), &[]);
    until("it has made its directory, and its node's", || {
        std::fs::read_dir(dir.path()).unwrap().any(|entry| entries(&entry.unwrap().path()) > 0)
    });
    dev.signal("TERM");
    dev.end();
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn a_terminal_that_closes_takes_the_directory_along_and_nohup_does_not() {
    let dir = TempDir::new().unwrap();
    let dev = start(dir.path(), &[]);
    until("it is ready", || dev.stdout().contains("Ctrl-C stops the cluster"));
    dev.signal("HUP");
    dev.end().with(0);
    assert_eq!(entries(dir.path()), 0);

    let mut nohup = Command::new("nohup");
    nohup.arg(BINARY).args(["dev", "--nodes", "1", "--port-base", "0"]).env("TMPDIR", dir.path());
    let dev = Running::start(nohup);
    until("it is ready", || dev.stdout().contains("Ctrl-C stops the cluster"));
    dev.signal("HUP");
    dev.signal("TERM");
    let ended = dev.end().with(0);
    assert_eq!(ended.stderr.matches("stopping").count(), 1, "{}", ended.stderr);
}

#[test]
fn a_port_that_is_taken_is_told_with_the_flag_that_takes_others() {
    let dir = TempDir::new().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut dev = Command::new(BINARY);
    dev.args(["dev", "--nodes", "1", "--port-base", &port]);
    let ended = super::Ended::of(&dev.env("TMPDIR", dir.path()).output().unwrap()).with(1);
    assert!(ended.stderr.contains(&port) && ended.stderr.contains("--port-base 0"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("[listen]"), "{}", ended.stderr);
}

/// As in a container: all ports are open, and clients are told the address to connect to.
#[test]
fn beyond_this_machine_it_listens_only_if_that_is_meant() {
    let dir = TempDir::new().unwrap();
    let refused = Command::new(BINARY).args(["dev", "--nodes", "1", "--listen", "0.0.0.0"]).output().unwrap();
    assert!(super::Ended::of(&refused).with(64).stderr.contains("add --insecure"));
    let dev = start(dir.path(), &["--listen", "0.0.0.0", "--insecure", "--advertise", "localhost"]);
    until("it is ready", || dev.stdout().contains("Ctrl-C stops the cluster"));
    let endpoint = dev.until_tells("export TOLLGATE_ENDPOINTS=");
    assert!(endpoint.starts_with("http://localhost:"), "{endpoint}");
    let members = super::Cli::at(endpoint.clone()).call(&["member", "ls", "-o", "json"]).with(0).json();
    assert_eq!(members[0]["client_address"].as_str(), endpoint.strip_prefix("http://"));
    dev.signal("TERM");
    dev.end().with(0);
}

#[test]
fn a_temporary_directory_is_removed_though_a_second_signal_insists() {
    let dir = TempDir::new().unwrap();
    let dev = start(dir.path(), &[]);
    until("it is ready", || dev.stdout().contains("Ctrl-C stops the cluster"));
    dev.signal("INT");
    until("it stops", || dev.stderr().contains("stopping"));
    // The process may have ended by now.
    let _ = Command::new("kill").args(["-INT", &dev.pid().to_string()]).output();
    dev.end();
    assert_eq!(entries(dir.path()), 0);
}
