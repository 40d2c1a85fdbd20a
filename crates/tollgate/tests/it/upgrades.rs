//! Upgrades of a cluster: one node after the other, under load, and never back to a binary that is too old.
//!
//! Not here: two binaries in one group, which takes a second version (`upgrades` of the replica).

use crate::client::history::{Work, callers_notice_nothing};
use crate::cluster::{self, BINARY, Cluster, Making, Node, PATIENCE, until};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tollgate_client::{Client, Guard, Session, Token};
use tollgate_proto::v1::StatusRequest;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;

/// Restarts every node in order, one after the other, as the runbook says.
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
    // Short enough to expire during the restarts if it were not renewed.
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

/// Stops a node as the runbook says and starts it again with another binary.
async fn change_binary(cluster: &mut Cluster, index: usize, binary: &Path) {
    let node = &mut cluster.nodes[index];
    node.signal("TERM");
    let status = node.until_exited().await;
    assert_eq!(status.code(), Some(0), "{status}: {}", node.log());
    binary.clone_into(&mut node.binary);
    cluster.restart(index);
    cluster.until_ready().await;
}

/// Returns the apply versions in force in the replicas of all nodes.
async fn apply_versions(cluster: &Cluster) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for node in &cluster.nodes {
        found.extend(node.ports.replicas().await.into_iter().map(|replica| replica.apply_version));
    }
    found
}

/// Returns the newest apply version that a node's binary supports.
async fn newest_version_of(node: &Node) -> u32 {
    let mut admin = AdminServiceClient::new(node.ports.channel(PATIENCE));
    admin.status(StatusRequest::default()).await.unwrap().into_inner().apply_version_max
}

/// Takes some locks, and returns each with its token.
async fn take(session: &Session, prefix: &str) -> Vec<(Guard, Token)> {
    let mut held = Vec::new();
    for number in 0..8 {
        let guard = session.lock(format!("{prefix}/{number}")).acquire().await.unwrap();
        let token = guard.token().unwrap();
        held.push((guard, token));
    }
    held
}

async fn assert_held(client: &Client, held: &[(Guard, Token)]) {
    for (guard, token) in held {
        assert_eq!(guard.token(), Ok(*token), "{} was lost", guard.name());
        let seen = client.get_lock(guard.name()).await.unwrap().holders;
        let tokens: Vec<Token> = seen.iter().map(|holder| holder.token).collect();
        assert_eq!(tokens, [*token], "{}", guard.name());
    }
}

/// Files and messages of an earlier commit's binary are read by this one, and the other way round until the last node
/// is upgraded: callers notice nothing, no lock is lost, and only the last node's upgrade raises the apply version.
/// Meanwhile a node may go back to the earlier binary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the binary of an earlier commit: make test-upgrade FROM=commit runs it"]
async fn p4_p10_p12_an_upgrade_from_an_earlier_binary_under_load_is_told_to_no_caller() {
    let before = env::var_os("TOLLGATE_BEFORE").map(PathBuf::from);
    let before = before.expect("TOLLGATE_BEFORE names the earlier binary: use make test-upgrade FROM=commit");
    let mut cluster = Cluster::start(Making { binary: before.clone(), ..Making::nodes(3) }).await;
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let old = newest_version_of(&cluster.nodes[0]).await;
    // Short enough to expire during the restarts if it were not renewed.
    let session = client.session().ttl(Duration::from_secs(3)).open().await.unwrap();
    let mut held = take(&session, "before").await;
    let work = Work::start(&cluster.endpoints()).await;
    for (index, binary) in
        [(0, Path::new(BINARY)), (0, &before), (0, Path::new(BINARY)), (1, Path::new(BINARY))]
    {
        change_binary(&mut cluster, index, binary).await;
        assert_eq!(apply_versions(&cluster).await, [old].into(), "a node of the earlier binary is left");
        work.progress(100).await;
    }
    assert_held(&client, &held).await;
    held.extend(take(&session, "between").await);
    change_binary(&mut cluster, 2, Path::new(BINARY)).await;
    let new = newest_version_of(&cluster.nodes[2]).await;
    until("the group has moved on", || async { apply_versions(&cluster).await == [new].into() }).await;
    work.progress(100).await;
    assert_held(&client, &held).await;
    held.extend(take(&session, "after").await);
    assert_held(&client, &held).await;
    // A restarted node reads data that the new binary has written.
    change_binary(&mut cluster, 1, Path::new(BINARY)).await;
    assert_held(&client, &held).await;
    for (guard, _) in held {
        guard.release().await.unwrap();
    }
    session.close().await.unwrap();
    let grants = work.finish(&cluster).await;
    println!("from apply version {old} to {new}: {grants} grants, no error");
}

/// Returns the bytes of every file below a directory.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
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
    // The format follows the magic bytes, and a checksum is at the end.
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

/// CRC-32 as in zlib.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}
