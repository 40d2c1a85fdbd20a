//! Reads raft-engine's files before raft-engine does, and tells a torn tail from corruption.
//!
//! raft-engine's own recovery cuts the last file at the first invalid batch, whatever follows, and forgets all files
//! before a gap in their numbers. Both silently lose acknowledged data. So every file is walked here first:
//!
//! - A batch that is not valid, in a file that is not the last of its queue, is corruption. A file whose header was
//!   never written does not count as the last: raft-engine continues in the file before it if a full disk kept it from
//!   making the next one.
//! - A missing batch is corruption: each batch of this crate has a number.
//! - An invalid batch before the durable end of the log ([`Acked`]) is corruption.
//! - In the last file of the appends, an invalid batch that is followed by a valid batch of the same file is
//!   corruption: batches are synced one by one, so the first incomplete batch was the last that was written.
//! - Any other invalid batch was being written when the process or the power failed, and was promised to nobody. It is
//!   cut off here, and raft-engine then gets files that are valid to their ends, in a mode in which it tolerates no
//!   damage.
//!
//! A file may be a reused old one, with old batches after the tail. Those don't count: the checksum of a batch is mixed
//! with the number of its file. Bytes that a client wrote into a value don't count either: a batch of this crate ends
//! with the secret and its own number.
//!
//! The format is that of raft-engine =0.4.2, `log_batch.rs` and `file_pipe_log/format.rs`: file = magic, version (u64
//! BE), alignment (u64 BE), batches. Batch = length << 8 | compression (u64 BE), offset of the items (u64 BE), entries
//! and their CRC-32 (LE) if there are any, items and their CRC-32 xor file number (LE).

use super::acked::{Acked, QueueMark, SECRET_BYTES};
use super::durable::{corrupt, fault, remove_file, sync_dir};
use crate::storage::StorageError;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

const FILE_MAGIC: &[u8] = b"RAFT-LOG-FILE-HEADER-9986AB3E47F320B394C8E84916EB0ED5";
const FILE_VERSION: u64 = 2;
const FILE_HEADER_BYTES: usize = FILE_MAGIC.len() + 8 + 8;
const BATCH_HEADER_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
const NUMBER_DIGITS: usize = 16;

/// One of raft-engine's files.
struct LogFile {
    number: u64,
    path: PathBuf,
}

/// The signature that ends every batch: secret and batch number.
pub(super) fn signature(secret: &[u8; SECRET_BYTES], batch: u64) -> Vec<u8> {
    [&secret[..], &batch.to_le_bytes()].concat()
}

/// The batch number in the items, if the batch has the signature.
fn signed_number(items: &[u8], secret: &[u8; SECRET_BYTES]) -> Option<u64> {
    let (rest, number) = items.split_last_chunk::<8>()?;
    rest.ends_with(secret).then(|| u64::from_le_bytes(*number))
}

/// Checks all files of the log, and cuts off a torn tail. Returns the number of the last batch.
pub(super) fn check(dir: &Path, acked: &Acked) -> Result<u64, StorageError> {
    let appends = files(dir, ".raftlog")?;
    let rewrites = files(dir, ".rewrite")?;
    // Until its first fsync a purge has moved nothing that is needed. Afterwards files are removed, and then all moved
    // data must be there.
    let moved = |run: &[LogFile], mark: &QueueMark| run.first().is_none_or(|file| file.number > mark.first);
    let purged = acked.purging && (moved(&appends, &acked.append) || moved(&rewrites, &acked.rewrite));
    let secret = Some(&acked.secret);
    let appends = Queue { dir, files: appends, mark: acked.append, one_by_one: true, secret };
    let last = appends.check(acked.purging)?;
    // Rewrites are not synced one by one: of several, a power failure may keep a later one and lose an earlier one.
    let rewrites = Queue { dir, files: rewrites, mark: acked.rewrite, one_by_one: purged, secret: None };
    rewrites.check(acked.purging)?;
    Ok(last.unwrap_or(acked.batch))
}

/// The files of a queue, without those before the last gap. raft-engine leaves such files if it is killed during its
/// shutdown.
fn files(dir: &Path, suffix: &str) -> Result<Vec<LogFile>, StorageError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| fault(dir, error))? {
        let path = entry.map_err(|error| fault(dir, error))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let digits = name.strip_suffix(suffix).filter(|digits| digits.len() == NUMBER_DIGITS);
        if let Some(number) = digits.and_then(|digits| digits.parse().ok()) {
            files.push(LogFile { number, path });
        }
    }
    files.sort_unstable_by_key(|file| file.number);
    let gap = files.windows(2).rposition(|pair| pair[1].number != pair[0].number + 1);
    Ok(files.split_off(gap.map_or(0, |before| before + 1)))
}

struct Queue<'a> {
    dir: &'a Path,
    files: Vec<LogFile>,
    mark: QueueMark,
    /// True if each batch was written only once the one before it was durable.
    one_by_one: bool,
    /// The secret in all batches of the queue, along with their numbers; none in rewrites.
    secret: Option<&'a [u8; SECRET_BYTES]>,
}

impl Queue<'_> {
    /// Checks the queue. Returns the number of the last batch, if batches have numbers and there is one.
    fn check(&self, purging: bool) -> Result<Option<u64>, StorageError> {
        self.check_present(purging)?;
        let mut batch = None;
        let Some((last, others)) = self.without_unmade(&mut batch)?.split_last() else { return Ok(None) };
        for file in others {
            let bytes = read(&file.path)?;
            let end = self.walk(file, &bytes, &mut batch)?;
            if end < bytes.len() {
                return Err(corrupt(&file.path, format!("the batch at byte {end} is damaged")));
            }
            self.check_reached(file, end)?;
        }
        self.check_last(last, &mut batch)?;
        Ok(batch)
    }

    /// The files without a last file that was still being made: that file is removed, since nothing was in it.
    fn without_unmade(&self, batch: &mut Option<u64>) -> Result<&[LogFile], StorageError> {
        match self.files.split_last() {
            Some((last, others)) if !others.is_empty() && !has_file_header(&read(&last.path)?) => {
                self.check_last(last, batch)?;
                Ok(others)
            }
            _ => Ok(&self.files),
        }
    }

    /// Returns the end of the valid batches from the start of the file; 0 if the file's header is not valid.
    fn walk(&self, file: &LogFile, bytes: &[u8], last: &mut Option<u64>) -> Result<usize, StorageError> {
        if !has_file_header(bytes) {
            return Ok(0);
        }
        let mut end = FILE_HEADER_BYTES;
        while let Some(batch) = batch_at(bytes, end).filter(|batch| batch.is_valid(bytes, file.number)) {
            if let Some(secret) = self.secret {
                let number = signed_number(&bytes[batch.items..batch.items_end], secret);
                let follows = last.is_none_or(|last| number == Some(last + 1));
                if number.is_none() || !follows {
                    let what = format!(
                        "the batch at byte {end} is not the one that was written after the one before"
                    );
                    return Err(corrupt(&file.path, what));
                }
                *last = number;
            }
            end = batch.end();
        }
        Ok(end)
    }

    /// Checks that all required files are there.
    fn check_present(&self, purging: bool) -> Result<(), StorageError> {
        let missing = |number: u64| Err(corrupt(self.dir, format!("log file {number} is missing")));
        match (self.files.first(), self.files.last()) {
            (Some(first), Some(last)) => {
                if first.number > self.mark.first && !purging {
                    return missing(first.number - 1);
                }
                if last.number < self.mark.last { missing(last.number + 1) } else { Ok(()) }
            }
            _ if self.mark.last > 0 => missing(self.mark.last),
            _ => Ok(()),
        }
    }

    fn check_reached(&self, file: &LogFile, end: usize) -> Result<(), StorageError> {
        let promised = self.mark.end;
        if file.number == self.mark.last && (end as u64) < promised {
            let what = format!("it is valid up to byte {end} only, and was durable up to byte {promised}");
            return Err(corrupt(&file.path, what));
        }
        Ok(())
    }

    fn check_last(&self, file: &LogFile, batch: &mut Option<u64>) -> Result<(), StorageError> {
        let bytes = read(&file.path)?;
        let end = self.walk(file, &bytes, batch)?;
        self.check_reached(file, end)?;
        if end == bytes.len() && end > 0 {
            return Ok(());
        }
        if self.one_by_one
            && let Some(later) = later_batch(&bytes, end, file.number, self.secret)
        {
            let what = format!("the batch at byte {end} is damaged, and a valid one follows at byte {later}");
            return Err(corrupt(&file.path, what));
        }
        let cut = if end == 0 { self.remove(file) } else { cut(&file.path, end) };
        cut.map_err(|error| fault(&file.path, error))
    }

    /// Removes a file without a header, which was being made. raft-engine makes it again.
    fn remove(&self, file: &LogFile) -> std::io::Result<()> {
        remove_file(&file.path)?;
        sync_dir(self.dir)
    }
}

fn cut(path: &Path, end: usize) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(end as u64)?;
    file.sync_all()
}

fn read(path: &Path) -> Result<Vec<u8>, StorageError> {
    fs::read(path).map_err(|error| fault(path, error))
}

fn has_file_header(bytes: &[u8]) -> bool {
    let Some((magic, numbers)) =
        bytes.get(..FILE_HEADER_BYTES).map(|header| header.split_at(FILE_MAGIC.len()))
    else {
        return false;
    };
    magic == FILE_MAGIC && numbers[..8] == FILE_VERSION.to_be_bytes() && numbers[8..] == [0; 8]
}

/// Positions of the parts of a batch, if its header is plausible.
struct Batch {
    start: usize,
    items: usize,
    items_end: usize,
}

fn batch_at(bytes: &[u8], start: usize) -> Option<Batch> {
    let header = bytes.get(start..start.checked_add(BATCH_HEADER_BYTES)?)?;
    let number = |at: usize| header[at..at + 8].try_into().map(u64::from_be_bytes).ok();
    let (length, items) = (number(0)?, number(8)?);
    // The lowest byte is the compression, which is not used: another value there is damage that no checksum detects.
    if length & 0xff != 0 {
        return None;
    }
    let (length, items) = (usize::try_from(length >> 8).ok()?, usize::try_from(items).ok()?);
    let fits = items >= BATCH_HEADER_BYTES && items.checked_add(CRC_BYTES)? < length;
    let end = start.checked_add(length).filter(|end| fits && *end <= bytes.len())?;
    Some(Batch { start, items: start + items, items_end: end - CRC_BYTES })
}

impl Batch {
    fn end(&self) -> usize {
        self.items_end + CRC_BYTES
    }

    fn is_valid(&self, bytes: &[u8], number: u64) -> bool {
        let items = &bytes[self.items..self.items_end];
        crc32fast::hash(items) == self.items_crc(bytes, number) && self.entries_valid(bytes)
    }

    fn entries_valid(&self, bytes: &[u8]) -> bool {
        let entries = &bytes[self.start + BATCH_HEADER_BYTES..self.items];
        entries.is_empty()
            || entries
                .split_last_chunk::<CRC_BYTES>()
                .is_some_and(|(entries, crc)| crc32fast::hash(entries).to_le_bytes() == *crc)
    }

    /// The checksum that the items must have, if the batch was written to the file with this number.
    #[allow(clippy::cast_possible_truncation, reason = "raft-engine mixes in the lower half")]
    fn items_crc(&self, bytes: &[u8], number: u64) -> u32 {
        let crc = bytes[self.items_end..self.end()].try_into().expect("four bytes");
        u32::from_le_bytes(crc) ^ number as u32
    }
}

/// The first batch of this file that begins after `from`. Valid items are enough: they prove that the batch was
/// written.
fn later_batch(bytes: &[u8], from: usize, number: u64, secret: Option<&[u8; SECRET_BYTES]>) -> Option<usize> {
    let used = bytes.iter().rposition(|byte| *byte != 0)? + 1;
    if used <= from {
        return None;
    }
    let sums = Sums::new(bytes);
    let ours =
        |items: &[u8]| secret.is_none_or(|secret| items.windows(SECRET_BYTES).any(|bytes| bytes == secret));
    (from + 1..used).find(|start| {
        // Most places are ruled out by this byte alone: no batch has 2^48 bytes.
        bytes[*start] == 0
            && batch_at(bytes, *start).is_some_and(|batch| {
                sums.of(bytes, batch.items, batch.items_end) == batch.items_crc(bytes, number)
                    && ours(&bytes[batch.items..batch.items_end])
            })
    })
}

/// Checksums of any part of some bytes, each in the same short time. A client could fill values with headers that claim
/// long items, so that a scan that sums each of them from scratch would take hours.
struct Sums {
    /// Checksum of all bytes up to each multiple of `STEP`.
    upto: Vec<u32>,
}

impl Sums {
    const STEP: usize = 1024;

    fn new(bytes: &[u8]) -> Sums {
        let mut hasher = crc32fast::Hasher::new();
        let mut upto = vec![0];
        for step in bytes.chunks_exact(Sums::STEP) {
            hasher.update(step);
            upto.push(hasher.clone().finalize());
        }
        Sums { upto }
    }

    fn of(&self, bytes: &[u8], from: usize, to: usize) -> u32 {
        let length = (to - from) as u64;
        let nothing = crc32fast::Hasher::new_with_initial_len(0, length);
        let mut shifted = crc32fast::Hasher::new_with_initial(self.prefix(bytes, from));
        shifted.combine(&nothing);
        self.prefix(bytes, to) ^ shifted.finalize()
    }

    fn prefix(&self, bytes: &[u8], to: usize) -> u32 {
        let step = to / Sums::STEP;
        let mut hasher = crc32fast::Hasher::new_with_initial(self.upto[step]);
        hasher.update(&bytes[step * Sums::STEP..to]);
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_any_part_is_its_checksum() {
        let bytes: Vec<u8> = (0..10_000u32).map(|n| (n * n % 251).to_le_bytes()[0]).collect();
        let sums = Sums::new(&bytes);
        for (from, to) in
            [(0, 0), (0, 1), (5, 5), (0, 10_000), (1023, 1025), (17, 9_999), (4096, 8192), (9_990, 10_000)]
        {
            assert_eq!(sums.of(&bytes, from, to), crc32fast::hash(&bytes[from..to]), "{from}..{to}");
        }
    }
}
