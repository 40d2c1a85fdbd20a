//! Test data, and the directories that it is written to.

use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io, process};
use tempfile::TempDir;
use tollgate_core::{Command, Entry, GrantLease, LeaseChoice, Snapshot, State};
use tollgate_replica::{
    DataDir, DataDirError, Done, Engine, EngineConfig, EntryKind, Founding, GroupWrite, Job, LoadedGroup,
    LogEntry, Members, ReplicaKind, SnapshotFile, SnapshotMark, SnapshotMeta, Storage, StorageError, Vote,
    Write, WriteNumber,
};
use tollgate_types::{
    Address, ClientId, ClusterId, DiskId, DurationMs, GroupId, LeaseId, Limits, LogTime, NodeId,
};

pub(crate) const LOG_HEADER_BYTES: usize = 69;

pub(crate) fn group(number: u32) -> GroupId {
    GroupId::new(number)
}

pub(crate) fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

pub(crate) fn entry(index: u64, term: u64, data: &[u8]) -> LogEntry {
    let kind = if index.is_multiple_of(3) { EntryKind::Membership } else { EntryKind::Commands };
    LogEntry { index, term, kind, data: Bytes::copy_from_slice(data) }
}

pub(crate) fn entries(from: u64, to: u64, term: u64) -> Vec<LogEntry> {
    (from..=to).map(|index| entry(index, term, format!("entry {index} of term {term}").as_bytes())).collect()
}

pub(crate) fn vote(term: u64, commit: u64) -> Vote {
    Vote { term, voted_for: NodeId::new(term % 4), commit }
}

/// One turn's write of one group.
pub(crate) fn write(number: u64, part: GroupWrite) -> Write {
    Write { number: WriteNumber(number), groups: vec![part] }
}

pub(crate) fn created(number: u32) -> GroupWrite {
    GroupWrite { create: Some(ReplicaKind::Full), ..GroupWrite::new(group(number)) }
}

pub(crate) fn appended(number: u32, entries: Vec<LogEntry>) -> GroupWrite {
    GroupWrite { entries, ..GroupWrite::new(group(number)) }
}

pub(crate) fn marked(number: u32, file: &SnapshotFile, restart: bool) -> GroupWrite {
    let snapshot = Some(SnapshotMark { file: file.clone(), restart });
    GroupWrite { snapshot, ..GroupWrite::new(group(number)) }
}

pub(crate) fn meta(index: u64) -> SnapshotMeta {
    SnapshotMeta { index, term: 1, members: Members::first([node(1), node(2), node(3)], [node(3)]) }
}

/// A snapshot of a state with this many leases, of some 60 bytes each.
pub(crate) fn state_of(leases: u64) -> Snapshot {
    let mut state = State::new(Limits::DEFAULT);
    for lease in 1..=leases {
        let command = Command::GrantLease(GrantLease {
            id: LeaseChoice::Chosen(LeaseId::new(lease).unwrap()),
            ttl: DurationMs::from_ms(10_000),
            client_id: ClientId::new("worker").unwrap(),
            address: Address::new("10.1.2.3:45678").unwrap(),
            revoke_on_disconnect: false,
        });
        state.apply(Entry::new(LogTime::from_ms(1), command));
    }
    state.snapshot()
}

pub(crate) fn save(engine: &mut Engine, number: u32, index: u64, snapshot: Snapshot) -> SnapshotFile {
    let job = Job::Save { group: group(number), meta: meta(index), snapshot: Box::new(snapshot) };
    match engine.perform(job).unwrap() {
        Done::Saved { file, .. } => file,
        other => panic!("{other:?}"),
    }
}

/// Files so small that tests fill, purge and reuse them.
pub(crate) fn small() -> EngineConfig {
    EngineConfig { log_file_bytes: 2 * 1024, log_purge_bytes: 8 * 1024 }
}

/// A temporary directory, in memory where possible: the tests are about bytes, and fsyncs would only be slow.
pub(crate) fn dir() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

/// Held while a process is being started. Until a new process has called exec, it has copies of all open files, and
/// keeps their locks after they are closed here.
static STARTS: Mutex<()> = Mutex::new(());

fn process_starts() -> MutexGuard<'static, ()> {
    STARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process. All tests of this binary start theirs here.
pub(crate) fn start(command: &mut process::Command) -> io::Result<process::Child> {
    let _until_exec = process_starts();
    command.spawn()
}

/// Waits until no process is being started: from then on, what was closed here has given up its lock.
pub(crate) fn wait_for_starts() {
    drop(process_starts());
}

/// Opens an engine; one that was open a moment ago in the same directory has given up its lock.
pub(crate) fn open_engine(dir: &Path, config: EngineConfig) -> Result<Engine, StorageError> {
    wait_for_starts();
    Engine::open(dir, config)
}

/// Opens a data directory; see [`open_engine`].
pub(crate) fn open_data_dir(
    dir: &Path,
    expected: Option<(ClusterId, NodeId)>,
) -> Result<DataDir, DataDirError> {
    wait_for_starts();
    DataDir::open(dir, expected)
}

/// Founds a data directory; see [`open_engine`].
pub(crate) fn create_data_dir(
    dir: &Path,
    cluster: ClusterId,
    node: NodeId,
    disk: DiskId,
) -> Result<Founding, DataDirError> {
    wait_for_starts();
    DataDir::create(dir, cluster, node, disk)
}

pub(crate) fn create(dir: &TempDir) -> Engine {
    Engine::create(dir.path(), EngineConfig::default()).unwrap()
}

pub(crate) fn open(dir: &TempDir) -> Engine {
    open_engine(dir.path(), EngineConfig::default()).unwrap()
}

/// Result of a start; a refusal may come from either step.
pub(crate) fn found(dir: &Path) -> Result<Vec<LoadedGroup>, StorageError> {
    open_engine(dir, small())?.load()
}

/// Loaded groups without their states, for comparisons.
pub(crate) type Summary = Vec<(GroupId, ReplicaKind, Vote, Option<SnapshotFile>, Vec<LogEntry>)>;

pub(crate) fn summary(groups: Vec<LoadedGroup>) -> Summary {
    groups.into_iter().map(|it| (it.group, it.kind, it.vote, it.snapshot, it.entries)).collect()
}

/// A copy of the directory as a kill leaves it.
pub(crate) fn killed(dir: &Path) -> TempDir {
    let copy = self::dir();
    copy_into(dir, copy.path());
    copy
}

fn copy_into(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&target).unwrap();
            copy_into(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The files of one of raft-engine's queues, oldest first.
pub(crate) fn log_files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.to_str().unwrap().ends_with(suffix)).collect();
    paths.sort();
    paths
}

pub(crate) fn last_log(dir: &Path) -> PathBuf {
    log_files(dir, ".raftlog").pop().unwrap()
}

/// The ends of the batches of a log file, by their headers; the first is the end of the file's header.
pub(crate) fn batch_ends(bytes: &[u8]) -> Vec<usize> {
    let mut ends = vec![LOG_HEADER_BYTES];
    loop {
        let at = ends[ends.len() - 1];
        let Some(header) = bytes.get(at..at + 8) else { return ends };
        let length = usize::try_from(u64::from_be_bytes(header.try_into().unwrap()) >> 8).unwrap();
        if length == 0 || at + length > bytes.len() {
            return ends;
        }
        ends.push(at + length);
    }
}

#[track_caller]
pub(crate) fn assert_corrupt<T>(result: Result<T, StorageError>, named: &str, what: &str) {
    match result {
        Err(StorageError::Corrupt { file, .. }) if file.contains(named) => {}
        Err(error) => panic!("{what}: expected corruption of {named}, got: {error}"),
        Ok(_) => panic!("{what}: expected corruption of {named}, and it was accepted"),
    }
}
