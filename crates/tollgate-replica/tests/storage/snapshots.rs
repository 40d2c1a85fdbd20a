//! Snapshot files: saved, sent, received, removed; complete or missing.

use crate::world::{
    appended, assert_corrupt, create, created, dir, entries, found, group, marked, node, open, save,
    state_of, write,
};
use bytes::Bytes;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;
use tollgate_core::SnapshotReader;
use tollgate_replica::{
    Completion, Done, Engine, GroupWrite, Job, ReplicaKind, SnapshotFile, Storage, TransferId, snapshot_file,
};

/// Enough leases for several blocks.
const LEASES: u64 = 5_000;

fn read(engine: &mut Engine, index: u64, offset: u64, length: u32) -> Option<Bytes> {
    let job = Job::Read { group: group(1), transfer: TransferId(1), peer: node(2), index, offset, length };
    match engine.perform(job).unwrap() {
        Done::Read { bytes, .. } => bytes,
        other => panic!("{other:?}"),
    }
}

fn receive(engine: &mut Engine, transfer: u64, offset: u64, bytes: &[u8]) -> u64 {
    let bytes = Bytes::copy_from_slice(bytes);
    let job = Job::Receive { group: group(1), transfer: TransferId(transfer), peer: node(2), offset, bytes };
    match engine.perform(job).unwrap() {
        Done::Received { next, .. } => next,
        other => panic!("{other:?}"),
    }
}

fn complete(engine: &mut Engine, transfer: u64, file: &SnapshotFile, load: bool) -> Completion {
    let job = Job::Complete { group: group(1), transfer: TransferId(transfer), file: file.clone(), load };
    match engine.perform(job).unwrap() {
        Done::Completed { outcome, .. } => outcome,
        other => panic!("{other:?}"),
    }
}

fn files(dir: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(dir.path().join("snapshots")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A storage whose group 1 begins after a snapshot at index 5.
fn with_snapshot(kind: ReplicaKind) -> (TempDir, Engine, SnapshotFile) {
    let dir = dir();
    let mut engine = create(&dir);
    let group = GroupWrite { create: Some(kind), entries: entries(1, 8, 1), ..GroupWrite::new(group(1)) };
    engine.write(&[write(1, group)]).unwrap();
    let file = save(&mut engine, 1, 5, state_of(LEASES));
    engine.write(&[write(2, marked(1, &file, false))]).unwrap();
    (dir, engine, file)
}

fn state_bytes() -> Vec<u8> {
    state_of(LEASES).chunks(10_007).flatten().collect()
}

#[test]
fn any_piece_of_a_snapshot_can_be_read() {
    let (_dir, mut engine, file) = with_snapshot(ReplicaKind::Full);
    let bytes = state_bytes();
    let size = file.size;
    assert!(size > 2 * 65_536, "{size} bytes: make it larger");
    assert_eq!(size, bytes.len() as u64);
    for (offset, length) in
        [(0, 1), (0, u32::MAX), (65_535, 2), (65_536, 65_536), (70_000, 70_000), (size - 1, 5), (size, 9)]
    {
        let at = usize::try_from(offset).unwrap();
        let end = (at + usize::try_from(length).unwrap()).min(bytes.len());
        assert_eq!(read(&mut engine, 5, offset, length).unwrap(), bytes[at..end], "{offset} {length}");
    }
    assert_eq!(read(&mut engine, 5, size + 1, 1), None);
    assert_eq!(read(&mut engine, 6, 0, 1), None);
}

#[test]
fn a_sent_snapshot_is_the_same_on_the_other_side() {
    let (_from, mut sender, file) = with_snapshot(ReplicaKind::Full);
    let (to, mut receiver) = {
        let dir = dir();
        let engine = create(&dir);
        (dir, engine)
    };
    receiver.write(&[write(1, created(1))]).unwrap();
    let mut offset = 0;
    while offset < file.size {
        let piece = read(&mut sender, 5, offset, 50_000).unwrap();
        offset = receive(&mut receiver, 7, offset, &piece);
    }
    let Completion::Loaded(loaded, state) = complete(&mut receiver, 7, &file, true) else { panic!() };
    assert_eq!((&loaded, state.snapshot().hash()), (&file, state_of(LEASES).hash()));
    receiver.write(&[write(2, marked(1, &file, true))]).unwrap();
    drop(receiver);
    let found = open(&to).load().unwrap().remove(0);
    assert_eq!(
        (found.snapshot, found.state.unwrap().snapshot().hash()),
        (Some(file), state_of(LEASES).hash())
    );
}

#[test]
fn a_witness_keeps_a_snapshot_that_it_never_loads_and_sends_it_on() {
    let (dir, engine, file) = with_snapshot(ReplicaKind::Witness);
    drop(engine);
    let mut engine = open(&dir);
    let found = engine.load().unwrap().remove(0);
    assert!(found.state.is_none());
    assert_eq!(read(&mut engine, 5, 0, u32::MAX).unwrap(), state_bytes());
    receive(&mut engine, 1, 0, &state_bytes());
    let newer = SnapshotFile { meta: crate::world::meta(8), ..file };
    assert!(matches!(complete(&mut engine, 1, &newer, false), Completion::Kept(kept) if kept == newer));
    assert_eq!(files(&dir), ["1-5.snap", "1-8.snap"]);
}

#[test]
fn a_piece_that_is_not_the_next_is_not_taken() {
    let dir = dir();
    let mut engine = create(&dir);
    assert_eq!(receive(&mut engine, 1, 100, b"late"), 0);
    assert_eq!(receive(&mut engine, 1, 0, b"0123"), 4);
    assert_eq!(receive(&mut engine, 1, 9, b"9"), 4);
    assert_eq!(receive(&mut engine, 1, 4, b"45"), 6);
    assert_eq!(receive(&mut engine, 2, 6, b"6"), 0);
    assert_eq!(receive(&mut engine, 2, 0, b"new"), 3);
    assert_eq!(receive(&mut engine, 1, 6, b"6"), 0);
}

#[test]
fn a_snapshot_that_is_not_what_the_sender_said_is_thrown_away() {
    let (dir, mut engine, file) = with_snapshot(ReplicaKind::Full);
    let newer = SnapshotFile { meta: crate::world::meta(9), ..file.clone() };
    let mut wrong = state_bytes();
    wrong[70_000] ^= 1;
    let short = &state_bytes()[..80_000];
    for bytes in [&wrong[..], short, b""] {
        receive(&mut engine, 1, 0, bytes);
        assert!(matches!(complete(&mut engine, 1, &newer, true), Completion::Damaged(_)));
        assert_eq!(files(&dir), ["1-5.snap"]);
    }
    assert!(matches!(complete(&mut engine, 1, &newer, true), Completion::Damaged(_)));
    // Bytes as announced by the sender, but not a state.
    receive(&mut engine, 1, 0, b"no state at all");
    let checksum = crc32fast::hash(b"no state at all");
    let odd = SnapshotFile { size: 15, checksum, ..newer };
    assert!(matches!(complete(&mut engine, 1, &odd, true), Completion::Damaged(_)));
    assert_eq!(files(&dir), ["1-5.snap"]);
}

#[test]
fn the_snapshot_that_the_log_begins_behind_is_never_removed() {
    let (dir, mut engine, _) = with_snapshot(ReplicaKind::Full);
    let newer = save(&mut engine, 1, 7, state_of(2));
    save(&mut engine, 2, 1, state_of(1));
    assert_eq!(files(&dir), ["1-5.snap", "1-7.snap", "2-1.snap"]);
    engine.perform(Job::Remove { group: group(1), below: 100 }).unwrap();
    assert_eq!(files(&dir), ["1-5.snap", "2-1.snap"]);
    assert_eq!(save(&mut engine, 1, 7, state_of(2)), newer);
    engine.write(&[write(3, marked(1, &newer, false))]).unwrap();
    engine.perform(Job::Remove { group: group(1), below: 7 }).unwrap();
    assert_eq!(files(&dir), ["1-7.snap", "2-1.snap"]);
}

#[test]
fn what_a_crash_left_is_removed_at_the_start() {
    let (dir, mut engine, _) = with_snapshot(ReplicaKind::Full);
    save(&mut engine, 1, 7, state_of(2));
    receive(&mut engine, 1, 0, b"half of");
    fs::write(dir.path().join("snapshots/1-9.tmp"), b"torn").unwrap();
    assert_eq!(files(&dir), ["1-5.snap", "1-7.snap", "1-9.tmp", "1-from-2.tmp"]);
    drop(engine);
    drop(open(&dir));
    assert_eq!(files(&dir), ["1-5.snap"]);
}

#[test]
fn p15_a_flipped_bit_in_a_snapshot_is_refused_and_never_sent() {
    for kind in [ReplicaKind::Full, ReplicaKind::Witness] {
        let (dir, mut engine, file) = with_snapshot(kind);
        let path: PathBuf = dir.path().join("snapshots/1-5.snap");
        let bytes = fs::read(&path).unwrap();
        let places = (0..200).chain((200..bytes.len()).step_by(997)).chain(bytes.len() - 8..bytes.len());
        for byte in places {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 1 << (byte % 8);
            fs::write(&path, &damaged).unwrap();
            assert_eq!(read(&mut engine, 5, 0, u32::MAX), None, "byte {byte}");
            // Undamaged pieces may still be sent, but nothing else.
            let piece = read(&mut engine, 5, 65_536, 65_536);
            assert!(piece.is_none_or(|piece| piece == state_bytes()[65_536..131_072]), "byte {byte}");
            assert!(snapshot_file::verify(&damaged).is_err(), "byte {byte}");
        }
        for length in [0, 100, 4096, bytes.len() - 1] {
            fs::write(&path, &bytes[..length]).unwrap();
            assert_eq!(read(&mut engine, 5, 0, 10), None);
        }
        drop(engine);
        assert_corrupt(found(dir.path()), "1-5.snap", "cut off");
        fs::remove_file(&path).unwrap();
        assert_corrupt(found(dir.path()), "1-5.snap", "missing");
        let (_, other) = snapshot_file::encode(&file.meta, &state_of(1));
        fs::write(&path, other).unwrap();
        assert_corrupt(found(dir.path()), "1-5.snap", "another");
        fs::write(&path, &bytes).unwrap();
        assert!(found(dir.path()).is_ok());
    }
}

#[test]
fn a_snapshot_file_in_memory_has_the_bytes_of_one_on_disk() {
    let (dir, _engine, file) = with_snapshot(ReplicaKind::Full);
    let bytes = fs::read(dir.path().join("snapshots/1-5.snap")).unwrap();
    let (encoded, in_memory) = snapshot_file::encode(&file.meta, &state_of(LEASES));
    assert!(in_memory == bytes);
    assert_eq!((&encoded, &snapshot_file::verify(&bytes).unwrap()), (&file, &file));
    let (loaded, state) = snapshot_file::load(std::io::Cursor::new(&bytes)).unwrap();
    assert_eq!((loaded, state.snapshot().hash()), (file, state_of(LEASES).hash()));
    let mut reader = SnapshotReader::new();
    reader.push(&state_bytes()).unwrap();
    assert_eq!(reader.finish().unwrap().snapshot().hash(), state_of(LEASES).hash());
}

#[test]
fn a_log_may_end_where_its_snapshot_does() {
    let (dir, mut engine, _) = with_snapshot(ReplicaKind::Full);
    let file = save(&mut engine, 1, 8, state_of(1));
    engine.write(&[write(3, marked(1, &file, false))]).unwrap();
    engine.write(&[write(4, appended(1, entries(9, 9, 1)))]).unwrap();
    drop(engine);
    assert_eq!(open(&dir).load().unwrap()[0].entries, entries(9, 9, 1));
}
