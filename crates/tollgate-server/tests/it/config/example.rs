//! The example file: complete, true to the defaults, and fit to start a server.

use super::load;
use tollgate_server::config::{EXAMPLE, KEYS, Origin, Preset, Value};

/// Keys that an operator must think about; all others are comments in the file.
const CHOSEN: [&str; 7] = [
    "node.id",
    "node.data_dir",
    "cluster.name",
    "cluster.members",
    "listen.client",
    "listen.peer",
    "listen.insecure",
];

/// Returns the example with every `# key = value` made a setting.
fn all_set() -> String {
    let lines = EXAMPLE.lines().map(|line| match line.strip_prefix("# ") {
        Some(setting) if is_setting(setting) => setting,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn is_setting(text: &str) -> bool {
    let name = text.split_once(" = ").map_or("", |(name, _)| name);
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[test]
fn the_example_is_a_valid_configuration() {
    let loaded = load(EXAMPLE, &[], &[]).unwrap_or_else(|problems| panic!("{problems}"));
    let set = loaded.settings.iter().filter(|setting| setting.origin != Origin::Default);
    assert!(set.map(|setting| setting.key.path()).eq(CHOSEN));
    assert_eq!(loaded.config.first_members().voters.len(), 3);
    assert_eq!(loaded.config.this_member().unwrap().peer.to_string(), "10.0.0.1:7401");
}

#[test]
fn the_example_has_every_key_with_its_default() {
    let loaded = load(&all_set(), &[], &[]).unwrap_or_else(|problems| panic!("{problems}"));
    let defaults = load(EXAMPLE, &[], &[]).unwrap().settings;
    for (setting, default) in loaded.settings.iter().zip(defaults.iter()) {
        assert!(matches!(setting.origin, Origin::File { .. }), "{} is not in it", setting.key.path());
        assert_eq!(setting.value, default.value, "{}", setting.key.path());
    }
}

#[test]
fn every_key_of_the_example_has_a_comment_above_it() {
    let lines: Vec<&str> = EXAMPLE.lines().collect();
    let settings = lines.iter().enumerate().filter(|(_, line)| {
        let line = line.strip_prefix("# ").unwrap_or(line);
        is_setting(line)
    });
    let mut count = 0;
    for (index, line) in settings {
        count += 1;
        let above = lines[index - 1].strip_prefix("# ").unwrap_or_default();
        assert!(above.ends_with('.') && !is_setting(above), "{line}");
    }
    assert_eq!(count, KEYS.len());
}

#[test]
fn a_key_without_default_can_not_be_commented_out() {
    for key in KEYS.iter().filter(|key| key.preset == Preset::Required) {
        assert!(CHOSEN.contains(&key.path().as_str()));
    }
}

#[test]
fn the_cluster_id_follows_from_the_name_alike_on_every_node() {
    let loaded = load(EXAMPLE, &[], &[]).unwrap();
    let setting = loaded.settings.get("cluster.id").unwrap();
    assert_eq!(setting.value, Value::Text(loaded.config.cluster.id.to_string()));
    assert_eq!(loaded.config.raft.cluster, loaded.config.cluster.id);
    // This id must never change: nodes and data directories identify the cluster by it.
    assert_eq!(loaded.config.cluster.id.to_string(), "eb15a7d3b00ce14e");
}
