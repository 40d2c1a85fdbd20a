//! Backups, with several groups and leases that have locks in all of them.

use crate::many_groups::{GROUPS, acquired, ask, cluster, grant, lock, names};
use crate::sessions::{Cluster, PATIENCE};
use std::path::Path;
use std::time::Duration;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{self, ErrorReason, operation::Op, operation_result::Result as OpResult};
use tollgate_replica::backup::BackupReader;
use tollgate_replica::restore::{Restoration, inspect};
use tollgate_replica::{EngineConfig, Members};
use tollgate_types::{DiskId, DurationMs, GroupId, NodeId};
use tonic::Streaming;

async fn backup(cluster: &Cluster, server: usize) -> Result<Streaming<v1::BackupResponse>, tonic::Status> {
    let mut admin = AdminServiceClient::new(cluster.channel(server).await);
    admin.backup(v1::BackupRequest {}).await.map(tonic::Response::into_inner)
}

async fn whole(mut stream: Streaming<v1::BackupResponse>) -> Vec<u8> {
    let (mut bytes, mut done) = (Vec::new(), 0);
    while let Some(piece) = stream.message().await.unwrap() {
        assert_eq!(piece.header.is_some(), bytes.is_empty(), "the first piece has the header");
        assert!(piece.groups_done >= done && piece.groups_done <= piece.groups);
        done = piece.groups_done;
        bytes.extend(piece.data);
    }
    assert!(done > 0, "all groups are told of");
    bytes
}

/// Starts a new cluster of one node from the states of a backup.
async fn restored(file: &Path, dir: &Path, above_token: u64) -> Cluster {
    let node = NodeId::new(1).unwrap();
    let data_dir = dir.join("restored");
    let restoration = Restoration {
        file: file.to_path_buf(),
        cluster_name: "restored".to_owned(),
        members: Members::first([node], []),
        above_token,
        grace: DurationMs::ZERO,
        node,
        data_dir: data_dir.clone(),
    };
    let id = restoration.run(EngineConfig::default(), DiskId::new(9)).unwrap().to_string();
    let (groups, data_dir) = (GROUPS.to_string(), data_dir.display().to_string());
    let settings = [
        ("cluster.name", "restored"),
        ("cluster.id", &*id),
        ("cluster.groups", &*groups),
        ("cluster.bootstrap", "false"),
        ("node.data_dir", &*data_dir),
    ];
    Cluster::start_with(&[false], &settings).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_a_backup_by_any_node_has_every_group_and_is_gone_on_from_in_all_of_them() {
    let old = cluster().await;
    let router = old.servers[0].router();
    grant(router, 1, 600_000).await;
    let mut highest = 0;
    for name in names() {
        let OpResult::Lock(locked) = ask(router, lock(&name, 1, 0)).await else { panic!("{name} is free") };
        highest = highest.max(locked.fencing_token);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("b");
    for server in 0..3 {
        let bytes = whole(backup(&old, server).await.unwrap()).await;
        let mut reader = BackupReader::open(&bytes[..]).unwrap();
        let (mut groups, mut locks) = (0, 0);
        while let Some((group, state)) = reader.next_group().unwrap() {
            assert_eq!(group.group, GroupId::new(groups));
            assert!(group.index > 1, "{group:?}");
            (groups, locks) = (groups + 1, locks + state.lock_count());
        }
        assert_eq!((groups, locks), (GROUPS, 4), "by node {}", server + 1);
        assert_eq!(reader.head().cluster_name, "test");
        assert_eq!(reader.head().members.voters.len(), 3);
        std::fs::write(&file, bytes).unwrap();
    }
    old.stop().await;

    let above = inspect(&file).unwrap().revision_max().get() + 5_000;
    assert!(above > highest);
    let new = restored(&file, dir.path(), above).await;
    let router = new.servers[0].router();
    // The lease that held all locks has ended, in its home and in every group with a stub of it; its id is free.
    let refused = ask(router, lock(&names()[0], 1, 0)).await;
    assert!(
        matches!(&refused, OpResult::Error(error) if error.reason() == ErrorReason::LeaseNotFound),
        "{refused:?}"
    );
    grant(router, 1, 600_000).await;
    for name in names() {
        let locked = ask(router, lock(&name, 1, 10_000)).await;
        assert!(acquired(&locked), "{name}: {locked:?}");
        let OpResult::Lock(locked) = locked else { unreachable!("it was acquired") };
        assert!(locked.fencing_token > above, "{} above {above}", locked.fencing_token);
    }
    new.stop().await;
}

/// P16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_makes_one_backup_at_a_time_and_goes_at_the_readers_pace() {
    let cluster = Cluster::start_with(&[false], &[]).await;
    let router = cluster.servers[0].router();
    // Far more data than fits between server and client.
    for number in 0..200 {
        let key = format!("k/{number}").into_bytes();
        let put = v1::PutRequest { key, value: vec![b'v'; 60_000], ..Default::default() };
        let done = ask(router, Op::Put(put)).await;
        assert!(matches!(done, OpResult::Put(_)), "{done:?}");
    }
    let unread = backup(&cluster, 0).await.unwrap();
    let refused = backup(&cluster, 0).await.unwrap_err();
    let error = error_of_status(&refused).unwrap();
    assert_eq!(error.reason(), ErrorReason::Overloaded, "{error:?}");
    assert!(error.message.contains("ask another node"), "{error:?}");
    drop(unread);
    let again = async {
        loop {
            match backup(&cluster, 0).await {
                Ok(stream) => return whole(stream).await,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let bytes = tokio::time::timeout(PATIENCE, again).await.expect("whoever went makes room for the next");
    let mut reader = BackupReader::open(&bytes[..]).unwrap();
    let (_, state) = reader.next_group().unwrap().unwrap();
    assert_eq!(state.register_count(), 200);
    assert!(reader.next_group().unwrap().is_none());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_witness_makes_no_backup_and_says_why() {
    let cluster = Cluster::start_with(&[false, false, true], &[]).await;
    let mut stream = backup(&cluster, 2).await.unwrap();
    let failed = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a witness has no state"),
                Err(status) => return status,
            }
        }
    };
    let status = tokio::time::timeout(PATIENCE, failed).await.unwrap();
    assert!(!status.message().is_empty(), "{status:?}");
    cluster.stop().await;
}
