//! raft-engine's files, with an fsync that fails once and for all.
//!
//! raft-engine panics when an fsync fails, and again when it closes the file while it unwinds, which aborts the process
//! before anybody can say why. So it is told that all is well, and what happened is kept: whoever called it asks
//! [`LogFiles::synced`] before believing anything. Invariant: after the first failure no file is removed or renamed, so
//! that whatever was durable before stays where it was. Not here: what is done about it (`engine`).

use crate::storage::StorageError;
use raft_engine::env::{DefaultFileSystem, FileSystem, Handle, Permission};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The files of one log.
#[derive(Debug, Default)]
pub(super) struct LogFiles {
    failure: Arc<OnceLock<Failure>>,
}

/// The first fsync that failed.
#[derive(Debug)]
struct Failure {
    path: PathBuf,
    what: String,
}

/// An open one.
pub(super) struct LogFile {
    inner: Arc<<DefaultFileSystem as FileSystem>::Handle>,
    path: PathBuf,
    failure: Arc<OnceLock<Failure>>,
}

impl LogFiles {
    /// Whether every fsync so far went well.
    pub(super) fn synced(&self) -> Result<(), StorageError> {
        self.failure.get().map_or(Ok(()), |Failure { path, what }| {
            let what = format!("fsync failed: {what}");
            Err(StorageError::Failed { file: path.display().to_string(), what })
        })
    }

    fn file(&self, path: &Path, inner: <DefaultFileSystem as FileSystem>::Handle) -> LogFile {
        LogFile { inner: Arc::new(inner), path: path.to_path_buf(), failure: Arc::clone(&self.failure) }
    }

    fn unless_failed(&self) -> io::Result<()> {
        match self.failure.get() {
            Some(_) => Err(io::Error::other("an fsync failed before: nothing is removed any more")),
            None => Ok(()),
        }
    }
}

impl FileSystem for LogFiles {
    type Handle = LogFile;
    type Reader = <DefaultFileSystem as FileSystem>::Reader;
    type Writer = <DefaultFileSystem as FileSystem>::Writer;

    fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<LogFile> {
        Ok(self.file(path.as_ref(), DefaultFileSystem.create(path.as_ref())?))
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> io::Result<LogFile> {
        Ok(self.file(path.as_ref(), DefaultFileSystem.open(path.as_ref(), permission)?))
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.unless_failed()?;
        DefaultFileSystem.delete(path)
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        self.unless_failed()?;
        DefaultFileSystem.rename(from, to)
    }

    fn new_reader(&self, file: Arc<LogFile>) -> io::Result<Self::Reader> {
        DefaultFileSystem.new_reader(Arc::clone(&file.inner))
    }

    fn new_writer(&self, file: Arc<LogFile>) -> io::Result<Self::Writer> {
        DefaultFileSystem.new_writer(Arc::clone(&file.inner))
    }
}

impl Handle for LogFile {
    fn truncate(&self, offset: usize) -> io::Result<()> {
        self.inner.truncate(offset)
    }

    fn file_size(&self) -> io::Result<usize> {
        self.inner.file_size()
    }

    fn sync(&self) -> io::Result<()> {
        if let Err(error) = self.inner.sync() {
            // The first is the one to tell of.
            let _ = self.failure.set(Failure { path: self.path.clone(), what: error.to_string() });
        }
        Ok(())
    }
}
