//! The priority of sources, and the visible origin of each value.

use super::{LEAST, load, load_with, wrongs};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tollgate_replica::{EngineConfig, HostConfig};
use tollgate_server::config::{
    CLIENT_VARIABLES, Config, ConfigFile, KEYS, Loaded, LogFormat, Origin, Sources,
};
use tollgate_types::Limits;

fn in_line(line: usize) -> Origin {
    Origin::File { path: PathBuf::from("t.toml"), line }
}

fn origin(loaded: &Loaded, path: &str) -> Origin {
    loaded.settings.get(path).expect("a key").origin.clone()
}

#[test]
fn a_node_may_be_asked_by_further_names() {
    assert!(load(LEAST, &[], &[]).unwrap().config.node.hosts.is_empty());
    let named = load(LEAST, &[("TOLLGATE_NODE_HOSTS", "Locks.example, locks")], &[]).unwrap().config;
    assert_eq!(named.node.hosts, ["locks.example", "locks"]);
}

#[test]
fn without_more_everything_has_its_default() {
    let Loaded { config, settings } = load_with("").unwrap();
    assert_eq!(config.raft, HostConfig::new(config.cluster.id, config.node.id));
    assert_eq!(config.storage, EngineConfig::default());
    assert_eq!(config.limits, Limits::DEFAULT);
    assert_eq!(config.listen.client.to_string(), "127.0.0.1:7400");
    assert_eq!(config.listen.peer.to_string(), "127.0.0.1:7401");
    assert_eq!(config.listen.http.to_string(), "127.0.0.1:7402");
    assert_eq!(config.server.connections_max, 20_000);
    assert_eq!(config.server.frame_bytes_max, 4 << 20);
    assert_eq!((config.log.format, config.log.level.as_str()), (LogFormat::Pretty, "info"));
    assert!(!config.listen.insecure && !config.cluster.bootstrap);
    assert_eq!(settings.iter().filter(|setting| setting.origin != Origin::Default).count(), 4);
    assert_eq!(config.validate(), Ok(()));
}

#[test]
fn flags_beat_the_environment_which_beats_the_file_which_beats_the_default() {
    let text = format!("{LEAST}[raft]\ntick_ms = 201\nfailover_ms = 202\nheartbeat_ms = 91\n");
    let env = [("TOLLGATE_RAFT_TICK_MS", "301"), ("TOLLGATE_RAFT_FAILOVER_MS", "302"), ("HOME", "/")];
    let loaded = load(&text, &env, &[("raft.tick_ms", "401")]).unwrap();
    let raft = &loaded.config.raft;
    assert_eq!((raft.tick_ms, raft.failover_ms, raft.heartbeat_ms, raft.audit_ms), (401, 302, 91, 30_000));
    assert_eq!(origin(&loaded, "raft.tick_ms"), Origin::Flag { name: "--raft-tick-ms".to_owned() });
    let variable = "TOLLGATE_RAFT_FAILOVER_MS".to_owned();
    assert_eq!(origin(&loaded, "raft.failover_ms"), Origin::Env { name: variable });
    assert_eq!(origin(&loaded, "raft.heartbeat_ms"), in_line(10));
    assert_eq!(origin(&loaded, "raft.audit_ms"), Origin::Default);
}

#[test]
fn of_a_flag_given_twice_the_later_counts() {
    let loaded = load(LEAST, &[], &[("node.id", "1"), ("node.id", "2")]).unwrap();
    assert_eq!(loaded.config.node.id.number(), 2);
}

#[test]
fn every_key_can_be_set_by_variable_and_by_flag() {
    let loaded = load_with("").unwrap();
    let texts: Vec<(String, String, String)> = loaded
        .settings
        .iter()
        .map(|setting| {
            let text = setting.value.to_string();
            // Quotes in the file are not part of the value in a shell.
            let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(&text);
            (setting.key.path(), setting.key.env(), text.to_owned())
        })
        .collect();
    let env: Vec<_> = texts.iter().map(|(_, env, text)| (env.as_str(), text.as_str())).collect();
    let by_env = load("", &env, &[]).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(by_env.config, loaded.config);
    assert!(by_env.settings.iter().all(|setting| matches!(setting.origin, Origin::Env { .. })));
    let flags: Vec<_> = texts.iter().map(|(path, _, text)| (path.as_str(), text.as_str())).collect();
    let by_flag = load("", &[], &flags).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(by_flag.config, loaded.config);
    assert!(by_flag.settings.iter().all(|setting| matches!(setting.origin, Origin::Flag { .. })));
    assert_eq!(texts.len(), KEYS.len());
}

#[test]
fn numbers_may_be_written_with_units_everywhere() {
    let text = format!(
        "{LEAST}[raft]\ntick_ms = \"300ms\"\nsnapshot_log_bytes = \"1GiB\"\nchunk_bytes = 0x1_0000\n"
    );
    let env = [("TOLLGATE_SERVER_SHUTDOWN_GRACE_MS", "1m"), ("TOLLGATE_SERVER_CONNECTIONS_MAX", "1_000")];
    let config = load(&text, &env, &[("listen.insecure", "1")]).unwrap().config;
    assert_eq!((config.raft.tick_ms, config.raft.snapshot_log_bytes), (300, 1 << 30));
    assert_eq!(config.raft.chunk_bytes, 65_536);
    assert_eq!((config.server.shutdown_grace_ms, config.server.connections_max), (60_000, 1_000));
    assert!(config.listen.insecure);
}

#[test]
fn members_may_be_written_as_tables_of_their_own() {
    let text = "node = { id = 7, data_dir = \"d\" }\ncluster.name = \"test\"\n\
                [[cluster.members]]\nid = 7\npeer = \"[::1]:1\"\nclient = \"[::1]:2\"\n\
                [[cluster.members]]\nid = 9\npeer = \"x:1\"\nclient = \"x:2\"\nwitness = true\n";
    let config = load(text, &[], &[]).unwrap_or_else(|problems| panic!("{problems}")).config;
    assert_eq!(config.cluster.members.len(), 2);
    let first = config.first_members();
    assert!(first.witnesses.iter().map(|node| node.number()).eq([9]));
    assert!(first.voters.iter().map(|node| node.number()).eq([7, 9]));
}

#[test]
fn a_cluster_id_that_is_given_counts() {
    let config = load(LEAST, &[("TOLLGATE_CLUSTER_ID", "00000000000000ff")], &[]).unwrap().config;
    assert_eq!(config.cluster.id.number(), 255);
    assert_eq!(config.raft.cluster.number(), 255);
}

#[test]
fn variables_of_clients_and_of_container_platforms_are_let_pass() {
    let mut env: Vec<(&str, &str)> = CLIENT_VARIABLES.iter().map(|name| (*name, "x")).collect();
    env.extend([
        ("TOLLGATE_CONFIG", "t.toml"),
        ("TOLLGATE_SERVER_SERVICE_HOST", "10.0.0.1"),
        ("TOLLGATE_SERVER_SERVICE_PORT_GRPC", "7400"),
        ("TOLLGATE_SERVER_PORT", "tcp://10.0.0.1:7400"),
        ("TOLLGATE_SERVER_PORT_7400_TCP_ADDR", "10.0.0.1"),
    ]);
    assert!(load(LEAST, &env, &[]).is_ok());
}

#[test]
fn a_variable_that_seems_to_be_meant_for_the_server_is_not_passed_over() {
    let env = [
        ("TOLLGATE_LISTEN_CLEINT", "x"),
        ("TOLLGATE_LISTEN_PORT", "7400"),
        ("TOLLGATE_NODEID", "2"),
        ("TOLLGATE_RAFT_WOBBLE", "1"),
    ];
    let problems = load(LEAST, &env, &[]).unwrap_err();
    let advice: Vec<_> = problems.iter().map(|problem| problem.notes[0].as_str()).collect();
    let see = "unset it, or see `config show` for the keys there are";
    assert_eq!(advice, ["did you mean TOLLGATE_LISTEN_CLIENT?", see, "did you mean TOLLGATE_NODE_ID?", see]);
}

#[test]
fn a_bad_variable_is_named_with_what_it_says() {
    let env = [
        ("TOLLGATE_NODE_ID", "two"),
        ("TOLLGATE_LISTEN_INSECURE", "yes"),
        ("TOLLGATE_CLUSTER_MEMBERS", "[{ id = 1 }] x"),
    ];
    let problems = load(LEAST, &env, &[]).unwrap_err();
    let text = problems.to_string();
    let expected = "error: node.id is \"two\", which is not a whole number from 1 to 9007199254740991\n \
                    --> env TOLLGATE_NODE_ID=\"two\"\n  = write digits, such as 20_000\n";
    assert!(text.contains(expected), "{text}");
    let told = wrongs(load(LEAST, &env, &[]));
    assert!(told[0].starts_with("TOLLGATE_CLUSTER_MEMBERS cluster.members can't be read: "), "{told:?}");
    assert_eq!(told[1], "TOLLGATE_LISTEN_INSECURE listen.insecure is \"yes\", neither true nor false");
    assert_eq!(told.len(), 3);
}

#[test]
fn what_is_wrong_in_the_file_is_told_even_if_a_flag_covers_it() {
    let told = wrongs(load(&format!("{LEAST}[raft]\ntick_ms = true\n"), &[], &[("raft.tick_ms", "200")]));
    assert_eq!(told, ["8:11 raft.tick_ms must be milliseconds from 1 to 60000, and is a boolean"]);
}

#[test]
fn an_unknown_flag_is_refused_with_a_guess() {
    let problems = load(LEAST, &[], &[("node.idd", "1")]).unwrap_err();
    assert_eq!(problems.iter().next().unwrap().notes, ["did you mean node.id?"]);
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let env = vec![(OsString::from("TOLLGATE_NODE_ZONE"), OsString::from_vec(vec![0xff]))];
    let file = ConfigFile { path: PathBuf::from("t.toml"), text: LEAST.to_owned() };
    let told = wrongs(Config::load(&Sources { file: Some(file), env, flags: Vec::new() }));
    assert_eq!(told, ["TOLLGATE_NODE_ZONE node.zone is not UTF-8"]);
}

#[test]
fn settings_are_shown_with_their_origins() {
    let loaded = load(LEAST, &[("TOLLGATE_NODE_ZONE", "a \"b\"")], &[("raft.tick_ms", "200")]).unwrap();
    let text = loaded.settings.to_text(true);
    let shown = |key: &str| {
        let line = text.lines().find(|line| line.split(' ').next() == Some(key)).unwrap();
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(shown("KEY"), ["KEY", "VALUE", "ORIGIN"]);
    assert_eq!(shown("node.id"), ["node.id", "1", "t.toml:2"]);
    assert_eq!(shown("node.zone"), ["node.zone", "\"a \\\"b\\\"\"", "env TOLLGATE_NODE_ZONE"]);
    assert_eq!(shown("raft.tick_ms"), ["raft.tick_ms", "200", "flag --raft-tick-ms"]);
    assert_eq!(shown("log.level"), ["log.level", "\"info\"", "default"]);
    let member = "{ id = 2, peer = \"b:7401\", client = \"b:7400\" }";
    assert_eq!(shown("cluster.members[1]"), ["cluster.members[1]", member, "t.toml:6"]);
    assert!(!loaded.settings.to_text(false).contains("t.toml"));

    let json = loaded.settings.to_json();
    for line in [
        r#"  {"key": "node.id", "value": 1, "origin": {"kind": "file", "path": "t.toml", "line": 2}},"#,
        r#"  {"key": "node.zone", "value": "a \"b\"", "origin": {"kind": "env", "name": "TOLLGATE_NODE_ZONE"}},"#,
        r#"  {"key": "raft.tick_ms", "value": 200, "origin": {"kind": "flag", "name": "--raft-tick-ms"}},"#,
        r#"  {"key": "listen.insecure", "value": false, "origin": {"kind": "default"}},"#,
    ] {
        assert!(json.lines().any(|found| found == line), "{line}\n{json}");
    }
    assert!(
        json.contains(r#"{"id": 2, "peer": "b:7401", "client": "b:7400", "witness": false, "zone": ""}]"#)
    );
}

#[test]
fn a_file_is_read_from_disk_or_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tollgate.toml");
    let says = |path: &Path| ConfigFile::read(path).unwrap_err().to_string();
    assert!(says(&path).contains("tollgate.toml: No such file"), "{}", says(&path));
    std::fs::write(&path, [b'#', 0xff]).unwrap();
    assert!(says(&path).contains("is not UTF-8 from byte 1 on"));
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(says(&path).contains("has more than 1048576 bytes"));
    std::fs::write(&path, LEAST).unwrap();
    assert_eq!(ConfigFile::read(&path).unwrap(), ConfigFile { path, text: LEAST.to_owned() });
}
