//! Reads the log and the snapshots of a data directory without changing them.
//!
//! Opening a log writes to it: a torn tail is cut off, a compaction done again, the durable end recorded. So the log is
//! copied first, and the copy is opened, with all the checks of a start. Snapshot files are read in place. Not here:
//! whether a node uses the directory (`data_dir`), the state that is made of it (`salvage`).

use super::acked::AckedFile;
use super::durable::{corrupt, fault};
use super::snapshots::SnapshotJobs;
use super::{Engine, EngineConfig, acked_path, log_dir, snapshots_dir};
use crate::storage::{LoadedGroup, ReplicaKind, StorageError};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tollgate_types::GroupId;

impl Engine {
    /// Opens a copy of a data directory's log, made in `copy`, an empty directory. Errors name the files of the
    /// original. Only tests may write to the returned engine: the writes go to the copy.
    pub(crate) fn open_copied(dir: &Path, copy: &Path, config: EngineConfig) -> Result<Engine, StorageError> {
        copy_log(dir, copy)?;
        let opened = (|| {
            let acked = AckedFile::open(&acked_path(copy))?;
            let mut engine = Engine::new(copy, config, acked);
            engine.jobs = Some(SnapshotJobs::new(snapshots_dir(dir), engine.marks.clone()));
            engine.open_log()?;
            engine.read_groups()?;
            engine.compact_again()?;
            for (group, kept) in &engine.groups {
                engine.marks.set(*group, kept.mark.as_ref());
            }
            Ok(engine)
        })();
        opened.map_err(|error| named_as_in(dir, copy, error))
    }

    /// The groups that have a replica in the directory.
    pub(crate) fn group_ids(&self) -> Vec<GroupId> {
        self.groups.keys().copied().collect()
    }

    /// Loads a group without its state. The group's snapshot is still checked.
    pub(crate) fn load_log(&self, group: GroupId) -> Result<LoadedGroup, StorageError> {
        self.load_group(group, &self.groups[&group], ReplicaKind::Witness)
    }

    /// Loads a group with the state of its snapshot. A witness never loads the state, but its disk has it.
    pub(crate) fn load_state(&self, group: GroupId) -> Result<LoadedGroup, StorageError> {
        self.load_group(group, &self.groups[&group], ReplicaKind::Full)
    }

    /// Time at which the snapshot file that precedes a group's log was last changed.
    pub(crate) fn snapshot_changed(&self, group: GroupId, index: u64) -> Result<SystemTime, StorageError> {
        self.jobs.as_ref().expect("nobody takes the jobs of a copy").changed(group, index)
    }
}

fn copy_log(dir: &Path, copy: &Path) -> Result<(), StorageError> {
    let (from, to) = (log_dir(dir), log_dir(copy));
    fs::create_dir(&to).map_err(|error| fault(&to, error))?;
    for entry in fs::read_dir(&from).map_err(|error| missing_or_failed(&from, error))? {
        let path = entry.map_err(|error| fault(&from, error))?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            copy_file(&path, &to.join(name))?;
        }
    }
    copy_file(&acked_path(dir), &acked_path(copy))
}

/// Copies the bytes alone: the copy must be writable, even if the original is not.
fn copy_file(from: &Path, to: &Path) -> Result<(), StorageError> {
    let mut original = File::open(from).map_err(|error| missing_or_failed(from, error))?;
    let mut copy = File::create(to).map_err(|error| fault(to, error))?;
    io::copy(&mut original, &mut copy).map(drop).map_err(|error| fault(to, error))
}

fn missing_or_failed(path: &Path, error: io::Error) -> StorageError {
    match error.kind() {
        io::ErrorKind::NotFound => corrupt(path, "it is missing"),
        _ => fault(path, error),
    }
}

/// Names the original file in an error about its copy. A full disk is the copy's, so that error stays as it is.
fn named_as_in(dir: &Path, copy: &Path, mut error: StorageError) -> StorageError {
    let original = |file: &str| {
        let inside = Path::new(file).strip_prefix(copy).map(Path::to_path_buf);
        inside.map_or_else(|_| PathBuf::from(file), |inside| dir.join(inside)).display().to_string()
    };
    match &mut error {
        StorageError::Corrupt { file, .. }
        | StorageError::Outdated { file, .. }
        | StorageError::TooNew { file, .. } => *file = original(file),
        StorageError::Full { .. } | StorageError::Failed { .. } => {}
    }
    error
}
