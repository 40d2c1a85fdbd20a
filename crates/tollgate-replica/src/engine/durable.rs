//! Files that are there, whole, after a power failure; and what an error of the file system means.
//!
//! A name is durable only once its directory is synced: a file that was synced but not named is lost with its
//! directory entry. Not here: what is in the files.

use crate::storage::StorageError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Ends the name of a file that is not complete.
pub(crate) const UNFINISHED: &str = "tmp";

/// Replaces the file as a whole: after a crash there is the old one or the new one.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension(UNFINISHED);
    let mut file = File::create(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    sync_parent(path)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes this file's name durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_dir(Path::new(".")),
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// Removes a file; one that is not there is removed.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Whether only room is missing. A quota counts as the disk's end.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// What an error on this file means to a replica.
#[allow(clippy::needless_pass_by_value, reason = "made for map_err")]
pub(crate) fn fault(path: &Path, error: io::Error) -> StorageError {
    let file = path.display().to_string();
    if is_full(&error) {
        return StorageError::Full { path: file };
    }
    StorageError::Failed { file, what: error.to_string() }
}

pub(crate) fn corrupt(path: &Path, what: impl Into<String>) -> StorageError {
    StorageError::Corrupt { file: path.display().to_string(), what: what.into() }
}
