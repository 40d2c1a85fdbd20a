//! The bytes of a snapshot: every record of a state, framed and checksummed, written and read in pieces.
//!
//! A snapshot is a stream of frames, each with its length, the CRC-32 of its payload, and the payload: whole records,
//! one after another. Invariant: sections have a fixed order, and so have the records of a section, by their keys; so
//! equal states have equal bytes and one hash. The last record carries that hash over all records before it. Not here:
//! derived tables, which are not written and which `Restore` rebuilds.

use super::record::{self, Record, Tag};
use super::{DecodeError, FORMAT_1, FORMAT_2, Reader, Writer};
use crate::claim::Claim;
use crate::lease::{Lease, Unacked};
use crate::lock::Closure;
use crate::planted::{Bug, Planted};
use crate::register::Register;
use crate::ring::FrozenRing;
use crate::slab::Frozen;
use crate::state::{APPLY_VERSION_SUPPORTED, Restore, State};
use std::sync::Arc;
use tollgate_types::{GroupId, GroupMap, Limits, Lineage, LogTime, Name, Revision};
use xxhash_rust::xxh3::Xxh3Default;

/// The newest format, in which states of apply version 3 or above are written. States of versions 1 and 2 are written
/// and read in formats 1 and 2, so that members of a group that can't go beyond those understand each other.
pub const SNAPSHOT_FORMAT_VERSION: u8 = 3;

const MAGIC: [u8; 4] = *b"TGSN";
const FRAME_HEAD_BYTES: usize = 8;
/// Size at which a frame is closed.
const FRAME_BYTES: usize = 32 * 1024;
/// Bound of a frame's size. No record is larger: a lease with every kept outcome that a limit can allow.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The part of a state that is not in records.
pub(crate) struct Header {
    pub(crate) now: LogTime,
    pub(crate) revision: Revision,
    pub(crate) apply_version: u32,
    pub(crate) min_revision: Revision,
    pub(crate) limits: Limits,
    pub(crate) group: GroupId,
    pub(crate) map: Arc<GroupMap>,
    pub(crate) lineage: Option<Lineage>,
}

impl Header {
    pub(crate) fn format(&self) -> u8 {
        format_of(self.apply_version)
    }
}

/// Format in which states of an apply version are written.
pub(crate) fn format_of(apply_version: u32) -> u8 {
    match apply_version {
        1 => FORMAT_1,
        2 => FORMAT_2,
        _ => SNAPSHOT_FORMAT_VERSION,
    }
}

/// A state as it was at one entry. Cheap to take, and can be sent to another thread.
pub struct Snapshot {
    pub(crate) header: Header,
    pub(crate) closed_until: LogTime,
    pub(crate) leases: Frozen<Lease>,
    pub(crate) unacked: Frozen<Unacked>,
    pub(crate) claims: Frozen<Claim>,
    pub(crate) closures: Frozen<Closure>,
    pub(crate) registers: Frozen<Register>,
    pub(crate) dirty: Vec<Name>,
    pub(crate) ring: FrozenRing,
    pub(crate) planted: Planted,
}

/// Shows the snapshot's position and no records, as for `State`.
impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("now", &self.now())
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    /// The revision of the state.
    pub fn revision(&self) -> Revision {
        self.header.revision
    }

    /// The log time of the state.
    pub fn now(&self) -> LogTime {
        self.header.now
    }

    /// Returns the apply version in force.
    pub fn apply_version(&self) -> u32 {
        self.header.apply_version
    }

    pub(super) fn format(&self) -> u8 {
        self.header.format()
    }

    /// Returns a hash of everything that two replicas at the same entry must agree on (P12).
    pub fn hash(&self) -> u64 {
        let (mut hasher, mut bytes) = (Xxh3Default::new(), Vec::new());
        for record in self.records() {
            bytes.clear();
            record::encode(self, &record, &mut bytes);
            hasher.update(&bytes);
        }
        hasher.digest()
    }

    /// Returns the encoding, in pieces of at most `bytes_max` bytes, each made when it is asked for.
    pub fn chunks(&self, bytes_max: usize) -> impl Iterator<Item = Vec<u8>> + '_ {
        assert!(bytes_max > 0, "a piece has at least one byte");
        Chunks {
            snapshot: self,
            records: self.records(),
            hasher: Xxh3Default::new(),
            ready: Vec::new(),
            taken: 0,
            bytes_max,
            ended: false,
        }
    }

    /// All records in canonical order.
    fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut leases: Vec<&Lease> = self.leases.iter().map(|(_, lease)| lease).collect();
        leases.sort_unstable_by_key(|lease| lease.incarnation);
        let registered = leases.iter().copied().filter(|lease| !lease.groups().is_empty());
        let registered: Vec<&Lease> = registered.collect();
        let mut unacked: Vec<&Unacked> = self.unacked.iter().map(|(_, unacked)| unacked).collect();
        unacked.retain(|_| !self.planted(Bug::UnackedEndsLostInSnapshot));
        unacked.sort_unstable_by_key(|unacked| (unacked.incarnation, unacked.lease));
        let mut claims: Vec<&Claim> = self.claims.iter().map(|(_, claim)| claim).collect();
        claims.retain(|claim| claim.holds() || !self.planted(Bug::QueueLostInSnapshot));
        claims.sort_unstable_by_key(|claim| claim.create_revision);
        let mut closures: Vec<&Closure> = self.closures.iter().map(|(_, closure)| closure).collect();
        closures.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut registers: Vec<&Register> = self.registers.iter().map(|(_, register)| register).collect();
        registers.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let closed = Some(self.closed_until).filter(|until| *until != LogTime::ZERO);
        let closed = closed.filter(|_| !self.planted(Bug::ClosingLostInSnapshot));
        std::iter::once(Record::Header(&self.header))
            .chain(closed.map(Record::Closed))
            .chain(leases.into_iter().map(Record::Lease))
            .chain(registered.into_iter().map(Record::Groups))
            .chain(unacked.into_iter().map(Record::Unacked))
            .chain(claims.into_iter().map(Record::Claim))
            .chain(closures.into_iter().map(Record::Closure))
            .chain(registers.into_iter().map(Record::Register))
            .chain(self.dirty.iter().map(Record::Dirty))
            .chain(self.ring.iter().map(Record::Event))
    }

    pub(super) fn planted(&self, bug: Bug) -> bool {
        self.planted.is(bug)
    }
}

/// Snapshots are written on a thread other than the one that applies entries.
const _: fn() = || {
    fn travels<T: Send + Sync>() {}
    travels::<Snapshot>();
    travels::<State>();
    travels::<SnapshotReader>();
};

struct Chunks<'a, R> {
    snapshot: &'a Snapshot,
    records: R,
    hasher: Xxh3Default,
    /// Framed bytes; the first `taken` of them are handed out.
    ready: Vec<u8>,
    taken: usize,
    bytes_max: usize,
    ended: bool,
}

impl<'a, R: Iterator<Item = Record<'a>>> Chunks<'a, R> {
    /// Appends one more frame.
    fn frame(&mut self) {
        self.ready.drain(..self.taken);
        self.taken = 0;
        let start = self.ready.len();
        self.ready.extend([0; FRAME_HEAD_BYTES]);
        let body = self.ready.len();
        while self.ready.len() - body < FRAME_BYTES {
            let record_start = self.ready.len();
            let Some(next) = self.records.next() else {
                let hash = self.hasher.digest();
                Writer::new(&mut self.ready).u8(Tag::End as u8);
                self.ready.extend(hash.to_le_bytes());
                self.ended = true;
                break;
            };
            record::encode(self.snapshot, &next, &mut self.ready);
            self.hasher.update(&self.ready[record_start..]);
        }
        let len = u32::try_from(self.ready.len() - body).expect("records are far below 4 GiB");
        let crc = crc32fast::hash(&self.ready[body..]);
        self.ready[start..start + 4].copy_from_slice(&len.to_le_bytes());
        self.ready[start + 4..body].copy_from_slice(&crc.to_le_bytes());
    }
}

impl<'a, R: Iterator<Item = Record<'a>>> Iterator for Chunks<'a, R> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        while self.ready.len() - self.taken < self.bytes_max && !self.ended {
            self.frame();
        }
        let end = self.ready.len().min(self.taken.saturating_add(self.bytes_max));
        let chunk = self.ready[self.taken..end].to_vec();
        self.taken = end;
        (!chunk.is_empty()).then_some(chunk)
    }
}

/// Reason why bytes are not a snapshot that this binary can load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// A frame's checksum does not match: bytes were changed on disk or on the way.
    #[error("frame {frame} of the snapshot is corrupt: fetch it again from another replica")]
    Corrupt {
        /// Number of the frame, from 0.
        frame: u64,
    },
    /// A frame is longer than any frame can be.
    #[error("frame {frame} of the snapshot says it has {bytes} bytes: it is corrupt or not a snapshot")]
    FrameTooLong {
        /// Number of the frame, from 0.
        frame: u64,
        /// Length that the frame's head gives.
        bytes: u64,
    },
    /// A record can't be read.
    #[error("frame {frame} of the snapshot: {source}")]
    Record {
        /// Number of the record's frame, from 0.
        frame: u64,
        /// Error in the record.
        source: DecodeError,
    },
    /// The bytes were not made by Tollgate.
    #[error("not a snapshot: it does not begin with the mark of one")]
    NotASnapshot,
    /// The records are in an order that no snapshot has, or bytes follow the last.
    #[error("frame {frame} of the snapshot: records are out of order")]
    OutOfOrder {
        /// Number of the frame, from 0.
        frame: u64,
    },
    /// Only a newer binary may continue the state.
    #[error("apply version {found} is not supported: this binary knows 1 to {known}, upgrade it")]
    ApplyVersion {
        /// Apply version of the state.
        found: u32,
        /// Newest apply version that this binary supports.
        known: u32,
    },
    /// The records contradict each other.
    #[error("the snapshot contradicts itself: {0}")]
    Inconsistent(String),
    /// The end of the snapshot is missing.
    #[error("the snapshot is cut off: its last record is missing")]
    Truncated,
    /// The records are not those that were written.
    #[error("the snapshot's hash does not match its records")]
    WrongHash,
}

/// Loads a snapshot piece by piece.
///
/// ```
/// use tollgate_core::{SnapshotReader, State};
/// use tollgate_types::Limits;
///
/// let state = State::new(Limits::DEFAULT);
/// let snapshot = state.snapshot();
/// let mut reader = SnapshotReader::new();
/// for chunk in snapshot.chunks(1 << 20) {
///     reader.push(&chunk)?;
/// }
/// assert_eq!(reader.finish()?.snapshot().hash(), snapshot.hash());
/// # Ok::<(), tollgate_core::SnapshotError>(())
/// ```
#[derive(Default)]
pub struct SnapshotReader {
    buffer: Vec<u8>,
    /// Format of the records after the header.
    format: u8,
    frame: u64,
    hasher: Xxh3Default,
    restore: Option<Restore>,
    last: Option<record::Place>,
    ended: bool,
    failed: Option<SnapshotError>,
}

impl SnapshotReader {
    /// Makes a reader that has seen nothing.
    pub fn new() -> SnapshotReader {
        SnapshotReader::default()
    }

    /// Takes the next bytes, cut anywhere. After an error, every further call returns the same error.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.buffer.extend_from_slice(bytes);
        let result = self.read_frames();
        self.failed = result.clone().err();
        result
    }

    fn read_frames(&mut self) -> Result<(), SnapshotError> {
        let buffer = std::mem::take(&mut self.buffer);
        let mut rest: &[u8] = &buffer;
        while let Some((payload, after)) = split_frame(rest, self.frame)? {
            self.read_records(payload)?;
            self.frame += 1;
            rest = after;
        }
        self.buffer = rest.to_vec();
        if self.ended && !self.buffer.is_empty() {
            return Err(SnapshotError::OutOfOrder { frame: self.frame });
        }
        Ok(())
    }

    fn read_records(&mut self, payload: &[u8]) -> Result<(), SnapshotError> {
        let frame = self.frame;
        let failed = |source| SnapshotError::Record { frame, source };
        let mut reader = Reader::new(payload);
        while reader.remaining() > 0 {
            if self.ended {
                return Err(SnapshotError::OutOfOrder { frame });
            }
            let start = reader.at();
            let tag = reader.tag("record", Tag::from_number).map_err(failed)?;
            match (tag, &mut self.restore) {
                (Tag::Header, None) => {
                    let header = read_header(&mut reader, frame)?;
                    self.format = header.format();
                    self.restore = Some(Restore::new(header)?);
                    self.last = Some(record::Place::header());
                }
                (Tag::Header, Some(_)) => return Err(SnapshotError::OutOfOrder { frame }),
                (_, None) => return Err(SnapshotError::NotASnapshot),
                (Tag::End, Some(_)) => {
                    let hash = record::end(&mut reader).map_err(failed)?;
                    if hash != self.hasher.digest() {
                        return Err(SnapshotError::WrongHash);
                    }
                    self.ended = true;
                    continue;
                }
                (tag, Some(restore)) => {
                    let parsed = record::parse(tag, &mut reader, self.format).map_err(failed)?;
                    let place = parsed.place();
                    if self.last.as_ref().is_some_and(|last| !last.may_precede(&place)) {
                        return Err(SnapshotError::OutOfOrder { frame });
                    }
                    self.last = Some(place);
                    parsed.restore(restore).map_err(SnapshotError::Inconsistent)?;
                }
            }
            self.hasher.update(&payload[start..reader.at()]);
        }
        Ok(())
    }

    /// Returns the state, once all of the snapshot was read.
    pub fn finish(self) -> Result<State, SnapshotError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match self.restore {
            Some(restore) if self.ended && self.buffer.is_empty() => {
                restore.finish().map_err(SnapshotError::Inconsistent)
            }
            _ => Err(SnapshotError::Truncated),
        }
    }
}

/// Payload of a whole frame, and the bytes after the frame.
type Frame<'a> = (&'a [u8], &'a [u8]);

/// Splits off the next frame; none if more bytes are needed.
fn split_frame(bytes: &[u8], frame: u64) -> Result<Option<Frame<'_>>, SnapshotError> {
    let Some((head, rest)) = bytes.split_at_checked(FRAME_HEAD_BYTES) else { return Ok(None) };
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (len, crc) = (number(0) as usize, number(4));
    if len > FRAME_BYTES_MAX || len == 0 {
        return Err(SnapshotError::FrameTooLong { frame, bytes: len as u64 });
    }
    let Some((payload, after)) = rest.split_at_checked(len) else { return Ok(None) };
    if crc32fast::hash(payload) != crc {
        return Err(SnapshotError::Corrupt { frame });
    }
    Ok(Some((payload, after)))
}

pub(super) fn write_header(header: &Header, with_lineage: bool, out: &mut Vec<u8>) {
    out.extend(MAGIC);
    let mut writer = Writer::new(out);
    writer.u8(header.format());
    writer.log_time(header.now);
    writer.revision(header.revision);
    writer.varint(u64::from(header.apply_version));
    writer.revision(header.min_revision);
    writer.limits(&header.limits);
    writer.group_id(header.group);
    writer.group_map(&header.map);
    if header.format() > FORMAT_1 {
        let lineage = header.lineage.filter(|_| with_lineage);
        writer.option(lineage, |writer, lineage| writer.fixed_u64(lineage.number()));
    }
}

fn read_header(reader: &mut Reader<'_>, frame: u64) -> Result<Header, SnapshotError> {
    let failed = |source| SnapshotError::Record { frame, source };
    for expected in MAGIC {
        if reader.u8().map_err(failed)? != expected {
            return Err(SnapshotError::NotASnapshot);
        }
    }
    let found = reader.u8().map_err(failed)?;
    if !(FORMAT_1..=SNAPSHOT_FORMAT_VERSION).contains(&found) {
        let supported = SNAPSHOT_FORMAT_VERSION;
        return Err(failed(DecodeError::UnsupportedVersion { what: "snapshot", found, supported }));
    }
    let read = |reader: &mut Reader<'_>| {
        Ok(Header {
            now: reader.log_time()?,
            revision: reader.revision()?,
            apply_version: reader.u32("apply version")?,
            min_revision: reader.revision()?,
            limits: reader.limits()?,
            group: reader.group_id()?,
            map: Arc::new(reader.group_map()?),
            lineage: if found > FORMAT_1 { reader.option("lineage", Reader::lineage)? } else { None },
        })
    };
    let header = read(reader).map_err(failed)?;
    // Apply versions that don't exist or are not supported are refused as such, by `Restore`.
    let known = (1..=APPLY_VERSION_SUPPORTED).contains(&header.apply_version);
    if known && header.format() != found {
        let says = format!("no state of apply version {} is written in format {found}", header.apply_version);
        return Err(SnapshotError::Inconsistent(says));
    }
    Ok(header)
}
