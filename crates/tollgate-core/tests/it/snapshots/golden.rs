//! The bytes of a small snapshot, written down.

use super::frames::{bytes_of, load, records_of};
use crate::codec::{hex, unhex};
use crate::commands::{Replica, acquire, grant, lock, put, request, txn};
use tollgate_core::{AcquireLock, Command, State};
use tollgate_types::Limits;

/// A lease with a lock that another awaits, and a register.
pub(super) fn state() -> State {
    let limits = Limits { ttl_ms_min: 1, ..Limits::DEFAULT };
    let mut replica = Replica::new(&limits, None);
    replica.at(5, grant(300, 10_000));
    replica.at(6, Command::AcquireLock(AcquireLock { request: request(1), ..acquire(300, &["jobs"]) }));
    replica.at(7, grant(2, 1));
    replica.at(7, lock(2, "jobs"));
    replica.at(7, txn(vec![put("k", b"v", Some(300))]));
    replica.state
}

/// A change here is a change of the snapshot format: snapshots that were written before would no longer load. Never
/// change a line; a new format version gets lines of its own.
const GOLDEN: &str = "TODO";

const GOLDEN_HASH: u64 = 0;

#[test]
fn golden_bytes_hold() {
    let records = records_of(&bytes_of(&state()));
    assert_eq!(hex(&records), hex(&unhex(GOLDEN)));
    assert_eq!(state().snapshot().hash(), GOLDEN_HASH);
}

#[test]
fn golden_bytes_load() {
    let whole = super::frames::framed(&unhex(GOLDEN));
    assert_eq!(
        whole,
        bytes_of(&state()),
        "one frame, with its length, its checksum, and the hash at its end"
    );
    let loaded = load(&whole).expect("the golden snapshot loads");
    assert_eq!(loaded.snapshot().hash(), GOLDEN_HASH);
}
