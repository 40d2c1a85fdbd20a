//! The data directory of one stopped node, as a salvage reads it: locked against its node, checked as at a start, and
//! not changed.

use super::SalvageError;
use super::survey::{Survey, Unreadable};
use crate::data_dir::{DataDir, DataDirError, Identity};
use crate::engine::{Engine, EngineConfig};
use crate::storage::StorageError;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;
use tollgate_types::GroupId;

/// The opened directory and the surveys of its groups.
#[derive(Debug)]
pub(super) struct Directory {
    dir: DataDir,
    pub(super) engine: Engine,
    /// Surveys of the groups that have a snapshot in the directory.
    pub(super) surveys: BTreeMap<GroupId, Survey>,
}

impl Directory {
    /// Opens the directory, with a copy of its log in `copy`, which must not exist.
    pub(super) fn open(path: &Path, copy: &Path, config: EngineConfig) -> Result<Directory, SalvageError> {
        let dir = DataDir::look(path).map_err(|error| of_data_dir(path, error))?;
        fs::create_dir(copy)
            .map_err(|source| SalvageError::Io { path: copy.display().to_string(), source })?;
        let engine = Engine::open_copied(path, copy, config).map_err(|error| of_storage(path, error))?;
        let mut surveys = BTreeMap::new();
        for group in engine.group_ids() {
            let loaded = engine.load_log(group).map_err(|error| of_storage(path, error))?;
            let survey = Survey::of(&loaded).map_err(|error| unreadable(path, group, error))?;
            surveys.extend(survey.map(|survey| (group, survey)));
        }
        Ok(Directory { dir, engine, surveys })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn identity(&self) -> Identity {
        self.dir.identity()
    }

    /// Time at which the snapshot before a group's log was written to this disk, in milliseconds since 1970.
    pub(super) fn snapshot_unix_ms(&self, group: GroupId, index: u64) -> Result<u64, SalvageError> {
        let changed = self.engine.snapshot_changed(group, index);
        let changed = changed.map_err(|error| of_storage(self.path(), error))?;
        let since = changed.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

fn of_data_dir(path: &Path, error: DataDirError) -> SalvageError {
    let path = path.display().to_string();
    match error {
        DataDirError::InUse { .. } => SalvageError::InUse { path },
        DataDirError::Empty { .. } => SalvageError::NoData { path, why: "it is empty or missing".to_owned() },
        DataDirError::NoIdentity { found, .. } => {
            SalvageError::NoData { path, why: format!("it has {found}, and no identity") }
        }
        DataDirError::Unfinished { .. } => {
            SalvageError::NoData { path, why: "its node never took part in the cluster".to_owned() }
        }
        DataDirError::TooNew { found, supported, .. } => SalvageError::TooNew {
            path,
            what: format!("it has format {found}, this binary knows up to {supported}"),
        },
        DataDirError::Damaged { path: file, what } => SalvageError::Corrupt { path, file, what },
        DataDirError::Io { path, source } => SalvageError::Io { path, source },
        other => SalvageError::NoData { path, why: other.to_string() },
    }
}

pub(super) fn of_storage(path: &Path, error: StorageError) -> SalvageError {
    let path = path.display().to_string();
    match error {
        StorageError::Corrupt { file, what } => SalvageError::Corrupt { path, file, what },
        StorageError::Outdated { file, found, known } => SalvageError::TooNew {
            path,
            what: format!("{file} has apply version {found}, this binary knows up to {known}"),
        },
        StorageError::TooNew { file, found, supported } => SalvageError::TooNew {
            path,
            what: format!("{file} has format {found}, this binary knows up to {supported}"),
        },
        StorageError::Full { path } => SalvageError::NoRoom { path },
        StorageError::Failed { file, what } => {
            SalvageError::Io { path: file, source: std::io::Error::other(what) }
        }
    }
}

pub(super) fn unreadable(path: &Path, group: GroupId, error: Unreadable) -> SalvageError {
    let path = path.display().to_string();
    match error {
        Unreadable::Corrupt(what) => {
            SalvageError::Corrupt { file: format!("the log of group {group}"), path, what }
        }
        Unreadable::TooNew(version) => SalvageError::TooNew {
            path,
            what: format!("group {group} moved on to version {version}, which this binary does not know"),
        },
    }
}
