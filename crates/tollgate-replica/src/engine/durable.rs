//! Files that are complete after a power failure; and the meaning of file system errors.
//!
//! A name is durable only once its directory is synced: a file that was synced without its directory is lost with its
//! directory entry. Not here: the contents of the files.

use crate::storage::StorageError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Extension of a file that is not complete.
pub(crate) const UNFINISHED: &str = "tmp";

/// Replaces the whole file: after a crash there is either the old or the new one.
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

/// Removes a file; succeeds if the file does not exist.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// True if the only problem is lack of room. An exceeded quota counts as a full disk.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Translates an error on a file into a storage error.
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
