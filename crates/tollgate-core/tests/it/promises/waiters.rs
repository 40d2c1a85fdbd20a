//! P8: every waiter ends exactly once.

use super::{ensure, histories, must_fail, must_hold};
use crate::commands::Replica;
use std::collections::{BTreeMap, BTreeSet};
use tollgate_core::{Applied, Bug, Command, EndStub, Entry, LeaseEnd, Reply, StubView};
use tollgate_types::{LogTime, Revision};

/// The waits that began, and the number of ends reported for each.
#[derive(Default)]
struct Waits {
    begun: BTreeSet<Revision>,
    ended: BTreeMap<Revision, u64>,
}

impl Waits {
    fn note(&mut self, applied: &Applied) -> Result<(), String> {
        for resolution in &applied.resolved {
            let count = self.ended.entry(resolution.create_revision).or_default();
            *count += 1;
            ensure!(*count == 1, "{:?} ended twice", resolution.create_revision);
        }
        if let Reply::Queued { create_revision, .. } = applied.reply {
            self.begun.insert(create_revision);
        }
        Ok(())
    }

    fn all_ended(&self) -> Result<(), String> {
        let ended: BTreeSet<Revision> = self.ended.keys().copied().collect();
        let forgotten: Vec<_> = self.begun.difference(&ended).collect();
        ensure!(forgotten.is_empty(), "never ended: {forgotten:?}");
        let unknown: Vec<_> = ended.difference(&self.begun).collect();
        ensure!(unknown.is_empty(), "ended without having waited: {unknown:?}");
        Ok(())
    }
}

/// Random histories, with snapshots, until all leases have expired and all stubs were ended.
fn every_waiter_ends_exactly_once(bug: Option<Bug>) -> Result<(), String> {
    let mut waited = 0;
    for history in histories() {
        let mut replica = Replica::new(&history.limits, bug);
        let mut waits = Waits::default();
        let told = |why| format!("seed {}: {why}", history.seed);
        for (i, entry) in history.entries.iter().enumerate() {
            waits.note(&replica.apply(entry)).map_err(told)?;
            if i % 60 == 31 {
                replica.restore(500)?;
            }
        }
        for StubView { lease, incarnation, .. } in replica.state.stubs(None, usize::MAX) {
            let end = Command::EndStub(EndStub { lease, incarnation, reason: LeaseEnd::Expired });
            let entry = Entry::new(replica.state.now(), end);
            waits.note(&replica.apply(&entry)).map_err(told)?;
        }
        while let Some(next) = replica.state.next_deadline().filter(|next| *next < LogTime::NEVER) {
            waits.note(&replica.apply(&Entry::new(next, Command::Tick))).map_err(told)?;
        }
        ensure!(replica.state.lock_count() == 0, "seed {}: locks without leases", history.seed);
        waits.all_ended().map_err(told)?;
        waited += waits.begun.len();
    }
    ensure!(waited > 1_000, "only {waited} waited at all");
    Ok(())
}

#[test]
fn p8_every_waiter_ends_exactly_once() {
    must_hold(every_waiter_ends_exactly_once);
    must_fail(every_waiter_ends_exactly_once, Bug::QueueLostInSnapshot);
    must_fail(every_waiter_ends_exactly_once, Bug::StubEndForgetsWaiters);
}
