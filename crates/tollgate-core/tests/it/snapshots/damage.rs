//! Damage on disk or on the way: if the bytes of a snapshot change in any way, loading them is an error.

use super::frames::{bytes_of, frame, framed, frames_of, load, records_of};
use super::golden;
use crate::commands::{Replica, put, txn};
use tollgate_core::{DecodeError, SnapshotError, SnapshotReader, State};
use tollgate_types::Limits;

/// Whole snapshots of all kinds of states.
pub(crate) fn corpus_of_bytes() -> Vec<Vec<u8>> {
    super::corpus_of_records().iter().map(|records| framed(records)).collect()
}

/// Loads bytes as a snapshot. Panics unless they are refused, or are equal to the bytes of the state they make. Returns
/// true if they make one.
pub(crate) fn is_refused_or_itself(bytes: &[u8]) -> bool {
    let Ok(state) = load(bytes) else { return false };
    assert_eq!(records_of(&bytes_of(&state)), records_of(bytes), "what loads is canonical");
    true
}

fn error_of(bytes: &[u8]) -> SnapshotError {
    load(bytes).expect_err("damaged bytes are no snapshot")
}

/// A state of several frames.
fn large() -> State {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    for i in 0..12 {
        replica.at(i, txn(vec![put(&format!("k{i}"), &[b'v'; 10_000], None)]));
    }
    replica.state
}

#[test]
fn a_snapshot_that_is_cut_off_anywhere_is_refused() {
    for state in [golden::state(), State::new(Limits::DEFAULT)] {
        let whole = bytes_of(&state);
        for length in 0..whole.len() {
            assert_eq!(
                error_of(&whole[..length]),
                SnapshotError::Truncated,
                "at {length} of {}",
                whole.len()
            );
        }
        assert!(load(&whole).is_ok());
    }
}

#[test]
fn a_snapshot_of_several_frames_that_is_cut_off_between_them_is_refused() {
    let frames = frames_of(&bytes_of(&large()));
    assert!(frames.len() > 3, "{} frames", frames.len());
    for count in 0..frames.len() {
        assert_eq!(error_of(&frames[..count].concat()), SnapshotError::Truncated, "after {count} frames");
    }
}

#[test]
fn any_single_bit_that_flips_is_noticed() {
    let whole = bytes_of(&golden::state());
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            // A length that grew waits for bytes that never come; all other changes fail the checksum.
            let error = error_of(&flipped);
            let expected = match at {
                0..4 => matches!(
                    error,
                    SnapshotError::Truncated
                        | SnapshotError::Corrupt { frame: 0 }
                        | SnapshotError::FrameTooLong { frame: 0, .. }
                ),
                _ => error == SnapshotError::Corrupt { frame: 0 },
            };
            assert!(expected, "bit {bit} of byte {at}: {error:?}");
        }
    }
}

#[test]
fn bytes_after_the_end_are_refused() {
    let whole = bytes_of(&golden::state());
    for extra in [vec![0], vec![0; 7], vec![0; 100], whole.clone(), frame(&[8]), frame(b"\x06\x01a")] {
        let mut longer = whole.clone();
        longer.extend(&extra);
        assert!(load(&longer).is_err(), "{} bytes more", extra.len());
        let mut reader = SnapshotReader::new();
        assert_eq!(reader.push(&whole), Ok(()));
        assert!(reader.push(&extra).is_err() && reader.finish().is_err(), "{} bytes later", extra.len());
    }
    let records = [records_of(&whole), b"\x08".to_vec(), vec![0; 8]].concat();
    assert_eq!(error_of(&frame(&records)), SnapshotError::WrongHash);
}

#[test]
fn frames_that_are_dropped_doubled_or_swapped_are_noticed() {
    let frames = frames_of(&bytes_of(&large()));
    for i in 0..frames.len() {
        let mut fewer = frames.clone();
        fewer.remove(i);
        let error = error_of(&fewer.concat());
        if i == 0 {
            assert_eq!(error, SnapshotError::NotASnapshot);
        }
        let mut doubled = frames.clone();
        doubled.insert(i, frames[i].clone());
        error_of(&doubled.concat());
        for j in 0..i {
            let mut swapped = frames.clone();
            swapped.swap(i, j);
            error_of(&swapped.concat());
        }
    }
}

#[test]
fn what_is_not_a_snapshot_of_this_version_is_named() {
    let records = records_of(&bytes_of(&Replica::new(&Limits::DEFAULT, None).state));
    // Tag, mark, format version, log time 0, revision 0, apply version.
    assert_eq!(records[..9], *b"\x01TGSN\x03\x00\x00\x03");
    let with = |at: usize, byte| {
        let mut other = records.clone();
        other[at] = byte;
        error_of(&framed(&other))
    };
    for at in 1..=4 {
        assert_eq!(with(at, b'?'), SnapshotError::NotASnapshot, "byte {at} of the mark");
    }
    for found in [0, 4, 0xff] {
        let source = DecodeError::UnsupportedVersion { what: "snapshot", found, supported: 3 };
        assert_eq!(with(5, found), SnapshotError::Record { frame: 0, source });
    }
    assert_eq!(with(8, 0), SnapshotError::Inconsistent("there is no apply version 0".to_owned()));
    for version in [4, 0x7f] {
        let error = with(8, version);
        assert_eq!(error, SnapshotError::ApplyVersion { found: version.into(), known: 3 });
        let says = format!("apply version {version} is not supported: this binary knows 1 to 3, upgrade it");
        assert_eq!(error.to_string(), says);
    }
    // One state has one encoding.
    for version in [1, 2] {
        let says = format!("no state of apply version {version} is written in format 3");
        assert_eq!(with(8, version), SnapshotError::Inconsistent(says));
    }
    assert_eq!(error_of(b""), SnapshotError::Truncated);
    assert_eq!(error_of(&framed(b"")), SnapshotError::NotASnapshot);
    assert_eq!(error_of(&framed(b"\x06\x01a")), SnapshotError::NotASnapshot);
    let twice = [records.clone(), records].concat();
    assert_eq!(error_of(&framed(&twice)), SnapshotError::OutOfOrder { frame: 0 });
}

#[test]
fn a_frame_of_no_or_too_many_bytes_is_refused_before_it_is_read() {
    for bytes in [0, 16 * 1024 * 1024 + 1, u32::MAX] {
        let mut reader = SnapshotReader::new();
        let head = [bytes.to_le_bytes(), [0; 4]].concat();
        let error = SnapshotError::FrameTooLong { frame: 0, bytes: u64::from(bytes) };
        assert_eq!(reader.push(&head), Err(error));
    }
}

#[test]
fn after_an_error_every_call_returns_it_again() {
    let whole = bytes_of(&golden::state());
    let mut flipped = whole.clone();
    flipped[20] ^= 1;
    let mut reader = SnapshotReader::new();
    let error = SnapshotError::Corrupt { frame: 0 };
    assert_eq!(reader.push(&flipped), Err(error.clone()));
    assert_eq!(reader.push(&whole), Err(error.clone()));
    assert_eq!(reader.finish().err(), Some(error));
}
