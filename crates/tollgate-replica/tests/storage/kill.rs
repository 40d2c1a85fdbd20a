//! A kill or a power failure at any byte: the next start finds all acknowledged writes, and only whole writes.

use crate::world::{
    Summary, appended, batch_ends, created, dir, entries, found, killed, last_log, marked, open_engine, save,
    small, state_of, summary, vote, write,
};
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use tollgate_replica::{Engine, EngineConfig, GroupWrite, Storage, Write};

/// The directory after each of several writes, and the expected result of a start. All writes are in one log file.
struct Film {
    frames: Vec<(TempDir, Summary)>,
}

fn film() -> Film {
    let dir = dir();
    let mut engine = Engine::create(dir.path(), EngineConfig::default()).unwrap();
    let file = save(&mut engine, 1, 2, state_of(1));
    let voted = GroupWrite { vote: Some(vote(2, 1)), ..appended(1, entries(3, 4, 2)) };
    let writes: Vec<Vec<Write>> = vec![
        vec![write(1, created(1)), write(2, created(2))],
        vec![write(3, appended(1, entries(1, 4, 1)))],
        vec![write(4, voted), write(5, appended(2, entries(1, 1, 1)))],
        vec![write(6, marked(1, &file, false))],
        vec![write(7, GroupWrite { entries: entries(3, 3, 3), ..marked(1, &file, true) })],
    ];
    let mut frames = vec![(killed(dir.path()), Vec::new())];
    for write in writes {
        engine.write(&write).unwrap();
        let summary = summary(engine.load().unwrap());
        frames.push((killed(dir.path()), summary));
    }
    Film { frames }
}

fn log_of(dir: &TempDir) -> Vec<u8> {
    fs::read(last_log(dir.path())).unwrap()
}

/// A copy of the directory `base` with another log.
fn with_log(base: &Path, log: &[u8]) -> TempDir {
    let dir = killed(base);
    fs::write(last_log(dir.path()), log).unwrap();
    dir
}

#[test]
fn a_write_that_was_cut_at_any_byte_has_not_happened() {
    let film = film();
    for pair in film.frames.windows(2) {
        let ((before, expected), (after, _)) = (&pair[0], &pair[1]);
        let log = log_of(after);
        let ends = batch_ends(&log);
        let (from, to) = (ends[ends.len() - 2], ends[ends.len() - 1]);
        for cut in from..to {
            // The file ends at the cut, or the allocated rest is still empty.
            let mut zeroed = log.clone();
            zeroed[cut..].fill(0);
            // The last byte of a batch may be a zero.
            let whole = zeroed == log;
            for torn in [&log[..cut], &zeroed].into_iter().take(if whole { 1 } else { 2 }) {
                let dir = with_log(before.path(), torn);
                let found = found(dir.path()).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
                assert_eq!(summary(found), *expected, "cut at {cut}");
            }
        }
    }
}

/// A power failure may lose the record of the log's durable end, which is not synced.
#[test]
fn without_the_newest_mark_a_cut_log_gives_a_prefix_of_its_writes() {
    let film = film();
    let (first, (last, _)) = (&film.frames[0].0, film.frames.last().unwrap());
    let log = log_of(last);
    let ends = batch_ends(&log);
    for cut in (ends[1]..=*ends.last().unwrap()).step_by(7) {
        let dir = with_log(first.path(), &log[..cut]);
        fs::remove_dir_all(dir.path().join("snapshots")).unwrap();
        fs::create_dir(dir.path().join("snapshots")).unwrap();
        let snapshots = last.path().join("snapshots/1-2.snap");
        fs::copy(snapshots, dir.path().join("snapshots/1-2.snap")).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count() - 2;
        let found = found(dir.path()).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        assert_eq!(summary(found), film.frames[whole].1, "cut at {cut}");
    }
}

#[test]
fn a_storage_that_was_cut_goes_on() {
    let film = film();
    let (before, after) = (&film.frames[4], &film.frames[5]);
    let log = log_of(&after.0);
    let ends = batch_ends(&log);
    let dir = with_log(before.0.path(), &log[..ends[ends.len() - 1] - 3]);
    let mut engine = open_engine(dir.path(), small()).unwrap();
    engine.write(&[write(9, appended(2, entries(2, 5, 1)))]).unwrap();
    drop(engine);
    let found = found(dir.path()).unwrap();
    assert_eq!(found[1].entries, entries(1, 5, 1));
    assert_eq!(found[0].entries, before.1[0].4);
}

/// A reused file has old batches behind its tail.
#[test]
fn a_kill_with_old_batches_behind_the_tail_loses_nothing() {
    let dir = dir();
    let mut engine = Engine::create(dir.path(), small()).unwrap();
    engine.write(&[write(1, created(1))]).unwrap();
    let mut reused = 0;
    for turn in 1..=120u64 {
        let (from, to) = (turn * 4 - 3, turn * 4);
        engine.write(&[write(2 * turn, appended(1, entries(from, to, turn)))]).unwrap();
        let file = save(&mut engine, 1, to, state_of(1));
        engine.write(&[write(2 * turn + 1, marked(1, &file, false))]).unwrap();
        let copy = killed(dir.path());
        let log = log_of(&copy);
        let tail = *batch_ends(&log).last().unwrap();
        reused += usize::from(log[tail..].iter().any(|byte| *byte != 0));
        let found = found(copy.path()).unwrap_or_else(|error| panic!("turn {turn}: {error}"));
        assert_eq!(summary(found), summary(engine.load().unwrap()), "turn {turn}");
    }
    assert!(reused > 20, "only {reused} files were used anew: this test shows nothing");
}

#[test]
fn a_log_file_that_was_being_begun_is_begun_again() {
    let film = film();
    let (last, expected) = film.frames.last().unwrap();
    for content in [&b""[..], b"RAFT-LOG", &[0; 4096]] {
        let dir = killed(last.path());
        // The file before it was closed by then.
        let path = last_log(dir.path());
        let log = fs::read(&path).unwrap();
        fs::write(&path, &log[..*batch_ends(&log).last().unwrap()]).unwrap();
        let path = path.with_file_name(format!("{:016}.raftlog", 2));
        fs::write(&path, content).unwrap();
        assert_eq!(summary(found(dir.path()).unwrap()), *expected);
    }
}
