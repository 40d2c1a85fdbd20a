//! P1: an exclusive lock has one holder, shared and exclusive never overlap, a semaphore never gives out more than it
//! has.

use super::{ensure, histories, lock_changes, must_fail, must_hold};
use crate::commands::Replica;
use std::collections::BTreeMap;
use tollgate_core::{Bug, Event};
use tollgate_types::{Mode, Name, Revision};

/// The holders of each lock by the claim's create revision, according to the events.
#[derive(Default)]
struct Holders(BTreeMap<Name, BTreeMap<Revision, Mode>>);

impl Holders {
    /// Takes in events, and checks each revision.
    fn note(&mut self, events: &[Event]) -> Result<(), String> {
        for at_once in lock_changes(events) {
            for (_, change) in &at_once {
                let holders = self.0.entry(change.name.clone()).or_default();
                match change.now.filter(|now| now.token.is_some()) {
                    Some(now) => _ = holders.insert(change.create_revision, now.mode),
                    None => _ = holders.remove(&change.create_revision),
                }
            }
            for (revision, change) in at_once {
                exclude(&self.0[&change.name])
                    .map_err(|why| format!("{} at {revision:?}: {why}", change.name))?;
            }
        }
        Ok(())
    }
}

fn exclude(holders: &BTreeMap<Revision, Mode>) -> Result<(), String> {
    let mut permits = 0;
    for (one, mode) in holders {
        for (other, beside) in holders.range(..one) {
            let together = match (mode, beside) {
                (Mode::Permit { of, .. }, Mode::Permit { of: same, .. }) => of == same,
                _ => mode.compatible(*beside),
            };
            ensure!(together, "{mode} of {one:?} beside {beside} of {other:?}");
        }
        if let Mode::Permit { n, of } = mode {
            permits += n;
            ensure!(permits <= *of, "{permits} permits of {of} are out");
        }
    }
    Ok(())
}

/// Checks every revision of random histories by the events, and the state after every entry by reads.
fn holders_exclude_each_other(bug: Option<Bug>) -> Result<(), String> {
    for history in histories() {
        let mut replica = Replica::new(&history.limits, bug);
        let mut holders = Holders::default();
        for entry in &history.entries {
            let applied = replica.apply(entry);
            holders
                .note(&replica.events_of(&applied))
                .map_err(|why| format!("seed {}: {why}", history.seed))?;
            for lock in replica.state.snapshot().locks(b"", None, usize::MAX) {
                let modes = lock.holders.iter().map(|holder| (holder.create_revision, holder.mode)).collect();
                exclude(&modes).map_err(|why| format!("seed {}, {}: {why}", history.seed, lock.name))?;
            }
        }
    }
    Ok(())
}

#[test]
fn p1_exclusion_holds_at_every_revision() {
    must_hold(holders_exclude_each_other);
    must_fail(holders_exclude_each_other, Bug::PermitsOverdrawn);
    must_fail(holders_exclude_each_other, Bug::SeveralNamesByFirst);
}
