//! The few names, keys and owners that sequences are made of: few, so that they meet.

use tollgate_types::{Address, ClientId, Key, LeaseId, Metadata, Name, Owner, Reason, Value};

/// Mostly used as a semaphore, so that not every second request meets the other kind.
pub(super) const SEMAPHORE: &str = "sem";

/// Names, of which one is longer than the least `name_bytes_max`.
const NAMES: [&str; 5] = ["a", "a/b", "c", "d/longer-than-sixteen-bytes", SEMAPHORE];

/// Keys that are prefixes of each other, and one that is not text.
const KEYS: [&[u8]; 6] = [b"k", b"k/1", b"k/12", b"k/2", b"m", b"\xff"];

pub(super) fn names() -> Vec<Name> {
    NAMES.iter().map(|name| Name::new(name).expect("a good name")).collect()
}

pub(super) fn keys() -> Vec<Key> {
    KEYS.iter().map(|key| Key::new(key).expect("a good key")).collect()
}

pub(super) fn owners() -> Vec<Owner> {
    ["", "a", "b"].iter().map(|owner| Owner::new(owner).expect("a good owner")).collect()
}

pub(super) fn lease_ids() -> Vec<LeaseId> {
    (1..=3).map(|id| LeaseId::new(id).expect("a good id")).collect()
}

/// Ids of leases that live in other groups.
pub(super) fn stub_lease_ids() -> Vec<LeaseId> {
    (4..=5).map(|id| LeaseId::new(id).expect("a good id")).collect()
}

pub(super) fn client_ids() -> Vec<ClientId> {
    ["x", "y", ""].iter().map(|id| ClientId::new(id).expect("a good client id")).collect()
}

pub(super) fn addresses() -> Vec<Address> {
    ["", "10.0.0.1:7"].iter().map(|address| Address::new(address).expect("a good address")).collect()
}

/// Empty metadata, text with a control character, and bytes that are not text.
pub(super) fn metadata() -> Vec<Metadata> {
    let bytes: [&[u8]; 3] = [b"", b"why\n", b"\xff\0because"];
    bytes.iter().map(|bytes| Metadata::new(bytes).expect("good metadata")).collect()
}

pub(super) fn reasons() -> Vec<Reason> {
    ["", "why", "because"].iter().map(|text| Reason::new(text).expect("a good reason")).collect()
}

pub(super) fn values() -> Vec<Value> {
    ["", "0", "1", "a longer value"].iter().map(|text| Value::new(text).expect("a good value")).collect()
}
