//! The directory of snapshot files: one file for each group and index, either complete or missing.
//!
//! A file is written under another name, synced, renamed, and its directory synced. The remains of a crash are removed
//! at the start. The snapshot file that a group's log follows is never removed. Not here: the format (`snapshot_file`),
//! the choice of the snapshot that a log follows (`engine`).

use super::durable::{UNFINISHED, corrupt, fault, remove_file, sync_dir};
use crate::snapshot_file::{self, SnapshotFileError, SnapshotFileReader, SnapshotFileWriter};
use crate::storage::{
    Completion, Done, Job, ReplicaKind, SnapshotFile, SnapshotMeta, StorageError, TransferId,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;
use tollgate_core::{Snapshot, State};
use tollgate_types::{GroupId, NodeId};

const COMPLETE: &str = "snap";

/// Durable snapshot mark of each group, after which the group's log begins. The log's thread writes the marks, and the
/// thread of the snapshot files reads them; both hold the mutex only briefly.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks(Arc<Mutex<BTreeMap<GroupId, SnapshotFile>>>);

impl Marks {
    /// Sets the snapshot after which the group's log begins from now on.
    pub(super) fn set(&self, group: GroupId, mark: Option<&SnapshotFile>) {
        let mut marks = self.lock();
        match mark {
            Some(mark) => marks.insert(group, mark.clone()),
            None => marks.remove(&group),
        };
    }

    fn get(&self, group: GroupId) -> Option<SnapshotFile> {
        self.lock().get(&group).cloned()
    }

    fn index(&self, group: GroupId) -> Option<u64> {
        self.lock().get(&group).map(|mark| mark.meta.index)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<GroupId, SnapshotFile>> {
        self.0.lock().expect("nobody panics with it")
    }
}

/// Performs [`Job`]s on the snapshot files of a data directory.
///
/// A job may take long: [`crate::Engine::take_jobs`] hands this value out, so that another thread performs the jobs
/// while the log goes on.
#[derive(Debug)]
pub struct SnapshotJobs {
    dir: PathBuf,
    marks: Marks,
    incoming: BTreeMap<GroupId, Incoming>,
}

/// A snapshot that a peer is sending.
#[derive(Debug)]
struct Incoming {
    transfer: TransferId,
    peer: NodeId,
    writer: SnapshotFileWriter<File>,
    path: PathBuf,
}

impl SnapshotJobs {
    pub(super) fn new(dir: PathBuf, marks: Marks) -> SnapshotJobs {
        SnapshotJobs { dir, marks, incoming: BTreeMap::new() }
    }

    /// Removes the files of a removed group. Files that can't be removed now are removed at the next start.
    pub(super) fn forget(&mut self, group: GroupId) {
        let _ = self.drop_incoming(group);
        let _ = self.remove(group, u64::MAX);
    }

    /// Removes files that no log needs: unfinished files, and complete ones that no mark names.
    pub(super) fn remove_leftovers(&self) -> Result<(), StorageError> {
        for path in self.paths()? {
            let used = parse(&path).is_some_and(|(group, index)| self.marks.index(group) == Some(index));
            let ours =
                path.extension().is_some_and(|extension| extension == COMPLETE || extension == UNFINISHED);
            if ours && !used {
                remove_file(&path).map_err(|error| fault(&path, error))?;
            }
        }
        sync_dir(&self.dir).map_err(|error| fault(&self.dir, error))
    }

    /// Loads and checks the state that a group's log follows; none for a witness, whose file is checked nevertheless.
    pub(super) fn load(
        &self,
        group: GroupId,
        mark: &SnapshotFile,
        kind: ReplicaKind,
    ) -> Result<Option<Box<State>>, StorageError> {
        let path = self.path(group, mark.meta.index);
        let open = File::open(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => corrupt(&path, "it is missing, and the log begins behind it"),
            _ => fault(&path, error),
        });
        let reader = SnapshotFileReader::open(open?).map_err(|error| bad_file(&path, error))?;
        if reader.file() != mark {
            return Err(corrupt(&path, "it is not the snapshot that the log begins behind"));
        }
        match kind {
            ReplicaKind::Full => {
                let (_, state) = reader.load().map_err(|error| bad_file(&path, error))?;
                Ok(Some(Box::new(state)))
            }
            ReplicaKind::Witness => reader.verify().map(|_| None).map_err(|error| bad_file(&path, error)),
        }
    }

    /// Performs one job: see [`crate::Storage::perform`].
    pub fn perform(&mut self, job: Job) -> Result<Done, StorageError> {
        match job {
            Job::Save { group, meta, snapshot } => {
                let file = self.save(group, &meta, &snapshot)?;
                Ok(Done::Saved { group, file })
            }
            Job::Read { group, transfer, peer, index, offset, length } => {
                let bytes = self.read(group, index, offset, length);
                Ok(Done::Read { group, transfer, peer, offset, bytes })
            }
            Job::Receive { group, transfer, peer, offset, bytes } => {
                let next = self.receive(group, transfer, peer, offset, &bytes)?;
                Ok(Done::Received { group, transfer, peer, next })
            }
            Job::Complete { group, transfer, file, load } => {
                let outcome = self.complete(group, transfer, file, load)?;
                Ok(Done::Completed { group, transfer, outcome })
            }
            Job::Hash { group, index, snapshot } => Ok(Done::Hashed { group, index, hash: snapshot.hash() }),
            Job::Remove { group, below } => {
                self.remove(group, below)?;
                Ok(Done::Removed { group })
            }
        }
    }

    fn save(
        &mut self,
        group: GroupId,
        meta: &SnapshotMeta,
        snapshot: &Snapshot,
    ) -> Result<SnapshotFile, StorageError> {
        let path = self.path(group, meta.index);
        let unfinished = path.with_extension(UNFINISHED);
        let written = File::create(&unfinished)
            .and_then(|file| snapshot_file::write(file, meta, snapshot))
            .and_then(|(saved, file)| self.publish(&file, &unfinished, &path).map(|()| saved));
        self.or_removed(&unfinished, written)
    }

    fn publish(&self, file: &File, unfinished: &Path, path: &Path) -> std::io::Result<()> {
        file.sync_all()?;
        fs::rename(unfinished, path)?;
        sync_dir(&self.dir)
    }

    /// Removes a file that could not be written, so that it takes no room.
    fn or_removed<T>(&self, unfinished: &Path, result: std::io::Result<T>) -> Result<T, StorageError> {
        result.map_err(|error| {
            let found = fault(&self.dir, error);
            remove_file(unfinished).err().map_or(found, |error| fault(unfinished, error))
        })
    }

    /// Reads a piece of a snapshot file. None if the file is missing or damaged: then nothing of it may be sent.
    fn read(&self, group: GroupId, index: u64, offset: u64, length: u32) -> Option<Bytes> {
        let file = File::open(self.path(group, index)).ok()?;
        let mut reader = SnapshotFileReader::open(file).ok()?;
        let length = usize::try_from(length).expect("at least 32 bits");
        reader.read_at(offset, length).ok().map(Bytes::from)
    }

    /// Takes a piece and returns the offset of the next one. A piece at another offset is ignored.
    fn receive(
        &mut self,
        group: GroupId,
        transfer: TransferId,
        peer: NodeId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, StorageError> {
        if offset == 0 {
            self.begin(group, transfer, peer)?;
        }
        let under_way = self.incoming.get_mut(&group).filter(|incoming| incoming.transfer == transfer);
        let Some(incoming) = under_way.filter(|incoming| incoming.peer == peer) else { return Ok(0) };
        if incoming.writer.size() == offset
            && let Err(error) = incoming.writer.push(bytes)
        {
            let found = fault(&incoming.path, error);
            self.drop_incoming(group)?;
            return Err(found);
        }
        Ok(incoming.writer.size())
    }

    fn begin(&mut self, group: GroupId, transfer: TransferId, peer: NodeId) -> Result<(), StorageError> {
        self.drop_incoming(group)?;
        // Must differ from the name that a save of the same group uses.
        let path = self.dir.join(format!("{group}-from-{peer}.{UNFINISHED}", group = group.number()));
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
        let begun = opened.and_then(SnapshotFileWriter::new);
        let writer = self.or_removed(&path, begun)?;
        self.incoming.insert(group, Incoming { transfer, peer, writer, path });
        Ok(())
    }

    fn drop_incoming(&mut self, group: GroupId) -> Result<(), StorageError> {
        match self.incoming.remove(&group) {
            Some(incoming) => remove_file(&incoming.path).map_err(|error| fault(&incoming.path, error)),
            None => Ok(()),
        }
    }

    fn complete(
        &mut self,
        group: GroupId,
        transfer: TransferId,
        file: SnapshotFile,
        load: bool,
    ) -> Result<Completion, StorageError> {
        match self.incoming.remove(&group) {
            Some(incoming) if incoming.transfer == transfer => {
                let path = incoming.path.clone();
                let outcome = self.finish(group, incoming, file, load);
                if !matches!(outcome, Ok(Completion::Loaded(..) | Completion::Kept(_))) {
                    remove_file(&path).map_err(|error| fault(&path, error))?;
                }
                outcome
            }
            other => {
                self.incoming.extend(other.map(|incoming| (group, incoming)));
                Ok(Completion::Damaged("nothing of it was received".to_owned()))
            }
        }
    }

    fn finish(
        &self,
        group: GroupId,
        incoming: Incoming,
        file: SnapshotFile,
        load: bool,
    ) -> Result<Completion, StorageError> {
        let Incoming { writer, path: unfinished, .. } = incoming;
        if (writer.size(), writer.checksum()) != (file.size, file.checksum) {
            let (size, expected) = (writer.size(), file.size);
            let what =
                format!("{size} bytes arrived of {expected}, or with another checksum than the sender's");
            return Ok(Completion::Damaged(what));
        }
        let path = self.path(group, file.meta.index);
        if self.marks.get(group).is_some_and(|mark| mark.meta.index == file.meta.index && mark != file) {
            return Ok(Completion::Damaged(
                "the log begins behind another snapshot of that index".to_owned(),
            ));
        }
        let failed = |error| fault(&unfinished, error);
        let (_, mut opened) = writer.finish(file.meta.clone()).map_err(failed)?;
        // The durable bytes are checked: the state is built from the file, not from the received bytes.
        let state = match load.then(|| snapshot_file::load(&mut opened)).transpose() {
            Ok(loaded) => loaded.map(|(_, state)| Box::new(state)),
            // Sending the snapshot again would not help: the node must stop.
            Err(error @ (SnapshotFileError::TooNew { .. } | SnapshotFileError::ApplyVersion { .. })) => {
                return Err(bad_file(&unfinished, error));
            }
            Err(error) => return Ok(Completion::Damaged(error.to_string())),
        };
        self.publish(&opened, &unfinished, &path).map_err(failed)?;
        Ok(match state {
            Some(state) => Completion::Loaded(file, state),
            None => Completion::Kept(file),
        })
    }

    fn remove(&self, group: GroupId, below: u64) -> Result<(), StorageError> {
        for path in self.paths()? {
            let Some((of, index)) = parse(&path) else { continue };
            if of == group && index < below && self.marks.index(group) != Some(index) {
                remove_file(&path).map_err(|error| fault(&path, error))?;
            }
        }
        Ok(())
    }

    /// Time at which a complete file was last changed.
    pub(super) fn changed(&self, group: GroupId, index: u64) -> Result<SystemTime, StorageError> {
        let path = self.path(group, index);
        fs::metadata(&path).and_then(|found| found.modified()).map_err(|error| fault(&path, error))
    }

    fn path(&self, group: GroupId, index: u64) -> PathBuf {
        self.dir.join(format!("{}-{index}.{COMPLETE}", group.number()))
    }

    fn paths(&self) -> Result<Vec<PathBuf>, StorageError> {
        let failed = |error| fault(&self.dir, error);
        let entries = fs::read_dir(&self.dir).map_err(failed)?;
        entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
    }
}

/// Parses the group and the index from a complete file's name.
fn parse(path: &Path) -> Option<(GroupId, u64)> {
    let name = path.file_name()?.to_str()?.strip_suffix(COMPLETE)?.strip_suffix('.')?;
    let (group, index) = name.split_once('-')?;
    Some((GroupId::new(group.parse().ok()?), index.parse().ok()?))
}

fn bad_file(path: &Path, error: SnapshotFileError) -> StorageError {
    match error {
        SnapshotFileError::Io(error) => fault(path, error),
        SnapshotFileError::Damaged(what) => corrupt(path, what),
        SnapshotFileError::TooNew { found, supported } => {
            let file = path.display().to_string();
            StorageError::TooNew { file, found: found.into(), supported: supported.into() }
        }
        SnapshotFileError::ApplyVersion { found, known } => {
            StorageError::Outdated { file: path.display().to_string(), found, known }
        }
    }
}
