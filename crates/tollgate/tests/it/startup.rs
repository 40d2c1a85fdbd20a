//! Conditions under which a node must not start: wrong flags, a wrong configuration, a data directory that is not its
//! own.

use crate::cluster::{self, BINARY, Cluster, Making};
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = Command::new(BINARY).args(arguments).output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn a_wrong_flag_ends_with_64_and_is_named() {
    for (arguments, names) in [
        (&["server", "--node-idd", "1"][..], "--node-idd"),
        (&["server", "--node-id"], "--node-id"),
        (&["serve"], "serve"),
        (&["dev", "--nodes", "0"], "--nodes"),
        (&["dev", "--port-base", "70000"], "--port-base"),
        (&[], "Usage"),
    ] {
        let (code, says) = run(arguments);
        assert_eq!(code, Some(64), "{arguments:?}: {says}");
        assert!(says.contains(names), "{arguments:?}: {says}");
    }
}

#[test]
fn a_wrong_configuration_ends_with_78_and_names_the_flag_or_the_line() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("tollgate.toml");
    let file = path.display().to_string();
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    let (code, says) = run(&["server", "--node-id", "zero"]);
    assert_eq!(code, Some(78), "{says}");
    assert!(says.contains("--node-id") && says.contains("zero"), "{says}");
    assert!(!says.contains("error: error"), "{says}");
    let checks = [
        ("[node]\nid = 1\n\n[listne]\nclient = 1\n", ":4:", "did you mean [listen]"),
        ("[node]\nid = \"one\"\n", ":2:", "node.id"),
        ("[node\n", ":1:", "TOML"),
        ("[raft]\nheartbeat_ms = 1000\nelection_timeout_ms = 1000\n", ":3:", "raft.heartbeat_ms"),
        ("[listen]\nclient = \"0.0.0.0:7400\"\n", ":2:", "listen.insecure"),
    ];
    // The other required settings, so that the rules between settings are checked too.
    let members = r#"[{id = 1, peer = "127.0.0.1:1", client = "127.0.0.1:2"}]"#;
    let rest = ["--node-data-dir", "/nowhere", "--cluster-name", "it", "--cluster-members", members];
    for (text, line, names) in checks {
        write(text);
        let id = if text.contains("id =") { &[][..] } else { &["--node-id", "1"] };
        for command in [&["server"][..], &["config", "check"]] {
            let (code, says) = run(&[command, &["--config", &file], id, &rest].concat());
            assert_eq!(code, Some(78), "{text}: {says}");
            assert!(says.contains(&format!("{file}{line}")), "{text}: {says}");
            assert!(says.contains(names), "{text}: {says}");
        }
    }
    let (code, says) = run(&["server", "--config", "/nowhere/tollgate.toml"]);
    assert_eq!(code, Some(78), "{says}");
    assert!(says.contains("/nowhere/tollgate.toml"), "{says}");
}

#[tokio::test(flavor = "multi_thread")]
async fn p17_without_insecure_a_node_listens_on_loopback_only() {
    let cluster = Cluster::prepare(&Making::nodes(1)).await;
    for flag in ["--listen-client", "--listen-peer", "--listen-http"] {
        let arguments = with(cluster.nodes[0].arguments(), &[(flag, "0.0.0.0:0".to_owned())]);
        let says = refused(&arguments, &["--bootstrap"]);
        assert!(says.contains("listen.insecure") && says.contains("0.0.0.0:0"), "{says}");
    }
}

/// Starts a node with these arguments, which must be refused; returns its message.
fn refused(arguments: &[String], more: &[&str]) -> String {
    let mut command = Command::new("timeout");
    let Output { status, stderr, .. } =
        command.args(["10", BINARY, "server"]).args(arguments).args(more).output().unwrap();
    let says = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success() && status.code() != Some(124), "it was not refused: {status}\n{says}");
    says
}

/// Returns the arguments of a node with other values for some flags.
fn with(arguments: &[String], others: &[(&str, String)]) -> Vec<String> {
    let mut changed = arguments.to_vec();
    for (flag, value) in others {
        let place = changed.iter().position(|argument| argument == flag).unwrap();
        changed[place + 1].clone_from(value);
    }
    changed
}

fn other_ports() -> Vec<(&'static str, String)> {
    let local = || format!("127.0.0.1:{}", crate::ports::take());
    vec![("--listen-client", local()), ("--listen-peer", local()), ("--listen-http", local())]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_the_same_data_directory_is_refused_and_the_first_lives_on() {
    let mut cluster = cluster::three().await;
    let arguments = with(cluster.nodes[0].arguments(), &other_ports());
    for more in [&[][..], &["--bootstrap"]] {
        let says = refused(&arguments, more);
        assert!(says.contains("used by another process"), "{says}");
    }
    assert!(cluster.nodes[0].exited().is_none());
    cluster.until_ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_named() {
    let cluster = Cluster::start(Making::nodes(1)).await;
    let dir = cluster.dir.path().join("another").display().to_string();
    let arguments = with(cluster.nodes[0].arguments(), &[("--node-data-dir", dir.clone())]);
    let says = refused(&arguments, &["--bootstrap"]);
    assert!(says.contains(&format!("127.0.0.1:{}", cluster.nodes[0].ports.client)), "{says}");
    // Nothing was founded for a node that could not listen.
    assert!(!std::path::Path::new(&dir).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_directory_without_bootstrap_is_refused_and_stays_empty() {
    let cluster = Cluster::prepare(&Making::nodes(1)).await;
    let node = &cluster.nodes[0];
    for exists in [false, true] {
        if exists {
            std::fs::create_dir(&node.data_dir).unwrap();
        }
        let says = refused(node.arguments(), &[]);
        assert!(says.contains(&node.data_dir.display().to_string()), "{says}");
        assert!(says.contains("bootstrap"), "{says}");
        assert_eq!(node.data_dir.exists(), exists);
    }
    assert_eq!(std::fs::read_dir(&node.data_dir).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_another_node_cluster_or_program_is_refused() {
    let mut cluster = cluster::three().await;
    cluster.nodes[0].kill();
    let own = cluster.nodes[0].arguments().to_vec();
    let of_another = cluster.nodes[0].data_dir.display().to_string();
    cluster.nodes[1].kill();
    let node = with(cluster.nodes[1].arguments(), &[("--node-data-dir", of_another)]);
    for more in [&[][..], &["--bootstrap"]] {
        let says = refused(&node, more);
        assert!(says.contains("belongs to node 1, not 2"), "{says}");
        let says = refused(&with(&own, &[("--cluster-name", "other".to_owned())]), more);
        assert!(says.contains("belongs to cluster"), "{says}");
    }
    let strangers = cluster.dir.path().join("strangers");
    std::fs::create_dir(&strangers).unwrap();
    std::fs::write(strangers.join("thesis.txt"), "do not lose").unwrap();
    let foreign = with(&own, &[("--node-data-dir", strangers.display().to_string())]);
    for more in [&[][..], &["--bootstrap"]] {
        let says = refused(&foreign, more);
        assert!(says.contains(&strangers.display().to_string()), "{says}");
    }
    assert_eq!(std::fs::read_dir(&strangers).unwrap().count(), 1);
    // The refused starts did not damage the directories.
    cluster.restart(0);
    cluster.restart(1);
    cluster.until_ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_founded_without_being_started_and_only_once() {
    let mut cluster = Cluster::prepare(&Making::nodes(2)).await;
    let found = |node: &cluster::Node| {
        let arguments = [&["server".to_owned()], node.arguments(), &["--bootstrap-only".to_owned()]].concat();
        let Output { status, stdout, stderr } = Command::new(BINARY).args(arguments).output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    };
    for node in &cluster.nodes {
        assert!(found(node).contains("is founded"));
        assert!(found(node).contains("nothing was changed"));
    }
    cluster.restart(0);
    cluster.restart(1);
    cluster.until_ready().await;
    assert!(found(&cluster.nodes[0]).contains("nothing was changed"), "also while it runs");
    let other = with(cluster.nodes[0].arguments(), &[("--cluster-name", "other".to_owned())]);
    cluster.nodes[0].kill();
    let says = refused(&other, &["--bootstrap-only"]);
    assert!(says.contains("belongs to cluster"), "{says}");
}

/// A server has nothing to reload, and no terminal to lose.
#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_is_logged_and_ends_no_server() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    cluster.add_gateway(0, &[]).await;
    cluster.nodes[0].signal("HUP");
    cluster.gateways[0].signal("HUP");
    cluster::until("both have said so", || async {
        [&cluster.nodes[0], &cluster.gateways[0]].iter().all(|node| node.log().contains("SIGHUP"))
    })
    .await;
    assert!(cluster.nodes[0].exited().is_none() && cluster.gateways[0].exited().is_none());
    cluster.until_ready().await;
}
