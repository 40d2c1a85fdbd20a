//! The data directory: its owner, its completeness, and exclusive use by one process.
//!
//! ```text
//! <dir>/lock        locked by the process that uses the directory
//! <dir>/identity    format, cluster, node, disk, and whether the founding was finished; with a checksum
//! <dir>/peers       disk that each peer first announced, and the peers that have not heard of this disk (`peer_disks`)
//! <dir>/members     on a node that joined: the members at that time (`seed_members`)
//! ```
//!
//! The identity is written twice. [`DataDir::create`] writes that a founding is under way; the caller then makes the
//! storage and the first writes; [`Founding::finish`] writes that the directory is complete. A node whose directory was
//! not finished has never voted nor promised anything, so the founding may simply begin again. A node with a complete
//! directory may have, so it needs its own files: an empty or a foreign directory is refused. Each founding draws a new
//! disk id, so that peers can tell a directory that was founded again from the one they knew.
//!
//! Not here: the other contents of the directory (`engine`).

use crate::engine::durable::{replace_file, sync_dir, sync_parent};
use crate::peer_disks::PeerDisks;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use tollgate_core::{DecodeError, Reader, Writer};
use tollgate_types::{ClusterId, DiskId, NodeId};

/// The format of data directories that this binary writes, and the newest that it reads.
pub const DATA_FORMAT: u64 = 3;

/// The oldest format that this binary reads. Format 2 did not record the addresses of members; no release wrote it.
const DATA_FORMAT_MIN: u64 = 3;

const LOCK: &str = "lock";
const IDENTITY: &str = "identity";
const MAGIC: [u8; 8] = *b"TGIDENTY";
const CRC_BYTES: usize = 4;
/// Directory that a new file system has at its root.
const LOST_AND_FOUND: &str = "lost+found";

/// Identity of a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// The directory's own id, drawn when it was founded.
    pub disk: DiskId,
    /// Format of the directory's contents.
    pub format: u64,
}

/// Reasons for which a data directory can't be used. Nothing in the directory was changed.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The directory is missing or empty.
    #[error(
        "{path} has no data: bootstrap a new cluster or join one. A voter that lost its disk may not come back \
             empty: remove it from the cluster and let it join under a new node id"
    )]
    Empty {
        /// The directory.
        path: String,
    },
    /// The directory is being founded, or its founding was interrupted.
    #[error("{path} was not finished: bootstrap, restore or join again with the same arguments")]
    Unfinished {
        /// The directory.
        path: String,
    },
    /// The directory is in use or has foreign files, and can't be founded.
    #[error(
        "{path} is not empty (it has {found}): give an empty directory, or start the node that it belongs to"
    )]
    NotEmpty {
        /// The directory.
        path: String,
        /// Name of a file in it.
        found: String,
    },
    /// The directory has files but no identity.
    #[error(
        "{path} has files (among them {found}) but no identity: it is not a data directory, or has lost a file"
    )]
    NoIdentity {
        /// The directory.
        path: String,
        /// Name of a file in it.
        found: String,
    },
    /// The directory belongs to another cluster.
    #[error(
        "{path} belongs to cluster {found}, not {expected}: check the configured directory and cluster (one that was \
         restored from a backup has the id that the restore printed: cluster.id)"
    )]
    ForeignCluster {
        /// The directory.
        path: String,
        /// Cluster that the directory belongs to.
        found: ClusterId,
        /// Cluster that was expected.
        expected: ClusterId,
    },
    /// The directory belongs to another node.
    #[error("{path} belongs to node {found}, not {expected}: a node never takes over another's directory")]
    ForeignNode {
        /// The directory.
        path: String,
        /// Node that the directory belongs to.
        found: NodeId,
        /// Node that was expected.
        expected: NodeId,
    },
    /// A newer binary wrote the directory.
    #[error("{path} has format {found}, this binary knows up to {supported}: start the newer binary again")]
    TooNew {
        /// The directory.
        path: String,
        /// Format of the directory.
        found: u64,
        /// The newest format that this binary knows.
        supported: u64,
    },
    /// A binary from before the first release wrote the directory.
    #[error(
        "{path} has format {found}, this binary reads from {supported} on: begin with an empty directory"
    )]
    TooOld {
        /// The directory.
        path: String,
        /// Format of the directory.
        found: u64,
        /// The oldest format that this binary reads.
        supported: u64,
    },
    /// The identity differs from what was written.
    #[error(
        "{path} is corrupt ({what}): remove the node, wipe its data directory and add it again as a new member"
    )]
    Damaged {
        /// The file.
        path: String,
        /// Description of the damage.
        what: String,
    },
    /// Another process uses the directory.
    #[error("{path} is used by another process: stop that one first")]
    InUse {
        /// The directory.
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
}

/// A complete data directory, which no other process uses while this value lives.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    identity: Identity,
    _lock: Option<File>,
}

/// A data directory whose founding is under way.
#[derive(Debug)]
#[must_use = "a founding that is not finished is none"]
pub struct Founding {
    dir: DataDir,
}

impl DataDir {
    /// Begins a data directory, for a node that bootstraps a cluster or joins one.
    ///
    /// The directory is made if it is missing, and must be empty otherwise. The remains of an unfinished founding by
    /// the same node are removed, whichever cluster it was for: the id of a restored cluster is derived from the
    /// restore, and differs the second time if it depends on the clock. `disk` must be random: no directory that was
    /// ever founded may have the same id.
    pub fn create(
        path: &Path,
        cluster: ClusterId,
        node: NodeId,
        disk: DiskId,
    ) -> Result<Founding, DataDirError> {
        if fs::exists(path).map_err(failed(path))? {
            refuse_used(path, node)?;
        } else {
            fs::create_dir(path).and_then(|()| sync_parent(path)).map_err(failed(path))?;
        }
        let lock = lock(path)?;
        // Another process may have founded it before it was locked.
        refuse_used(path, node)?;
        clear(path).map_err(failed(path))?;
        let identity = Identity { cluster, node, disk, format: DATA_FORMAT };
        write_identity(path, &identity, false)?;
        Ok(Founding { dir: DataDir { path: path.to_path_buf(), identity, _lock: Some(lock) } })
    }

    /// Opens a complete data directory; if `expected` is given, the directory must belong to that cluster and node.
    pub fn open(path: &Path, expected: Option<(ClusterId, NodeId)>) -> Result<DataDir, DataDirError> {
        let Some((identity, finished)) = read_identity(path)? else {
            return Err(match first_name(path)? {
                Some(found) => DataDirError::NoIdentity { path: shown(path), found },
                None => DataDirError::Empty { path: shown(path) },
            });
        };
        if let Some((cluster, node)) = expected {
            refuse_foreign(path, &identity, cluster, node)?;
        }
        if !finished {
            return Err(DataDirError::Unfinished { path: shown(path) });
        }
        let lock = lock(path)?;
        Ok(DataDir { path: path.to_path_buf(), identity, _lock: Some(lock) })
    }

    /// Opens a complete data directory for reading: nothing in it is changed, and it may be on a file system that is
    /// mounted read-only. No node can use the directory while the value lives.
    pub fn look(path: &Path) -> Result<DataDir, DataDirError> {
        // The lock comes first: a running node may be about to change what would be read.
        let lock = shared_lock(path)?;
        match read_identity(path)? {
            Some((identity, true)) => Ok(DataDir { path: path.to_path_buf(), identity, _lock: lock }),
            Some((_, false)) => Err(DataDirError::Unfinished { path: shown(path) }),
            None => Err(match first_name(path)? {
                Some(found) => DataDirError::NoIdentity { path: shown(path), found },
                None => DataDirError::Empty { path: shown(path) },
            }),
        }
    }

    /// True if `path` is a complete data directory. If it is not, [`DataDir::create`] decides whether one can be
    /// founded there.
    pub fn is_founded(path: &Path) -> Result<bool, DataDirError> {
        Ok(read_identity(path)?.is_some_and(|(_, finished)| finished))
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Identity of the directory.
    pub fn identity(&self) -> Identity {
        self.identity
    }
}

impl Founding {
    /// Path of the directory: the caller makes the storage and the first writes there.
    pub fn path(&self) -> &Path {
        &self.dir.path
    }

    /// Makes the directory complete. Everything else in it must be durable before the call.
    ///
    /// `awaited` are the nodes that must hear of this disk before the node takes part: on a first member all other
    /// first members, on a node that joins none.
    pub fn finish(self, awaited: BTreeSet<NodeId>) -> Result<DataDir, DataDirError> {
        PeerDisks::found(&self.dir.path, awaited)?;
        write_identity(&self.dir.path, &self.dir.identity, true)?;
        Ok(self.dir)
    }
}

fn refuse_used(path: &Path, node: NodeId) -> Result<(), DataDirError> {
    match read_identity(path)? {
        // An unfinished node has promised nothing to anybody.
        Some((identity, false)) => refuse_foreign(path, &identity, identity.cluster, node),
        Some((_, true)) => Err(DataDirError::NotEmpty { path: shown(path), found: IDENTITY.to_owned() }),
        None => match first_name(path)? {
            Some(found) => Err(DataDirError::NotEmpty { path: shown(path), found }),
            None => Ok(()),
        },
    }
}

fn refuse_foreign(
    path: &Path,
    identity: &Identity,
    cluster: ClusterId,
    node: NodeId,
) -> Result<(), DataDirError> {
    let path = shown(path);
    if identity.cluster != cluster {
        return Err(DataDirError::ForeignCluster { path, found: identity.cluster, expected: cluster });
    }
    if identity.node != node {
        return Err(DataDirError::ForeignNode { path, found: identity.node, expected: node });
    }
    Ok(())
}

/// Locks the directory exclusively. The system releases the lock when the process ends, however it ends.
fn lock(dir: &Path) -> Result<File, DataDirError> {
    let path = dir.join(LOCK);
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let file = open.map_err(failed(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DataDirError::InUse { path: shown(dir) }),
        Err(TryLockError::Error(error)) => Err(failed(&path)(error)),
    }
}

/// Like [`lock`], but shared with other readers. None if there is no lock file: a node makes it before anything else.
fn shared_lock(dir: &Path) -> Result<Option<File>, DataDirError> {
    let path = dir.join(LOCK);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed(&path))?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(DataDirError::InUse { path: shown(dir) }),
        Err(TryLockError::Error(error)) => Err(failed(&path)(error)),
    }
}

/// The first name in a directory that an empty data directory would not have. None if there is no directory.
fn first_name(dir: &Path) -> Result<Option<String>, DataDirError> {
    let names = names(dir).map_err(failed(dir))?;
    // The identity's unfinished file is all that a crash during the first write can leave.
    let begun = Path::new(IDENTITY).with_extension(crate::engine::durable::UNFINISHED);
    let counts = |name: &String| *name != LOCK && *name != LOST_AND_FOUND && Path::new(name) != begun;
    Ok(names.into_iter().find(counts))
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Removes the remains of an unfinished founding. The identity stays until it is replaced, because it marks the
/// directory.
fn clear(dir: &Path) -> io::Result<()> {
    for name in names(dir)? {
        let path = dir.join(&name);
        match name.as_str() {
            LOCK | LOST_AND_FOUND | IDENTITY => {}
            _ if path.is_dir() => fs::remove_dir_all(&path)?,
            _ => fs::remove_file(&path)?,
        }
    }
    sync_dir(dir)
}

fn write_identity(dir: &Path, identity: &Identity, finished: bool) -> Result<(), DataDirError> {
    let mut bytes = MAGIC.to_vec();
    let mut writer = Writer::new(&mut bytes);
    // The format comes first here and in all later formats: a newer directory can be told from a damaged one.
    writer.varint(identity.format);
    writer.bool(finished);
    writer.varint(identity.cluster.number());
    writer.varint(identity.node.number());
    writer.varint(identity.disk.number());
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    let path = dir.join(IDENTITY);
    replace_file(&path, &bytes).map_err(failed(&path))
}

/// Reads the identity, and whether the founding was finished. None if there is no identity file.
fn read_identity(dir: &Path) -> Result<Option<(Identity, bool)>, DataDirError> {
    let path = dir.join(IDENTITY);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&path)(error)),
    };
    let damaged = |what: String| DataDirError::Damaged { path: shown(&path), what };
    let Some((fields, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
        return Err(damaged("it is cut off".to_owned()));
    };
    if crc32fast::hash(fields).to_le_bytes() != *crc {
        return Err(damaged("it does not have its checksum".to_owned()));
    }
    let Some(body) = fields.strip_prefix(&MAGIC) else {
        return Err(damaged("it is no identity of a data directory".to_owned()));
    };
    let mut reader = Reader::new(body);
    let format = reader.varint().map_err(|error| damaged(error.to_string()))?;
    if format > DATA_FORMAT {
        return Err(DataDirError::TooNew { path: shown(dir), found: format, supported: DATA_FORMAT });
    }
    if format < DATA_FORMAT_MIN {
        return Err(DataDirError::TooOld { path: shown(dir), found: format, supported: DATA_FORMAT_MIN });
    }
    decode(reader, format).map(Some).map_err(|error| damaged(error.to_string()))
}

fn decode(mut reader: Reader<'_>, format: u64) -> Result<(Identity, bool), DecodeError> {
    let finished = reader.bool("state of the founding")?;
    let cluster = ClusterId::new(reader.varint()?);
    let node = crate::members::decode_node(&mut reader)?;
    let disk = DiskId::new(reader.varint()?);
    reader.finish()?;
    Ok((Identity { cluster, node, disk, format }, finished))
}

pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

pub(crate) fn failed(path: &Path) -> impl Fn(io::Error) -> DataDirError {
    move |source| DataDirError::Io { path: shown(path), source }
}
