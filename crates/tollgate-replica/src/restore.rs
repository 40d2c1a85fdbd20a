//! Makes the data directory of one node of a new cluster from a backup.
//!
//! Every node of the new cluster is made like this, each from its own copy of the backup. The nodes must agree, to the
//! byte, on the initial state of each group. So the new cluster's id is a hash of exactly that: its name, its members,
//! and the initial state of every group. Nodes that were restored from different backups, above different tokens or
//! with different graces are of different clusters and refuse each other, before either of them has a vote.
//!
//! The directory is founded as by a bootstrap (`data_dir`): complete or missing, with a disk id of its own, and the
//! node takes part only once all other first members have recorded that disk. Not here: the change of a state by a
//! restore (`State::resume` in `tollgate-core`), reading clocks and flags (`tollgate snapshot restore`).

use crate::backup::{BackupError, BackupGroup, BackupHead, BackupReader};
use crate::data_dir::{DataDir, DataDirError};
use crate::engine::{Engine, EngineConfig};
use crate::host::bootstrap_from;
use crate::members::Members;
use crate::storage::StorageError;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tollgate_core::{ResumeError, State, Writer};
use tollgate_types::{ClusterId, DiskId, DurationMs, Lineage, NodeId, Revision};
use xxhash_rust::xxh3::Xxh3Default;

/// Added by every restore to the highest revision in a backup: more than a group grants in an hour, to cover the old
/// cluster's work in the seconds by which its clock and this one may differ.
const RAISE: u64 = 1 << 32;

/// Added for every second of the backup's age: more changes than a group makes in one second.
const RAISE_PER_SECOND: u64 = 1 << 20;

/// The greatest plausible age of a backup. An older backup, or a clock that is wrong by so much, would consume a good
/// part of all tokens.
const AGE_MAX: Duration = Duration::from_hours(10 * 366 * 24);

/// Reasons for which no data directory was made. The remains of an attempt are no data directory, and are replaced by
/// the next attempt.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The backup can't be used.
    #[error("{path}: {source}")]
    Backup {
        /// Path of the backup.
        path: String,
        /// Reason why it can't be used.
        source: BackupError,
    },
    /// The new cluster would be mistaken for the old one.
    #[error(
        "the backup is of a cluster called {name} itself: give the new cluster another name, so that nobody takes one \
         for the other"
    )]
    SameName {
        /// The name.
        name: String,
    },
    /// The clock of the machine that made the backup and this machine's clock disagree.
    #[error(
        "the backup is from {seconds} seconds in the future: the clock of this machine or of the one that saved it is \
         wrong; correct it, or give the highest token that may have been handed out with --above-token"
    )]
    FromTheFuture {
        /// Difference of the clocks, in seconds.
        seconds: u64,
    },
    /// The backup is implausibly old.
    #[error(
        "the backup is {days} days old, which can't be right: correct the clock of this machine, or give the highest \
         token that may have been handed out with --above-token"
    )]
    TooOld {
        /// Age of the backup, in days.
        days: u64,
    },
    /// The states can't continue above the requested token.
    #[error("{0}")]
    Resume(#[from] ResumeError),
    /// The backup was replaced while it was read.
    #[error("{path} changed while it was read: try again")]
    Changed {
        /// Path of the backup.
        path: String,
    },
    /// The directory can't be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The data could not be written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Contents of a backup; every byte of it was checked, and every state built.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Head of the backup.
    pub head: BackupHead,
    /// Groups in the backup.
    pub groups: Vec<GroupSummary>,
}

/// A group in a backup, and the size of its state.
#[derive(Debug, Clone)]
pub struct GroupSummary {
    /// The group's line in the manifest.
    pub group: BackupGroup,
    /// Locks that were held, waited for or closed by a lock-delay.
    pub locks: u64,
    /// Leases, stubs included.
    pub leases: u64,
    /// Registers.
    pub registers: u64,
    /// The longest time to live that a lease has, or may be granted.
    pub ttl_longest: DurationMs,
    /// The history of grants that the state belongs to; none in a state of apply version 1.
    pub lineage: Option<Lineage>,
}

impl Summary {
    /// The highest revision of all groups: no token in the backup is higher.
    pub fn revision_max(&self) -> Revision {
        self.groups.iter().map(|summary| summary.group.revision).max().unwrap_or_default()
    }

    /// The history of grants that a cluster restored from this backup continues; none in the backup of a cluster
    /// without one: then the restored cluster draws its own.
    pub fn lineage(&self) -> Option<Lineage> {
        self.groups.iter().find_map(|summary| summary.lineage)
    }

    /// Time for which a holder from after the backup may still rely on its lock: the longest time to live in any group.
    pub fn grace(&self) -> DurationMs {
        self.groups.iter().map(|summary| summary.ttl_longest).max().unwrap_or_default()
    }

    /// A token that the old cluster can't have reached by now, by the wall clock of this machine.
    ///
    /// The token is the same for all groups, above what any of them can have reached: so it also holds for a name that
    /// has moved to another group since, and is a single number to repeat on the other nodes.
    pub fn above_token(&self, now_unix_ms: u64) -> Result<u64, RestoreError> {
        let Some(age_ms) = now_unix_ms.checked_sub(self.head.taken_unix_ms) else {
            let seconds = (self.head.taken_unix_ms - now_unix_ms).div_ceil(1_000);
            return Err(RestoreError::FromTheFuture { seconds });
        };
        let age = Duration::from_millis(age_ms);
        if age > AGE_MAX {
            return Err(RestoreError::TooOld { days: age.as_secs() / 86_400 });
        }
        Ok(self.revision_max().get() + RAISE + RAISE_PER_SECOND * age_ms.div_ceil(1_000))
    }
}

/// Reads and checks a whole backup, and summarizes it.
pub fn inspect(path: &Path) -> Result<Summary, RestoreError> {
    let mut groups = Vec::new();
    let head = read(path, |group, state| {
        groups.push(GroupSummary {
            group,
            locks: state.lock_count(),
            leases: state.lease_count(),
            registers: state.register_count(),
            ttl_longest: state.ttl_longest(),
            lineage: state.lineage(),
        });
        Ok(())
    })?;
    Ok(Summary { head, groups })
}

/// Parameters of a restore. They are the same on every node of the new cluster, except for `node` and `data_dir`.
#[derive(Debug, Clone)]
pub struct Restoration {
    /// The backup.
    pub file: PathBuf,
    /// The new cluster's name.
    pub cluster_name: String,
    /// First members of the new cluster.
    pub members: Members,
    /// Lower bound: every token of the new cluster is above this one.
    pub above_token: u64,
    /// Time during which no lock is granted, once there is a leader.
    pub grace: DurationMs,
    /// This node.
    pub node: NodeId,
    /// Path of the data directory to make.
    pub data_dir: PathBuf,
}

impl Restoration {
    /// Makes this node's data directory, and returns the new cluster's id. `disk` must be random, as for
    /// [`DataDir::create`].
    pub fn run(&self, engine: EngineConfig, disk: DiskId) -> Result<ClusterId, RestoreError> {
        let cluster = self.cluster_id()?;
        let founding = DataDir::create(&self.data_dir, cluster, self.node, disk)?;
        let mut storage = Engine::create(founding.path(), engine)?;
        let written = self.each_state(|group, state| {
            Ok(bootstrap_from(&mut storage, self.node, group.group, &self.members, state)?)
        })?;
        drop(storage);
        if written != cluster {
            return Err(RestoreError::Changed { path: self.file.display().to_string() });
        }
        let others = self.members.voters.iter().copied().filter(|other| *other != self.node);
        founding.finish(others.collect())?;
        Ok(cluster)
    }

    /// Computes the new cluster's id, by reading the whole backup.
    pub fn cluster_id(&self) -> Result<ClusterId, RestoreError> {
        self.each_state(|_, _| Ok(()))
    }

    /// Visits the initial states of the groups. Returns the cluster id that is derived from them.
    fn each_state(
        &self,
        mut each: impl FnMut(&BackupGroup, &State) -> Result<(), RestoreError>,
    ) -> Result<ClusterId, RestoreError> {
        let mut agreed = Vec::new();
        let mut writer = Writer::new(&mut agreed);
        writer.bytes(self.cluster_name.as_bytes());
        self.members.encode(&mut writer);
        let head = read(&self.file, |group, mut state| {
            state.resume(self.above_token, self.grace)?;
            writer.varint(u64::from(group.group.number()));
            writer.bytes(&state.snapshot().hash().to_le_bytes());
            each(&group, &state)
        })?;
        // Disks don't know the name of their cluster, but its id is usually derived from the name.
        if head.cluster_name == self.cluster_name || head.cluster == ClusterId::of_name(&self.cluster_name) {
            return Err(RestoreError::SameName { name: self.cluster_name.clone() });
        }
        let mut hasher = Xxh3Default::new();
        hasher.update(&agreed);
        Ok(ClusterId::new(hasher.digest()))
    }
}

/// Passes every group of a backup to `each`, with its state, one at a time. The end of the file is checked last.
fn read(
    path: &Path,
    mut each: impl FnMut(BackupGroup, State) -> Result<(), RestoreError>,
) -> Result<BackupHead, RestoreError> {
    let failed = |source: BackupError| RestoreError::Backup { path: path.display().to_string(), source };
    let file = File::open(path).map_err(|error| failed(error.into()))?;
    let mut reader = BackupReader::open(BufReader::with_capacity(1 << 18, file)).map_err(failed)?;
    while let Some((group, state)) = reader.next_group().map_err(failed)? {
        each(group, state)?;
    }
    Ok(reader.head().clone())
}
