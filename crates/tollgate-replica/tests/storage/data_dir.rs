//! Ownership of data directories: which nodes and processes may use one.

use crate::world::{create_data_dir, dir, node, open_data_dir, open_engine};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tollgate_replica::{
    DataDir, DataDirError, Engine, EngineConfig, Identity, Meeting, Members, NodeAddresses, PeerDisks,
    SeedMembers, Storage,
};
use tollgate_types::{ClusterId, DiskId, HostPort};

const CLUSTER: ClusterId = ClusterId::new(77);
const DISK: DiskId = DiskId::new(u64::MAX);

fn founded(path: &Path) {
    create_data_dir(path, CLUSTER, node(3), DISK).unwrap().finish([].into()).unwrap();
}

fn refusal(path: &Path) -> DataDirError {
    open_data_dir(path, Some((CLUSTER, node(3)))).unwrap_err()
}

#[test]
fn a_directory_that_was_founded_opens_for_its_node() {
    let parent = dir();
    let path = parent.path().join("new");
    let founding = create_data_dir(&path, CLUSTER, node(3), DISK).unwrap();
    drop(Engine::create(founding.path(), EngineConfig::default()).unwrap());
    drop(founding.finish([].into()).unwrap());
    for expected in [None, Some((CLUSTER, node(3)))] {
        let dir = open_data_dir(&path, expected).unwrap();
        let Identity { cluster, node: of, disk, .. } = dir.identity();
        assert_eq!((cluster, of, disk), (CLUSTER, node(3), DISK));
        assert!(open_engine(dir.path(), EngineConfig::default()).unwrap().load().unwrap().is_empty());
    }
}

#[test]
fn a_missing_or_empty_directory_is_refused_and_the_message_says_what_to_do() {
    let dir = dir();
    for path in [dir.path().to_path_buf(), dir.path().join("missing")] {
        let refusal = refusal(&path);
        assert!(matches!(refusal, DataDirError::Empty { .. }), "{refusal}");
        let message = refusal.to_string();
        assert!(message.contains("bootstrap a new cluster or join one"), "{message}");
        assert!(message.contains("join under a new node id"), "{message}");
    }
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    assert!(matches!(refusal(dir.path()), DataDirError::Empty { .. }));
}

#[test]
fn another_nodes_or_clusters_directory_is_refused() {
    let dir = dir();
    founded(dir.path());
    let open = |cluster, number| open_data_dir(dir.path(), Some((cluster, node(number)))).unwrap_err();
    assert!(matches!(open(ClusterId::new(78), 3), DataDirError::ForeignCluster { .. }));
    assert!(matches!(open(CLUSTER, 4), DataDirError::ForeignNode { .. }));
}

#[test]
fn a_directory_that_has_something_is_not_founded() {
    let dir = dir();
    fs::write(dir.path().join("photo.jpg"), b"dear").unwrap();
    let refusal = create_data_dir(dir.path(), CLUSTER, node(3), DISK).unwrap_err();
    assert!(refusal.to_string().contains("not empty (it has photo.jpg)"), "{refusal}");
    assert!(matches!(self::refusal(dir.path()), DataDirError::NoIdentity { .. }));
    assert_eq!(fs::read(dir.path().join("photo.jpg")).unwrap(), b"dear");

    let dir = self::dir();
    founded(dir.path());
    let refusal = create_data_dir(dir.path(), CLUSTER, node(3), DISK).unwrap_err();
    assert!(matches!(refusal, DataDirError::NotEmpty { .. }), "{refusal}");
}

#[test]
fn a_founding_that_was_not_finished_is_told_from_one_that_was_and_begins_anew() {
    let dir = dir();
    let founding = create_data_dir(dir.path(), CLUSTER, node(3), DISK).unwrap();
    drop(Engine::create(founding.path(), EngineConfig::default()).unwrap());
    drop(founding);
    assert!(matches!(refusal(dir.path()), DataDirError::Unfinished { .. }));
    let other = create_data_dir(dir.path(), CLUSTER, node(4), DISK).unwrap_err();
    assert!(matches!(other, DataDirError::ForeignNode { .. }), "{other}");

    let founding = create_data_dir(dir.path(), CLUSTER, node(3), DISK).unwrap();
    drop(Engine::create(founding.path(), EngineConfig::default()).unwrap());
    drop(founding.finish([].into()).unwrap());
    assert!(open_data_dir(dir.path(), None).is_ok());
}

#[test]
fn a_crash_before_the_first_identity_leaves_an_empty_directory() {
    let dir = dir();
    fs::write(dir.path().join("lock"), b"").unwrap();
    fs::write(dir.path().join("identity.tmp"), b"TG").unwrap();
    assert!(matches!(refusal(dir.path()), DataDirError::Empty { .. }));
    founded(dir.path());
    assert!(!dir.path().join("identity.tmp").exists());
    assert!(open_data_dir(dir.path(), None).is_ok());
}

#[test]
fn a_second_user_is_refused_while_the_first_lives() {
    let dir = dir();
    let founding = create_data_dir(dir.path(), CLUSTER, node(3), DISK).unwrap();
    let second = create_data_dir(dir.path(), CLUSTER, node(3), DISK).unwrap_err();
    assert!(matches!(second, DataDirError::InUse { .. }), "{second}");
    let first = founding.finish([].into()).unwrap();
    assert!(matches!(refusal(dir.path()), DataDirError::InUse { .. }));
    drop(first);
    assert!(open_data_dir(dir.path(), None).is_ok());
}

/// `flock` is the tool that operators and other processes have.
#[test]
fn another_process_is_kept_out_and_keeps_us_out() {
    let dir = dir();
    founded(dir.path());
    let lock = dir.path().join("lock");
    let _alone = crate::full::alone();
    let mut flock = std::process::Command::new("flock");
    let Ok(mut other) = crate::world::start(flock.arg(&lock).arg("sleep").arg("60")) else {
        println!("skipped: this machine has no flock");
        return;
    };
    let started = std::time::Instant::now();
    while open_data_dir(dir.path(), None).is_ok() {
        assert!(started.elapsed().as_secs() < 30, "the other process never locked it");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(matches!(refusal(dir.path()), DataDirError::InUse { .. }));
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_newer_directory_is_told_from_a_damaged_one() {
    let dir = dir();
    founded(dir.path());
    let path = dir.path().join("identity");
    let bytes = fs::read(&path).unwrap();
    for byte in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[byte] ^= 4;
        fs::write(&path, damaged).unwrap();
        assert!(matches!(refusal(dir.path()), DataDirError::Damaged { .. }), "byte {byte}");
    }
    fs::write(&path, b"").unwrap();
    assert!(matches!(refusal(dir.path()), DataDirError::Damaged { .. }));
    for format in [2, 4] {
        let mut other = bytes[..bytes.len() - 4].to_vec();
        other[8] = format;
        other.extend([1, 2, 3]);
        other.extend(crc32fast::hash(&other).to_le_bytes());
        fs::write(&path, other).unwrap();
        let refusal = refusal(dir.path());
        match format {
            2 => assert!(matches!(refusal, DataDirError::TooOld { found: 2, supported: 3, .. }), "{refusal}"),
            _ => assert!(matches!(refusal, DataDirError::TooNew { found: 4, supported: 3, .. }), "{refusal}"),
        }
    }
}

#[test]
fn p4_a_peers_first_disk_is_remembered_and_another_is_told_from_it() {
    let dir = dir();
    drop(create_data_dir(dir.path(), CLUSTER, node(3), DISK).unwrap().finish([].into()).unwrap());
    let disk = DiskId::new;
    for (peer, with, meeting) in [
        (1, 11, Meeting::First),
        (1, 11, Meeting::Again),
        (1, 12, Meeting::OtherDisk(disk(11))),
        (2, 12, Meeting::First),
        // The refused disk did not replace the recorded one.
        (1, 11, Meeting::Again),
    ] {
        // Each step is as after a restart.
        let opened = open_data_dir(dir.path(), None).unwrap();
        let mut disks = PeerDisks::open(&opened).unwrap();
        assert_eq!(disks.meet(node(peer), disk(with)).unwrap(), meeting, "{peer} {with}");
    }
}

#[test]
fn a_founded_directory_remembers_who_has_not_heard_of_it() {
    let dir = dir();
    let founding = create_data_dir(dir.path(), CLUSTER, node(3), DISK).unwrap();
    drop(founding.finish([node(1), node(2)].into()).unwrap());
    for (peer, last) in [(1, false), (1, false), (4, false), (2, true), (2, false)] {
        let opened = open_data_dir(dir.path(), None).unwrap();
        let mut disks = PeerDisks::open(&opened).unwrap();
        assert_eq!(disks.accepted_by(node(peer)).unwrap(), last, "{peer}");
    }
    let opened = open_data_dir(dir.path(), None).unwrap();
    assert!(PeerDisks::open(&opened).unwrap().awaited().is_empty());
}

#[test]
fn p15_what_is_known_of_peers_is_refused_when_it_is_damaged_or_gone() {
    let dir = dir();
    founded(dir.path());
    let path = dir.path().join("peers");
    let opened = open_data_dir(dir.path(), None).unwrap();
    PeerDisks::open(&opened).unwrap().meet(node(1), DISK).unwrap();
    let bytes = fs::read(&path).unwrap();
    for byte in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[byte] ^= 4;
        fs::write(&path, damaged).unwrap();
        let refusal = PeerDisks::open(&opened).unwrap_err();
        assert!(matches!(refusal, DataDirError::Damaged { .. }), "byte {byte}: {refusal}");
    }
    fs::remove_file(&path).unwrap();
    let refusal = PeerDisks::open(&opened).unwrap_err();
    assert!(matches!(refusal, DataDirError::Damaged { .. }), "{refusal}");
}

#[test]
fn a_node_that_joined_remembers_whom_it_was_told_of_and_notices_damage() {
    let temp = tempfile::TempDir::new().unwrap();
    let (first, joined) = (temp.path().join("first"), temp.path().join("joined"));
    let founding = create_data_dir(&first, ClusterId::new(7), node(1), DiskId::new(1)).unwrap();
    let dir = founding.finish(BTreeSet::new()).unwrap();
    assert_eq!(SeedMembers::read(&dir).unwrap(), None);
    assert!(!DataDir::is_founded(&joined).unwrap());
    let founding = create_data_dir(&joined, ClusterId::new(7), node(2), DiskId::new(2)).unwrap();
    assert!(!DataDir::is_founded(&joined).unwrap(), "not before it is finished");
    let peer = HostPort::new("10.0.0.1:7401").unwrap();
    let found = NodeAddresses { peer, ..NodeAddresses::UNKNOWN };
    let told = SeedMembers(Members::first([node(1)], []).found_at([(node(1), found)]));
    told.write(&founding).unwrap();
    let dir = founding.finish(BTreeSet::new()).unwrap();
    assert!(DataDir::is_founded(&joined).unwrap());
    assert_eq!(SeedMembers::read(&dir).unwrap(), Some(told));
    let path = joined.join("members");
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, bad).unwrap();
        assert!(SeedMembers::read(&dir).is_err(), "byte {at}");
    }
}
