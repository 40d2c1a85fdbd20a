//! A cluster in one process: where it keeps its data, and what it leaves behind.

use super::{Running, until};
use crate::cluster::BINARY;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// One node, on free ports; temporary directories are made in `temporary`.
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
fn a_temporary_directory_is_removed_though_a_second_signal_insists() {
    let dir = TempDir::new().unwrap();
    let dev = start(dir.path(), &[]);
    until("it is ready", || dev.stdout().contains("Ctrl-C stops the cluster"));
    dev.signal("INT");
    until("it stops", || dev.stderr().contains("stopping"));
    // It may have ended by now.
    let _ = Command::new("kill").args(["-INT", &dev.pid().to_string()]).output();
    dev.end();
    assert_eq!(entries(dir.path()), 0);
}
