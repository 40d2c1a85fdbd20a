//! Snapshots: their content, their bytes, and that bytes which are not a snapshot never become a state.

mod damage;
mod fingerprints;
mod frames;
mod golden;
mod hostile;
mod rich;

pub(crate) use damage::{corpus_of_bytes, is_refused_or_itself};
pub(crate) use frames::state_records;
pub(crate) use hostile::{corpus_of_records, is_refused_or_sound};

use crate::commands::{Replica, at};
use crate::properties;
use frames::{bytes_of, load, records_of};
use rich::Rich;
use tollgate_core::{Command, Entry, Snapshot, State};

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn chunks_of_any_size_carry_the_same_bytes() {
    let rich = Rich::new();
    let snapshot = rich.replica.state.snapshot();
    let whole = bytes_of(&rich.replica.state);
    for chunk_bytes in [1, 7, 4_096, 1 << 20] {
        let mut carried = Vec::new();
        for chunk in snapshot.chunks(chunk_bytes) {
            assert!(!chunk.is_empty() && chunk.len() <= chunk_bytes);
            carried.extend(chunk);
        }
        assert_eq!(carried, whole, "in chunks of {chunk_bytes}");
        let mut restored = Replica::new(&rich.limits, None);
        restored.state = load(&carried).expect("a snapshot loads");
        restored.state.assert_invariants();
        assert_eq!(restored.hash(), snapshot.hash());
        assert_eq!(bytes_of(&restored.state), whole, "a snapshot of what was restored is the same snapshot");
    }
}

#[test]
fn the_rich_state_has_one_of_everything() {
    let rich = Rich::new();
    let state = &rich.replica.state;
    assert_eq!(state.next_deadline(), Some(state.now()), "something is due and not reaped");
    let records = records_of(&bytes_of(state));
    assert!(contains(&records, b"\x06\x0adirty-name"), "a name is dirty");
    assert!(contains(&records, b"\x04\x06closed"), "a lock-delay keeps a name closed");
    let upgrades = state.lock(&crate::commands::name("a")).expect("it is held").waiters;
    assert_eq!(state.stubs(None, 9).len(), 2, "leases that live elsewhere");
    assert_eq!(state.pending_stubs(None, 9).len(), 1, "one of them not confirmed");
    assert_eq!(state.unacked_ends(None, 9).len(), 2, "two groups must be told of an end");
    assert!(upgrades[0].upgrade && !upgrades[1].upgrade, "an upgrade waits ahead of a waiter");
}

#[test]
fn a_restored_state_answers_every_kept_request_as_before() {
    let mut rich = Rich::new();
    let mut restored = Replica::new(&rich.limits, None);
    restored.state = load(&bytes_of(&rich.replica.state)).expect("a snapshot loads");
    let now = rich.replica.state.now().ms();
    for (seq, command, is_right) in Rich::repeats() {
        let before = rich.replica.at(now, command.clone());
        assert!(is_right(&before.reply), "{seq} is answered {:?}", before.reply);
        assert_eq!(restored.at(now, command), before, "the answer to {seq}");
    }
}

#[test]
fn a_restored_state_behaves_as_the_original_does() {
    for seed in 0..8 {
        let mut rich = Rich::new();
        let mut restored = Replica::new(&rich.limits, None);
        restored.state = load(&bytes_of(&rich.replica.state)).expect("a snapshot loads");
        for entry in rich.entries_after(seed, 200) {
            assert_eq!(rich.replica.apply(&entry), restored.apply(&entry), "{entry:?}");
            assert_eq!(rich.replica.hash(), restored.hash(), "seed {seed}, after {entry:?}");
        }
        restored.state.assert_invariants();
    }
}

#[test]
fn every_state_of_a_random_history_survives_a_snapshot() {
    for seed in 0..20 {
        let (limits, entries) = properties::entries(seed, 60);
        let mut replica = Replica::new(&limits, None);
        for entry in &entries {
            replica.apply(entry);
            let whole = bytes_of(&replica.state);
            let restored = load(&whole).expect("a snapshot loads");
            assert_eq!(bytes_of(&restored), whole, "seed {seed}, after {entry:?}");
        }
    }
}

#[test]
fn a_snapshot_stays_as_it_was_while_the_state_goes_on() {
    let mut rich = Rich::new();
    let entries: Vec<Entry> = rich.entries_after(1, 1_000);
    let expected = bytes_of(&rich.replica.state);
    let (snapshot, hash) = (rich.replica.state.snapshot(), rich.replica.hash());
    let (half_way, start) = std::sync::mpsc::channel();
    let encode = |snapshot: &Snapshot, bytes_max| snapshot.chunks(bytes_max).flatten().collect::<Vec<u8>>();
    let encoder = std::thread::spawn(move || {
        start.recv().expect("the other thread says when");
        // Once while entries are applied, and once when all of them may be.
        let encodings = [encode(&snapshot, 16), encode(&snapshot, 1 << 20)];
        (encodings, snapshot)
    });
    for (i, entry) in entries.iter().enumerate() {
        if i == entries.len() / 2 {
            half_way.send(()).expect("the encoder waits for it");
        }
        rich.replica.apply(entry);
    }
    let (encodings, snapshot) = encoder.join().expect("the encoder does not panic");
    for bytes in encodings.into_iter().chain([encode(&snapshot, 4_096)]) {
        assert_eq!(bytes, expected);
    }
    assert_eq!(snapshot.hash(), hash);
    assert_ne!(rich.replica.hash(), hash, "the state went on");
}

#[test]
fn the_hash_sees_log_time_and_limits_too() {
    let state = |limits, ms| {
        let mut state = State::new(limits);
        state.apply(at(ms, Command::Tick));
        state.snapshot().hash()
    };
    let limits = tollgate_types::Limits::DEFAULT;
    let fewer = tollgate_types::Limits { locks_max: 7, ..limits.clone() };
    assert_eq!(state(limits.clone(), 1), state(limits.clone(), 1));
    assert_ne!(state(limits.clone(), 1), state(limits.clone(), 2));
    assert_ne!(state(limits, 1), state(fewer, 1));
}
