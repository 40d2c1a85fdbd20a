//! P11: a watch stream has no gap and no duplicate; if history is gone, it reports `compacted`.

use super::{History, ensure, histories, must_fail, must_hold};
use crate::codec::Rng;
use crate::commands::{Replica, name};
use tollgate_core::{Bug, Change, Event, State, Watch};
use tollgate_types::{Limits, Revision};

/// Reads on to the present in small batches.
fn read_on(
    state: &State,
    watch: &Watch,
    mut from: Revision,
    events_max: usize,
) -> Result<Vec<Event>, String> {
    let mut read: Vec<Event> = Vec::new();
    while from <= state.revision() {
        let batch = state.events_since(from, watch, events_max).map_err(|error| error.to_string())?;
        ensure!(batch.next > from, "a read from {from:?} leads nowhere");
        let split =
            read.last().map(|event| event.revision) >= batch.events.first().map(|event| event.revision);
        ensure!(!split || read.is_empty() || batch.events.is_empty(), "{from:?} is split over two reads");
        let outside = batch.events.iter().find(|event| event.revision < from || event.revision >= batch.next);
        ensure!(outside.is_none(), "a read from {from:?} to {:?} has {outside:?}", batch.next);
        read.extend(batch.events);
        from = batch.next;
    }
    Ok(read)
}

/// The ring is as small as it can be, so that it is compacted many times over.
fn limits_of(history: &History) -> Limits {
    Limits { ring_bytes_max: 4_096, ..history.limits.clone() }
}

/// Reads from every revision, in batches of several sizes: all events since, or that they are compacted.
fn a_watch_can_begin_at_any_revision(bug: Option<Bug>) -> Result<(), String> {
    for history in &histories()[..12] {
        let mut replica = Replica::new(&limits_of(history), bug);
        let mut all: Vec<Event> = Vec::new();
        for (i, entry) in history.entries.iter().enumerate() {
            let applied = replica.apply(entry);
            all.extend(replica.events_of(&applied));
            if i % 50 == 49 {
                every_start(&replica.state, &all).map_err(|why| format!("seed {}: {why}", history.seed))?;
            }
        }
    }
    Ok(())
}

fn every_start(state: &State, all: &[Event]) -> Result<(), String> {
    let leased = all.iter().find_map(|event| match &event.change {
        Change::Lock(lock) => Some(Watch::Lease(lock.lease)),
        Change::Register(_) => None,
    });
    let watches = [
        Watch::All,
        Watch::Lock(name("a")),
        Watch::LockPrefix(b"a".to_vec()),
        Watch::RegisterPrefix(vec![]),
        leased.unwrap_or(Watch::All),
    ];
    for number in 0..=state.revision().get() + 1 {
        let from = Revision::new(number).expect("a small number");
        for (watch, events_max) in watches.iter().zip([1, 2, 3, 7, 2]) {
            if from < state.min_revision() {
                let refused = state.events_since(from, watch, events_max).err();
                ensure!(
                    refused.map(|compacted| compacted.min_revision) == Some(state.min_revision()),
                    "{from:?} is gone, and a read says {refused:?}"
                );
                continue;
            }
            let expected: Vec<&Event> =
                all.iter().filter(|event| event.revision >= from && watch.matches(event)).collect();
            let read = read_on(state, watch, from, events_max)?;
            ensure!(
                read.iter().eq(expected.iter().copied()),
                "{watch:?} from {from:?} in batches of {events_max}: {read:?} instead of {expected:?}"
            );
        }
    }
    Ok(())
}

/// A watcher that reads at times and sleeps at times, across snapshots: it gets every event once, or learns that it
/// missed some.
fn a_slow_watcher_misses_nothing_unknowingly(bug: Option<Bug>) -> Result<(), String> {
    let mut times_compacted = 0;
    for history in histories() {
        let mut replica = Replica::new(&limits_of(history), bug);
        let mut rng = Rng::new(history.seed);
        let (mut all, mut seen): (Vec<Event>, Vec<Event>) = (Vec::new(), Vec::new());
        let mut from = Revision::ZERO.next();
        for (i, entry) in history.entries.iter().enumerate() {
            let applied = replica.apply(entry);
            all.extend(replica.events_of(&applied));
            if i % 70 == 11 {
                replica.restore(300)?;
            }
            if !rng.one_in(5) {
                continue;
            }
            match replica.state.events_since(from, &Watch::All, 1 + rng.below(3)) {
                Ok(batch) => {
                    seen.extend(batch.events);
                    from = batch.next;
                }
                Err(compacted) => {
                    ensure!(from < compacted.min_revision, "{from:?} is not gone");
                    from = compacted.min_revision;
                    times_compacted += 1;
                    // The watcher lists anew, and so knows what it missed.
                    seen = all.iter().filter(|event| event.revision < from).cloned().collect();
                }
            }
            let expected: Vec<Event> = all.iter().filter(|event| event.revision < from).cloned().collect();
            ensure!(
                seen == expected,
                "seed {}, entry {i}: a gap or a duplicate before {from:?}",
                history.seed
            );
        }
    }
    ensure!(times_compacted > 20, "it fell behind {times_compacted} times only");
    Ok(())
}

#[test]
fn p11_a_watch_can_begin_at_any_revision_and_has_no_gap_or_duplicate() {
    must_hold(a_watch_can_begin_at_any_revision);
    must_fail(a_watch_can_begin_at_any_revision, Bug::RingSplitsRevision);
}

#[test]
fn p11_a_slow_watcher_is_told_what_it_missed() {
    must_hold(a_slow_watcher_misses_nothing_unknowingly);
    must_fail(a_slow_watcher_misses_nothing_unknowingly, Bug::RingSplitsRevision);
}
