//! P15: a byte that changed on disk is refused, and the refusal names the file.

use crate::world::{
    appended, assert_corrupt, batch_ends, created, dir, entries, entry, found, killed, last_log, log_files,
    marked, save, small, state_of, vote, write,
};
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use tollgate_replica::{Engine, EngineConfig, GroupWrite, Storage};

/// A storage with a few writes in one log file, as a kill leaves it.
fn image() -> TempDir {
    let dir = dir();
    let mut engine = Engine::create(dir.path(), EngineConfig::default()).unwrap();
    engine.write(&[write(1, created(1))]).unwrap();
    engine.write(&[write(2, appended(1, entries(1, 3, 1)))]).unwrap();
    engine
        .write(&[write(3, GroupWrite { vote: Some(vote(2, 3)), ..appended(1, entries(4, 4, 2)) })])
        .unwrap();
    let file = save(&mut engine, 1, 2, state_of(1));
    engine.write(&[write(4, marked(1, &file, false))]).unwrap();
    engine
        .write(&[write(5, GroupWrite { vote: Some(vote(3, 4)), ..GroupWrite::new(crate::world::group(1)) })])
        .unwrap();
    killed(dir.path())
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[byte] ^= 1 << (byte % 8);
    fs::write(path, bytes).unwrap();
}

#[test]
fn p15_a_flipped_bit_anywhere_in_what_was_acknowledged_is_refused() {
    let image = image();
    let path = last_log(image.path());
    let log = fs::read(&path).unwrap();
    assert!(found(killed(image.path()).path()).is_ok());
    for byte in 0..*batch_ends(&log).last().unwrap() {
        flip(&path, byte);
        assert_corrupt(found(image.path()), "0000000000000001.raftlog", &format!("byte {byte}"));
        fs::write(&path, &log).unwrap();
    }
}

/// The slots are as old as the storage, so the damage is detected by the batches alone.
#[test]
fn p15_a_flipped_bit_is_refused_by_the_batches_behind_it_alone() {
    let dir = dir();
    let mut engine = Engine::create(dir.path(), EngineConfig::default()).unwrap();
    let acked = fs::read(dir.path().join("acked")).unwrap();
    engine.write(&[write(1, created(1))]).unwrap();
    for index in 1..=6 {
        engine.write(&[write(1 + index, appended(1, entries(index, index, 1)))]).unwrap();
    }
    let image = killed(dir.path());
    fs::write(image.path().join("acked"), acked).unwrap();
    let path = last_log(image.path());
    let log = fs::read(&path).unwrap();
    let ends = batch_ends(&log);
    let last_but_one = ends[ends.len() - 2];
    for byte in 0..last_but_one {
        flip(&path, byte);
        assert_corrupt(found(image.path()), "0000000000000001.raftlog", &format!("byte {byte}"));
        fs::write(&path, &log).unwrap();
    }
    // Damage to the last batch can't be told from a torn write. The node has to treat it as torn.
    flip(&path, last_but_one + 20);
    assert_eq!(found(image.path()).unwrap()[0].entries, entries(1, 5, 1));
}

#[test]
fn p15_lost_files_of_the_log_are_noticed() {
    let dir = dir();
    let mut engine = Engine::create(dir.path(), small()).unwrap();
    engine.write(&[write(1, created(1))]).unwrap();
    for index in 1..=80 {
        engine.write(&[write(1 + index, appended(1, entries(index, index, 1)))]).unwrap();
    }
    let count = log_files(dir.path(), ".raftlog").len();
    assert!(count > 3, "{count} files");
    for lost in 0..count {
        let image = killed(dir.path());
        fs::remove_file(&log_files(image.path(), ".raftlog")[lost]).unwrap();
        assert_corrupt(found(image.path()), "log", &format!("file {lost} of {count}"));
    }
    for cut in 0..count {
        let image = killed(dir.path());
        let path = &log_files(image.path(), ".raftlog")[cut];
        let log = fs::read(path).unwrap();
        let ends = batch_ends(&log);
        // Cut at the end of a batch, where nothing looks torn.
        fs::write(path, &log[..ends[ends.len() - 2]]).unwrap();
        let result = found(image.path());
        assert_corrupt(result, "log", &format!("file {cut} of {count}, cut"));
    }
}

#[test]
fn p15_a_flipped_bit_in_what_a_purge_moved_is_refused() {
    let dir = dir();
    let mut engine = Engine::create(dir.path(), small()).unwrap();
    // A group with few writes, which are moved out of the way of a group with many.
    let idle = GroupWrite { entries: entries(1, 3, 1), vote: Some(vote(2, 2)), ..created(2) };
    engine.write(&[write(1, created(1)), write(2, idle)]).unwrap();
    for turn in 1..=100u64 {
        engine.write(&[write(2 * turn + 1, appended(1, entries(turn, turn, 1)))]).unwrap();
        let file = save(&mut engine, 1, turn, state_of(1));
        engine.write(&[write(2 * turn + 2, marked(1, &file, false))]).unwrap();
    }
    let image = killed(dir.path());
    assert_eq!(found(killed(image.path()).path()).unwrap()[1].entries, entries(1, 3, 1));
    let path = log_files(image.path(), ".rewrite").pop().unwrap();
    let moved = fs::read(&path).unwrap();
    let end = *batch_ends(&moved).last().unwrap();
    assert!(end > 200, "nothing was moved: this test shows nothing");
    for byte in 0..end {
        flip(&path, byte);
        assert_corrupt(found(image.path()), ".rewrite", &format!("byte {byte}"));
        fs::write(&path, &moved).unwrap();
    }
}

#[test]
fn p15_the_word_on_how_far_the_log_was_durable_survives_one_damage_and_not_two() {
    let image = image();
    let path = image.path().join("acked");
    let acked = fs::read(&path).unwrap();
    for slot in 0..2 {
        let mut damaged = acked.clone();
        damaged[slot * 4096 + 20] ^= 1;
        let copy = killed(image.path());
        fs::write(copy.path().join("acked"), &damaged).unwrap();
        assert!(found(copy.path()).is_ok());
        damaged[(1 - slot) * 4096 + 33] ^= 1;
        fs::write(copy.path().join("acked"), &damaged).unwrap();
        assert_corrupt(found(copy.path()), "acked", "both slots");
    }
    fs::remove_file(path).unwrap();
    assert_corrupt(found(image.path()), "acked", "no file");
}

/// Otherwise any client could keep a node from starting again.
#[test]
fn bytes_in_a_value_that_look_like_a_batch_are_not_taken_for_one() {
    let dir = dir();
    let mut engine = Engine::create(dir.path(), EngineConfig::default()).unwrap();
    engine.write(&[write(1, created(1))]).unwrap();
    let before = killed(dir.path());
    let forged = vec![forged_batch(1); 5].concat();
    engine.write(&[write(2, appended(1, vec![entry(1, 1, &forged)]))]).unwrap();
    let log = fs::read(last_log(dir.path())).unwrap();
    let end = *batch_ends(&log).last().unwrap();
    fs::write(last_log(before.path()), &log[..end - 1]).unwrap();
    assert_eq!(found(before.path()).unwrap()[0].entries, []);
}

/// A batch that is valid for the log file with this number, except for the secret: it clears group 1.
fn forged_batch(number: u32) -> Vec<u8> {
    let items = [1, 1, 2, 1];
    let length: u64 = 16 + items.len() as u64 + 4;
    let mut batch = (length << 8).to_be_bytes().to_vec();
    batch.extend(16u64.to_be_bytes());
    batch.extend(items);
    batch.extend((crc32fast::hash(&items) ^ number).to_le_bytes());
    batch
}

/// The forged batch is as valid as raft-engine's own, and is still refused where a batch is expected.
#[test]
fn p15_a_batch_that_somebody_else_wrote_is_refused() {
    let image = image();
    let path = last_log(image.path());
    let log = fs::read(&path).unwrap();
    let end = *batch_ends(&log).last().unwrap();
    fs::write(&path, [&log[..end], &forged_batch(1)].concat()).unwrap();
    assert_corrupt(found(image.path()), "0000000000000001.raftlog", "forged");
}
