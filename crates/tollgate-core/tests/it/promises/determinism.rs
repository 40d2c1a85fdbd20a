//! P12: the same entries make the same state, on a replica that has applied them all and on one that was restored.

use super::{ensure, histories, must_fail, must_hold};
use crate::codec::Rng;
use crate::commands::Replica;
use tollgate_core::Bug;

/// One replica applies everything, the other goes through snapshots at random points: answers and hashes are always
/// equal.
fn replicas_agree_at_every_entry(bug: Option<Bug>) -> Result<(), String> {
    for history in histories() {
        let mut steady = Replica::new(&history.limits, bug);
        let mut restored = Replica::new(&history.limits, bug);
        let mut rng = Rng::new(history.seed);
        for (i, entry) in history.entries.iter().enumerate() {
            let (one, other) = (steady.apply(entry), restored.apply(entry));
            ensure!(one == other, "seed {}, entry {i}: {one:?} and {other:?}", history.seed);
            ensure!(steady.hash() == restored.hash(), "seed {}, entry {i}: the hashes differ", history.seed);
            if rng.one_in(12) {
                restored.restore([1, 100, 10_000][rng.below(3)])?;
            }
        }
    }
    Ok(())
}

#[test]
fn p12_the_same_entries_make_the_same_state() {
    must_hold(replicas_agree_at_every_entry);
    must_fail(replicas_agree_at_every_entry, Bug::OutcomesLostInSnapshot);
    must_fail(replicas_agree_at_every_entry, Bug::QueueLostInSnapshot);
}
