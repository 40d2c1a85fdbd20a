//! Makes a backup from the data directories of stopped nodes, for a cluster that has lost its quorum for good.
//!
//! Each group's state is made from the newest snapshot and log among the directories (`survey`). The log is applied to
//! its end, including entries that are not known to be committed. An entry that was acknowledged is on the disks of a
//! majority; if the other disks are lost, the entries that they had can't be told from those that they did not have. To
//! apply an entry that was never committed carries out a request whose caller was told that the outcome is unknown; to
//! leave out an entry that was committed breaks P4. Witnesses count like full nodes: they load no snapshot, but their
//! disks have the snapshots that the leader sent.
//!
//! P15: a directory in which any byte differs from what was written is refused as a whole, with its path; the operator
//! can leave it out. P2: the backup says up to which time all of it is known to be current, and a restore accounts for
//! the tokens that may have been handed out from then on. That time is the earliest of its groups, and for each group
//! the wall time of the leader that made its last entry. If no entry has a wall time, it is the time at which the
//! snapshot file was written, and not the time of the log's files: those are written by all groups, and by votes, while
//! this group may long have continued without this node.
//!
//! Not here: the file (`backup`), the new cluster made from it (`restore`), flags and signals
//! (`tollgate snapshot save`).

mod directory;
mod survey;

use crate::backup::{BackupHead, BackupWriter, GroupOrigin, TimeSource};
use crate::engine::EngineConfig;
use crate::planted::{Bug, Planted};
use directory::{Directory, of_storage, unreadable};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use survey::{Clash, Survey, commands, newest};
use tollgate_core::State;
use tollgate_types::{ClusterId, GroupId, NodeId};

/// The most directories that one backup is made from.
const DIRECTORIES_MAX: usize = crate::backup::DISKS_MAX;

/// Reasons for which no backup was made. No directory was changed.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// The directory's node is running.
    #[error("{path} is used by a node that runs: stop it, and all nodes of its cluster, and try again")]
    InUse {
        /// The directory.
        path: String,
    },
    /// The directory has no data of a cluster.
    #[error("{path} has no data of a cluster ({why}): check the path, or leave it out")]
    NoData {
        /// The directory.
        path: String,
        /// Description of its actual contents.
        why: String,
    },
    /// The directory has bytes that differ from those that were written.
    #[error(
        "{path} is corrupt ({file}: {what}): nothing of it is used; give an intact copy of it, or leave it out and go \
         on with the others"
    )]
    Corrupt {
        /// The directory.
        path: String,
        /// The damaged file.
        file: String,
        /// Description of the damage.
        what: String,
    },
    /// A newer binary wrote the directory.
    #[error("{path} is of a newer version ({what}): use the binary that wrote it, or a newer one")]
    TooNew {
        /// The directory.
        path: String,
        /// Description of the newer part.
        what: String,
    },
    /// The directory belongs to another cluster.
    #[error("{path} belongs to cluster {found}, and {first} to cluster {expected}: leave one of them out")]
    OtherCluster {
        /// The directory.
        path: String,
        /// Cluster that the directory belongs to.
        found: ClusterId,
        /// The directory that was given first.
        first: String,
        /// Cluster that the first directory belongs to.
        expected: ClusterId,
    },
    /// Two directories are of the same node: only one of them can be the node's latest.
    #[error("{path} and {first} are both of node {node}: leave one out, the older one")]
    SameNode {
        /// The directory.
        path: String,
        /// The directory that was given first.
        first: String,
        /// The node.
        node: NodeId,
    },
    /// The directories contradict each other: the cluster has had two histories.
    #[error(
        "{path} and {other} know different entries {index} of group {group} to be committed, which can't be in one \
         cluster: was it founded twice, or a disk rolled back? Leave out the one that you trust less"
    )]
    TwoHistories {
        /// One directory.
        path: String,
        /// The other directory.
        other: String,
        /// The group.
        group: GroupId,
        /// Index of the entry in the group's log.
        index: u64,
    },
    /// The directories do not have all groups.
    #[error("none of the directories has group {group}: add those of other nodes, or use an older backup")]
    NoGroup {
        /// A group that is missing.
        group: GroupId,
    },
    /// Too many directories were given.
    #[error("more than {DIRECTORIES_MAX} directories were given: leave some out")]
    TooMany,
    /// There is no room for copies of the logs.
    #[error("no room for a copy of the log in {path}: save to a disk with more room")]
    NoRoom {
        /// The directory of the copies.
        path: String,
    },
    /// An error of the file system.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: String,
        /// The error.
        source: io::Error,
    },
    /// The backup could not be written.
    #[error("the backup can't be written: {0}")]
    Write(io::Error),
}

/// The directories that are left of a cluster, added one after the other and then turned into a [`Plan`].
#[derive(Debug)]
pub struct Salvage {
    copies: PathBuf,
    config: EngineConfig,
    directories: Vec<Directory>,
    planted: Planted,
}

/// The choice of the directory that each group is taken from.
#[derive(Debug)]
pub struct Plan {
    directories: Vec<Directory>,
    /// Chosen groups, in order of their ids.
    groups: Vec<Chosen>,
}

#[derive(Debug)]
struct Chosen {
    group: GroupId,
    /// Index of the group's directory.
    from: usize,
    /// Index of the last entry to apply.
    index: u64,
    origin: GroupOrigin,
}

impl Salvage {
    /// Begins without directories. Logs are copied into `copies`, an empty directory that must exist until the end.
    pub fn new(copies: &Path, config: EngineConfig) -> Salvage {
        let (copies, planted) = (copies.to_path_buf(), Planted::default());
        Salvage { copies, config, directories: Vec::new(), planted }
    }

    /// Plants a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Bug) {
        self.planted = Planted::some(bug);
    }

    /// Opens the data directory of a stopped node, and reads all of it.
    pub fn add(&mut self, path: &Path) -> Result<(), SalvageError> {
        if self.directories.len() >= DIRECTORIES_MAX {
            return Err(SalvageError::TooMany);
        }
        let copy = self.copies.join(self.directories.len().to_string());
        let directory = Directory::open(path, &copy, self.config.clone())?;
        let identity = directory.identity();
        let shown = || path.display().to_string();
        for other in &self.directories {
            let first = other.path().display().to_string();
            let (expected, node) = (other.identity().cluster, other.identity().node);
            if identity.cluster != expected {
                let found = identity.cluster;
                return Err(SalvageError::OtherCluster { path: shown(), found, first, expected });
            }
            if identity.node == node {
                return Err(SalvageError::SameNode { path: shown(), first, node });
            }
        }
        self.directories.push(directory);
        Ok(())
    }

    /// Chooses the directory and the last entry of each group.
    ///
    /// Panics if no directory was added.
    pub fn plan(self) -> Result<Plan, SalvageError> {
        assert!(!self.directories.is_empty(), "there is something to make a backup from");
        let groups: BTreeSet<GroupId> =
            self.directories.iter().flat_map(|directory| directory.surveys.keys().copied()).collect();
        let chosen = groups.into_iter().map(|group| self.choose(group)).collect::<Result<Vec<_>, _>>()?;
        if chosen.is_empty() {
            return Err(SalvageError::NoGroup { group: GroupId::new(0) });
        }
        Ok(Plan { directories: self.directories, groups: chosen })
    }

    fn choose(&self, group: GroupId) -> Result<Chosen, SalvageError> {
        let (mut places, mut surveys, mut nodes) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (place, directory) in self.directories.iter().enumerate() {
            let Some(survey) = directory.surveys.get(&group) else { continue };
            places.push(place);
            surveys.push(survey);
            nodes.insert(directory.identity().node);
        }
        let shown = |at: usize| self.directories[places[at]].path().display().to_string();
        let newest =
            if self.planted.is(Bug::SalvageTakesFirst) {
                0
            } else {
                newest(&surveys).map_err(|Clash { index, logs: (one, other) }| {
                    SalvageError::TwoHistories { path: shown(one), other: shown(other), group, index }
                })?
            };
        let committed = surveys.iter().map(|survey| survey.committed).max();
        let committed = committed.expect("the group is in one of them at least");
        let (from, survey): (usize, &Survey) = (places[newest], surveys[newest]);
        let (current_unix_ms, time_source) = if let Some(wall) = survey.wall {
            (wall.unix_ms(), TimeSource::Entry)
        } else {
            let written = self.directories[from].snapshot_unix_ms(group, survey.snapshot_index())?;
            (written, TimeSource::SnapshotFile)
        };
        let origin = GroupOrigin {
            node: self.directories[from].identity().node,
            term: survey.last_term(),
            committed,
            current_unix_ms,
            time_source,
            complete: survey.is_complete(&nodes),
        };
        let tail_lost = self.planted.is(Bug::SalvageDropsTail);
        let index = if tail_lost { committed.min(survey.last) } else { survey.last };
        Ok(Chosen { group, from, index, origin })
    }
}

impl Plan {
    /// Writes the backup, and returns the output. `version` is the version of this binary.
    pub fn write<W: Write>(&self, out: W, version: &str) -> Result<W, SalvageError> {
        let mut writer = BackupWriter::new(out, &self.head(version)).map_err(SalvageError::Write)?;
        for chosen in &self.groups {
            let state = self.state(chosen)?;
            self.check_groups(&state)?;
            let written =
                writer.group(chosen.group, chosen.index, Some(chosen.origin.clone()), &state.snapshot());
            written.map_err(SalvageError::Write)?;
        }
        writer.finish().map_err(SalvageError::Write)
    }

    fn head(&self, version: &str) -> BackupHead {
        let first = &self.groups[0];
        let members = self.directories[first.from].surveys[&first.group].members().clone();
        let current = self.groups.iter().map(|chosen| chosen.origin.current_unix_ms).min();
        BackupHead {
            cluster: self.directories[0].identity().cluster,
            cluster_name: String::new(),
            taken_unix_ms: current.expect("there is a group"),
            version: version.to_owned(),
            members,
            groups: u32::try_from(self.groups.len()).expect("groups have numbers of 32 bits"),
            disks: self.directories.iter().map(|directory| directory.identity().node).collect(),
        }
    }

    /// The state of a group after the last chosen entry.
    fn state(&self, chosen: &Chosen) -> Result<State, SalvageError> {
        let (group, directory) = (chosen.group, &self.directories[chosen.from]);
        let loaded = directory.engine.load_state(group);
        let loaded = loaded.map_err(|error| of_storage(directory.path(), error))?;
        let mut state = loaded.state.expect("a group with a snapshot has its state");
        for entry in loaded.entries.iter().filter(|entry| entry.index <= chosen.index) {
            for command in commands(entry) {
                state.apply(command.map_err(|error| unreadable(directory.path(), group, error))?);
            }
        }
        Ok(*state)
    }

    /// Checks that all groups of the cluster are there: every state has the group map.
    fn check_groups(&self, state: &State) -> Result<(), SalvageError> {
        let missing = |group: &GroupId| self.groups.iter().all(|chosen| chosen.group != *group);
        match state.map().groups().into_iter().find(missing) {
            Some(group) => Err(SalvageError::NoGroup { group }),
            None => Ok(()),
        }
    }
}
