//! Backups from the disks of stopped nodes: acknowledged entries that are on one of them are in the backup, damage is
//! refused, and no directory is changed.

use crate::world::{
    self, appended, batch_ends, create_data_dir, group, last_log, log_files, node, open_data_dir,
    open_engine, write,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tollgate_core::{
    APPLY_VERSION_SUPPORTED, Command, ENTRY_FORMAT_VERSION, Entry, Op, State, Txn, Writer, encode_command,
};
use tollgate_replica::backup::{BackupReader, GroupOrigin, TimeSource};
use tollgate_replica::restore::{Restoration, RestoreError, inspect};
use tollgate_replica::salvage::{Salvage, SalvageError};
use tollgate_replica::{
    DATA_FORMAT, DataDir, DataDirError, Engine, EngineConfig, EntryKind, GroupWrite, LogEntry, Members,
    ReplicaKind, Storage, Vote, bootstrap_from, join,
};
use tollgate_types::{
    ClusterId, DiskId, DurationMs, GroupId, GroupMap, Key, Limits, LogTime, Value, WallTime,
};

/// Wall time at which the leaders' clocks begin.
const WALL_UNIX_MS: u64 = 1_700_000_000_000;

/// The data directory of one node out of three, the third of which is a witness, with its storage open.
struct Disk {
    _dir: DataDir,
    path: PathBuf,
    engine: Engine,
    writes: u64,
}

struct Disks {
    dir: TempDir,
}

fn members() -> Members {
    Members::first([node(1), node(2), node(3)], [node(3)])
}

fn first_state(number: u32, groups: u32) -> State {
    State::of_group(Limits::DEFAULT, group(number), GroupMap::even(groups).unwrap().into())
}

fn put(key: u64) -> Command {
    let key = Key::new(format!("k/{key}")).unwrap();
    let put = Op::Put { key, value: Value::new(b"v").unwrap(), lease: None };
    Command::Txn(Txn { request: None, compares: vec![], then: vec![put], otherwise: vec![] })
}

fn encoded(index: u64, term: u64, entry: &Entry, format: u8) -> LogEntry {
    let (mut command, mut data) = (Vec::new(), Vec::new());
    encode_command(format, (entry.at, entry.wall), &entry.command, &mut command);
    Writer::new(&mut data).bytes(&command);
    LogEntry { index, term, kind: EntryKind::Commands, data: Bytes::from(data) }
}

/// A write to a register, a different one for each index; each entry is a second later than the one before.
fn entry(index: u64, term: u64) -> LogEntry {
    let wall = WallTime::from_unix_ms(WALL_UNIX_MS + index * 1_000);
    let entry = Entry { at: LogTime::from_ms(index), wall, command: put(index) };
    encoded(index, term, &entry, ENTRY_FORMAT_VERSION)
}

fn entries(from: u64, to: u64, term: u64) -> Vec<LogEntry> {
    (from..=to).map(|index| entry(index, term)).collect()
}

fn committed(term: u64, commit: u64) -> GroupWrite {
    GroupWrite { vote: Some(Vote { term, voted_for: None, commit }), ..GroupWrite::new(group(0)) }
}

impl Disks {
    fn new() -> Disks {
        Disks { dir: world::dir() }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.path().join(format!("n{number}"))
    }

    /// A node's directory as a bootstrap makes it: the log of every group begins after entry 1.
    fn founded(&self, number: u64, groups: u32) -> Disk {
        self.founded_of(ClusterId::new(7), number, groups)
    }

    fn founded_of(&self, cluster: ClusterId, number: u64, groups: u32) -> Disk {
        let path = self.path(number);
        let founding = create_data_dir(&path, cluster, node(number), DiskId::new(number * 11)).unwrap();
        let mut engine = Engine::create(&path, EngineConfig::default()).unwrap();
        for of in 0..groups {
            let state = first_state(of, groups);
            bootstrap_from(&mut engine, node(number), group(of), &members(), &state).unwrap();
        }
        Disk { _dir: founding.finish(BTreeSet::new()).unwrap(), path, engine, writes: 0 }
    }

    fn salvage(&self, numbers: &[u64]) -> Result<Salvaged, SalvageError> {
        self.salvage_with(numbers, |_| ())
    }

    fn salvage_with(
        &self,
        numbers: &[u64],
        prepare: impl FnOnce(&mut Salvage),
    ) -> Result<Salvaged, SalvageError> {
        let copies = world::dir();
        let mut salvage = Salvage::new(copies.path(), EngineConfig::default());
        prepare(&mut salvage);
        for number in numbers {
            world::wait_for_starts();
            salvage.add(&self.path(*number))?;
        }
        let bytes = salvage.plan()?.write(Vec::new(), "0.1.0")?;
        let mut reader = BackupReader::open(&bytes[..]).unwrap();
        let mut groups = Vec::new();
        while let Some((group, state)) = reader.next_group().unwrap() {
            groups.push((group.index, group.origin.unwrap(), state));
        }
        Ok(Salvaged { head: reader.head().clone(), groups, bytes })
    }
}

struct Salvaged {
    head: tollgate_replica::backup::BackupHead,
    groups: Vec<(u64, GroupOrigin, State)>,
    bytes: Vec<u8>,
}

impl Salvaged {
    fn origin(&self) -> &GroupOrigin {
        &self.groups[0].1
    }

    /// The registers of group 0, by the index of the entry that wrote each.
    fn written(&self) -> Vec<u64> {
        let state = &self.groups[0].2;
        (0..100).filter(|key| state.register(&Key::new(format!("k/{key}")).unwrap()).is_some()).collect()
    }
}

impl Disk {
    fn write(&mut self, part: GroupWrite) {
        self.writes += 1;
        self.engine.write(&[write(self.writes, part)]).unwrap();
    }

    /// Stops the node without a shutdown, as a kill does.
    fn stop(self) -> PathBuf {
        self.path
    }
}

/// The bytes and the modification time of every file in a directory.
fn contents(dir: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let changed = fs::metadata(&path).unwrap().modified().unwrap();
        if path.is_dir() {
            found.extend(contents(&path));
            found.insert(path, (changed, Vec::new()));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.insert(path, (changed, bytes));
        }
    }
    found
}

/// P12, too: the state made from the disk is the one that the replicas made from the same entries.
#[test]
fn p4_the_log_is_applied_to_its_end_and_not_only_to_the_known_commit() {
    let disks = Disks::new();
    let mut disk = disks.founded(1, 1);
    disk.write(GroupWrite { entries: entries(2, 6, 1), ..committed(1, 3) });
    disk.write(appended(0, entries(7, 8, 2)));
    disk.stop();
    let saved = disks.salvage(&[1]).unwrap();
    let mut expected = first_state(0, 1);
    for index in 2..=8 {
        expected.apply(Entry::new(LogTime::from_ms(index), put(index)));
    }
    assert_eq!(saved.groups[0].2.snapshot().hash(), expected.snapshot().hash());
    assert_eq!((saved.groups[0].0, saved.written()), (8, (2..=8).collect()));
    let origin = GroupOrigin {
        node: node(1),
        term: 2,
        committed: 3,
        current_unix_ms: WALL_UNIX_MS + 8_000,
        time_source: TimeSource::Entry,
        complete: false,
    };
    assert_eq!(*saved.origin(), origin);
    let head = &saved.head;
    assert_eq!(
        (head.cluster, head.taken_unix_ms, head.groups),
        (ClusterId::new(7), origin.current_unix_ms, 1)
    );
    assert_eq!((&head.members, head.disks.iter().collect::<Vec<_>>()), (&members(), vec![&node(1)]));
}

#[test]
fn p4_of_several_directories_the_newest_log_is_taken() {
    let disks = Disks::new();
    let mut behind = disks.founded(1, 1);
    behind.write(GroupWrite { entries: entries(2, 9, 1), ..committed(1, 4) });
    behind.stop();
    let mut newer = disks.founded(2, 1);
    newer.write(GroupWrite { entries: entries(2, 5, 1), ..committed(1, 4) });
    newer.write(GroupWrite { entries: entries(6, 7, 3), ..committed(3, 5) });
    newer.stop();
    for order in [[1, 2], [2, 1]] {
        let saved = disks.salvage(&order).unwrap();
        assert_eq!(saved.written(), (2..=7).collect::<Vec<_>>(), "{order:?}");
        let origin = saved.origin();
        assert_eq!((origin.node, origin.term, origin.committed), (node(2), 3, 5));
        assert!(origin.complete, "two of three have all that was acknowledged");
    }
    assert!(!disks.salvage(&[2]).unwrap().origin().complete);
}

/// A witness's own process loads no state, but its disk has the snapshots that the leader sent, and the log after them.
#[test]
fn p4_a_witness_alone_has_all_that_its_log_has() {
    let disks = Disks::new();
    let mut full = disks.founded(1, 1);
    full.write(GroupWrite { entries: entries(2, 4, 1), ..committed(1, 3) });
    full.stop();
    let mut witness = disks.founded(3, 1);
    witness.write(GroupWrite { entries: entries(2, 6, 1), ..committed(1, 2) });
    witness.stop();
    let kinds: Vec<ReplicaKind> = world::found(world::killed(&disks.path(3)).path())
        .unwrap()
        .into_iter()
        .map(|found| found.kind)
        .collect();
    assert_eq!(kinds, [ReplicaKind::Witness]);
    for numbers in [&[3][..], &[1, 3]] {
        let saved = disks.salvage(numbers).unwrap();
        assert_eq!((saved.written(), saved.origin().node), ((2..=6).collect(), node(3)), "{numbers:?}");
    }
}

#[test]
fn a_directory_is_left_as_it_was_with_its_torn_tail_and_its_leftovers() {
    let disks = Disks::new();
    let mut disk = disks.founded(1, 1);
    disk.write(appended(0, entries(2, 5, 1)));
    let acked = fs::read(disk.path.join("acked")).unwrap();
    disk.write(appended(0, entries(6, 6, 1)));
    let path = disk.stop();
    // As after a power failure: the last batch is cut in half, and was not acknowledged.
    let log = fs::read(last_log(&path)).unwrap();
    let end = *batch_ends(&log).last().unwrap();
    fs::write(last_log(&path), &log[..end - 3]).unwrap();
    fs::write(path.join("acked"), acked).unwrap();
    fs::write(path.join("snapshots/0-99.snap"), b"not named by any mark").unwrap();
    fs::write(path.join("snapshots/0-from-2.tmp"), b"half").unwrap();
    let before = contents(&path);
    assert_eq!(disks.salvage(&[1]).unwrap().written(), [2, 3, 4, 5]);
    assert_eq!(contents(&path), before);
    // A normal start would have changed the directory.
    drop(open_engine(&path, EngineConfig::default()).unwrap());
    assert_ne!(contents(&path), before);
}

#[test]
fn a_directory_without_a_lock_file_is_read_and_gets_none() {
    let disks = Disks::new();
    let path = disks.founded(1, 1).stop();
    fs::remove_file(path.join("lock")).unwrap();
    disks.salvage(&[1]).unwrap();
    assert!(!path.join("lock").exists());
}

#[test]
fn a_node_and_a_salvage_keep_each_other_out() {
    let disks = Disks::new();
    let disk = disks.founded(1, 1);
    let refused = disks.salvage(&[1]).err().unwrap();
    assert!(matches!(&refused, SalvageError::InUse { path } if path.ends_with("n1")), "{refused}");
    assert!(refused.to_string().contains("stop it"), "{refused}");
    let path = disk.stop();
    let copies = world::dir();
    let mut salvage = Salvage::new(copies.path(), EngineConfig::default());
    salvage.add(&path).unwrap();
    let start = open_data_dir(&path, None);
    assert!(matches!(start, Err(DataDirError::InUse { .. })), "{start:?}");
    drop(salvage);
    open_data_dir(&path, None).unwrap();
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[byte] ^= 1 << (byte % 8);
    fs::write(path, bytes).unwrap();
}

#[track_caller]
fn assert_corrupt(result: Result<Salvaged, SalvageError>, what: &str) {
    match result {
        Err(error @ SalvageError::Corrupt { .. }) => {
            let says = error.to_string();
            assert!(says.contains("/n1 is corrupt") && says.contains("leave it out"), "{what}: {says}");
            assert!(!says.contains("wipe"), "{what}: {says}");
        }
        Err(SalvageError::TooNew { .. }) if what.contains("identity") => {}
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what}: it was served"),
    }
}

#[test]
fn p15_a_flipped_bit_anywhere_refuses_the_directory_by_name() {
    let disks = Disks::new();
    let mut disk = disks.founded(1, 1);
    disk.write(GroupWrite { entries: entries(2, 3, 1), ..committed(1, 3) });
    let path = disk.stop();
    disks.founded(2, 1).stop();
    let log = last_log(&path);
    let ends = batch_ends(&fs::read(&log).unwrap());
    let snapshot = path.join("snapshots/0-1.snap");
    let in_snapshot = fs::metadata(&snapshot).unwrap().len();
    let identity = path.join("identity");
    let in_identity = usize::try_from(fs::metadata(&identity).unwrap().len()).unwrap();
    let places = (0..*ends.last().unwrap())
        .map(|byte| (&log, byte))
        .chain((0..usize::try_from(in_snapshot).unwrap()).step_by(997).map(|byte| (&snapshot, byte)))
        .chain((0..in_identity).map(|byte| (&identity, byte)));
    for (file, byte) in places {
        let good = fs::read(file).unwrap();
        flip(file, byte);
        assert_corrupt(disks.salvage(&[2, 1]), &format!("{} byte {byte}", file.display()));
        fs::write(file, good).unwrap();
    }
    for missing in [path.join("acked"), log, snapshot] {
        let good = fs::read(&missing).unwrap();
        fs::remove_file(&missing).unwrap();
        assert_corrupt(disks.salvage(&[1]), &format!("{} missing", missing.display()));
        fs::write(&missing, good).unwrap();
    }
    // The other directory is still good without the damaged one.
    disks.salvage(&[2]).unwrap();
    disks.salvage(&[1]).unwrap();
}

#[test]
fn p15_an_entry_that_no_leader_wrote_is_refused() {
    let disks = Disks::new();
    let mut disk = disks.founded(1, 1);
    disk.write(appended(0, world::entries(2, 2, 1)));
    disk.stop();
    assert_corrupt(disks.salvage(&[1]), "an entry of other bytes");
}

#[test]
fn what_is_of_another_cluster_or_no_use_is_refused_with_its_path() {
    let disks = Disks::new();
    disks.founded(1, 1).stop();
    disks.founded_of(ClusterId::new(8), 2, 1).stop();
    let says = |numbers: &[u64]| disks.salvage(numbers).err().unwrap().to_string();
    let other = says(&[1, 2]);
    assert!(other.contains("/n2 belongs to cluster 0000000000000008") && other.contains("/n1"), "{other}");
    let twice = says(&[1, 1]);
    assert!(twice.contains("both of node 1"), "{twice}");
    let missing = says(&[5]);
    assert!(missing.contains("/n5 has no data") && missing.contains("leave it out"), "{missing}");
    fs::create_dir(disks.path(6)).unwrap();
    fs::write(disks.path(6).join("letter"), b"x").unwrap();
    assert!(says(&[6]).contains("it has letter, and no identity"), "{}", says(&[6]));
    drop(create_data_dir(&disks.path(7), ClusterId::new(7), node(7), DiskId::new(1)).unwrap());
    assert!(says(&[7]).contains("never took part"), "{}", says(&[7]));
}

/// The older binary would have to guess the meaning of the newer bytes.
#[test]
fn what_a_newer_binary_wrote_is_refused_and_not_called_corrupt() {
    let disks = Disks::new();
    let path = disks.founded(1, 1).stop();
    let identity = path.join("identity");
    let good = fs::read(&identity).unwrap();
    let mut newer = good[..good.len() - 4].to_vec();
    newer[8] = u8::try_from(DATA_FORMAT).unwrap() + 1;
    newer.extend(crc32fast::hash(&newer).to_le_bytes());
    fs::write(&identity, newer).unwrap();
    let refused = disks.salvage(&[1]).err().unwrap();
    assert!(matches!(refused, SalvageError::TooNew { .. }), "{refused}");
    fs::write(&identity, good).unwrap();
    disks.salvage(&[1]).unwrap();

    let mut disk = disks.founded(2, 1);
    let raise = Entry::new(LogTime::from_ms(2), Command::RaiseApplyVersion(APPLY_VERSION_SUPPORTED + 1));
    disk.write(appended(0, vec![encoded(2, 1, &raise, ENTRY_FORMAT_VERSION)]));
    disk.stop();
    let refused = disks.salvage(&[2]).err().unwrap();
    assert!(refused.to_string().contains("use the binary that wrote it, or a newer one"), "{refused}");
}

#[test]
fn a_group_that_is_on_none_of_the_disks_is_missed() {
    let disks = Disks::new();
    let path = disks.path(1);
    let founding = create_data_dir(&path, ClusterId::new(7), node(1), DiskId::new(1)).unwrap();
    let mut engine = Engine::create(&path, EngineConfig::default()).unwrap();
    bootstrap_from(&mut engine, node(1), group(0), &members(), &first_state(0, 2)).unwrap();
    // The node was to join this group, and has received nothing yet.
    join(&mut engine, group(1), ReplicaKind::Full).unwrap();
    drop((founding.finish(BTreeSet::new()).unwrap(), engine));
    let refused = disks.salvage(&[1]).err().unwrap();
    assert!(matches!(refused, SalvageError::NoGroup { group } if group == GroupId::new(1)), "{refused}");
    disks.founded(2, 2).stop();
    let saved = disks.salvage(&[1, 2]).unwrap();
    assert_eq!(saved.groups.len(), 2);
    assert_eq!((saved.groups[1].1.node, saved.groups[1].1.complete), (node(2), false));
}

/// P2: a restore accounts for tokens from that time on.
#[test]
fn p2_all_is_current_up_to_the_oldest_of_the_groups_last_entries() {
    let disks = Disks::new();
    let mut disk = disks.founded(1, 3);
    disk.write(appended(0, entries(2, 9, 1)));
    // A leader's empty entry, and an entry of the format without wall times: the group is still current up to the entry
    // before them.
    let empty = LogEntry { index: 5, term: 2, kind: EntryKind::Commands, data: Bytes::new() };
    let old = Entry::new(LogTime::from_ms(6), put(6));
    let behind = vec![empty, encoded(6, 2, &old, 1)];
    disk.write(GroupWrite { entries: entries(2, 4, 1), ..GroupWrite::new(group(1)) });
    disk.write(GroupWrite { entries: behind, ..GroupWrite::new(group(1)) });
    disk.write(GroupWrite { entries: entries(2, 7, 1), ..GroupWrite::new(group(2)) });
    disk.stop();
    let saved = disks.salvage(&[1]).unwrap();
    let current: Vec<u64> =
        saved.groups.iter().map(|(_, origin, _)| origin.current_unix_ms - WALL_UNIX_MS).collect();
    assert_eq!(current, [9_000, 4_000, 7_000]);
    assert_eq!(saved.head.taken_unix_ms, WALL_UNIX_MS + 4_000);
}

/// P2: the files of the log tell nothing about one group: entries of another group, or a vote, change them as well.
#[test]
fn p2_without_a_wall_time_a_group_is_as_old_as_its_snapshot() {
    let disks = Disks::new();
    let mut disk = disks.founded(1, 2);
    disk.write(appended(0, entries(2, 3, 1)));
    let path = disk.stop();
    let written = UNIX_EPOCH + Duration::from_millis(WALL_UNIX_MS - 5_000);
    let snapshot = File::options().append(true).open(path.join("snapshots/1-1.snap")).unwrap();
    snapshot.set_modified(written).unwrap();
    let saved = disks.salvage(&[1]).unwrap();
    let origin = &saved.groups[1].1;
    assert_eq!(
        (origin.time_source, origin.current_unix_ms),
        (TimeSource::SnapshotFile, WALL_UNIX_MS - 5_000)
    );
    assert_eq!(saved.head.taken_unix_ms, WALL_UNIX_MS - 5_000);
}

#[test]
fn p2_a_restore_goes_on_above_all_that_may_have_been_handed_out_since() {
    let disks = Disks::new();
    let cluster = ClusterId::of_name("prod");
    let mut disk = disks.founded_of(cluster, 1, 1);
    disk.write(appended(0, entries(2, 9, 1)));
    disk.stop();
    let saved = disks.salvage(&[1]).unwrap();
    let file = disks.dir.path().join("b");
    fs::write(&file, &saved.bytes).unwrap();
    let summary = inspect(&file).unwrap();
    assert_eq!(summary.groups[0].registers, 8);
    let age_ms = 3_600_000;
    let above = summary.above_token(WALL_UNIX_MS + 9_000 + age_ms).unwrap();
    assert_eq!(above, 8 + (1 << 32) + 3_600 * (1 << 20));
    let restoration = Restoration {
        file,
        cluster_name: "prod".to_owned(),
        members: Members::first([node(1)], []),
        above_token: above,
        grace: DurationMs::ZERO,
        node: node(1),
        data_dir: disks.path(9),
    };
    let refused = restoration.run(EngineConfig::default(), DiskId::new(4));
    assert!(matches!(&refused, Err(RestoreError::SameName { name }) if name == "prod"), "{refused:?}");
    let restoration = Restoration { cluster_name: "prod-2".to_owned(), ..restoration };
    restoration.run(EngineConfig::default(), DiskId::new(4)).unwrap();
    let loaded = open_engine(&disks.path(9), EngineConfig::default()).unwrap().load().unwrap();
    let state = loaded.into_iter().next().unwrap().state.unwrap();
    assert_eq!((state.revision().get(), state.register_count()), (above, 8));
}

/// Many small files, purged and reused, and a snapshot in the middle.
#[test]
fn p4_a_log_that_was_purged_and_compacted_is_read_to_its_end() {
    let disks = Disks::new();
    let path = disks.path(1);
    let founding = create_data_dir(&path, ClusterId::new(7), node(1), DiskId::new(1)).unwrap();
    let mut engine = Engine::create(&path, world::small()).unwrap();
    let mut state = first_state(0, 1);
    bootstrap_from(&mut engine, node(1), group(0), &members(), &state).unwrap();
    for index in 2..=90 {
        engine.write(&[write(index, appended(0, vec![entry(index, 1)]))]).unwrap();
        state.apply(Entry::new(LogTime::from_ms(index), put(index)));
        if index % 20 == 0 {
            let file = world::save(&mut engine, 0, index, state.snapshot());
            engine.write(&[write(index, world::marked(0, &file, false))]).unwrap();
        }
    }
    drop((founding.finish(BTreeSet::new()).unwrap(), engine));
    let first = &log_files(&path, ".raftlog")[0];
    assert!(!first.ends_with("0000000000000001.raftlog"), "nothing was purged: this test shows nothing");
    let before = contents(&path);
    let saved = disks.salvage(&[1]).unwrap();
    assert_eq!(saved.groups[0].2.snapshot().hash(), state.snapshot().hash());
    assert_eq!((saved.groups[0].0, saved.written().len()), (90, 89));
    assert_eq!(contents(&path), before);
}

/// Proves that the tests above can fail.
#[cfg(feature = "planted-bugs")]
#[test]
fn p4_planted_bugs_of_a_salvage_lose_what_was_acknowledged() {
    use tollgate_replica::Bug;
    let disks = Disks::new();
    let mut behind = disks.founded(1, 1);
    behind.write(GroupWrite { entries: entries(2, 4, 1), ..committed(1, 3) });
    behind.stop();
    let mut newer = disks.founded(2, 1);
    newer.write(GroupWrite { entries: entries(2, 7, 1), ..committed(1, 3) });
    newer.stop();
    let written = |bug: Option<Bug>| {
        let plant = |salvage: &mut Salvage| {
            if let Some(bug) = bug {
                salvage.plant(bug);
            }
        };
        disks.salvage_with(&[1, 2], plant).unwrap().written()
    };
    assert_eq!(written(None), [2, 3, 4, 5, 6, 7]);
    assert_eq!(written(Some(Bug::SalvageTakesFirst)), [2, 3, 4]);
    assert_eq!(written(Some(Bug::SalvageDropsTail)), [2, 3]);
}
