//! The format of a snapshot file: a header, and the state's bytes in blocks that are checked one by one.
//!
//! | bytes | what |
//! |---|---|
//! | 0..49152 | header: magic, version, length, [`SnapshotMeta`], size and checksum of the state, CRC-32, zeros |
//! | then | blocks: up to 65,536 bytes of state, then the CRC-32 of the block's number and bytes |
//!
//! Every byte is under some checksum, so a damaged piece is noticed when it is read, and not only when all is loaded.
//! The header is written last: a file that was cut off has none. A transfer sends the state's bytes only; the receiver
//! makes its own header and blocks from the [`SnapshotFile`] that comes with them.
//!
//! Pure functions over `Read`, `Write` and `Seek`, so that a simulated disk has the same bytes. Not here: names of
//! files, fsync and rename (`engine`), the state's own format (`tollgate-core`).

use crate::members::Members;
use crate::storage::{SnapshotFile, SnapshotMeta};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use tollgate_core::{DecodeError, Reader, Snapshot, SnapshotError, SnapshotReader, State, Writer};

/// The format that this binary writes, and the only format that it reads.
pub const SNAPSHOT_FILE_VERSION: u8 = 2;
/// Length of the header. The length is fixed so that blocks can be written before their header is known; the header is
/// mostly zeros, unless there are many members with long names.
pub const HEADER_BYTES: usize = 48 * 1024;
/// Bytes of state in a block.
pub const BLOCK_BYTES: usize = 64 * 1024;

const MAGIC: [u8; 8] = *b"TGSNFILE";
const BODY_AT: usize = MAGIC.len() + 1 + 2;
const CRC_BYTES: usize = 4;
/// The most bytes of index, term, size and checksum.
const NUMBERS_BYTES_MAX: usize = 4 * 10;
const _: () = assert!(BODY_AT + Members::BYTES_MAX + NUMBERS_BYTES_MAX + CRC_BYTES <= HEADER_BYTES);
/// Size of the chunks requested from [`Snapshot::chunks`].
const CHUNK_BYTES: usize = BLOCK_BYTES;

/// Reasons for which a snapshot file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFileError {
    /// The file could not be read.
    #[error("it can't be read: {0}")]
    Io(#[from] io::Error),
    /// The bytes differ from those that were written.
    #[error("{0}")]
    Damaged(String),
    /// A newer binary wrote the file.
    #[error("it has format {found}, this binary knows up to {supported}")]
    TooNew {
        /// Format of the file.
        found: u8,
        /// The newest format that this binary knows.
        supported: u8,
    },
    /// The state in the file needs a newer binary.
    #[error("its state has apply version {found}, this binary knows up to {known}")]
    ApplyVersion {
        /// Apply version of the state.
        found: u32,
        /// The newest apply version that this binary knows.
        known: u32,
    },
}

fn damaged(what: impl Into<String>) -> SnapshotFileError {
    SnapshotFileError::Damaged(what.into())
}

/// Encodes a whole snapshot file in memory.
pub fn encode(meta: &SnapshotMeta, snapshot: &Snapshot) -> (SnapshotFile, Vec<u8>) {
    let memory = Cursor::new(Vec::new());
    let (file, memory) = write(memory, meta, snapshot).expect("writing to memory can't fail");
    (file, memory.into_inner())
}

/// Writes a snapshot file, chunk by chunk as the snapshot produces them.
pub fn write<W: Write + Seek>(
    inner: W,
    meta: &SnapshotMeta,
    snapshot: &Snapshot,
) -> io::Result<(SnapshotFile, W)> {
    let mut writer = SnapshotFileWriter::new(inner)?;
    for chunk in snapshot.chunks(CHUNK_BYTES) {
        writer.push(&chunk)?;
    }
    writer.finish(meta.clone())
}

/// Checks a whole file in memory, without building the state.
pub fn verify(bytes: &[u8]) -> Result<SnapshotFile, SnapshotFileError> {
    SnapshotFileReader::open(Cursor::new(bytes))?.verify()
}

/// Checks a whole file and builds the state in it.
pub fn load<R: Read + Seek>(inner: R) -> Result<(SnapshotFile, State), SnapshotFileError> {
    SnapshotFileReader::open(inner)?.load()
}

/// Makes a snapshot file from the state's bytes, in pieces of any size.
#[derive(Debug)]
pub struct SnapshotFileWriter<W> {
    inner: W,
    block: Vec<u8>,
    blocks: u64,
    size: u64,
    checksum: crc32fast::Hasher,
}

impl<W: Write + Seek> SnapshotFileWriter<W> {
    /// Begins a file. Until [`SnapshotFileWriter::finish`] the file has no header, so it can't be taken for complete.
    pub fn new(mut inner: W) -> io::Result<SnapshotFileWriter<W>> {
        inner.write_all(&vec![0; HEADER_BYTES])?;
        let checksum = crc32fast::Hasher::new();
        Ok(SnapshotFileWriter { inner, block: Vec::with_capacity(BLOCK_BYTES), blocks: 0, size: 0, checksum })
    }

    /// Adds bytes of state. After an error the file is useless.
    pub fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.checksum.update(bytes);
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES {
                self.close_block()?;
            }
        }
        Ok(())
    }

    fn close_block(&mut self) -> io::Result<()> {
        let crc = block_crc(self.blocks, &self.block);
        self.block.extend_from_slice(&crc.to_le_bytes());
        self.inner.write_all(&self.block)?;
        self.block.clear();
        self.blocks += 1;
        Ok(())
    }

    /// Number of bytes of state so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// CRC-32 of the bytes of state so far.
    pub fn checksum(&self) -> u32 {
        self.checksum.clone().finalize()
    }

    /// Writes the last block, and the header. The file is not yet durable.
    pub fn finish(mut self, meta: SnapshotMeta) -> io::Result<(SnapshotFile, W)> {
        if !self.block.is_empty() {
            self.close_block()?;
        }
        let file = SnapshotFile { meta, size: self.size, checksum: self.checksum() };
        self.inner.seek(SeekFrom::Start(0))?;
        self.inner.write_all(&encode_header(&file))?;
        self.inner.flush()?;
        Ok((file, self.inner))
    }
}

/// Reads a snapshot file, and checks all of it against checksums.
#[derive(Debug)]
pub struct SnapshotFileReader<R> {
    inner: R,
    file: SnapshotFile,
}

impl<R: Read + Seek> SnapshotFileReader<R> {
    /// Checks the header and the length.
    pub fn open(mut inner: R) -> Result<SnapshotFileReader<R>, SnapshotFileError> {
        let mut header = vec![0; HEADER_BYTES];
        inner.seek(SeekFrom::Start(0))?;
        read_exact(&mut inner, &mut header, "the header")?;
        let file = decode_header(&header)?;
        let (length, expected) = (inner.seek(SeekFrom::End(0))?, file_bytes(file.size));
        if length != expected {
            return Err(damaged(format!("it has {length} bytes, and its header says {expected}")));
        }
        Ok(SnapshotFileReader { inner, file })
    }

    /// The description of the snapshot in the header.
    pub fn file(&self) -> &SnapshotFile {
        &self.file
    }

    /// A checked piece of the state's bytes. Shorter than `length` at the end only.
    pub fn read_at(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, SnapshotFileError> {
        if offset > self.file.size {
            return Err(damaged(format!("it has no byte {offset}: its state has {}", self.file.size)));
        }
        let end = offset.saturating_add(length as u64).min(self.file.size);
        let mut piece = Vec::with_capacity(index(end - offset));
        let mut block = offset / BLOCK_BYTES as u64;
        while offset + (piece.len() as u64) < end {
            let bytes = self.block(block)?;
            let start = block * BLOCK_BYTES as u64;
            let from = index(offset.saturating_sub(start));
            let to = bytes.len().min(index(end - start));
            piece.extend_from_slice(&bytes[from..to]);
            block += 1;
        }
        Ok(piece)
    }

    /// Checks the whole file.
    pub fn verify(mut self) -> Result<SnapshotFile, SnapshotFileError> {
        self.each_block(|_| Ok(()))?;
        Ok(self.file)
    }

    /// Checks the whole file and builds the state.
    pub fn load(mut self) -> Result<(SnapshotFile, State), SnapshotFileError> {
        let mut reader = SnapshotReader::new();
        self.each_block(|bytes| reader.push(bytes).map_err(bad_state))?;
        let state = reader.finish().map_err(bad_state)?;
        Ok((self.file, state))
    }

    fn each_block(
        &mut self,
        mut take: impl FnMut(&[u8]) -> Result<(), SnapshotFileError>,
    ) -> Result<(), SnapshotFileError> {
        let mut checksum = crc32fast::Hasher::new();
        for block in 0..blocks(self.file.size) {
            let bytes = self.block(block)?;
            checksum.update(&bytes);
            take(&bytes)?;
        }
        if checksum.finalize() != self.file.checksum {
            return Err(damaged("its state does not have the checksum that the header says"));
        }
        Ok(())
    }

    /// The checked bytes of one block, which must exist.
    fn block(&mut self, number: u64) -> Result<Vec<u8>, SnapshotFileError> {
        let left = self.file.size - number * BLOCK_BYTES as u64;
        let at = HEADER_BYTES as u64 + number * (BLOCK_BYTES + CRC_BYTES) as u64;
        let mut bytes = vec![0; index(left.min(BLOCK_BYTES as u64)) + CRC_BYTES];
        self.inner.seek(SeekFrom::Start(at))?;
        read_exact(&mut self.inner, &mut bytes, "a block")?;
        let crc = bytes.split_off(bytes.len() - CRC_BYTES);
        if block_crc(number, &bytes).to_le_bytes() != crc[..] {
            return Err(damaged(format!("block {number}, at byte {at}, does not have its checksum")));
        }
        Ok(bytes)
    }
}

/// Reads exactly `bytes`. An early end of the file is damage; any other error is the disk's.
fn read_exact(inner: &mut impl Read, bytes: &mut [u8], what: &str) -> Result<(), SnapshotFileError> {
    inner.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(format!("it ends inside {what}")),
        _ => SnapshotFileError::Io(error),
    })
}

fn bad_state(error: SnapshotError) -> SnapshotFileError {
    match error {
        SnapshotError::Record {
            source: DecodeError::UnsupportedVersion { found, supported, .. }, ..
        } => SnapshotFileError::TooNew { found, supported },
        SnapshotError::ApplyVersion { found, known } => SnapshotFileError::ApplyVersion { found, known },
        error => damaged(error.to_string()),
    }
}

/// CRC-32 of a block's number and bytes: a block in the wrong place is as wrong as one with wrong bytes.
fn block_crc(number: u64, bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&number.to_le_bytes());
    crc.update(bytes);
    crc.finalize()
}

fn blocks(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES as u64)
}

/// The length of a file with `size` bytes of state. For an impossible size, the result is a length that no file has.
fn file_bytes(size: u64) -> u64 {
    size.saturating_add(blocks(size) * CRC_BYTES as u64).saturating_add(HEADER_BYTES as u64)
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("pieces of a block or of a request fit into memory")
}

fn encode_header(file: &SnapshotFile) -> Vec<u8> {
    let mut body = Vec::new();
    encode_snapshot_file(file, &mut Writer::new(&mut body));
    let mut header = MAGIC.to_vec();
    header.push(SNAPSHOT_FILE_VERSION);
    let len = u16::try_from(body.len()).expect("members are bounded, and fit");
    header.extend_from_slice(&len.to_le_bytes());
    header.extend_from_slice(&body);
    header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
    assert!(header.len() <= HEADER_BYTES, "members are bounded, and fit");
    header.resize(HEADER_BYTES, 0);
    header
}

fn decode_header(header: &[u8]) -> Result<SnapshotFile, SnapshotFileError> {
    if header[..MAGIC.len()] != MAGIC {
        return Err(damaged("it has no header: it was cut off, or is no snapshot file"));
    }
    let len = usize::from(u16::from_le_bytes([header[BODY_AT - 2], header[BODY_AT - 1]]));
    let crc_at = BODY_AT + len;
    if crc_at + CRC_BYTES > HEADER_BYTES {
        return Err(damaged("its header says that it is longer than any can be"));
    }
    let crc = crc32fast::hash(&header[..crc_at]);
    if crc.to_le_bytes() != header[crc_at..crc_at + CRC_BYTES] {
        return Err(damaged("its header does not have its checksum"));
    }
    let found = header[MAGIC.len()];
    if found != SNAPSHOT_FILE_VERSION {
        return Err(SnapshotFileError::TooNew { found, supported: SNAPSHOT_FILE_VERSION });
    }
    if header[crc_at + CRC_BYTES..].iter().any(|byte| *byte != 0) {
        return Err(damaged("its header has bytes where there are none"));
    }
    decode_body(&header[BODY_AT..crc_at]).map_err(|error| damaged(format!("its header: {error}")))
}

fn decode_body(body: &[u8]) -> Result<SnapshotFile, DecodeError> {
    let mut reader = Reader::new(body);
    let file = decode_snapshot_file(&mut reader)?;
    reader.finish()?;
    Ok(file)
}

/// Encodes the description of a snapshot, for the header and for the snapshot marks in the log.
pub(crate) fn encode_snapshot_file(file: &SnapshotFile, writer: &mut Writer<'_>) {
    writer.varint(file.meta.index);
    writer.varint(file.meta.term);
    file.meta.members.encode(writer);
    writer.varint(file.size);
    writer.varint(u64::from(file.checksum));
}

pub(crate) fn decode_snapshot_file(reader: &mut Reader<'_>) -> Result<SnapshotFile, DecodeError> {
    let (index, term) = (reader.varint()?, reader.varint()?);
    let meta = SnapshotMeta { index, term, members: Members::decode(reader)? };
    Ok(SnapshotFile { meta, size: reader.varint()?, checksum: reader.u32("checksum")? })
}
