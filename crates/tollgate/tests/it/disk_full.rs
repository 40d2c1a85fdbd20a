//! A leader whose disk is full: another node leads, or if none can, callers are told; all is well again with free
//! space.
//!
//! The tests need a file system of their own, which only root can mount; elsewhere they are skipped with a message.

use crate::cluster::{self, Cluster, Making};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::election_service_client::ElectionServiceClient;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::register_service_client::RegisterServiceClient;
use tollgate_proto::v1::{
    ErrorReason, ExplainRequest, GetLimitsRequest, GetRequest, LeaseGrantRequest, LeaseListRequest, Limit,
    ListLocksRequest, LockRequest, ObserveRequest, PutRequest, SetLimitsRequest, TransferRequest,
};
use tonic::Code;

/// Maximum time that a caller may wait while nothing can be written.
const PROMPT: Duration = Duration::from_secs(3);

/// A small file system, unmounted on drop.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(megabytes: u32) -> Result<SmallDisk, String> {
        let dir = TempDir::with_prefix("tollgate-disk-").unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"]).arg(dir.path());
        let mounted = mount.output().map_err(|error| error.to_string())?;
        if mounted.status.success() {
            Ok(SmallDisk(dir))
        } else {
            Err(String::from_utf8_lossy(&mounted.stderr).into())
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk with a file.
    fn fill(&self) -> PathBuf {
        let ballast = self.path().join("ballast");
        let mut file = std::fs::File::create(&ballast).unwrap();
        let bytes = vec![0; 4_096];
        while std::io::Write::write_all(&mut file, &bytes).is_ok() {}
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Unmounted lazily: the node that uses it may not be gone yet.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_or_another_leads_and_room_brings_the_node_back() {
    let disk = match SmallDisk::mount(48) {
        Ok(disk) => disk,
        Err(why) => {
            println!("skipped: no file system to fill: {why}");
            return;
        }
    };
    let mut making = Making::nodes(3).flags(&["--storage-log-file-bytes", "1048576"]);
    making.data_dirs = vec![(0, disk.path().join("data"))];
    let cluster = Cluster::start(making).await;
    let channel = |node: usize| cluster.nodes[node].channel(Duration::from_secs(20));
    let leader = cluster.leader().await;
    if leader != 0 {
        let transfer = TransferRequest { group_id: 0, node_id: 1, passed_on: false };
        AdminServiceClient::new(channel(leader)).transfer(transfer).await.unwrap();
    }
    cluster::until("node 0 leads", || async { cluster.leader().await == 0 }).await;

    let ballast = disk.fill();
    let mut registers = [0, 1, 2].map(|node| RegisterServiceClient::new(channel(node)));
    let (until, mut told, mut written) = (Instant::now() + Duration::from_mins(1), 0, Vec::new());
    // Until the node has noticed: writes into space that it had allocated before still succeed.
    for number in 0_u64.. {
        let key = format!("k{}", number % 16).into_bytes();
        let put = PutRequest { key: key.clone(), value: vec![b'x'; 60_000], ..PutRequest::default() };
        match registers[usize::try_from(number % 3).unwrap()].put(put).await {
            Ok(_) => written.push(key),
            Err(status) => {
                let reason = error_of_status(&status).unwrap_or_else(|| panic!("{status:?}")).reason();
                println!("put {number}: {reason:?} {}", status.message());
                let fits = matches!(
                    reason,
                    ErrorReason::DiskFull
                        | ErrorReason::NoLeader
                        | ErrorReason::NotLeader
                        | ErrorReason::Indeterminate
                );
                assert!(fits, "{status:?}");
                told += 1;
            }
        }
        let noticed = cluster.nodes[0].log().contains("the disk is full");
        if noticed && (told >= 3 || cluster.leader_but(Some(0)).await != 0) {
            break;
        }
        assert!(Instant::now() < until, "nobody noticed: {} writes went well", written.len());
    }
    let leads = cluster.nodes[0].replica().await;
    println!("{} writes, {told} refusals; node 0 says {leads:?}", written.len());

    std::fs::remove_file(ballast).unwrap();
    cluster::until("there is room again", || {
        let said = cluster.nodes[0].log().contains("there is room on the disk again");
        async move { said }
    })
    .await;
    cluster.until_ready().await;
    for service in &mut registers {
        let put = PutRequest { key: b"after".to_vec(), value: b"x".to_vec(), ..PutRequest::default() };
        service.put(put).await.unwrap();
        for key in &written[written.len().saturating_sub(16)..] {
            let got = service.get(GetRequest { key: key.clone(), ..GetRequest::default() }).await.unwrap();
            assert!(got.into_inner().register.is_some(), "a write that was acknowledged is lost");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_that_nobody_can_stand_in_for_is_told_and_reads_go_on() {
    let disk = match SmallDisk::mount(48) {
        Ok(disk) => disk,
        Err(why) => {
            println!("skipped: no file system to fill: {why}");
            return;
        }
    };
    let mut making = Making::nodes(1).flags(&["--storage-log-file-bytes", "1048576"]);
    making.data_dirs = vec![(0, disk.path().join("data"))];
    let cluster = Cluster::start(making).await;
    let node = &cluster.nodes[0];
    let ballast = disk.fill();
    let mut registers = RegisterServiceClient::new(node.channel(Duration::from_secs(5)));
    let put = |number: u64| PutRequest {
        key: format!("k{}", number % 16).into_bytes(),
        value: vec![b'x'; 60_000],
        ..PutRequest::default()
    };
    let until = Instant::now() + Duration::from_mins(1);
    let (mut number, mut written) = (0, 0);
    let status = loop {
        assert!(Instant::now() < until, "nobody was told: {written} writes went well");
        number += 1;
        match registers.put(put(number)).await {
            Ok(_) => written += 1,
            Err(status) => break status,
        }
    };
    println!("after {written} writes: {:?} {}", status.code(), status.message());
    // The write that met the full disk is in the log, and its caller does not have to wait for its fate.
    let error = error_of_status(&status).unwrap();
    assert_eq!((error.reason(), error.may_have_happened), (ErrorReason::DiskFull, true), "{error:?}");
    let began = Instant::now();
    let status = registers.put(put(1)).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let error = error_of_status(&status).unwrap();
    assert_eq!((status.code(), error.reason()), (Code::ResourceExhausted, ErrorReason::DiskFull));
    assert!(!error.may_have_happened && error.retry_after_ms > 0, "{error:?}");
    assert!(status.message().contains("free some space"), "{status:?}");
    // Callers that would wait without limit are told as well, and callers over HTTP.
    let lease = r#"{"id": "7", "ttl": 60}"#;
    let (code, answer) = node.http("POST", "/v1/lease/grant", lease).await.unwrap();
    assert!(code == 429 && answer.contains("DISK_FULL"), "{code} {answer}");
    let (code, why) = node.http("GET", "/readyz", "").await.unwrap();
    assert!(code == 503 && why.contains("the disk is full"), "{code} {why}");
    let got = registers.get(GetRequest { key: put(1).key, ..GetRequest::default() }).await.unwrap();
    assert!(got.into_inner().register.is_some(), "what is there can be read");

    std::fs::remove_file(ballast).unwrap();
    cluster.until_ready().await;
    registers.put(put(1)).await.unwrap();
    let (code, answer) = node.http("POST", "/v1/lease/grant", lease).await.unwrap();
    assert_eq!(code, 200, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disks_of_a_majority_are_told_at_every_node_and_reads_go_on() {
    let mut disks = Vec::new();
    for _ in 0..3 {
        match SmallDisk::mount(48) {
            Ok(disk) => disks.push(disk),
            Err(why) => {
                println!("skipped: no file system to fill: {why}");
                return;
            }
        }
    }
    let mut making = Making::nodes(3).flags(&["--storage-log-file-bytes", "1048576"]);
    making.data_dirs =
        disks.iter().enumerate().map(|(node, disk)| (node, disk.path().join("data"))).collect();
    let cluster = Cluster::start(making).await;
    let leader = cluster.leader().await;
    let mut registers = [0, 1, 2]
        .map(|node| RegisterServiceClient::new(cluster.nodes[node].channel(Duration::from_secs(20))));
    let put =
        |value: usize| PutRequest { key: b"k".to_vec(), value: vec![b'x'; value], ..PutRequest::default() };
    registers[leader].put(put(1)).await.unwrap();
    // The disks of the leader and of the next node.
    let full = [leader, (leader + 1) % 3];
    let ballast = full.map(|node| disks[node].fill());
    // Until both nodes have noticed: writes into space that they had allocated before still succeed.
    let until = Instant::now() + Duration::from_mins(1);
    for number in 0.. {
        let noticed = |node: &usize| cluster.nodes[*node].log().contains("the disk is full");
        if full.iter().all(noticed) {
            break;
        }
        assert!(Instant::now() < until, "nobody noticed");
        let began = Instant::now();
        if let Err(status) = registers[number % 3].put(put(60_000)).await {
            println!("put {number} after {:?}: {}", began.elapsed(), status.message());
        }
    }
    // The present leader goes on, and every node gives the same answers.
    let leads = cluster.leader().await;
    for _ in 0..3 {
        for (node, service) in registers.iter_mut().enumerate() {
            let began = Instant::now();
            let status = service.put(put(60_000)).await.unwrap_err();
            let reason = error_of_status(&status).unwrap_or_else(|| panic!("{status:?}")).reason();
            assert_eq!(reason, ErrorReason::DiskFull, "node {node}: {status:?}");
            let got = service.get(GetRequest { key: b"k".to_vec(), ..GetRequest::default() }).await;
            assert!(got.unwrap().into_inner().register.is_some(), "node {node}");
            assert!(began.elapsed() < PROMPT, "node {node} took {:?}", began.elapsed());
            let began = Instant::now();
            let mut admin = AdminServiceClient::new(cluster.nodes[node].channel(Duration::from_secs(20)));
            let limits = vec![Limit { name: "locks_max".to_owned(), value: 321, ..Limit::default() }];
            let request = SetLimitsRequest { limits, ..SetLimitsRequest::default() };
            let status = admin.set_limits(request).await.unwrap_err();
            let reason = error_of_status(&status).unwrap_or_else(|| panic!("{status:?}")).reason();
            assert_eq!(reason, ErrorReason::DiskFull, "limits by node {node}: {status:?}");
            assert!(began.elapsed() < PROMPT, "limits by node {node} took {:?}", began.elapsed());
        }
    }
    assert_eq!(cluster.leader().await, leads);
    for file in ballast {
        std::fs::remove_file(file).unwrap();
    }
    cluster.until_ready().await;
    for service in &mut registers {
        service.put(put(2)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_with_a_full_disk_passes_on_reads_of_every_kind() {
    let disk = match SmallDisk::mount(48) {
        Ok(disk) => disk,
        Err(why) => {
            println!("skipped: no file system to fill: {why}");
            return;
        }
    };
    let mut making = Making::nodes(3).flags(&["--storage-log-file-bytes", "1048576"]);
    making.data_dirs = vec![(0, disk.path().join("data"))];
    let cluster = Cluster::start(making).await;
    let channel = |node: usize| cluster.nodes[node].channel(Duration::from_secs(20));
    if cluster.leader().await == 0 {
        let transfer = TransferRequest { group_id: 0, node_id: 2, passed_on: false };
        AdminServiceClient::new(channel(0)).transfer(transfer).await.unwrap();
    }
    cluster::until("another than node 0 leads", || async { cluster.leader().await != 0 }).await;
    let mut locks = LockServiceClient::new(channel(1));
    let grant = LeaseGrantRequest { id: 7, ttl: 600, client_id: "test".to_owned(), ..Default::default() };
    locks.lease_grant(grant).await.unwrap();
    let lock = LockRequest { name: "early".to_owned(), lease_id: 7, ..LockRequest::default() };
    locks.lock(lock).await.unwrap();
    let ballast = disk.fill();
    let mut registers = RegisterServiceClient::new(channel(1));
    let until = Instant::now() + Duration::from_mins(1);
    for number in 0_u64.. {
        if cluster.nodes[0].log().contains("the disk is full") {
            break;
        }
        assert!(Instant::now() < until, "nobody noticed");
        let key = format!("k{}", number % 16).into_bytes();
        registers.put(PutRequest { key, value: vec![b'x'; 60_000], ..PutRequest::default() }).await.unwrap();
    }
    // Node 0 can't know this by itself.
    let lock = LockRequest { name: "late".to_owned(), lease_id: 7, ..LockRequest::default() };
    locks.lock(lock).await.unwrap();

    let (mut locks, mut admin) = (LockServiceClient::new(channel(0)), AdminServiceClient::new(channel(0)));
    let began = Instant::now();
    let listed = locks.list_locks(ListLocksRequest::default()).await.unwrap().into_inner().locks;
    assert!(listed.iter().map(|lock| lock.name.as_str()).eq(["early", "late"]), "{listed:?}");
    let leases = locks.lease_list(LeaseListRequest::default()).await.unwrap().into_inner().leases;
    assert_eq!(leases.iter().map(|lease| lease.claims).collect::<Vec<_>>(), [2]);
    let explain = ExplainRequest { name: "late".to_owned() };
    let explained = locks.explain(explain).await.unwrap().into_inner();
    assert!(explained.lock.is_some_and(|lock| !lock.holders.is_empty()));
    let limits = vec![Limit { name: "locks_max".to_owned(), value: 321, ..Limit::default() }];
    admin.set_limits(SetLimitsRequest { limits, ..SetLimitsRequest::default() }).await.unwrap();
    let limits = admin.get_limits(GetLimitsRequest::default()).await.unwrap().into_inner().limits;
    assert_eq!(limits.iter().find(|limit| limit.name == "locks_max").unwrap().value, 321);
    let (status, body) = cluster.nodes[0].http("GET", "/v1/locks", "").await.unwrap();
    assert!(status == 200 && body.contains("late"), "{status} {body}");
    assert!(began.elapsed() < PROMPT, "all that took {:?}", began.elapsed());
    // An observation at this node would fall behind without notice.
    let observe = ObserveRequest { name: "boss".to_owned() };
    let mut leaders = ElectionServiceClient::new(channel(0)).observe(observe).await.unwrap().into_inner();
    let refused = error_of_status(&leaders.message().await.unwrap_err()).unwrap();
    assert_eq!(refused.reason(), ErrorReason::NotLeader, "{refused:?}");
    assert!(refused.message.contains("disk is full") && !refused.leader_address.is_empty(), "{refused:?}");
    assert!(began.elapsed() < PROMPT, "all that took {:?}", began.elapsed());

    std::fs::remove_file(ballast).unwrap();
    cluster.until_ready().await;
}
