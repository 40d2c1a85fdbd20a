//! Cost of the storage, with fsync: `cargo bench -p tollgate-replica --bench storage`.
//!
//! The figures are medians of several rounds, with the spread in brackets. CPU is the time of the writing thread,
//! kernel included. `BENCH_DIR` is the directory to write to; where an fsync costs nothing (tmpfs) the figures are
//! meaningless. Arguments select single measurements: `-- writes recovery`.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs, reason = "a report for people")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

mod report;

use bytes::Bytes;
use report::{Round, rounds};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tollgate_replica::{
    Engine, EngineConfig, EntryKind, GroupWrite, LogEntry, Members, ReplicaKind, SnapshotFile, SnapshotMark,
    SnapshotMeta, Storage, Vote, Write, WriteNumber,
};
use tollgate_types::{GroupId, NodeId};

const ENTRY_BYTES: usize = 100;
const ROUND: Duration = Duration::from_millis(700);

type Measurement = fn(&Path);

fn main() {
    let dir = std::env::var_os("BENCH_DIR").map_or_else(default_dir, PathBuf::from);
    fs::create_dir_all(&dir).unwrap();
    let dir = dir.canonicalize().unwrap();
    println!("storage benchmark in {} ({})", dir.display(), file_system(&dir));
    println!("medians of {} rounds [least .. most]\n", report::ROUNDS);
    let all: [(&str, Measurement); 5] =
        [("bare", bare), ("writes", writes), ("merged", merged), ("anew", anew), ("recovery", recovery)];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    for (name, run) in all {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            run(&dir);
        }
    }
}

fn default_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-storage")
}

/// The type of a directory's file system.
fn file_system(dir: &Path) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let over = mounts.filter(|(at, _)| dir.starts_with(at)).max_by_key(|(at, _)| at.len());
    over.map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}

/// A storage in a temporary directory of its own.
struct Place {
    path: PathBuf,
    engine: Option<Engine>,
}

impl Place {
    fn new(dir: &Path, groups: u32, config: EngineConfig) -> Place {
        let path = dir.join("storage");
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        let mut engine = Engine::create(&path, config).unwrap();
        let created =
            |number| GroupWrite { create: Some(ReplicaKind::Full), ..GroupWrite::new(GroupId::new(number)) };
        engine
            .write(&[Write { number: WriteNumber(0), groups: (0..groups).map(created).collect() }])
            .unwrap();
        Place { path, engine: Some(engine) }
    }

    fn write(&mut self, writes: &[Write]) {
        self.engine.as_mut().unwrap().write(writes).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.engine = None;
        fs::remove_dir_all(&self.path).unwrap();
    }
}

/// One turn's write: entries and the vote that comes with them, for each of the groups.
fn turn(groups: u32, from: u64, entries: u64) -> Write {
    let entry =
        |index| LogEntry { index, term: 1, kind: EntryKind::Commands, data: Bytes::from_static(&DATA) };
    let part = |number| GroupWrite {
        entries: (from..from + entries).map(entry).collect(),
        vote: Some(Vote { term: 1, voted_for: NodeId::new(1), commit: from - 1 }),
        ..GroupWrite::new(GroupId::new(number))
    };
    Write { number: WriteNumber(from), groups: (0..groups).map(part).collect() }
}

static DATA: [u8; ENTRY_BYTES] = [0x5a; ENTRY_BYTES];

/// Measures the disk itself, with writes as small as the storage's small ones.
fn bare(dir: &Path) {
    let path = dir.join("bare");
    for (what, prepared) in [("appended", false), ("in a file used anew", true)] {
        let line = rounds(1, || {
            let file = File::create(&path).unwrap();
            if prepared {
                file.write_all_at(&vec![1; 8 << 20], 0).unwrap();
                file.sync_all().unwrap();
            }
            let mut at = 0;
            Round::run(ROUND, || {
                file.write_all_at(&[7; 200], at % (8 << 20)).unwrap();
                file.sync_data().unwrap();
                at += 200;
            })
        });
        line.print(&format!("bare: 200 bytes {what}, fdatasync"));
    }
    fs::remove_file(path).unwrap();
}

fn writes(dir: &Path) {
    for (groups, entries) in [(1, 1), (1, 64), (8, 4)] {
        let mut place = Place::new(dir, groups, EngineConfig::default());
        let mut next = 1;
        let line = rounds(1, || {
            Round::run(ROUND, || {
                let write = turn(groups, next, entries);
                place.write(std::slice::from_ref(&write));
                next += entries;
            })
        });
        line.print(&format!("write: {groups} groups x {entries} entries"));
    }
}

/// One thread owns the disk, and takes all writes that have arrived while it was busy.
fn merged(dir: &Path) {
    for together in [1, 4, 16, 64] {
        let mut place = Place::new(dir, 1, EngineConfig::default());
        let mut next = 1;
        let line = rounds(together, || {
            Round::run(ROUND, || {
                let writes: Vec<Write> = (next..next + together).map(|index| turn(1, index, 1)).collect();
                place.write(&writes);
                next += together;
            })
        });
        line.print(&format!("merged: {together} writes of 1 entry an fsync"));
    }
}

/// Measures reused files: once the log has been purged its files are reused, and their blocks already exist.
fn anew(dir: &Path) {
    let config = EngineConfig { log_file_bytes: 1 << 20, log_purge_bytes: 4 << 20 };
    let mut place = Place::new(dir, 1, config);
    let mut next = 1;
    let mut step = |place: &mut Place| {
        let mut write = turn(1, next, 1);
        if next.is_multiple_of(1_000) {
            write.groups[0].snapshot = Some(mark(next - 1));
        }
        place.write(&[write]);
        next += 1;
    };
    // Many entries at a time, to reach the purge soon.
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(15) && reused(&place) < 3 {
        for _ in 0..500 {
            step(&mut place);
        }
    }
    let line = rounds(1, || Round::run(ROUND, || step(&mut place)));
    line.print("anew: 1 group x 1 entry, 1 MiB files used anew");
}

/// Number of first log files that are gone.
fn reused(place: &Place) -> u64 {
    let names = fs::read_dir(place.path.join("log")).unwrap().map(|entry| entry.unwrap().file_name());
    let numbers = names.filter_map(|name| name.to_str()?.strip_suffix(".raftlog")?.parse::<u64>().ok());
    numbers.min().unwrap_or(1) - 1
}

fn mark(index: u64) -> SnapshotMark {
    let members = Members::first([NodeId::new(1).unwrap()], []);
    let meta = SnapshotMeta { index, term: 1, members };
    SnapshotMark { file: SnapshotFile { meta, size: 0, checksum: 0 }, restart: false }
}

fn recovery(dir: &Path) {
    const ENTRIES: u64 = 1_000_000;
    const GROUPS: u32 = 8;
    let mut place = Place::new(dir, GROUPS, EngineConfig::default());
    for from in (1..ENTRIES / u64::from(GROUPS)).step_by(100) {
        place.write(&[turn(GROUPS, from, 100)]);
    }
    let mut load = Vec::new();
    let line = rounds(1, || {
        place.engine = None;
        let mut engine = None;
        let open = Round::once(|| engine = Some(Engine::open(&place.path, EngineConfig::default()).unwrap()));
        let mut engine = engine.unwrap();
        load.push(Round::once(|| {
            let groups = engine.load().unwrap();
            assert_eq!(groups.iter().map(|group| group.entries.len() as u64).sum::<u64>(), ENTRIES);
        }));
        place.engine = Some(engine);
        open
    });
    line.print_times("recovery: 1,000,000 entries in 8 groups, open");
    report::line(1, &load).print_times("recovery: 1,000,000 entries in 8 groups, load");
}
