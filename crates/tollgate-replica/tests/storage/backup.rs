//! Backups: a saved backup is read back to the byte, or refused; and nodes restored in the same way are one cluster.

use crate::world::{create_data_dir, open_data_dir, open_engine, wait_for_starts};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tollgate_core::{
    APPLY_VERSION_SUPPORTED, AcquireLock, Command, Entry, GrantLease, LeaseChoice, Op, Reply, State, Txn,
    Wait,
};
use tollgate_replica::backup::{
    BACKUP_VERSION, BackupError, BackupHead, BackupReader, BackupWriter, GroupOrigin, TimeSource,
};
use tollgate_replica::restore::{Restoration, RestoreError, inspect};
use tollgate_replica::{DataDirError, EngineConfig, Members, PeerDisks, Storage};
use tollgate_types::{
    Address, ClientId, ClusterId, DiskId, DurationMs, GroupId, Key, LeaseId, Limits, Lineage, LogTime,
    Metadata, Mode, Name, NodeId, Owner, Revision, Value,
};

const TAKEN_UNIX_MS: u64 = 1_700_000_000_000;

fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

fn members() -> Members {
    Members::first([node(1), node(2), node(3)], [node(3)])
}

fn head(groups: u32) -> BackupHead {
    BackupHead {
        cluster: ClusterId::new(7),
        cluster_name: "prod".to_owned(),
        taken_unix_ms: TAKEN_UNIX_MS,
        version: "0.1.0".to_owned(),
        members: Members::first([node(1), node(2), node(3)], []),
        groups,
        disks: BTreeSet::new(),
    }
}

fn lock(lease: u64, name: &str) -> Command {
    Command::AcquireLock(AcquireLock {
        names: Name::new(name).unwrap().into(),
        lease: LeaseId::new(lease).unwrap(),
        owner: Owner::LEASE,
        mode: Mode::Exclusive,
        wait: Wait::Forever,
        lock_delay: DurationMs::ZERO,
        max_hold: None,
        metadata: Metadata::NONE,
        value: None,
        attended: false,
        request: None,
    })
}

fn grant(lease: u64) -> Command {
    Command::GrantLease(GrantLease {
        id: LeaseChoice::Chosen(LeaseId::new(lease).unwrap()),
        ttl: DurationMs::from_secs(30),
        client_id: ClientId::NONE,
        address: Address::NONE,
        revoke_on_disconnect: false,
    })
}

/// A state with a lease that holds, a lease that waits, and registers.
fn state(registers: u64) -> State {
    let mut state = State::new(Limits::DEFAULT);
    let mut apply = |command| drop(state.apply(Entry::new(LogTime::from_ms(5), command)));
    for command in [grant(1), grant(2), lock(1, "jobs"), lock(2, "jobs")] {
        apply(command);
    }
    for number in 0..registers {
        let key = Key::new(format!("k/{number}")).unwrap();
        let put = Op::Put { key, value: Value::new(vec![b'v'; 40]).unwrap(), lease: None };
        apply(Command::Txn(Txn { request: None, compares: vec![], then: vec![put], otherwise: vec![] }));
    }
    state
}

fn backup(states: &[(u32, State)]) -> Vec<u8> {
    let groups = u32::try_from(states.len()).unwrap();
    let mut writer = BackupWriter::new(Vec::new(), &head(groups)).unwrap();
    for (group, state) in states {
        writer.group(GroupId::new(*group), 9, None, &state.snapshot()).unwrap();
    }
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<u64>, BackupError> {
    let mut reader = BackupReader::open(bytes)?;
    let mut hashes = Vec::new();
    while let Some((_, state)) = reader.next_group()? {
        hashes.push(state.snapshot().hash());
    }
    Ok(hashes)
}

struct Saved {
    dir: tempfile::TempDir,
}

impl Saved {
    fn new() -> Saved {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b"), backup(&[(0, state(20)), (3, state(0))])).unwrap();
        Saved { dir }
    }

    fn restoration(&self, node_number: u64) -> Restoration {
        Restoration {
            file: self.dir.path().join("b"),
            cluster_name: "prod-2".to_owned(),
            members: members(),
            above_token: 1_000,
            grace: DurationMs::from_secs(600),
            node: node(node_number),
            data_dir: self.data_dir(node_number),
        }
    }

    fn data_dir(&self, node_number: u64) -> PathBuf {
        self.dir.path().join(format!("n{node_number}"))
    }

    fn restore(&self, restoration: &Restoration) -> Result<ClusterId, RestoreError> {
        let _ = self;
        wait_for_starts();
        restoration.run(EngineConfig::default(), DiskId::new(restoration.node.number() * 11))
    }
}

#[test]
fn a_backup_comes_back_as_it_was_saved() {
    // The first group has more than one piece, and the ids are not consecutive.
    let states = [(0, state(3_000)), (7, state(1))];
    let hashes: Vec<u64> = states.iter().map(|(_, state)| state.snapshot().hash()).collect();
    let bytes = backup(&states);
    assert!(bytes.len() > 3 * 65_536, "{} bytes", bytes.len());
    assert_eq!(read(&bytes).unwrap(), hashes);
    assert_eq!(*BackupReader::open(&bytes[..]).unwrap().head(), head(2));
}

/// Bytes that the binary before version 2 wrote for [`backup`] of a state with a register and an empty state.
const VERSION_1: &str = "\
    54474241434b5550011e0000008a8f2fc801070470726f6480d095ffbc3105302e312e30030102030000000004000203\
    000000d8b5198502000948010000070bab2303c5023d0100001d0e6df0015447534e0105050101168004802080ade204\
    c0843d80897a904e904e10800864c0cf24e0d403904ec0843d8080048001904e80808020e807a09c01904ea08d060001\
    010000020101b0ea01b5ea0101000005000000020202b0ea01b5ea010100000500000003010101046a6f627300000003\
    03030105ffffffffffffffffff01000000010003020201046a6f62730000000004040105ffffffffffffffffff010000\
    00010005036b2f3000287676767676767676767676767676767676767676767676767676767676767676767676767676\
    76760005050107031001046a6f62730100000300030003010007041001046a6f62730200000400000004010007053211\
    036b2f302876767676767676767676767676767676767676767676767676767676767676767676767676767676000505\
    0108bb7ddbcd0fc452b2030000001be634ae020309590000004b552ee003574f0000004b0078e5015447534e01000001\
    01168004802080ade204c0843d80897a904e904e10800864c0cf24e0d403904ec0843d8080048001904e80808020e807\
    a09c01904ea08d060001010000086973df159a533e4f22000000f671b03404020009050501c5029395e6cd0103090000\
    01579690dca6020857d7680ed857e4a8";

fn unhexed(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Binaries that know no other version can read it, so a rolling upgrade needs no special step.
#[test]
fn a_running_cluster_is_saved_in_version_1_to_the_byte() {
    let states = [(0, state(1)), (3, State::new(Limits::DEFAULT))];
    let golden = unhexed(VERSION_1);
    assert_eq!(backup(&states), golden);
    let hashes: Vec<u64> = states.iter().map(|(_, state)| state.snapshot().hash()).collect();
    assert_eq!(read(&golden).unwrap(), hashes);
    assert_eq!(*BackupReader::open(&golden[..]).unwrap().head(), head(2));
}

fn origin() -> GroupOrigin {
    GroupOrigin {
        node: node(2),
        term: 5,
        committed: 8,
        current_unix_ms: 300,
        time_source: TimeSource::SnapshotFile,
        complete: true,
    }
}

/// Encodes a backup by the description of the format, and not by the code: a frame has its length and CRC-32, and the
/// last frame the hash of all bytes before it.
fn described(parts: &[Vec<u8>], manifest: &[u8]) -> Vec<u8> {
    let frame = |payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap();
        [&length.to_le_bytes(), &crc32fast::hash(payload).to_le_bytes(), payload].concat()
    };
    let mut bytes = b"TGBACKUP\x02".to_vec();
    for part in parts {
        bytes.extend(frame(part));
    }
    let mut last = manifest.to_vec();
    last.push(8);
    last.extend(xxhash_rust::xxh3::xxh3_64(&bytes).to_le_bytes());
    bytes.extend(frame(&last));
    bytes
}

#[test]
fn version_2_has_the_bytes_of_its_description() {
    let state = State::new(Limits::DEFAULT);
    let snapshot: Vec<u8> = state.snapshot().chunks(4_096).flatten().collect();
    let length = u8::try_from(snapshot.len()).unwrap();
    assert!(length < 0x80, "one byte of length: this test must say it otherwise");
    // Tag, id 7, no name, 300 ms, version, voters 1 to 3 and nobody else, next id 4, no addresses, 1 group; disks 2, 3.
    let first =
        b"\x01\x07\x00\xac\x02\x050.1.0\x03\x01\x02\x03\x00\x00\x00\x00\x04\x00\x01\x02\x02\x03".to_vec();
    // Tag, group 0, entry 9; node 2, term 5, commit 8, 300 ms, by file, complete.
    let group = b"\x02\x00\x09\x02\x05\x08\xac\x02\x02\x01".to_vec();
    let piece = [&[3, length][..], &snapshot].concat();
    // Tag, 1 group: 0, entry 9, revision 0, log time 0, apply version 1, size, checksum.
    let mut manifest = vec![4, 1, 0, 9, 0, 0, 1, length];
    let mut checksum = crc32fast::hash(&snapshot);
    while checksum >= 0x80 {
        manifest.push((checksum & 0x7f) as u8 | 0x80);
        checksum >>= 7;
    }
    manifest.push(u8::try_from(checksum).unwrap());
    let expected = described(&[first, group, piece], &manifest);

    let disks = BTreeSet::from([node(2), node(3)]);
    let head = BackupHead { cluster_name: String::new(), taken_unix_ms: 300, disks, ..head(1) };
    let mut writer = BackupWriter::new(Vec::new(), &head).unwrap();
    writer.group(GroupId::new(0), 9, Some(origin()), &state.snapshot()).unwrap();
    let written = writer.finish().unwrap();
    assert_eq!(written, expected);
    let mut reader = BackupReader::open(&expected[..]).unwrap();
    assert_eq!(*reader.head(), head);
    assert_eq!(reader.next_group().unwrap().unwrap().0.origin, Some(origin()));
    assert!(reader.next_group().unwrap().is_none());
    for at in 0..expected.len() {
        let mut damaged = expected.clone();
        damaged[at] ^= 1;
        assert!(read(&damaged).is_err(), "byte {at}");
        assert!(read(&expected[..at]).is_err(), "cut at {at}");
    }
}

/// P15.
#[test]
fn a_damaged_byte_anywhere_is_refused() {
    let bytes = backup(&[(0, state(3)), (1, state(0))]);
    read(&bytes).unwrap();
    for at in 0..bytes.len() {
        for bit in [1, 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] ^= bit;
            assert!(read(&damaged).is_err(), "byte {at} of {} may be changed by {bit}", bytes.len());
        }
    }
}

#[test]
fn a_backup_that_is_cut_off_or_goes_on_is_refused() {
    let bytes = backup(&[(0, state(3)), (1, state(0))]);
    for end in 0..bytes.len() {
        let error = read(&bytes[..end]).expect_err("cut off");
        let known = matches!(error, BackupError::Damaged { .. } | BackupError::NotABackup);
        assert!(known, "at {end}: {error}");
    }
    assert!(read(&[&bytes[..], &[0]].concat()).is_err(), "a byte more");
    assert!(read(&[&bytes[..], &bytes[..]].concat()).is_err(), "twice");
}

/// Each part has its checksum; only the hash over all of them detects a part in the wrong place.
#[test]
fn parts_of_two_backups_make_none() {
    let (one, other) = (backup(&[(0, state(3))]), backup(&[(0, state(4))]));
    let manifest_at = |bytes: &[u8]| {
        let mut at = 9;
        loop {
            let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize + 8;
            if at + length == bytes.len() {
                return at;
            }
            at += length;
        }
    };
    let mixed = [&one[..manifest_at(&one)], &other[manifest_at(&other)..]].concat();
    let error = read(&mixed).expect_err("two halves");
    assert!(error.to_string().contains("hash"), "{error}");
}

/// A backup of an empty group whose state has this apply version; all checksums before the manifest's hash are right.
fn backup_of_version(version: u8) -> Vec<u8> {
    const HEAD_BYTES: usize = 8;
    let mut bytes = backup(&[(0, State::new(Limits::DEFAULT))]);
    let number = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let seal = |bytes: &mut [u8], at: usize| {
        let body = at + HEAD_BYTES..at + HEAD_BYTES + number(bytes, at);
        let crc = crc32fast::hash(&bytes[body]);
        bytes[at + 4..at + HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    };
    // Tag, mark, format version, log time 0, revision 0, apply version.
    let state = bytes.windows(5).position(|window| window == b"\x01TGSN").unwrap();
    bytes[state + 8] = version;
    seal(&mut bytes, state - HEAD_BYTES);
    // Find the part of the backup that contains the state.
    let mut part = b"TGBACKUP\x01".len();
    while part + HEAD_BYTES + number(&bytes, part) < state {
        part += HEAD_BYTES + number(&bytes, part);
    }
    seal(&mut bytes, part);
    bytes
}

#[test]
fn a_backup_of_a_newer_binary_is_not_called_damaged() {
    let known = u8::try_from(APPLY_VERSION_SUPPORTED).unwrap();
    let says = read(&backup_of_version(known + 1)).unwrap_err().to_string();
    assert!(says.contains("use the binary that saved it, or a newer one"), "{says}");
    assert!(says.contains(&format!("apply version {}", known + 1)) && !says.contains("damaged"), "{says}");
    // Version 0 never existed.
    assert!(matches!(read(&backup_of_version(0)), Err(BackupError::Damaged { .. })));
}

#[test]
fn other_files_are_no_backups() {
    for bytes in [&b""[..], b"TG", b"not a backup at all", &[0; 4_096]] {
        assert!(matches!(read(bytes), Err(BackupError::NotABackup)));
    }
    let mut newer = backup(&[(0, state(0))]);
    newer[8] = BACKUP_VERSION + 1;
    let error = read(&newer).expect_err("a newer format");
    assert!(error.to_string().contains("newer one"), "{error}");
}

#[test]
fn a_summary_says_what_is_in_a_backup() {
    let saved = Saved::new();
    let summary = inspect(&saved.dir.path().join("b")).unwrap();
    let groups: Vec<_> = summary.groups.iter().map(|group| group.group.group.number()).collect();
    assert_eq!(groups, [0, 3]);
    let first = &summary.groups[0];
    assert_eq!((first.locks, first.leases, first.registers, first.group.index), (1, 2, 20, 9));
    assert_eq!(summary.revision_max(), Revision::new(24).unwrap());
    assert_eq!(summary.grace(), DurationMs::from_ms(Limits::DEFAULT.ttl_ms_max));
}

/// P2: 2^32, plus 2^20 for each second, above all groups.
#[test]
fn the_token_to_go_on_above_follows_from_the_age() {
    let saved = Saved::new();
    let summary = inspect(&saved.dir.path().join("b")).unwrap();
    let above = |ms: u64| summary.above_token(TAKEN_UNIX_MS + ms).unwrap();
    assert_eq!(above(0), 24 + (1 << 32));
    assert_eq!(above(1), 24 + (1 << 32) + (1 << 20), "a second that has begun counts");
    assert_eq!(above(3_600_000), 24 + (1 << 32) + 3_600 * (1 << 20));
    let future = summary.above_token(TAKEN_UNIX_MS - 1).unwrap_err().to_string();
    assert!(future.contains("in the future") && future.contains("--above-token"), "{future}");
    let old = summary.above_token(TAKEN_UNIX_MS + 11 * 366 * 86_400_000).unwrap_err().to_string();
    assert!(old.contains("days old") && old.contains("--above-token"), "{old}");
}

/// The initial snapshot of a group in a directory, byte for byte.
fn first_snapshot(dir: &Path, group: u32) -> Vec<u8> {
    fs::read(dir.join(format!("snapshots/{group}-1.snap"))).unwrap()
}

/// P12.
#[test]
fn nodes_restored_alike_begin_with_the_same_bytes_and_disks_of_their_own() {
    let saved = Saved::new();
    let ids: Vec<ClusterId> = (1..=3).map(|node| saved.restore(&saved.restoration(node)).unwrap()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let mut disks = Vec::new();
    for number in 1..=3 {
        let dir = saved.data_dir(number);
        for group in [0, 3] {
            assert_eq!(first_snapshot(&dir, group), first_snapshot(&saved.data_dir(1), group));
        }
        let opened = open_data_dir(&dir, Some((ids[0], node(number)))).unwrap();
        disks.push(opened.identity().disk);
        let awaited = PeerDisks::open(&opened).unwrap().awaited().clone();
        assert!(!awaited.contains(&node(number)) && awaited.len() == 2, "{awaited:?}");
    }
    disks.dedup();
    assert_eq!(disks.len(), 3);
}

#[test]
fn a_restored_group_goes_on_above_the_token_and_grants_after_the_grace() {
    let saved = Saved::new();
    saved.restore(&saved.restoration(1)).unwrap();
    let loaded = open_engine(&saved.data_dir(1), EngineConfig::default()).unwrap().load().unwrap();
    assert_eq!(loaded.len(), 2);
    let mut state = loaded.into_iter().next().unwrap().state.unwrap();
    let opens = state.closed_until().unwrap();
    assert_eq!(opens, state.now().after(DurationMs::from_secs(600)));
    let mut apply = |at, command| state.apply(Entry::new(at, command));
    apply(LogTime::from_ms(9), Command::Tick);
    apply(opens, grant(5));
    let reply = apply(opens, lock(5, "jobs")).reply;
    assert!(matches!(reply, Reply::Acquired { token, .. } if token.get() > 1_000), "{reply:?}");
    assert!(state.register(&Key::new("k/19").unwrap()).is_some());
}

/// A store can tell the restored cluster from a cluster that was founded anew.
#[test]
fn a_restored_cluster_is_of_the_lineage_of_its_backup_and_of_no_other() {
    let lineage = Lineage::new(77);
    let mut newer = state(1);
    newer.apply(Entry::new(newer.now(), Command::RaiseApplyVersion(APPLY_VERSION_SUPPORTED)));
    newer.apply(Entry::new(newer.now(), Command::SetLineage(lineage.unwrap())));
    // A group that has not received the lineage yet, and a backup without any lineage.
    for (states, kept) in [([newer, state(0)], lineage), ([state(1), state(0)], None)] {
        let saved = Saved::new();
        let [first, second] = states;
        fs::write(saved.dir.path().join("b"), backup(&[(0, first), (3, second)])).unwrap();
        assert_eq!(inspect(&saved.dir.path().join("b")).unwrap().lineage(), kept);
        saved.restore(&saved.restoration(1)).unwrap();
        let loaded = open_engine(&saved.data_dir(1), EngineConfig::default()).unwrap().load().unwrap();
        assert_eq!(loaded.into_iter().next().unwrap().state.unwrap().lineage(), kept);
    }
}

/// Otherwise they could elect each other's leaders and hand out one token twice.
#[test]
fn nodes_restored_differently_are_of_different_clusters() {
    let saved = Saved::new();
    let usual = saved.restoration(1).cluster_id().unwrap();
    let same_elsewhere = saved.restoration(2).cluster_id().unwrap();
    assert_eq!(usual, same_elsewhere, "the node itself does not count");
    let others = [
        Restoration { cluster_name: "prod-3".to_owned(), ..saved.restoration(1) },
        Restoration { above_token: 1_001, ..saved.restoration(1) },
        Restoration { grace: DurationMs::ZERO, ..saved.restoration(1) },
        Restoration { members: Members::first([node(1), node(2)], []), ..saved.restoration(1) },
    ];
    for other in others {
        assert_ne!(other.cluster_id().unwrap(), usual, "{other:?}");
    }
    fs::write(saved.dir.path().join("b"), backup(&[(0, state(20)), (3, state(1))])).unwrap();
    assert_ne!(saved.restoration(1).cluster_id().unwrap(), usual, "another backup");
}

#[test]
fn what_can_not_be_restored_leaves_no_data_directory() {
    let saved = Saved::new();
    let same_name = Restoration { cluster_name: "prod".to_owned(), ..saved.restoration(1) };
    assert!(matches!(saved.restore(&same_name), Err(RestoreError::SameName { .. })));
    let low = Restoration { above_token: 23, ..saved.restoration(1) };
    assert!(matches!(saved.restore(&low), Err(RestoreError::Resume(_))));
    let high = Restoration { above_token: 1 << 53, ..saved.restoration(1) };
    assert!(matches!(saved.restore(&high), Err(RestoreError::Resume(_))));
    let mut bytes = fs::read(saved.dir.path().join("b")).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(saved.dir.path().join("b"), &bytes).unwrap();
    assert!(matches!(saved.restore(&saved.restoration(1)), Err(RestoreError::Backup { .. })));
    assert!(!saved.data_dir(1).exists());
}

#[test]
fn a_directory_with_data_is_never_restored_over() {
    let saved = Saved::new();
    saved.restore(&saved.restoration(1)).unwrap();
    let again = saved.restore(&saved.restoration(1));
    assert!(matches!(again, Err(RestoreError::DataDir(DataDirError::NotEmpty { .. }))), "{again:?}");
}

#[test]
fn a_restore_that_was_interrupted_is_begun_anew() {
    let saved = Saved::new();
    let restoration = saved.restoration(1);
    let cluster = restoration.cluster_id().unwrap();
    drop(create_data_dir(&saved.data_dir(1), cluster, node(1), DiskId::new(4)).unwrap());
    fs::write(saved.data_dir(1).join("half"), b"x").unwrap();
    assert_eq!(saved.restore(&restoration).unwrap(), cluster);
    assert!(!saved.data_dir(1).join("half").exists());
}

/// The token is derived from the clock unless it is given, and the cluster's id from the token.
#[test]
fn a_restore_that_was_interrupted_is_begun_anew_above_another_token() {
    let saved = Saved::new();
    let first = saved.restoration(1);
    let second = Restoration { above_token: first.above_token + 1, ..saved.restoration(1) };
    let (interrupted, cluster) = (first.cluster_id().unwrap(), second.cluster_id().unwrap());
    assert_ne!(interrupted, cluster);
    drop(create_data_dir(&saved.data_dir(1), interrupted, node(1), DiskId::new(4)).unwrap());
    assert_eq!(saved.restore(&second).unwrap(), cluster);
    let expected = Some((cluster, node(1)));
    assert_eq!(open_data_dir(&saved.data_dir(1), expected).unwrap().identity().cluster, cluster);
    // A finished directory has made promises.
    let third = saved.restore(&first);
    assert!(matches!(third, Err(RestoreError::DataDir(DataDirError::NotEmpty { .. }))), "{third:?}");
}
