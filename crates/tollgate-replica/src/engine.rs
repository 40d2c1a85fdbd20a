//! The storage on disk: logs, votes and marks of all groups in one raft-engine, and snapshots as files beside it.
//!
//! ```text
//! <dir>/log/           raft-engine's files
//! <dir>/acked          durable end of the log, to tell a torn tail from corruption
//! <dir>/snapshots/     <group>-<index>.snap
//! ```
//!
//! All writes that are passed together are one batch and one fsync. raft-engine applies to its memory only what it
//! could append to the log, so a write that found no room can simply be repeated. After an **fsync that failed** every
//! call fails: the process must end, because earlier writes may be gone from the page cache (`log_files`). Everything
//! runs in the caller's one thread, including the purge of old files: raft-engine 0.4.2 can fail a read during a purge.
//!
//! Not here: which process may use the directory (`data_dir`), the format of the log files (`scan`).

mod acked;
mod copied;
pub(crate) mod durable;
mod log_files;
mod scan;
mod snapshots;
mod values;

use crate::log_entry::LogEntry;
use crate::storage::{
    Done, GroupWrite, Job, LoadedGroup, ReplicaKind, SnapshotFile, Storage, StorageError, Vote, Write,
};
use acked::AckedFile;
use durable::{corrupt, fault, sync_dir};
use log_files::LogFiles;
use raft::eraftpb;
use raft_engine::internals::{EventListener, FileBlockHandle, FileId, FilePipeLog, LogQueue};
use raft_engine::{Command, LogBatch, MessageExt, ReadableSize, RecoveryMode};
use snapshots::Marks;
pub use snapshots::SnapshotJobs;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tollgate_types::GroupId;
use values::{BadValue, KIND_KEY, MARK_KEY, VOTE_KEY};

/// Sizes of the log on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Size at which a log file is closed.
    pub log_file_bytes: u64,
    /// Old log files are purged, and reused, once all files together have more than this; at least the size of one
    /// file. Entries of a busy group that are not in a snapshot yet are kept, for up to nine more files.
    pub log_purge_bytes: u64,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig { log_file_bytes: 64 * 1024 * 1024, log_purge_bytes: 512 * 1024 * 1024 }
    }
}

type Log = raft_engine::Engine<LogFiles, FilePipeLog<LogFiles>>;

/// The storage of a data directory.
pub struct Engine {
    dir: PathBuf,
    config: EngineConfig,
    /// None if the log was to be reopened and there was no room.
    log: Option<Log>,
    files: Arc<LogFiles>,
    tail: Arc<Tail>,
    acked: AckedFile,
    marks: Marks,
    /// None once the jobs were taken.
    jobs: Option<SnapshotJobs>,
    groups: BTreeMap<GroupId, Kept>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("dir", &self.dir)
            .field("groups", &self.groups.len())
            .finish_non_exhaustive()
    }
}

/// Values of a group besides its entries. They must be written to the log again whenever the whole group is cleared.
#[derive(Debug, Clone, Default)]
struct Kept {
    kind: Option<ReplicaKind>,
    vote: Option<Vote>,
    mark: Option<SnapshotFile>,
    /// The first and the last entry in raft-engine's memory.
    entries: Option<(u64, u64)>,
}

/// Describes Raft's entries to raft-engine.
struct Entries;

impl MessageExt for Entries {
    type Entry = eraftpb::Entry;

    fn index(entry: &eraftpb::Entry) -> u64 {
        entry.index
    }
}

/// Ends of raft-engine's two queues of files.
#[derive(Default)]
struct Tail {
    append: End,
    rewrite: End,
    /// True if a file was begun since the last purge.
    rotated: AtomicBool,
}

#[derive(Default)]
struct End {
    file: AtomicU64,
    byte: AtomicU64,
}

impl End {
    fn set(&self, file: u64, byte: u64) {
        self.file.store(file, Ordering::Relaxed);
        self.byte.store(byte, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        (self.file.load(Ordering::Relaxed), self.byte.load(Ordering::Relaxed))
    }
}

impl Tail {
    fn end(&self, queue: LogQueue) -> &End {
        match queue {
            LogQueue::Append => &self.append,
            LogQueue::Rewrite => &self.rewrite,
        }
    }
}

impl EventListener for Tail {
    fn post_new_log_file(&self, file: FileId) {
        self.end(file.queue).set(file.seq, 0);
        self.rotated.store(true, Ordering::Relaxed);
    }

    fn on_append_log_file(&self, batch: FileBlockHandle) {
        self.end(batch.id.queue).set(batch.id.seq, batch.offset + batch.len as u64);
    }
}

/// Pseudo group whose value is the signature that ends every batch. No real group has this number: group numbers have
/// 32 bits.
const SIGNATURE_GROUP: u64 = 1 << 32;
const SIGNATURE_KEY: &[u8] = b"signature";

impl Engine {
    /// Begins an empty storage in a data directory that has none.
    pub fn create(dir: &Path, config: EngineConfig) -> Result<Engine, StorageError> {
        for inner in [log_dir(dir), snapshots_dir(dir)] {
            fs::create_dir(&inner).map_err(|error| fault(&inner, error))?;
        }
        let acked = AckedFile::create(&acked_path(dir))?;
        let mut engine = Engine::new(dir, config, acked);
        engine.open_log()?;
        // raft-engine syncs neither its first files nor their names.
        engine.append(&mut LogBatch::default())?;
        for synced in [&log_dir(dir), dir] {
            sync_dir(synced).map_err(|error| fault(synced, error))?;
        }
        Ok(engine)
    }

    /// Opens the storage of a data directory. Refuses a storage that has lost or damaged durable data.
    pub fn open(dir: &Path, config: EngineConfig) -> Result<Engine, StorageError> {
        let acked = AckedFile::open(&acked_path(dir))?;
        let mut engine = Engine::new(dir, config, acked);
        engine.open_log()?;
        engine.read_groups()?;
        engine.compact_again()?;
        for (group, kept) in &engine.groups {
            engine.marks.set(*group, kept.mark.as_ref());
        }
        engine.jobs.as_ref().expect("nobody took them yet").remove_leftovers()?;
        Ok(engine)
    }

    /// Hands out the worker for the jobs, for another thread: a snapshot takes long, and the log must not wait for it.
    /// To be called after [`Storage::load`]; from then on the engine takes writes only.
    pub fn take_jobs(&mut self) -> SnapshotJobs {
        self.jobs.take().expect("the jobs are taken once")
    }

    fn new(dir: &Path, config: EngineConfig, acked: AckedFile) -> Engine {
        let marks = Marks::default();
        let jobs = Some(SnapshotJobs::new(snapshots_dir(dir), marks.clone()));
        let (dir, tail) = (dir.to_path_buf(), Arc::new(Tail::default()));
        Engine {
            dir,
            config,
            log: None,
            files: Arc::default(),
            tail,
            acked,
            marks,
            jobs,
            groups: BTreeMap::new(),
        }
    }

    /// Checks the log's files and opens raft-engine on them.
    fn open_log(&mut self) -> Result<(), StorageError> {
        let dir = log_dir(&self.dir);
        // The old engine must release the files first.
        self.log = None;
        self.acked.acked.batch = scan::check(&dir, &self.acked.acked)?;
        let tail = Arc::clone(&self.tail) as Arc<dyn EventListener>;
        let log = Log::open_with(self.log_config(&dir)?, Arc::clone(&self.files), vec![tail]);
        self.log = Some(self.done(log)?);
        self.acked_all()
    }

    fn log_config(&self, dir: &Path) -> Result<raft_engine::Config, StorageError> {
        let dir = dir.to_str().ok_or_else(|| {
            let what = "the path of the data directory must be UTF-8".to_owned();
            StorageError::Failed { file: dir.display().to_string(), what }
        })?;
        Ok(raft_engine::Config {
            dir: dir.to_owned(),
            // Torn tails are cut off by `scan`, which can tell them from corruption.
            recovery_mode: RecoveryMode::AbsoluteConsistency,
            target_file_size: ReadableSize(self.config.log_file_bytes),
            purge_threshold: ReadableSize(self.config.log_purge_bytes),
            // A reused log file already has its blocks: its fsyncs need no metadata.
            enable_log_recycle: true,
            // Commands are small and mostly numbers; and the byte that says how a batch is compressed is under no
            // checksum, so `scan` insists on one value.
            batch_compression_threshold: ReadableSize(0),
            ..raft_engine::Config::default()
        })
    }

    fn log(&self) -> &Log {
        self.log.as_ref().expect("every write opens it again if it has to")
    }

    /// Appends a batch to the log, durably.
    fn append(&mut self, batch: &mut LogBatch) -> Result<(), StorageError> {
        let number = self.acked.acked.batch + 1;
        // The signature is the last item, where `scan` looks for it.
        batch
            .put(SIGNATURE_GROUP, SIGNATURE_KEY.to_vec(), scan::signature(&self.acked.acked.secret, number))
            .expect("the key is none of raft-engine's own");
        self.done(self.log().write(batch, true))?;
        self.acked.acked.batch = number;
        (self.acked.acked.append.last, self.acked.acked.append.end) = self.tail.append.get();
        unless_full(self.acked.write())
    }

    /// Records where the log begins and ends, after a change other than an append.
    fn acked_all(&mut self) -> Result<(), StorageError> {
        let log = self.log.as_ref().expect("the log is open");
        let acked = &mut self.acked.acked;
        acked.append.first = log.file_span(LogQueue::Append).0;
        acked.rewrite.first = log.file_span(LogQueue::Rewrite).0;
        (acked.append.last, acked.append.end) =
            later((acked.append.last, acked.append.end), self.tail.append.get());
        (acked.rewrite.last, acked.rewrite.end) =
            later((acked.rewrite.last, acked.rewrite.end), self.tail.rewrite.get());
        acked.purging = false;
        unless_full(self.acked.write_durably())
    }

    /// Checks the result of a call of raft-engine, which does not learn of a failed fsync.
    fn done<T>(&self, result: raft_engine::Result<T>) -> Result<T, StorageError> {
        self.files.synced()?;
        result.map_err(|error| self.log_error(error))
    }

    /// Translates an error of raft-engine. raft-engine rolls back a write that found no room, and reports it in two
    /// ways.
    fn log_error(&self, error: raft_engine::Error) -> StorageError {
        let dir = log_dir(&self.dir);
        match error {
            raft_engine::Error::TryAgain(_) => StorageError::Full { path: dir.display().to_string() },
            raft_engine::Error::Io(error) => fault(&dir, error),
            raft_engine::Error::Corruption(what) => corrupt(&dir, what),
            error => StorageError::Failed { file: dir.display().to_string(), what: error.to_string() },
        }
    }

    /// Reads the small values of all groups, and the range of their entries.
    fn read_groups(&mut self) -> Result<(), StorageError> {
        let mut numbers = self.log().raft_groups();
        numbers.retain(|number| *number != SIGNATURE_GROUP);
        for number in numbers {
            let Ok(group) = u32::try_from(number).map(GroupId::new) else {
                return Err(corrupt(&log_dir(&self.dir), format!("it has a group {number}, which can't be")));
            };
            let log = self.log();
            let kept = Kept {
                kind: self.value(group, "kind", KIND_KEY, values::decode_kind)?,
                vote: self.value(group, "vote", VOTE_KEY, values::decode_vote)?,
                mark: self.value(group, "snapshot mark", MARK_KEY, values::decode_mark)?,
                entries: log.first_index(number).zip(log.last_index(number)),
            };
            self.check_group(group, &kept)?;
            self.groups.insert(group, kept);
        }
        Ok(())
    }

    fn value<T>(
        &self,
        group: GroupId,
        what: &str,
        key: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<T, BadValue>,
    ) -> Result<Option<T>, StorageError> {
        let bytes = self.log().get(group.number().into(), key);
        bytes.map(|bytes| decode(&bytes)).transpose().map_err(|bad| {
            let dir = log_dir(&self.dir);
            match bad {
                BadValue::Damaged(why) => corrupt(&dir, format!("the {what} of group {group}: {why}")),
                BadValue::TooNew { found, supported } => {
                    let file = dir.display().to_string();
                    StorageError::TooNew { file, found: found.into(), supported: supported.into() }
                }
            }
        })
    }

    /// Checks what must hold for every group at all times: it has a kind, and no gap between its snapshot and its
    /// entries.
    fn check_group(&self, group: GroupId, kept: &Kept) -> Result<(), StorageError> {
        let dir = log_dir(&self.dir);
        if kept.kind.is_none() {
            return Err(corrupt(
                &dir,
                format!("group {group} has no kind: the beginning of its log is lost"),
            ));
        }
        let next = kept.mark.as_ref().map_or(1, |mark| mark.meta.index + 1);
        match kept.entries {
            Some((first, _)) if first > next => {
                Err(corrupt(&dir, format!("group {group} lacks its entries {next} to {}", first - 1)))
            }
            _ => Ok(()),
        }
    }

    /// Drops entries again that a mark had dropped before. raft-engine forgets a compaction whose file is purged while
    /// older entries live on in its rewrites, and then takes the next append for one that leaves a gap.
    fn compact_again(&mut self) -> Result<(), StorageError> {
        let mut batch = LogBatch::default();
        for (group, kept) in &mut self.groups {
            let (Some(mark), Some((first, _))) = (&kept.mark, kept.entries) else { continue };
            if first <= mark.meta.index {
                kept.compact(mark.meta.index);
                batch.add_command(group.number().into(), Command::Compact { index: mark_end(kept) });
            }
        }
        if batch.is_empty() { Ok(()) } else { self.append(&mut batch) }
    }

    /// Frees log files that are no longer needed. Runs once for each file that is filled.
    fn purge(&mut self) -> Result<(), StorageError> {
        self.tail.rotated.store(false, Ordering::Relaxed);
        if (self.log().get_used_size() as u64) <= self.config.log_purge_bytes {
            return Ok(());
        }
        self.acked.acked.purging = true;
        match self.acked.write_durably() {
            Err(StorageError::Full { .. }) => return Ok(()),
            result => result?,
        }
        match self.done(self.log().purge_expired_files()) {
            Ok(_) => self.acked_all(),
            // A purge that stops half-way has forgotten which groups were removed, and would let them come back. The
            // files still have that information: read them again.
            Err(StorageError::Full { .. }) => unless_full(self.open_log()),
            Err(error) => Err(error),
        }
    }

    /// Loads a group, with its state if a replica of the kind `load` keeps one; usually `load` is the group's own kind.
    fn load_group(
        &self,
        group: GroupId,
        kept: &Kept,
        load: ReplicaKind,
    ) -> Result<LoadedGroup, StorageError> {
        let kind = kept.kind.expect("checked when it was read");
        let state = match &kept.mark {
            Some(mark) => {
                let jobs = self.jobs.as_ref().expect("groups are loaded before the jobs are taken");
                jobs.load(group, mark, load)?
            }
            None => None,
        };
        let mut entries = Vec::new();
        if let Some((first, last)) = kept.entries {
            let number = group.number().into();
            self.log()
                .fetch_entries_to::<Entries>(number, first, last + 1, None, &mut entries)
                .map_err(|error| self.log_error(error))?;
        }
        let entries = entries.iter().map(LogEntry::from_raft).collect();
        let (vote, snapshot) = (kept.vote.unwrap_or_default(), kept.mark.clone());
        Ok(LoadedGroup { group, kind, vote, snapshot, state, entries })
    }
}

impl Storage for Engine {
    fn write(&mut self, writes: &[Write]) -> Result<(), StorageError> {
        let mut batch = LogBatch::default();
        // Applied to `groups` only once the batch is durable: a write that finds no room has not happened.
        let mut changed = BTreeMap::new();
        for part in writes.iter().flat_map(|write| &write.groups) {
            let kept = changed
                .entry(part.group)
                .or_insert_with(|| self.groups.get(&part.group).cloned().unwrap_or_default());
            kept.add(part, &mut batch).map_err(|error| self.log_error(error))?;
        }
        if batch.is_empty() {
            return Ok(());
        }
        if self.log.is_none() {
            self.open_log()?;
        }
        self.append(&mut batch)?;
        // The batch is durable: from here on no error may cause it to be written again.
        for (group, kept) in changed {
            if kept.kind.is_some() {
                self.marks.set(group, kept.mark.as_ref());
                self.groups.insert(group, kept);
            } else {
                self.marks.set(group, None);
                // Once handed out, the jobs leave the removal of these files to the next start.
                if let Some(jobs) = &mut self.jobs {
                    jobs.forget(group);
                }
                self.groups.remove(&group);
            }
        }
        if self.tail.rotated.load(Ordering::Relaxed) { self.purge() } else { Ok(()) }
    }

    fn perform(&mut self, job: Job) -> Result<Done, StorageError> {
        self.jobs.as_mut().expect("whoever took the jobs does them").perform(job)
    }

    fn load(&mut self) -> Result<Vec<LoadedGroup>, StorageError> {
        let load = |(group, kept): (&GroupId, &Kept)| {
            self.load_group(*group, kept, kept.kind.expect("checked when it was read"))
        };
        self.groups.iter().map(load).collect()
    }
}

impl Kept {
    /// Adds a group's part of a write to the batch, in the order in which a batch is applied.
    fn add(&mut self, part: &GroupWrite, batch: &mut LogBatch) -> Result<(), raft_engine::Error> {
        let group = u64::from(part.group.number());
        if let Some(kind) = part.create {
            assert!(self.kind.is_none(), "group {group} is created once");
            self.kind = Some(kind);
            batch.put(group, KIND_KEY.to_vec(), values::encode_kind(kind))?;
        }
        assert!(self.kind.is_some(), "group {group} is created before it is written to");
        if let Some(mark) = &part.snapshot {
            self.mark = Some(mark.file.clone());
            if mark.restart {
                self.restart(group, batch)?;
            } else {
                self.compact(mark.file.meta.index);
                batch.put(group, MARK_KEY.to_vec(), values::encode_mark(&mark.file))?;
                batch.add_command(group, Command::Compact { index: mark_end(self) });
            }
        }
        if !part.entries.is_empty() {
            self.append(group, &part.entries);
            let entries: Vec<eraftpb::Entry> = part.entries.iter().map(LogEntry::to_raft).collect();
            batch.add_entries::<Entries>(group, &entries)?;
        }
        if let Some(vote) = part.vote {
            self.vote = Some(vote);
            batch.put(group, VOTE_KEY.to_vec(), values::encode_vote(&vote))?;
        }
        if part.remove {
            *self = Kept::default();
            batch.add_command(group, Command::Clean);
        }
        Ok(())
    }

    /// Clears the group and writes again what stays. A compaction would do while the process runs, but raft-engine
    /// remembers only clearings across the purge of their files: entries behind the snapshot would come back.
    fn restart(&mut self, group: u64, batch: &mut LogBatch) -> Result<(), raft_engine::Error> {
        self.entries = None;
        batch.add_command(group, Command::Clean);
        if let Some(kind) = self.kind {
            batch.put(group, KIND_KEY.to_vec(), values::encode_kind(kind))?;
        }
        if let Some(vote) = &self.vote {
            batch.put(group, VOTE_KEY.to_vec(), values::encode_vote(vote))?;
        }
        if let Some(mark) = &self.mark {
            batch.put(group, MARK_KEY.to_vec(), values::encode_mark(mark))?;
        }
        Ok(())
    }

    fn compact(&mut self, index: u64) {
        self.entries = self.entries.filter(|(_, last)| *last > index);
        self.entries = self.entries.map(|(first, last)| (first.max(index + 1), last));
    }

    /// Checks the indexes of appended entries. raft-engine would detect wrong ones too, but only after it has written
    /// them, and then at every start.
    fn append(&mut self, group: u64, entries: &[LogEntry]) {
        let (first, last) = (entries[0].index, entries[entries.len() - 1].index);
        let consecutive = entries.windows(2).all(|pair| pair[1].index == pair[0].index + 1);
        assert!(consecutive, "group {group}: the entries of one write have consecutive indexes");
        let begin = mark_end(self);
        let end = self.entries.map_or(begin, |(_, last)| last + 1);
        assert!(
            (begin..=end).contains(&first),
            "group {group}: entry {first} fits in from {begin} to {end} only"
        );
        self.entries = Some((self.entries.map_or(first, |(first, _)| first), last));
    }
}

/// Index after the snapshot.
fn mark_end(kept: &Kept) -> u64 {
    kept.mark.as_ref().map_or(1, |mark| mark.meta.index + 1)
}

/// Ignores a full disk, for records that promise less if they are not written, and are written again next time.
fn unless_full(result: Result<(), StorageError>) -> Result<(), StorageError> {
    match result {
        Err(StorageError::Full { .. }) => Ok(()),
        result => result,
    }
}

fn later(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    a.max(b)
}

fn log_dir(dir: &Path) -> PathBuf {
    dir.join("log")
}

fn snapshots_dir(dir: &Path) -> PathBuf {
    dir.join("snapshots")
}

fn acked_path(dir: &Path) -> PathBuf {
    dir.join("acked")
}
