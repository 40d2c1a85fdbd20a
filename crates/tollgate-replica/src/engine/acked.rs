//! The durable end of the log: a small file beside the log, written after each fsync of the log.
//!
//! raft-engine's files alone can't tell a last batch that a power failure tore, which was promised to nobody, from a
//! last batch that was acknowledged and later damaged. This file can: it never claims more than was durable, so a log
//! that ends before the recorded end has lost something. The file is written after the log's fsync and not synced
//! itself. If the process dies the file is exact; if the power fails it may be old, and then it only promises less.
//!
//! The file also records which log files may be missing, because raft-engine silently drops all files before a gap.
//! That part changes when files are purged, and is synced before and after.
//!
//! Two slots are written in turn, so that a torn write leaves the other slot intact. Not here: the checks that use the
//! file (`scan`).

use super::durable::{corrupt, fault};
use crate::storage::StorageError;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = *b"TGAK";
const VERSION: u8 = 1;
/// Size of one of the two slots, which are so far apart that no sector, page or block holds both.
const SLOT_BYTES: usize = 4096;
const SLOTS: usize = 2;
const FIELDS_BYTES: usize = 4 + 1 + 1 + 8 + SECRET_BYTES + 7 * 8;
const SLOT_USED_BYTES: usize = FIELDS_BYTES + 4;
pub(super) const SECRET_BYTES: usize = 16;

/// Durable end of one of raft-engine's two queues of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct QueueMark {
    /// Number of the first file that is needed.
    pub(super) first: u64,
    /// Number of the last file with durable data.
    pub(super) last: u64,
    /// Durable end within the file `last`, in bytes.
    pub(super) end: u64,
}

/// Contents of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acked {
    /// Written in every batch of this crate. The secret is known to nobody outside, so no client can put bytes into a
    /// value that a scan of the log takes for a batch.
    pub(super) secret: [u8; SECRET_BYTES],
    /// Number of the last batch. Batches are numbered so that a lost one is noticed.
    pub(super) batch: u64,
    /// Queue of entries, votes and marks, as they are written.
    pub(super) append: QueueMark,
    /// Queue of the data that a purge moved out of old files.
    pub(super) rewrite: QueueMark,
    /// True while a purge is under way: files may be missing that `first` still names.
    pub(super) purging: bool,
}

/// The open file.
#[derive(Debug)]
pub(super) struct AckedFile {
    file: File,
    path: PathBuf,
    writes: u64,
    pub(super) acked: Acked,
}

impl AckedFile {
    /// Makes the file, durable except for its name.
    pub(super) fn create(path: &Path) -> Result<AckedFile, StorageError> {
        let failed = |error| fault(path, error);
        let mut secret = [0; SECRET_BYTES];
        let random = Path::new("/dev/urandom");
        File::open(random)
            .and_then(|mut file| file.read_exact(&mut secret))
            .map_err(|error| fault(random, error))?;
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(failed)?;
        // The whole file is written now: later writes must not need room.
        file.write_all_at(&[0; SLOT_BYTES * SLOTS], 0).map_err(failed)?;
        let (append, rewrite) = (QueueMark::default(), QueueMark::default());
        let acked = Acked { secret, batch: 0, append, rewrite, purging: false };
        let mut created = AckedFile { file, path: path.to_path_buf(), writes: 0, acked };
        created.write_durably()?;
        Ok(created)
    }

    pub(super) fn open(path: &Path) -> Result<AckedFile, StorageError> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                corrupt(path, "it is missing, and with it how far the log was durable")
            }
            _ => fault(path, error),
        };
        let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let slots = bytes.chunks(SLOT_BYTES);
        let newest = slots.filter_map(decode).max_by_key(|(writes, ..)| *writes);
        let Some((writes, version, acked)) = newest else {
            return Err(corrupt(path, "none of its slots has its checksum"));
        };
        if version != VERSION {
            let file = path.display().to_string();
            return Err(StorageError::TooNew { file, found: version.into(), supported: VERSION.into() });
        }
        Ok(AckedFile { file, path: path.to_path_buf(), writes, acked })
    }

    /// Writes the next slot without an fsync: it survives the process, but not a power failure.
    pub(super) fn write(&mut self) -> Result<(), StorageError> {
        self.writes += 1;
        let slot = encode(self.writes, &self.acked);
        let at = self.writes % SLOTS as u64 * SLOT_BYTES as u64;
        self.file.write_all_at(&slot, at).map_err(|error| fault(&self.path, error))
    }

    /// Writes the next slot, durably.
    pub(super) fn write_durably(&mut self) -> Result<(), StorageError> {
        self.write()?;
        self.file.sync_all().map_err(|error| fault(&self.path, error))
    }
}

fn encode(writes: u64, acked: &Acked) -> [u8; SLOT_USED_BYTES] {
    let mut bytes = Vec::with_capacity(SLOT_USED_BYTES);
    bytes.extend(MAGIC);
    bytes.extend([VERSION, u8::from(acked.purging)]);
    bytes.extend(writes.to_le_bytes());
    bytes.extend(acked.secret);
    for queue in [acked.append, acked.rewrite] {
        for number in [queue.first, queue.last, queue.end] {
            bytes.extend(number.to_le_bytes());
        }
    }
    bytes.extend(acked.batch.to_le_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes.try_into().expect("the fields add up to the slot")
}

/// Decodes the number of the write, the version, and the fields; none if the slot was not written completely.
fn decode(slot: &[u8]) -> Option<(u64, u8, Acked)> {
    let (fields, crc) = slot.get(..SLOT_USED_BYTES)?.split_at(FIELDS_BYTES);
    if fields[..4] != MAGIC || crc32fast::hash(fields).to_le_bytes() != crc {
        return None;
    }
    let number = |at: usize| fields[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    let queue =
        |at: usize| Some(QueueMark { first: number(at)?, last: number(at + 8)?, end: number(at + 16)? });
    let secret = fields[14..14 + SECRET_BYTES].try_into().ok()?;
    let (append, rewrite, batch) = (queue(30)?, queue(54)?, number(78)?);
    let acked = Acked { secret, batch, append, rewrite, purging: fields[5] != 0 };
    Some((number(6)?, fields[4], acked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_reads_back_and_no_flipped_bit_of_it_does() {
        let acked = Acked {
            secret: [7; SECRET_BYTES],
            batch: 8,
            append: QueueMark { first: 1, last: 2, end: 3 },
            rewrite: QueueMark { first: 4, last: 5, end: 6 },
            purging: true,
        };
        let slot = encode(99, &acked);
        assert_eq!(decode(&slot), Some((99, VERSION, acked)));
        for bit in 0..slot.len() * 8 {
            let mut damaged = slot;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged), None, "bit {bit}");
        }
        assert_eq!(decode(&slot[..40]), None);
    }
}
