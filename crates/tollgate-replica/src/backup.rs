//! A backup: the states of all groups of a cluster in one file, with checksums over every byte.
//!
//! | part | what |
//! |---|---|
//! | mark | `TGBACKUP` and the format's version |
//! | head | cluster, time, binary, members and number of groups; version 2: the disks |
//! | for each group | group id, index of the last entry; version 2: origin; then the group's snapshot, in pieces |
//! | manifest | each group's snapshot, with size and checksum; and a hash of all bytes before the manifest |
//!
//! Each part but the mark is a frame: its length and CRC-32 in four bytes each, then a tag and the fields. The manifest
//! comes last because sizes are known last: a backup can be written while it is being made, to a socket as well as to a
//! disk, by a node that stores none of it. A backup that was cut off has no manifest.
//!
//! A backup of a running cluster has version 1. A backup made from the disks of stopped nodes has version 2, and lists
//! the disks; binaries that know only version 1 refuse it.
//!
//! Each group's snapshot is of one moment, but the moments of the groups differ: no lock is in two groups, and messages
//! between groups may be late anyway.
//!
//! A snapshot is in the form that `tollgate-core` gives it. Pure functions over `Read` and `Write`. Not here: who asks
//! for a backup and how it is transferred (`tollgate-server`), how a backup is made from disks (`salvage`), how a
//! backup is restored (`restore`).

mod manifest;
mod origin;

pub(crate) use manifest::DISKS_MAX;
pub use manifest::{BackupGroup, BackupHead};
pub use origin::{GroupOrigin, TimeSource};

use crate::members::MEMBERS_MAX;
use manifest::{GroupHead, Tag};
use std::io::{self, Read, Write};
use tollgate_core::{DecodeError, Reader, Snapshot, SnapshotError, SnapshotReader, State, Writer};
use tollgate_types::GroupId;
use xxhash_rust::xxh3::Xxh3Default;

/// The newest format that this binary knows: the version of backups made from disks. Backups of running clusters have
/// version 1.
pub const BACKUP_VERSION: u8 = 2;

const FROM_CLUSTER: u8 = 1;
const FROM_DISKS: u8 = 2;

/// The most groups that a backup can have.
pub const GROUPS_MAX: usize = 65_536;

const MAGIC: [u8; 8] = *b"TGBACKUP";
const FRAME_HEAD_BYTES: usize = 8;
/// Bytes of state in one piece.
const PIECE_BYTES: usize = 64 * 1024;
/// The greatest length of a frame: a manifest of all groups, or a head with all members.
const FRAME_BYTES_MAX: usize = 64 * GROUPS_MAX + 64 * MEMBERS_MAX;

/// Reasons for which a backup can't be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// An error of the file system.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Bytes that do not begin with a backup's mark.
    #[error("it is not a backup: it does not begin with the mark of one")]
    NotABackup,
    /// A backup, or a state in it, in the format of a newer binary.
    #[error(
        "it has format {found}, this binary knows up to {supported}: use the binary that saved it, or a newer one"
    )]
    TooNew {
        /// Format of the backup.
        found: u8,
        /// The newest format that this binary knows.
        supported: u8,
    },
    /// A state made by a newer binary, by rules that this binary does not have.
    #[error(
        "the state of group {group} has apply version {found}, this binary knows up to {known}: use the binary that \
         saved it, or a newer one"
    )]
    TooNewState {
        /// Group of the state.
        group: GroupId,
        /// Apply version of the state.
        found: u32,
        /// The newest apply version that this binary knows.
        known: u32,
    },
    /// Bytes that differ from those that were written.
    #[error("it is damaged at byte {at} ({what}): use another copy, or an older backup")]
    Damaged {
        /// Offset of the damaged part in the file.
        at: u64,
        /// Description of the damage.
        what: String,
    },
}

/// Makes a backup, part by part.
#[derive(Debug)]
pub struct BackupWriter<W> {
    out: W,
    hasher: Xxh3,
    /// Buffer of the frame being written, reused for every frame.
    frame: Vec<u8>,
    version: u8,
    groups_left: u32,
    groups: Vec<BackupGroup>,
}

/// The hash of all bytes so far.
#[derive(Default)]
struct Xxh3(Xxh3Default);

impl std::fmt::Debug for Xxh3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0.digest())
    }
}

impl<W: Write> BackupWriter<W> {
    /// Begins a backup.
    pub fn new(out: W, head: &BackupHead) -> io::Result<BackupWriter<W>> {
        let version = if head.disks.is_empty() { FROM_CLUSTER } else { FROM_DISKS };
        let (groups_left, groups) = (head.groups, Vec::new());
        let mut writer =
            BackupWriter { out, hasher: Xxh3::default(), frame: Vec::new(), version, groups_left, groups };
        let mark = [&MAGIC[..], &[version]].concat();
        writer.put(&mark)?;
        writer.frame(|fields| head.encode(version, fields))?;
        Ok(writer)
    }

    /// Adds a group. `index` is the last entry that the snapshot contains. A group that comes from disks has an origin.
    ///
    /// Panics if there are more groups than the head says, if the groups are not in order, or if the head disagrees
    /// with the origin: such a backup could not be read.
    pub fn group(
        &mut self,
        group: GroupId,
        index: u64,
        origin: Option<GroupOrigin>,
        snapshot: &Snapshot,
    ) -> io::Result<()> {
        assert!(origin.is_some() == (self.version == FROM_DISKS), "the head says where the groups come from");
        assert!(self.groups_left > 0, "the head says that there are fewer groups");
        assert!(self.groups.last().is_none_or(|last| last.group < group), "groups come in order");
        self.groups_left -= 1;
        let head = GroupHead { group, index, origin };
        self.frame(|fields| head.encode(fields))?;
        let (mut bytes, mut checksum) = (0, crc32fast::Hasher::new());
        for piece in snapshot.chunks(PIECE_BYTES) {
            bytes += piece.len() as u64;
            checksum.update(&piece);
            self.frame(|fields| {
                fields.u8(Tag::Piece as u8);
                fields.bytes(&piece);
            })?;
        }
        self.groups.push(BackupGroup {
            group,
            index,
            origin: head.origin,
            revision: snapshot.revision(),
            log_time: snapshot.now(),
            apply_version: snapshot.apply_version(),
            bytes,
            checksum: checksum.finalize(),
        });
        Ok(())
    }

    /// The output that the backup is written to.
    pub fn out_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Ends the backup, and returns the output.
    ///
    /// Panics if a group is missing.
    pub fn finish(mut self) -> io::Result<W> {
        assert!(self.groups_left == 0, "{} groups are missing", self.groups_left);
        let (hash, groups) = (self.hasher.0.digest(), std::mem::take(&mut self.groups));
        self.frame(|fields| manifest::encode(&groups, hash, fields))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn frame(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> io::Result<()> {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.extend([0; FRAME_HEAD_BYTES]);
        write(&mut Writer::new(&mut frame));
        let length = u32::try_from(frame.len() - FRAME_HEAD_BYTES).expect("frames are far below 4 GiB");
        let crc = crc32fast::hash(&frame[FRAME_HEAD_BYTES..]);
        frame[..4].copy_from_slice(&length.to_le_bytes());
        frame[4..FRAME_HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
        let written = self.put(&frame);
        self.frame = frame;
        written
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.0.update(bytes);
        self.out.write_all(bytes)
    }
}

/// Reads a backup, group by group, and checks every byte.
#[derive(Debug)]
pub struct BackupReader<R> {
    frames: Frames<R>,
    head: BackupHead,
    groups: Vec<BackupGroup>,
    /// A frame read in advance, to learn its tag.
    ahead: Option<Frame>,
}

impl<R: Read> BackupReader<R> {
    /// Reads the head.
    pub fn open(input: R) -> Result<BackupReader<R>, BackupError> {
        let mut frames = Frames::open(input)?;
        let version = frames.version;
        let head = frames.next()?.decode(|reader| BackupHead::decode(version, reader))?;
        Ok(BackupReader { frames, head, groups: Vec::new(), ahead: None })
    }

    /// The head of the backup. Trust it only after [`BackupReader::next_group`] has returned the last group and then
    /// none: only then is every byte checked.
    pub fn head(&self) -> &BackupHead {
        &self.head
    }

    /// The next group with its state; none at the end, once all of the backup is checked.
    pub fn next_group(&mut self) -> Result<Option<(BackupGroup, State)>, BackupError> {
        let frame = match self.ahead.take() {
            Some(frame) => frame,
            None => self.frames.next()?,
        };
        if frame.tag() != Some(Tag::Group) {
            self.check_manifest(&frame)?;
            return Ok(None);
        }
        let version = self.frames.version;
        let head = frame.decode(|reader| GroupHead::decode(version, reader))?;
        let in_order = self.groups.last().is_none_or(|last| last.group < head.group);
        if !in_order || self.groups.len() as u64 >= u64::from(self.head.groups) {
            return Err(frame.damaged(format!("group {} is not expected here", head.group)));
        }
        let (group, state) = self.read_state(head, frame.at)?;
        self.groups.push(group.clone());
        Ok(Some((group, state)))
    }

    fn read_state(&mut self, head: GroupHead, at: u64) -> Result<(BackupGroup, State), BackupError> {
        let GroupHead { group, index, origin } = head;
        let (mut reader, mut bytes, mut checksum) = (SnapshotReader::new(), 0, crc32fast::Hasher::new());
        loop {
            let piece = self.frames.next()?;
            if piece.tag() != Some(Tag::Piece) {
                self.ahead = Some(piece);
                break;
            }
            let pushed = piece.with_bytes(|part| {
                bytes += part.len() as u64;
                checksum.update(part);
                reader.push(part)
            });
            pushed?.map_err(|error| bad_state(&error, group, piece.at))?;
        }
        let state = reader.finish().map_err(|error| bad_state(&error, group, at))?;
        let (revision, log_time, apply_version) = (state.revision(), state.now(), state.apply_version());
        let checksum = checksum.finalize();
        Ok((BackupGroup { group, index, origin, revision, log_time, apply_version, bytes, checksum }, state))
    }

    fn check_manifest(&mut self, frame: &Frame) -> Result<(), BackupError> {
        let (groups, hash) = frame.decode(manifest::decode)?;
        if hash != frame.hash_before {
            return Err(frame.damaged("the hash of all that is before it is another"));
        }
        let mut seen = self.groups.clone();
        for group in &mut seen {
            group.origin = None;
        }
        if groups != seen || self.groups.len() as u64 != u64::from(self.head.groups) {
            return Err(frame.damaged("it lists other groups than those before it"));
        }
        self.frames.must_end()
    }
}

/// The parts of a backup, each with its checksum checked.
#[derive(Debug)]
struct Frames<R> {
    input: R,
    version: u8,
    hasher: Xxh3,
    /// Number of bytes read.
    at: u64,
}

#[derive(Debug)]
struct Frame {
    at: u64,
    /// Hash of all bytes before the frame.
    hash_before: u64,
    payload: Vec<u8>,
}

impl<R: Read> Frames<R> {
    fn open(input: R) -> Result<Frames<R>, BackupError> {
        let mut frames = Frames { input, version: 0, hasher: Xxh3::default(), at: 0 };
        let mut mark = [0; MAGIC.len() + 1];
        match frames.read_exact(&mut mark) {
            Ok(()) if mark[..MAGIC.len()] == MAGIC => {}
            Err(BackupError::Io(error)) => return Err(error.into()),
            _ => return Err(BackupError::NotABackup),
        }
        frames.version = mark[MAGIC.len()];
        match frames.version {
            FROM_CLUSTER..=BACKUP_VERSION => Ok(frames),
            0 => Err(BackupError::NotABackup),
            found => Err(BackupError::TooNew { found, supported: BACKUP_VERSION }),
        }
    }

    fn next(&mut self) -> Result<Frame, BackupError> {
        let (at, hash_before) = (self.at, self.hasher.0.digest());
        let mut head = [0; FRAME_HEAD_BYTES];
        self.read_exact(&mut head)?;
        let number =
            |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
        let (length, crc) = (number(0) as usize, number(4));
        if length == 0 || length > FRAME_BYTES_MAX {
            let what = format!("it says that it has {length} bytes, which no part has");
            return Err(BackupError::Damaged { at, what });
        }
        let mut payload = vec![0; length];
        self.read_exact(&mut payload)?;
        if crc32fast::hash(&payload) != crc {
            return Err(BackupError::Damaged { at, what: "it does not have its checksum".to_owned() });
        }
        Ok(Frame { at, hash_before, payload })
    }

    fn must_end(&mut self) -> Result<(), BackupError> {
        if self.input.read(&mut [0])? == 0 {
            return Ok(());
        }
        Err(BackupError::Damaged { at: self.at, what: "there are bytes after its end".to_owned() })
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        let at = self.at;
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                BackupError::Damaged { at, what: "it is cut off here".to_owned() }
            }
            _ => BackupError::Io(error),
        })?;
        self.hasher.0.update(bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }
}

impl Frame {
    fn tag(&self) -> Option<Tag> {
        self.payload.first().and_then(|number| Tag::from_number(*number))
    }

    fn decode<T>(
        &self,
        decode: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, BackupError> {
        let mut reader = Reader::new(&self.payload);
        let decoded = decode(&mut reader).and_then(|decoded| reader.finish().map(|()| decoded));
        decoded.map_err(|error| self.damaged(error.to_string()))
    }

    fn with_bytes<T>(&self, take: impl FnOnce(&[u8]) -> T) -> Result<T, BackupError> {
        self.decode(|reader| {
            reader.u8()?;
            Ok(take(reader.bytes("piece", PIECE_BYTES)?))
        })
    }

    fn damaged(&self, what: impl Into<String>) -> BackupError {
        BackupError::Damaged { at: self.at, what: what.into() }
    }
}

fn bad_state(error: &SnapshotError, group: GroupId, at: u64) -> BackupError {
    match error {
        SnapshotError::Record {
            source: DecodeError::UnsupportedVersion { found, supported, .. }, ..
        } => BackupError::TooNew { found: *found, supported: *supported },
        SnapshotError::ApplyVersion { found, known } => {
            BackupError::TooNewState { group, found: *found, known: *known }
        }
        _ => BackupError::Damaged { at, what: format!("the state of group {group}: {error}") },
    }
}
