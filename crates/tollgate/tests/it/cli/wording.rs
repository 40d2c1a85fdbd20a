//! Messages about mistakes: in the words of the user, with advice.

use super::{Cli, shared, until};
use crate::cluster::{BINARY, Cluster, Making};
use std::process::Command;

const RTL: &str = "wording/\u{202e}sboj";

#[test]
fn mistakes_are_told_in_the_words_of_whoever_made_them() {
    let cli = shared();
    for (arguments, code, says) in [
        (&["run", "", "--", "true"][..], 64, "the lock's name is empty"),
        (&["get", ""], 64, "the lock's name is empty"),
        (&["watch", ""], 64, "the lock's name is empty"),
        (&["elect", "", "--leader"], 64, "the lock's name is empty"),
        (
            &["run", "x", "--ttl", "1h", "--", "true"],
            64,
            "ttl of 1h is out of range: it must be from 100ms to 10m",
        ),
        (&["run", "x", "--keepalive", "20s", "--", "true"], 64, "give from 50ms to 15s"),
        (
            &["release", "--force", "wording/free", "--token", "5", "--reason", "x"],
            1,
            "nobody holds wording/free",
        ),
        (&["unlock", "wording/free", "--token", "5"], 1, "nobody holds wording/free with token 5"),
        (&["lease", "keep-alive", "L-0000000000000099"], 79, "has ended, or never was"),
        (&["lease", "ttl", "0000000000000099"], 64, "write L-0000000000000099"),
        (&["lease", "revoke", "153"], 64, "L-0000000000000099 if they are decimal"),
        (&["ls", "--watch", "5"], 64, "5 has no unit: write 5s or 5ms"),
        (&["ls", "--watch=soon"], 64, "500ms, 30s, 5m"),
    ] {
        let ended = cli.call(arguments).with(code);
        assert!(ended.stderr.contains(says), "{arguments:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("bad field"), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn a_busy_lock_that_is_no_failure_is_no_error() {
    let cli = shared();
    let holder = cli.start(&["run", "wording/busy", "--", "sh", "-c", "echo up; read _; exit 0"]);
    holder.until_says("up");
    let told = cli.call(&["run", "wording/busy", "--try", "-E", "0", "--", "false"]).with(0);
    assert!(told.stderr.starts_with("tollgate: wording/busy is busy"), "{}", told.stderr);
    let quiet = cli.call(&["run", "-q", "wording/busy", "--try", "-E", "0", "--", "false"]).with(0);
    assert_eq!(quiet.stderr, "");
    let failed = cli.call(&["run", "-q", "wording/busy", "--try", "--", "false"]).with(75);
    assert!(failed.stderr.starts_with("error: "), "{}", failed.stderr);
    holder.end().with(0);
}

/// Both spellings mean the same, and a name is never taken for a span.
#[test]
fn a_span_may_follow_its_flag() {
    let cli = shared();
    for arguments in [
        &["get", "--watch", "50ms", "wording/again"][..],
        &["get", "--watch=50ms", "wording/again"],
        &["get", "wording/again", "-w", "50ms"],
        &["get", "--watch", "wording/again"],
    ] {
        let watching = cli.start(arguments);
        until("it is shown again", || watching.stdout().matches("wording/again is free").count() > 1);
    }
    let watching = cli.start(&["ls", "--watch", "50ms", "wording/again"]);
    until("it says so again", || watching.stderr().matches("nobody holds").count() > 1);
}

#[test]
fn names_can_not_turn_round_the_lines_that_they_stand_in() {
    let cli = shared();
    let holder = cli.start(&["run", RTL, "--why", "a\u{202e}b", "--", "sh", "-c", "echo up; read _; exit 0"]);
    holder.until_says("up");
    let watch = cli.start(&["watch", RTL, "--from", "1"]);
    until("the grant is told", || watch.stdout().ends_with('\n'));
    let told = [
        cli.call(&["ls", "wording/\u{202e}"]).with(0).stdout,
        cli.call(&["get", RTL]).with(0).stdout,
        cli.call(&["explain", RTL]).with(0).stdout,
        cli.call(&["run", RTL, "--try", "--", "true"]).with(75).stderr,
        watch.stdout(),
    ];
    for text in told {
        assert!(text.contains("wording/\\u{202e}sboj") && !text.contains('\u{202e}'), "{text:?}");
    }
    let json = cli.call(&["get", RTL, "-o", "json"]).with(0).json();
    assert_eq!((&json["name"], &json["holders"][0]["why"]), (&RTL.into(), &"a\u{202e}b".into()));
    holder.end().with(0);
}

#[test]
fn a_watch_says_when_and_who() {
    let cli = shared();
    let holder = cli.start(&["run", "wording/who", "--", "sh", "-c", "echo up; read _; exit 0"]);
    holder.until_says("up");
    let watch = cli.start(&["watch", "wording/who", "--from", "1"]);
    until("the grant is told", || watch.stdout().ends_with('\n'));
    let json = cli.start(&["watch", "wording/who", "--from", "1", "-o", "jsonl"]);
    until("the grant is told", || json.stdout().ends_with('\n'));
    let line = watch.stdout();
    assert!(line.contains(&format!(":{}", holder.pid())), "{line}");
    let time: Vec<&str> = line.split_once("Z ").unwrap().0.split(':').collect();
    assert!(time.len() == 3 && time.iter().all(|part| part.len() == 2), "{line}");
    let told: serde_json::Value = serde_json::from_str(&json.stdout()).unwrap();
    assert!(told["client_id"].as_str().unwrap().ends_with(&format!(":{}", holder.pid())), "{told}");
    assert!(told["told_unix_ms"].is_u64(), "{told}");
    holder.end().with(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_port_is_told_from_a_cluster_that_is_down() {
    let cluster = Cluster::start(Making::nodes(1)).await;
    let ports = cluster.nodes[0].ports;
    let at = |port: u16| Cli::at(format!("http://127.0.0.1:{port}"));
    let http = at(ports.http).call(&["ls"]).with(69);
    assert!(http.stderr.contains("this looks like the HTTP port"), "{}", http.stderr);
    let peer = at(ports.peer).call(&["ls"]).with(69);
    assert!(peer.stderr.contains("the port for the other nodes"), "{}", peer.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_asks_a_node_and_says_why_it_is_not_well() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    let http = format!("127.0.0.1:{}", cluster.nodes[0].ports.http);
    let cli = Cli::at(cluster.endpoints().join(","));
    assert_eq!(cli.call(&["health", "--http", &http]).with(0).stdout, "ready\n");
    assert_eq!(cli.call(&["health", "--live", "--http", &http]).with(0).stdout, "live\n");
    let of_container = cli.command(&["health"]).env("TOLLGATE_LISTEN_HTTP", &http).output().unwrap();
    assert!(of_container.status.success());
    let client = format!("127.0.0.1:{}", cluster.nodes[0].ports.client);
    let wrong = cli.call(&["health", "--http", &client]).with(1);
    assert!(wrong.stderr.contains("HTTP port"), "{}", wrong.stderr);
    cluster.nodes[0].signal("STOP");
    let silent = cli.call(&["health", "--http", &http, "--timeout", "200ms"]).with(1);
    assert!(silent.stderr.contains("not answered within 200ms"), "{}", silent.stderr);
    cluster.nodes[0].kill();
    let gone = cli.call(&["health", "--http", &http]).with(1);
    assert!(gone.stderr.starts_with("error: not ready: "), "{}", gone.stderr);
}

#[test]
fn help_fits_a_narrow_terminal_and_its_examples_stay_whole() {
    for command in ["member add", "run", "server", "lock"] {
        let mut help = Command::new(BINARY);
        let help = help.env("COLUMNS", "60").args(command.split(' ')).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        let (text, examples) = help.split_once("Examples:\n").unwrap();
        assert!(examples.lines().all(|line| line.starts_with("  ") || line.is_empty()), "{help}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{help}");
        assert!(!help.contains('\u{a0}'));
    }
}
