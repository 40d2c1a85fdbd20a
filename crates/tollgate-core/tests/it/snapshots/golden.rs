//! Golden bytes of a small snapshot.

use super::frames::{bytes_of, framed, load, records_of};
use crate::codec::{hex, unhex};
use crate::commands::{
    Replica, acquire, confirm, end_stub, grant, lock, name, owner, put, register, request, revoke, stub, txn,
};
use std::sync::Arc;
use tollgate_core::{AcquireLock, Command, Entry, ForceRelease, State, Wait};
use tollgate_types::{
    DurationMs, GroupId, GroupMap, Limits, Lineage, LogTime, Metadata, Reason, Token, Value,
};

/// A state with at least one record of each kind that a single group has.
pub(super) fn state() -> State {
    filled(|limits| with_lineage(Replica::new(limits, None)))
}

/// The same state at version 2.
fn state_of_version_2() -> State {
    filled(|limits| with_lineage(Replica::at_version(2, limits)))
}

fn with_lineage(mut replica: Replica) -> Replica {
    replica.at(0, Command::SetLineage(Lineage::new(7).expect("above 0")));
    replica
}

/// The same state at version 1, for binaries that knew no other.
fn old_state() -> State {
    let map = Arc::new(GroupMap::single());
    filled(|limits| Replica::at_version_1(limits, GroupId::MAP, &map, None))
}

fn filled(replica: impl FnOnce(&Limits) -> Replica) -> State {
    let limits = Limits { ttl_ms_min: 1, reaps_per_entry_max: 1, ..Limits::DEFAULT };
    let mut replica = replica(&limits);
    replica.at(5, grant(300, 10_000));
    let value = Value::new("me").ok();
    replica
        .at(6, Command::AcquireLock(AcquireLock { value, request: request(1), ..acquire(300, &["jobs"]) }));
    let busy =
        AcquireLock { request: request(2), wait: Wait::No, owner: owner("w"), ..acquire(300, &["jobs"]) };
    replica.at(6, Command::AcquireLock(busy));
    let lock_delay = DurationMs::from_ms(9);
    replica.at(6, Command::AcquireLock(AcquireLock { lock_delay, ..acquire(300, &["c"]) }));
    let (token, reason) = (Token::new(3).expect("above 0"), Reason::new("why").expect("short"));
    replica.at(6, Command::ForceRelease(ForceRelease { name: name("c"), token, reason }));
    replica.at(6, txn(vec![put("k", b"v", Some(300))]));
    // Lease 2 is due at 8. It has two claims: an entry reaps one, and the command that asks for d reaps the other, so
    // that e is left dirty.
    replica.at(7, grant(2, 1));
    replica.at(7, lock(2, "z"));
    replica.at(7, Command::AcquireLock(acquire(2, &["d", "e"])));
    replica.at(7, Command::AcquireLock(AcquireLock { request: request(3), ..acquire(300, &["e"]) }));
    replica.at(8, lock(300, "d"));
    replica.state
}

/// Golden bytes of format 1: a change here would mean that snapshots of older binaries no longer load. Never change a
/// line; a new format version gets lines of its own.
const GOLDEN: [&str; 23] = [
    // The magic bytes, versions, log time 8, revision 12, and the limits.
    "01 5447534e 01 08 0c 01 01 16 8004 8020 80ade204 c0843d 80897a 904e 904e 10 8008 01 c0cf24",
    "e0d403 904e c0843d 808004 8001 904e 80808020 01 a09c01 904e a08d06",
    // Group 0, and the map of epoch 1 that gives it all slots.
    "00 01 01 00 00",
    // Lease 300 has seen seqs 1 to 3, and keeps Busy for the second.
    "02 ac02 01 904e 954e 01 00 00 05 00 01 00 02 01 02 02",
    // Lease 2 has ended and is not forgotten yet.
    "02 02 06 01 08 01 00 00 07 00 00 00",
    // Lease 300 holds jobs since 6, for seq 1, with the value "me" since revision 2.
    "03 01 ac02 01 046a6f6273 00 00 00 02 02 02 01 06 ffffffffffffffffff01 00 00 01 01 00 08 026d65 02 00",
    // Lease 300 waits for e since 7, for seq 3.
    "03 01 ac02 01 0165 00 00 00 00 09 09 01 07 ffffffffffffffffff01 00 00 01 03 80 00 00",
    // Lease 300 holds d since 8.
    "03 01 ac02 01 0164 00 00 00 0c 0c 0c 01 08 ffffffffffffffffff01 00 00 00 01 00",
    // The name c is closed until 15.
    "04 0163 0f",
    // The register k is on the lease granted at revision 1.
    "05 016b 01 01 0176 ac02 05 05 01",
    // The name e is dirty.
    "06 0165",
    // Revision 2: jobs is granted, with the value "me".
    "07 02 14 21 046a6f6273 ac02 00 00 02 00 02 00 02 01 00 026d65",
    // The lock c is granted.
    "07 03 0e 01 0163 ac02 00 00 03 00 03 00 03 01 00",
    // The lock c is taken away, with a reason.
    "07 04 12 0e 0163 ac02 00 00 03 00 03 00 03 01 04 03776879",
    // The register k is put.
    "07 05 0a 11 016b 0176 ac02 05 05 01",
    // Lease 2 is granted z.
    "07 07 0d 01 017a 02 00 00 07 00 07 00 07 01 00",
    // Lease 2 is granted d and e, at one revision.
    "07 08 0d 01 0164 02 00 00 08 00 08 00 08 01 00",
    "07 08 0d 01 0165 02 00 00 08 00 08 00 08 01 00",
    // Lease 300 waits for e.
    "07 09 0e 01 0165 ac02 00 00 09 00 00 00 09 01 00",
    // The lock z ends with lease 2, and is vacant.
    "07 0a 0e 0e 017a 02 00 00 07 00 07 00 07 01 01 00",
    // So do d, and e, which has a waiter.
    "07 0b 0e 0e 0164 02 00 00 08 00 08 00 08 01 01 00",
    "07 0b 0e 06 0165 02 00 00 08 00 08 00 08 01 01 00",
    // The lock d is granted.
    "07 0c 0e 01 0164 ac02 00 00 0c 00 0c 00 0c 01 00",
];

const GOLDEN_HASH: u64 = 0x0f86_5743_cc69_47a5;

fn golden_records() -> Vec<u8> {
    unhex(&GOLDEN.concat())
}

/// Golden bytes of format 2, which differ from format 1: version 2 twice in the header, and the lineage at its end; in
/// a lease the seq from which its seqs begin; after each seq that something is kept for, its fingerprint and slots. The
/// placeholders `BUSY`, `JOBS` and `E` are replaced by [`golden_of_format_2`].
const GOLDEN_2: [&str; 23] = [
    "01 5447534e 02 08 0c 02 01 16 8004 8020 80ade204 c0843d 80897a 904e 904e 10 8008 01 c0cf24",
    "e0d403 904e c0843d 808004 8001 904e 80808020 01 a09c01 904e a08d06",
    // Lineage 7.
    "00 01 01 00 00 01 0700000000000000",
    // The seqs of the lease begin at 0.
    "02 ac02 01 904e 954e 01 00 00 05 00 00 01 00 02 01 02 02 BUSY",
    "02 02 06 01 08 01 00 00 07 00 00 00 00",
    "03 01 ac02 01 046a6f6273 00 00 00 02 02 02 01 06 ffffffffffffffffff01 00 00 01 01 00 JOBS 08 026d65 02 00",
    "03 01 ac02 01 0165 00 00 00 00 09 09 01 07 ffffffffffffffffff01 00 00 01 03 80 E 00 00",
    GOLDEN[7],
    GOLDEN[8],
    GOLDEN[9],
    GOLDEN[10],
    GOLDEN[11],
    GOLDEN[12],
    GOLDEN[13],
    GOLDEN[14],
    GOLDEN[15],
    GOLDEN[16],
    GOLDEN[17],
    GOLDEN[18],
    GOLDEN[19],
    GOLDEN[20],
    GOLDEN[21],
    GOLDEN[22],
];

/// A golden fingerprint ([`super::fingerprints`]), and one slot.
fn subject(fingerprint: u64, name: &str) -> String {
    let slot = crate::commands::name(name).slot().number();
    let slot =
        [0x80 | u8::try_from(slot & 0x7f).expect("seven bits"), u8::try_from(slot >> 7).expect("seven bits")];
    format!("{}01{}", hex(&fingerprint.to_le_bytes()), hex(&slot))
}

fn golden_of_format_2() -> Vec<u8> {
    // The hashes of 05 01 046a6f6273 0177 00 00 00 00, of 05 01 046a6f6273 00 00 00 00 01 026d65, and of 05 01 0165 00
    // 00 00 00 00.
    let busy = subject(0x1d85_dc37_0c43_5728, "jobs");
    let jobs = subject(0x754f_29c5_62f8_8043, "jobs");
    let e = subject(0x02d3_db93_9e44_9fe9, "e");
    let text = GOLDEN_2.concat().replace("BUSY", &busy).replace("JOBS", &jobs);
    unhex(&text.replace(" 80 E 00", &format!(" 80 {e} 00")))
}

#[test]
fn golden_bytes_of_format_2_hold_and_load() {
    let golden = golden_of_format_2();
    assert_eq!(hex(&records_of(&bytes_of(&state_of_version_2()))), hex(&golden));
    let loaded = load(&framed(&golden)).expect("the golden snapshot loads");
    assert_eq!(bytes_of(&loaded), framed(&golden));
}

/// Golden bytes of format 3, which differ from format 2 in the versions in the header.
fn golden_of_format_3() -> Vec<u8> {
    let mut golden = golden_of_format_2();
    assert_eq!((golden[5], golden[8]), (2, 2), "format and apply version");
    (golden[5], golden[8]) = (3, 3);
    golden
}

/// Claim and event of a grant with metadata that is not text: once e is granted, lease 300 takes q at 9.
const GOLDEN_CLAIM_OF_ANY_BYTES: &str =
    "03 01 ac02 01 0171 00 03 0aff00 00 0e 0e 0e 01 09 ffffffffffffffffff01 00 00 00 01 00";
const GOLDEN_EVENT_OF_ANY_BYTES: &str = "07 0e 11 01 0171 ac02 00 03 0aff00 0e 00 0e 00 0e 01 00";

fn any_bytes() -> Metadata {
    Metadata::new(b"\n\xff\0").expect("short")
}

#[cfg(not(feature = "next-version"))]
#[test]
fn golden_bytes_of_format_3_hold_and_load() {
    let golden = golden_of_format_3();
    assert_eq!(hex(&records_of(&bytes_of(&state()))), hex(&golden));
    let loaded = load(&framed(&golden)).expect("the golden snapshot loads");
    assert_eq!(bytes_of(&loaded), framed(&golden));
    let mut state = state();
    let taken = AcquireLock { metadata: any_bytes(), ..acquire(300, &["q"]) };
    state.apply(Entry::new(LogTime::from_ms(9), Command::AcquireLock(taken)));
    let records = hex(&records_of(&bytes_of(&state)));
    for line in [GOLDEN_CLAIM_OF_ANY_BYTES, GOLDEN_EVENT_OF_ANY_BYTES] {
        assert!(records.contains(&hex(&unhex(line))), "{line} in {records}");
    }
    let loaded = load(&bytes_of(&state)).expect("it loads");
    assert_eq!(bytes_of(&loaded), bytes_of(&state));
}

/// P12: input that a binary that knows only format 2 refuses is refused by this binary in a snapshot of format 2 as
/// well, and never written.
#[test]
fn p12_snapshots_of_formats_before_3_have_no_metadata_but_plain_text() {
    let map = Arc::new(GroupMap::single());
    for version in [1, 2] {
        let limits = Limits::DEFAULT;
        let mut replica = match version {
            1 => Replica::at_version_1(&limits, GroupId::MAP, &map, None),
            _ => Replica::at_version(version, &limits),
        };
        replica.at(1, grant(300, 10_000));
        let metadata = Metadata::new("abc").expect("short");
        replica.at(1, Command::AcquireLock(AcquireLock { metadata, ..acquire(300, &["q"]) }));
        let good = records_of(&bytes_of(&replica.state));
        let places: Vec<usize> = (0..good.len() - 2).filter(|at| good[*at..].starts_with(b"abc")).collect();
        assert_eq!(places.len(), 2, "the claim's, and its event's");
        for place in places {
            let mut bad = good.clone();
            bad[place + 1] = b'\n';
            let refused = load(&framed(&bad)).map(|_| ()).unwrap_err().to_string();
            assert!(refused.contains("metadata has the control character 0x0a at byte 1"), "{refused}");
            bad[place + 1] = 0xff;
            assert!(load(&framed(&bad)).is_err());
        }
        let taken = AcquireLock { metadata: any_bytes(), ..acquire(300, &["r"]) };
        replica.at(2, Command::AcquireLock(taken));
        let written = std::panic::catch_unwind(|| bytes_of(&replica.state));
        assert!(written.is_err(), "a state of version {version} has no such metadata");
    }
}

#[test]
fn golden_bytes_hold() {
    assert_eq!(hex(&records_of(&bytes_of(&old_state()))), hex(&golden_records()));
    assert_eq!(old_state().snapshot().hash(), GOLDEN_HASH);
}

#[test]
fn golden_bytes_load() {
    let whole = framed(&golden_records());
    assert_eq!(
        whole,
        bytes_of(&old_state()),
        "one frame: its length, its checksum, the records, and their hash"
    );
    let loaded = load(&whole).expect("the golden snapshot loads");
    assert_eq!(loaded.snapshot().hash(), GOLDEN_HASH);
}

/// A state with leases over groups: every kind of record that the state above does not have.
fn state_over_groups() -> State {
    let limits = Limits { reaps_per_entry_max: 1, ..Limits::DEFAULT };
    let mut replica = Replica::at_version_1(&limits, GroupId::MAP, &Arc::new(GroupMap::single()), None);
    replica.at(1, stub(300, 9));
    replica.at(1, stub(2, 7));
    replica.at(2, confirm(2, 7, 2));
    replica.at(2, Command::AcquireLock(AcquireLock { request: request(1), ..acquire(2, &["a"]) }));
    replica.at(3, grant(4, 10_000));
    replica.at(3, register(4, 4, 300));
    replica.at(3, register(4, 4, 1));
    replica.at(4, grant(5, 10_000));
    replica.at(4, register(5, 5, 6));
    // The step after the command forgets the lease; the notice owed stays.
    replica.at(5, revoke(5));
    // The step after this command ends the claim of the stub and leaves the stub.
    replica.at(6, end_stub(2, 7));
    replica.state
}

/// Golden bytes of the state over groups, like [`GOLDEN`].
const GOLDEN_OVER_GROUPS: [&str; 10] = [
    // The magic bytes, versions, log time 6, revision 6, and the limits.
    "01 5447534e 01 06 06 01 01 16 8004 8020 80ade204 c0843d 80897a 904e 904e 10 8008 64 c0cf24",
    "e0d403 904e c0843d 808004 8001 904e 80808020 01 a09c01 904e a08d06",
    // Group 0, and the map of epoch 1 that gives it all slots.
    "00 01 01 00 00",
    // A pending stub of lease 300, added at 1, of incarnation 9 in group 2, that has not ended; added at time 1.
    "09 ac02 01 09 02 01 00 00 01 00 00",
    // The stub of lease 2, confirmed, ended at 6 because the lease was revoked; has seen seq 1.
    "09 02 02 07 02 00 01 06 02 00 01 01 00 00 00",
    // Lease 4.
    "02 04 04 904e 934e 01 00 00 03 00 00 00",
    // Lease 4 has stubs in groups 1 and 300.
    "0a 04 02 01 ac02",
    // Lease 5, granted at 5, was revoked, and group 6 must be told.
    "0b 05 05 02 01 06",
    // Lock a is granted to lease 2, and ends with it.
    "07 03 0d 01 0161 02 00 00 03 00 03 00 03 01 00",
    "07 06 0e 0e 0161 02 00 00 03 00 03 00 03 01 02 00",
];

#[test]
fn golden_bytes_over_groups_hold_and_load() {
    let records = unhex(&GOLDEN_OVER_GROUPS.concat());
    assert_eq!(hex(&records_of(&bytes_of(&state_over_groups()))), hex(&records));
    let loaded = load(&framed(&records)).expect("the golden snapshot loads");
    assert_eq!(bytes_of(&loaded), framed(&records));
}
