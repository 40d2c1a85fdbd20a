//! Makes the data directory of one node of a new cluster from a backup.
//!
//! Every node of the new cluster is made so, each from its own copy of the backup. What they must agree on, to the
//! byte, is the state that each group begins with. So the new cluster's id is a hash of just that: its name, its
//! members, and the first state of every group. Nodes that were restored from different backups, above different tokens
//! or with different graces are of different clusters and refuse each other, before either of them has a vote.
//!
//! The directory is founded as by a bootstrap (`data_dir`): complete or not there, with a disk id of its own, and the
//! node takes part only once all other first members have met that disk. Not here: what a state becomes by it
//! (`State::resume` in `tollgate-core`), reading clocks and flags (`tollgate snapshot restore`).

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

/// What every restore adds to the highest revision in a backup: more than a group grants in an hour, for what the old
/// cluster did in the seconds that its clock and this one may be apart.
const RAISE: u64 = 1 << 32;

/// And for every second that the backup is old: more changes than a group makes in one.
const RAISE_PER_SECOND: u64 = 1 << 20;

/// A backup this old, or a clock this wrong, would cost a good part of all tokens that there are.
const AGE_MAX: Duration = Duration::from_hours(10 * 366 * 24);

/// Why no data directory was made. What is left of one is no data directory, and is replaced when it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The backup can't be used.
    #[error("{path}: {source}")]
    Backup {
        /// Its file.
        path: String,
        /// What is wrong with it.
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
    /// The clock that took the backup and this one disagree.
    #[error(
        "the backup is from {seconds} seconds in the future: the clock of this machine or of the one that saved it is \
         wrong; correct it, or give the highest token that may have been handed out with --above-token"
    )]
    FromTheFuture {
        /// How far.
        seconds: u64,
    },
    /// Likewise.
    #[error(
        "the backup is {days} days old, which can't be right: correct the clock of this machine, or give the highest \
         token that may have been handed out with --above-token"
    )]
    TooOld {
        /// How old.
        days: u64,
    },
    /// The states can't go on from there.
    #[error("{0}")]
    Resume(#[from] ResumeError),
    /// The backup was replaced while it was read.
    #[error("{path} changed while it was read: try again")]
    Changed {
        /// Its file.
        path: String,
    },
    /// The directory can't be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// It could not be written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// What a backup contains; every byte of it was checked, and every state built.
#[derive(Debug, Clone)]
pub struct Summary {
    /// What it says of itself.
    pub head: BackupHead,
    /// Its groups.
    pub groups: Vec<GroupSummary>,
}

/// A group in a backup, and how much is in its state.
#[derive(Debug, Clone)]
pub struct GroupSummary {
    /// What the manifest says.
    pub group: BackupGroup,
    /// Locks that were held, awaited or closed.
    pub locks: u64,
    /// Leases, stubs included.
    pub leases: u64,
    /// Registers.
    pub registers: u64,
    /// The longest time to live that a lease has, or may be granted.
    pub ttl_longest: DurationMs,
    /// The history of grants that it belongs to; none in a state of apply version 1.
    pub lineage: Option<Lineage>,
}

impl Summary {
    /// The highest revision of all groups: no token in the backup is higher.
    pub fn revision_max(&self) -> Revision {
        self.groups.iter().map(|summary| summary.group.revision).max().unwrap_or_default()
    }

    /// The history of grants that the cluster goes on, and that one restored from this will; none in the backup of a
    /// cluster that knew none: then the restored one draws its own.
    pub fn lineage(&self) -> Option<Lineage> {
        self.groups.iter().find_map(|summary| summary.lineage)
    }

    /// For how long a holder from after the backup may still believe: the longest time to live in any group.
    pub fn grace(&self) -> DurationMs {
        self.groups.iter().map(|summary| summary.ttl_longest).max().unwrap_or_default()
    }

    /// A token that the old cluster can't have reached by now, by the wall clock of this machine.
    ///
    /// One for all groups, above what any of them can have reached: so it holds for a name that moved from one group to
    /// another since, and is one number to repeat on the other nodes.
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

/// Reads a whole backup and says what is in it.
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

/// What is to be made of a backup. On every node of the new cluster the same, but for `node` and `data_dir`.
#[derive(Debug, Clone)]
pub struct Restoration {
    /// The backup.
    pub file: PathBuf,
    /// The new cluster's name.
    pub cluster_name: String,
    /// Its first members.
    pub members: Members,
    /// Every token of the new cluster is above this one.
    pub above_token: u64,
    /// For how long no lock is granted, once somebody leads.
    pub grace: DurationMs,
    /// This node.
    pub node: NodeId,
    /// Where its data shall be.
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

    /// The new cluster's id, found by going through the whole backup.
    pub fn cluster_id(&self) -> Result<ClusterId, RestoreError> {
        self.each_state(|_, _| Ok(()))
    }

    /// Goes through the states that the groups begin with. Returns the cluster id that follows from them.
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
        // Disks don't know the name of their cluster, but mostly its id follows from it.
        if head.cluster_name == self.cluster_name || head.cluster == ClusterId::of_name(&self.cluster_name) {
            return Err(RestoreError::SameName { name: self.cluster_name.clone() });
        }
        let mut hasher = Xxh3Default::new();
        hasher.update(&agreed);
        Ok(ClusterId::new(hasher.digest()))
    }
}

/// Hands every group of a backup to `each`, with its state, one at a time. The last of the file is checked at the end.
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
