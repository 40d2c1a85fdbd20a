//! A cluster that has lost its quorum for good goes on from the disks that are left.

use crate::backup::{Stray, get, grant, json, lock, names, new_cluster, put, refusal, tollgate};
use crate::cluster::{self, BINARY, Cluster, Making};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Number of registers and locks that are written at a time: more than one in each of four groups.
const WRITES: u64 = 16;

/// Returns the bytes of every file.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

fn save(file: &Path, from: &[&Path]) -> Output {
    let mut arguments = vec!["snapshot", "save", file.to_str().unwrap(), "-o", "json"];
    for dir in from {
        arguments.extend(["--from-data-dir", dir.to_str().unwrap()]);
    }
    tollgate(&[], &arguments)
}

/// Writes registers, and takes locks; returns the highest token.
async fn load(cluster: &Cluster, round: &str) -> u64 {
    let mut highest = 0;
    for number in 0..WRITES {
        put(cluster, &format!("{round}/{number}"), round, 0).await;
        let locked = lock(cluster, &format!("{round}-lock/{number}"), 1, 30_000).await;
        assert!(locked.acquired, "{locked:?}");
        highest = locked.fencing_token.max(highest);
    }
    highest
}

async fn written(cluster: &Cluster, round: &str) -> u64 {
    let mut found = 0;
    for number in 0..WRITES {
        found += u64::from(get(cluster, &format!("{round}/{number}")).await.as_deref() == Some(round));
    }
    found
}

fn warnings(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).lines().filter(|line| line.starts_with("warning: ")).collect()
}

/// Loses a cluster. Node 3 dies early; later acknowledged writes are on nodes 1 and 2, since both are needed. Then all
/// are killed.
async fn lost(groups: &str) -> (Cluster, u64) {
    let mut cluster = Cluster::start(Making::nodes(3).flags(&["--cluster-groups", groups])).await;
    grant(&cluster, 1).await;
    load(&cluster, "early").await;
    cluster.nodes[2].kill();
    let highest = load(&cluster, "late").await;
    let dir = TempDir::with_prefix("tollgate-it-").unwrap();
    let running =
        refusal(&save(&dir.path().join("b"), &[&cluster.nodes[2].data_dir, &cluster.nodes[1].data_dir]));
    assert!(running.contains("node-2 is used by a node that runs: stop it"), "{running}");
    assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
    cluster.nodes[0].kill();
    cluster.nodes[1].kill();
    (cluster, highest)
}

async fn survives(groups: &str, name: &'static str) {
    let (old, highest) = lost(groups).await;
    let dir = TempDir::with_prefix("tollgate-it-").unwrap();
    let file = dir.path().join("rescued");
    let [_, survivor, behind] = [0, 1, 2].map(|node| old.nodes[node].data_dir.clone());
    fs::remove_dir_all(&old.nodes[0].data_dir).unwrap();
    let before = (contents(&survivor), contents(&behind));

    let alone = save(&file, &[&survivor]);
    let saved = json(&alone);
    assert_eq!(saved["from_disks_of"], serde_json::json!(["2"]), "{saved}");
    assert_eq!(saved["groups"].as_array().unwrap().len().to_string(), groups);
    let origin = &saved["groups"][0]["origin"];
    assert_eq!(
        (origin["complete"].as_bool(), origin["node_id"].as_str()),
        (Some(false), Some("2")),
        "{saved}"
    );
    assert!(warnings(&alone).contains("may be missing"), "{}", warnings(&alone));
    assert!(saved["warnings"].to_string().contains("may be missing"), "{saved}");
    let status = json(&tollgate(&[], &["snapshot", "status", file.to_str().unwrap(), "-o", "json"]));
    assert_eq!(status["groups"], saved["groups"]);
    let table = tollgate(&[], &["snapshot", "status", file.to_str().unwrap()]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("made from the disks of 2") && table.contains("KNOWN COMMIT"), "{table}");

    // With the disk that is behind given first: the states are the same, and there is a majority.
    let both = dir.path().join("both");
    let saved_of_both = save(&both, &[&behind, &survivor]);
    let of_both = json(&saved_of_both);
    for (one, two) in saved["groups"].as_array().unwrap().iter().zip(of_both["groups"].as_array().unwrap()) {
        assert_eq!((&one["crc32"], &one["applied_index"]), (&two["crc32"], &two["applied_index"]));
        assert_eq!(
            (two["origin"]["complete"].as_bool(), two["origin"]["node_id"].as_str()),
            (Some(true), Some("2"))
        );
    }
    assert!(!warnings(&saved_of_both).contains("missing"), "{}", warnings(&saved_of_both));
    assert_eq!(before, (contents(&survivor), contents(&behind)), "the directories are as they were");
    let mut left = names(dir.path());
    left.sort();
    assert_eq!(left, ["both", "rescued"]);

    fs::remove_dir_all(&behind).unwrap();
    let (new, above) = new_cluster(&file, dir.path(), name, "none").await;
    assert!(above > highest + (1 << 32) - 1_000, "{above} is not far above {highest}");
    assert_eq!((written(&new, "early").await, written(&new, "late").await), (WRITES, WRITES));
    grant(&new, 7).await;
    for number in 0..WRITES {
        let locked = lock(&new, &format!("late-lock/{number}"), 7, 30_000).await;
        assert!(locked.acquired && locked.fencing_token > above, "{locked:?} is not above {above}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_what_the_only_disk_that_is_left_has_goes_on_in_a_new_cluster() {
    survives("1", "it-8").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_what_the_only_disk_that_is_left_has_of_four_groups_goes_on_in_a_new_cluster() {
    survives("4", "it-9").await;
}

/// P2 as well: from the disk that is behind alone, tokens are above those that it never saw.
#[tokio::test(flavor = "multi_thread")]
async fn p2_a_disk_that_was_left_behind_brings_tokens_above_those_it_never_saw() {
    let (old, highest) = lost("1").await;
    let dir = TempDir::with_prefix("tollgate-it-").unwrap();
    let file = dir.path().join("rescued");
    json(&save(&file, &[&old.nodes[2].data_dir]));
    let (new, above) = new_cluster(&file, dir.path(), "it-10", "none").await;
    assert_eq!((written(&new, "early").await, written(&new, "late").await), (WRITES, 0));
    grant(&new, 7).await;
    let locked = lock(&new, "late-lock/0", 7, 30_000).await;
    assert!(locked.fencing_token > above && above > highest, "{locked:?}, {highest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_save_from_disks_leaves_nothing_or_all_of_it() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    for number in 0..200 {
        put(&cluster, &format!("k/{number}"), &"v".repeat(60_000), 0).await;
    }
    cluster.nodes[0].kill();
    for signal in ["INT", "TERM"] {
        let dir = TempDir::with_prefix("tollgate-it-").unwrap();
        let mut command = Command::new(BINARY);
        command.args(["snapshot", "save"]).arg(dir.path().join("b"));
        command.arg("--from-data-dir").arg(&cluster.nodes[0].data_dir);
        let mut save = Stray::spawn(command);
        cluster::until("it has begun", || {
            let begun = !names(dir.path()).is_empty() || save.child.try_wait().unwrap().is_some();
            async move { begun }
        })
        .await;
        let pid = save.child.id().to_string();
        let _ = Command::new("kill").args([&format!("-{signal}"), &pid]).stderr(Stdio::null()).status();
        let code = save.until_exited().await;
        let expected: &[&str] = if code == Some(0) { &["b"] } else { &[] };
        assert_eq!(names(dir.path()), expected, "ended with {code:?}: {}", save.log());
    }
}
