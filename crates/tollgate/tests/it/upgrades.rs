//! How a cluster is upgraded: one node after the other, under load, and never back to a binary that is too old.
//!
//! Two binaries in one group, which takes a second version: replica's `upgrades`.

use crate::client::history::callers_notice_nothing;
use crate::cluster::{self, Cluster};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tollgate_client::{Client, Guard, Token};

/// Every node is asked to end and started again, one after the other, as the runbook says.
async fn roll(cluster: &mut Cluster) {
    for index in 0..cluster.nodes.len() {
        cluster.nodes[index].signal("TERM");
        let status = cluster.nodes[index].until_exited().await;
        assert_eq!(status.code(), Some(0), "{status}: {}", cluster.nodes[index].log());
        cluster.restart(index);
        cluster.until_ready().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_a_rolling_restart_under_load_loses_no_lock_and_is_told_to_no_caller() {
    let mut cluster = cluster::three().await;
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    // Short enough to run out during the restarts, were it not kept.
    let session = client.session().ttl(Duration::from_secs(3)).open().await.unwrap();
    let mut held: Vec<(Guard, Token)> = Vec::new();
    for number in 0..5 {
        let guard = session.lock(format!("held/{number}")).acquire().await.unwrap();
        let token = guard.token().unwrap();
        held.push((guard, token));
    }
    let ((), grants) = callers_notice_nothing(&mut cluster, async |cluster| {
        roll(cluster).await;
        for (guard, token) in &held {
            assert_eq!(guard.token(), Ok(*token), "{} was lost", guard.name());
            let seen = client.get_lock(guard.name()).await.unwrap().holders;
            let tokens: Vec<Token> = seen.iter().map(|holder| holder.token).collect();
            assert_eq!(tokens, [*token], "{}", guard.name());
        }
        for (guard, _) in held {
            guard.release().await.unwrap();
        }
        session.close().await.unwrap();
    })
    .await;
    assert!(grants > 100, "{grants} grants: hardly any load");
}

/// The bytes of every file below a directory.
fn contents(dir: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_of_a_newer_format_is_refused_by_name_and_left_as_it_is() {
    let mut cluster = cluster::three().await;
    cluster.nodes[0].signal("TERM");
    assert_eq!(cluster.nodes[0].until_exited().await.code(), Some(0));
    let dir = cluster.nodes[0].data_dir.clone();
    let identity = dir.join("identity");
    let mut bytes = std::fs::read(&identity).unwrap();
    // The format stands behind the mark, and a checksum at the end.
    bytes.truncate(bytes.len() - 4);
    let known = bytes[8];
    bytes[8] += 1;
    bytes.extend(crc32(&bytes).to_le_bytes());
    std::fs::write(&identity, bytes).unwrap();
    let before = contents(&dir);
    cluster.restart(0);
    let status = cluster.nodes[0].until_exited().await;
    let says = cluster.nodes[0].log();
    assert!(!status.success(), "{status}");
    let (dir_name, newer) = (dir.display(), known + 1);
    let expected = format!(
        "{dir_name} has format {newer}, this binary knows up to {known}: start the newer binary again"
    );
    assert!(says.contains(&expected), "{says}");
    assert!(contents(&dir) == before, "a directory that was refused has changed");
}

/// As zlib's.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}
