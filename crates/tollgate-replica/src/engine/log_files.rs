//! raft-engine's files, with sticky fsync failures, and blocks that are written before they are needed.
//!
//! raft-engine panics when an fsync fails, and again when it closes the file while it unwinds, which aborts the process
//! before the reason can be reported. So raft-engine is told that every fsync succeeded, and the failure is kept: the
//! caller of raft-engine must ask [`LogFiles::synced`] before it trusts a result. Invariant: after the first failure no
//! file is removed or renamed, so that earlier durable data stays in place. Not here: the reaction to a failure
//! (`engine`).
//!
//! Blocks that a file system has allocated but that were never written must be recorded as written in its journal by
//! the first fsync after each write. So they are filled with zeros slightly ahead of the writes: the fsyncs that follow
//! take two thirds of the time. A reused log file already has its blocks.

use crate::storage::StorageError;
use raft_engine::env::{DefaultFileSystem, FileSystem, Handle, Permission, WriteExt};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
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

/// An open log file.
pub(super) struct LogFile {
    inner: Arc<<DefaultFileSystem as FileSystem>::Handle>,
    path: PathBuf,
    failure: Arc<OnceLock<Failure>>,
}

impl LogFiles {
    /// Fails if any fsync has failed so far.
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
    type Writer = LogWriter;

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
        let inner = DefaultFileSystem.new_writer(Arc::clone(&file.inner))?;
        Ok(LogWriter { inner, at: 0, bare: 0..0 })
    }
}

/// Writer of a log file.
pub(super) struct LogWriter {
    inner: <DefaultFileSystem as FileSystem>::Writer,
    /// Position of the next write.
    at: u64,
    /// Allocated range that has no zeros yet.
    bare: Range<u64>,
}

/// Zeros written at once: enough that most writes find their blocks filled, and so few that they slow down no fsync.
static ZEROS: [u8; 128 << 10] = [0; 128 << 10];

impl LogWriter {
    /// Fills the blocks after the next `bytes`, if the next write reaches blocks without zeros.
    fn fill_before(&mut self, bytes: usize) -> io::Result<()> {
        let end = self.at + bytes as u64;
        if self.bare.is_empty() || end <= self.bare.start || self.at >= self.bare.end {
            return Ok(());
        }
        // The range of the next write needs no zeros.
        let from = end.max(self.bare.start).min(self.bare.end);
        let to = (from + ZEROS.len() as u64).min(self.bare.end);
        self.inner.seek(SeekFrom::Start(from))?;
        let part = usize::try_from(to - from).expect("no longer than the zeros");
        // Zeros only save time: without room for them, there may still be room for the data.
        let filled = self.inner.write_all(&ZEROS[..part]).is_ok();
        self.inner.seek(SeekFrom::Start(self.at))?;
        self.bare = if filled { to..self.bare.end } else { 0..0 };
        Ok(())
    }
}

impl WriteExt for LogWriter {
    fn truncate(&mut self, offset: usize) -> io::Result<()> {
        self.bare.end = self.bare.end.min(offset as u64);
        self.inner.truncate(offset)?;
        // The inner writer seeks to the offset too.
        self.at = offset as u64;
        Ok(())
    }

    fn allocate(&mut self, offset: usize, size: usize) -> io::Result<()> {
        self.inner.allocate(offset, size)?;
        self.bare = offset as u64..(offset + size) as u64;
        Ok(())
    }
}

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.fill_before(bytes.len())?;
        let written = self.inner.write(bytes)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Seek for LogWriter {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.inner.seek(to)?;
        Ok(self.at)
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
            // Only the first failure is reported.
            let _ = self.failure.set(Failure { path: self.path.clone(), what: error.to_string() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_filled_a_little_ahead_of_what_is_written_and_nothing_else_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (path, files) = (dir.path().join("log"), LogFiles::default());
        let handle = Arc::new(files.create(&path).unwrap());
        let mut writer = files.new_writer(Arc::clone(&handle)).unwrap();
        let (step, room) = (ZEROS.len() as u64, 3 * ZEROS.len() + 7);
        writer.write_all(b"begin").unwrap();
        writer.allocate(5, room).unwrap();
        assert_eq!(writer.bare, 5..5 + room as u64, "no zeros before there is something to write");
        writer.write_all(b", more").unwrap();
        assert_eq!(writer.bare.start, 11 + step);
        writer.write_all(b", and what fits").unwrap();
        assert_eq!(writer.bare.start, 11 + step, "there were zeros already");
        // Over the filled range and past the end of the allocated one.
        let long = vec![7; room];
        writer.write_all(&long).unwrap();
        assert!(writer.bare.is_empty());
        assert_eq!(writer.stream_position().unwrap(), 26 + room as u64);
        let mut expected = b"begin, more, and what fits".to_vec();
        expected.extend(long);
        assert_eq!(std::fs::read(&path).unwrap(), expected);
    }

    #[test]
    fn what_is_cut_off_is_not_filled() {
        let dir = tempfile::tempdir().unwrap();
        let (path, files) = (dir.path().join("log"), LogFiles::default());
        let handle = Arc::new(files.create(&path).unwrap());
        let mut writer = files.new_writer(Arc::clone(&handle)).unwrap();
        writer.allocate(0, 1 << 20).unwrap();
        writer.write_all(b"all").unwrap();
        writer.truncate(3).unwrap();
        writer.write_all(b" there is").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"all there is");
    }
}
