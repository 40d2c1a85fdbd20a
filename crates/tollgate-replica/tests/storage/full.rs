//! A full disk: nothing is lost, and the storage continues once there is room.

use crate::world::{
    appended, created, entry, found, group, killed, log_files, open_engine, save, start, state_of, write,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;
use tollgate_replica::{Engine, EngineConfig, Job, Storage, StorageError, Write};

/// A small file system for one test.
struct Disk {
    at: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// Held by the one test at a time that has a disk. Mounting it takes another process, which shares all open files of
/// this one until it has begun its own program: meanwhile a removed file frees no room, and a closed file releases no
/// lock.
static ALONE: Mutex<()> = Mutex::new(());

/// Takes the lock of the test that has a disk, for other tests that start processes.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    // A test that failed while it held the lock has reported its failure.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    fn new(size: &str) -> Option<Disk> {
        let alone = alone();
        let at = TempDir::new().unwrap();
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at.path()).stderr(Stdio::null());
        if start(&mut mount).and_then(|mut it| it.wait()).is_ok_and(|status| status.success()) {
            return Some(Disk { at, _alone: alone });
        }
        println!("skipped: only root can mount a small disk");
        None
    }

    fn path(&self) -> &Path {
        self.at.path()
    }

    /// Fills the disk except for some bytes.
    fn fill(&self, left: usize) -> PathBuf {
        let path = self.path().join("ballast");
        let mut size = 1 << 20;
        let mut ballast = Vec::new();
        while size >= 512 {
            let longer = vec![1; ballast.len() + size];
            if fs::write(&path, &longer).is_ok() { ballast = longer } else { size /= 2 }
        }
        fs::write(&path, &ballast[..ballast.len().saturating_sub(left)]).unwrap();
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Nothing is open there any more; otherwise the unmount takes effect once the last file is closed.
        let _ = start(Command::new("umount").arg("-l").arg(self.path())).and_then(|mut it| it.wait());
    }
}

fn config() -> EngineConfig {
    EngineConfig { log_file_bytes: 64 * 1024, log_purge_bytes: 1024 * 1024 }
}

fn turn(index: u64) -> [Write; 1] {
    [write(index + 1, appended(1, vec![entry(index, 1, &[0x5a; 3_000])]))]
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room_and_loses_none() {
    let Some(disk) = Disk::new("4m") else { return };
    let mut engine = Engine::create(disk.path(), config()).unwrap();
    engine.write(&[write(1, created(1))]).unwrap();
    let mut begun_in_vain = 0;
    for left in [0, 4_096, 10_000, 40_000] {
        let ballast = disk.fill(left);
        let acked = engine.load().unwrap()[0].entries.len() as u64;
        let mut index = acked + 1;
        while engine.write(&turn(index)).is_ok() {
            index += 1;
            assert!(index < 1_000, "the disk never got full");
        }
        for _ in 0..5 {
            assert!(matches!(engine.write(&turn(index)), Err(StorageError::Full { .. })));
        }
        // The image that a kill leaves now, on a disk with room.
        let image = killed_without(disk.path(), &ballast);
        assert_eq!(found(image.path()).unwrap()[0].entries.len() as u64, index - 1);
        fs::remove_file(&ballast).unwrap();
        engine.write(&turn(index)).unwrap();
        assert_eq!(engine.load().unwrap()[0].entries.len() as u64, index);
        // The next file could not be begun: it stays empty while the one before it is written on.
        let begun = log_files(disk.path(), ".raftlog").pop().unwrap();
        begun_in_vain += u32::from(fs::metadata(begun).unwrap().len() == 0);
        assert_eq!(found(killed(disk.path()).path()).unwrap()[0].entries.len() as u64, index);
    }
    assert!(
        begun_in_vain > 0,
        "no file was begun without room for it, and this test shows less than it says"
    );
    let entries = engine.load().unwrap()[0].entries.clone();
    drop(engine);
    assert_eq!(open_engine(disk.path(), config()).unwrap().load().unwrap()[0].entries, entries);
}

fn killed_without(dir: &Path, ballast: &Path) -> TempDir {
    let copy = killed(dir);
    fs::remove_file(copy.path().join(ballast.file_name().unwrap())).unwrap();
    copy
}

#[test]
fn a_snapshot_that_finds_no_room_leaves_nothing_behind() {
    let Some(disk) = Disk::new("4m") else { return };
    let mut engine = Engine::create(disk.path(), config()).unwrap();
    engine.write(&[write(1, created(1))]).unwrap();
    let ballast = disk.fill(20_000);
    let snapshot = || Box::new(state_of(2_000));
    let job = || Job::Save { group: group(1), meta: crate::world::meta(1), snapshot: snapshot() };
    assert!(matches!(engine.perform(job()), Err(StorageError::Full { .. })));
    assert_eq!(fs::read_dir(disk.path().join("snapshots")).unwrap().count(), 0);
    fs::remove_file(ballast).unwrap();
    save(&mut engine, 1, 1, state_of(2_000));
}

/// A purge moves old data before it frees anything, and may have no room for that.
#[test]
fn a_purge_that_finds_no_room_loses_nothing() {
    let Some(disk) = Disk::new("4m") else { return };
    let config = EngineConfig { log_file_bytes: 4 * 1024, log_purge_bytes: 256 * 1024 };
    let mut engine = Engine::create(disk.path(), config.clone()).unwrap();
    let idle = [entry(1, 1, &vec![7; 20_000])];
    engine.write(&[write(1, created(1))]).unwrap();
    for number in 2..=9 {
        engine.write(&[write(1, created(number)), write(2, appended(number, idle.to_vec()))]).unwrap();
    }
    let mut last = 0;
    let mut step = |engine: &mut Engine| {
        let result = engine.write(&[write(1, appended(1, vec![entry(last + 1, 1, &[9; 300])]))]);
        last += u64::from(result.is_ok());
        assert!(matches!(result, Ok(()) | Err(StorageError::Full { .. })), "{result:?}");
        last
    };
    // Stop one file short of a purge.
    while log_files(disk.path(), ".raftlog").len() < 64 {
        step(&mut engine);
    }
    let ballast = disk.fill(30_000);
    for round in 0..4 {
        for _ in 0..60 {
            step(&mut engine);
        }
        let last = step(&mut engine);
        if round == 1 {
            fs::remove_file(&ballast).unwrap();
        }
        let found = found(killed(disk.path()).path()).unwrap();
        assert_eq!((found.len(), found[0].entries.len() as u64), (9, last));
        assert!(found[1..].iter().all(|group| group.entries == idle));
    }
    let moved = log_files(disk.path(), ".rewrite").into_iter().map(|path| fs::metadata(path).unwrap().len());
    let moved: u64 = moved.sum();
    assert!(moved > 100_000, "{moved} bytes: no purge came in the end, and this test shows nothing");
}
