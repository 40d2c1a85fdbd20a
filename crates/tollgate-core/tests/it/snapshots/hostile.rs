//! Bytes that are framed and checksummed as they should be, and still no snapshot of any state: made by a broken or
//! hostile node. Loading them is an error, or gives a state that is sound and has just these bytes.

use super::frames::{bytes_of, framed, load, records_of};
use super::rich::Rich;
use crate::codec::Rng;
use crate::commands::{Replica, lock, lock_as, permits, unlock};
use crate::{fuzz, properties};
use tollgate_core::{Command, Entry, State};
use tollgate_types::REVISION_END;

const MUTATIONS: u64 = 40_000;

/// The records of snapshots of all kinds of states.
pub(crate) fn corpus_of_records() -> Vec<Vec<u8>> {
    let mut corpus = vec![records_of(&bytes_of(&Rich::new().replica.state))];
    for seed in 0..60 {
        let (limits, entries) = properties::entries(seed, 40);
        let mut replica = Replica::new(&limits, None);
        for entry in &entries {
            replica.apply(entry);
        }
        corpus.push(records_of(&bytes_of(&replica.state)));
    }
    corpus
}

/// Loads records as a snapshot with the right checksums. Panics unless they are refused, or make a state that is sound
/// and is written as it was read. Says whether they make one.
pub(crate) fn is_refused_or_sound(records: &[u8]) -> bool {
    let Ok(state) = load(&framed(records)) else { return false };
    state.assert_invariants();
    assert_eq!(records_of(&bytes_of(&state)), records, "what loads is canonical");
    live_on(state);
    true
}

/// A state that loaded must also take what comes: time above all, and a few commands.
fn live_on(mut state: State) {
    // The last revisions are left to a test of their own; nobody gets there.
    if state.revision().get() >= REVISION_END / 2 {
        return;
    }
    for command in [lock(1, "a"), lock_as(2, "sem", permits(1, 3)), lock(3, "c"), unlock(1, "a")] {
        state.apply(Entry { at: state.now(), command });
    }
    for _ in 0..20 {
        let Some(next) = state.next_deadline() else { break };
        state.apply(Entry { at: next, command: Command::Tick });
    }
}

#[test]
fn records_that_contradict_each_other_are_refused() {
    let corpus = corpus_of_records();
    let mut accepted = 0;
    for seed in 0..MUTATIONS {
        let records = fuzz::input(&mut Rng::new(seed), &corpus);
        accepted += u64::from(is_refused_or_sound(&records));
    }
    assert!(
        accepted > MUTATIONS / 1_000,
        "{accepted} of {MUTATIONS}: mutations that nothing survives test little"
    );
}

#[test]
fn tmp_golden() {
    let state = super::golden::state();
    println!("{}", crate::codec::hex(&records_of(&bytes_of(&state))));
    println!("{:#x}", state.snapshot().hash());
}
