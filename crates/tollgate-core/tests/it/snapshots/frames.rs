//! Takes the frames of a snapshot apart and puts them together, without the tested code.

use tollgate_core::{SnapshotError, SnapshotReader, State};

/// Length of the last record: tag and hash.
const END_BYTES: usize = 1 + 8;
const END_TAG: u8 = 8;

pub(super) fn bytes_of(state: &State) -> Vec<u8> {
    state.snapshot().chunks(1 << 16).flatten().collect()
}

pub(super) fn load(bytes: &[u8]) -> Result<State, SnapshotError> {
    let mut reader = SnapshotReader::new();
    reader.push(bytes)?;
    reader.finish()
}

/// The whole frames, heads included.
pub(super) fn frames_of(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        let (frame, after) = rest.split_at(8 + length);
        frames.push(frame.to_vec());
        rest = after;
    }
    frames
}

pub(super) fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a test's frame is small");
    let crc = crc32fast::hash(payload);
    [&length.to_le_bytes(), &crc.to_le_bytes(), payload].concat()
}

/// All records except the last, which has the hash of the others.
pub(super) fn records_of(bytes: &[u8]) -> Vec<u8> {
    let mut records: Vec<u8> = frames_of(bytes).iter().flat_map(|frame| frame[8..].to_vec()).collect();
    records.truncate(records.len() - END_BYTES);
    records
}

/// All content of a state as bytes: without frames and hash.
pub(crate) fn state_records(state: &State) -> Vec<u8> {
    records_of(&bytes_of(state))
}

/// A snapshot of one frame, with the checksum and hash that these records should have.
pub(super) fn framed(records: &[u8]) -> Vec<u8> {
    let hash = xxhash_rust::xxh3::xxh3_64(records);
    frame(&[records, &[END_TAG], &hash.to_le_bytes()].concat())
}
