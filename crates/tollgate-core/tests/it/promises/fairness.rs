//! P9: grants follow the order of arrival among the living, upgrades go first, and a release wakes those it grants.

use super::{ensure, histories, lock_changes, must_fail, must_hold};
use crate::commands::{Replica, convert, grant, lock, lock_as, unlock};
use std::collections::BTreeMap;
use tollgate_core::{Bug, Command, Event, Reply};
use tollgate_types::{Limits, Mode, Name, Revision};

/// The queues according to the events. Upgrades sort before waiters, both by the revision at which they came.
#[derive(Default)]
struct Queues(BTreeMap<Name, BTreeMap<Place, Revision>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Upgrade(Revision),
    Waiter(Revision),
}

impl Queues {
    fn note(&mut self, events: &[Event]) -> Result<(), String> {
        for at_once in lock_changes(events) {
            for (revision, change) in at_once {
                let queue = self.0.entry(change.name.clone()).or_default();
                let claim = change.create_revision;
                let upgrade =
                    queue.iter().find(|(place, of)| **of == claim && matches!(place, Place::Upgrade(_)));
                let (upgrade, waiter) = (upgrade.map(|(place, _)| *place), Place::Waiter(claim));
                let token = |state: Option<tollgate_core::ClaimState>| state.and_then(|state| state.token);
                let granted = change.now.is_some() && token(change.now) != token(change.prev);
                // A holder that is granted a stronger mode goes before the waiters, but not before other upgrades.
                let place = upgrade.unwrap_or(match change.prev {
                    Some(prev) if prev.token.is_some() => Place::Upgrade(revision),
                    _ => waiter,
                });
                if granted && let Some((first, _)) = queue.first_key_value() {
                    ensure!(*first >= place, "{} went to {place:?} while {first:?} was first", change.name);
                }
                queue.retain(|_, of| *of != claim);
                match change.now {
                    Some(now) if now.token.is_none() => _ = queue.insert(waiter, claim),
                    Some(now) if now.wants.is_some() => {
                        let place = upgrade.unwrap_or(Place::Upgrade(revision));
                        queue.insert(place, claim);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn the_first_in_line_is_granted_first(bug: Option<Bug>) -> Result<(), String> {
    for history in histories() {
        let mut replica = Replica::new(&history.limits, bug);
        let mut queues = Queues::default();
        for entry in &history.entries {
            let applied = replica.apply(entry);
            queues
                .note(&replica.events_of(&applied))
                .map_err(|why| format!("seed {}: {why}", history.seed))?;
        }
    }
    Ok(())
}

/// A queue of writers, readers and an upgrade: each release wakes exactly the claims that it grants.
fn a_release_wakes_those_it_grants(bug: Option<Bug>) -> Result<(), String> {
    let mut replica = Replica::new(&Limits::DEFAULT, bug);
    for id in 1..=9 {
        replica.at(0, grant(id, 60_000));
    }
    replica.at(0, lock(1, "jobs"));
    let (write, read) = (Mode::Exclusive, Mode::Shared);
    for (id, mode) in [(2, write), (3, read), (4, read), (5, read), (6, write), (7, read), (8, write)] {
        let reply = replica.at(0, lock_as(id, "jobs", mode)).reply;
        ensure!(matches!(reply, Reply::Queued { position, .. } if position == id - 1), "{id}: {reply:?}");
    }
    let mut woken = |command| -> Vec<u64> {
        let resolved = replica.at(0, command).resolved;
        resolved.iter().map(|resolution| resolution.lease.get()).collect()
    };
    let upgrade = Command::ConvertLock(convert(4, "jobs", Mode::Exclusive));
    let downgrade = Command::ConvertLock(convert(4, "jobs", Mode::Shared));
    let turns: [(Command, &[u64]); 11] = [
        (lock(9, "jobs"), &[]),
        (unlock(1, "jobs"), &[2]),
        (unlock(2, "jobs"), &[3, 4, 5]),
        (upgrade, &[]),
        (unlock(3, "jobs"), &[]),
        (unlock(5, "jobs"), &[4]),
        (downgrade, &[]),
        (unlock(4, "jobs"), &[6]),
        (unlock(6, "jobs"), &[7]),
        (unlock(7, "jobs"), &[8]),
        (unlock(8, "jobs"), &[9]),
    ];
    for (turn, (command, expected)) in turns.into_iter().enumerate() {
        let woken = woken(command);
        ensure!(woken == expected, "turn {turn} woke {woken:?} instead of {expected:?}");
    }
    Ok(())
}

/// A writer becomes a reader: the readers behind it are granted.
fn a_downgrade_wakes_those_it_makes_room_for(bug: Option<Bug>) -> Result<(), String> {
    let mut replica = Replica::new(&Limits::DEFAULT, bug);
    for id in 1..=4 {
        replica.at(0, grant(id, 60_000));
    }
    replica.at(0, lock(1, "jobs"));
    for (id, mode) in [(2, Mode::Shared), (3, Mode::Shared), (4, Mode::Exclusive)] {
        replica.at(0, lock_as(id, "jobs", mode));
    }
    let resolved = replica.at(0, Command::ConvertLock(convert(1, "jobs", Mode::Shared))).resolved;
    let woken: Vec<u64> = resolved.iter().map(|resolution| resolution.lease.get()).collect();
    ensure!(woken == [2, 3], "it woke {woken:?}");
    Ok(())
}

#[test]
fn p9_grants_follow_the_order_of_arrival() {
    must_hold(the_first_in_line_is_granted_first);
    must_fail(the_first_in_line_is_granted_first, Bug::ReaderOvertakesWriter);
    must_fail(the_first_in_line_is_granted_first, Bug::NewestWaiterFirst);
    must_fail(the_first_in_line_is_granted_first, Bug::SeveralNamesByFirst);
}

#[test]
fn p9_a_release_wakes_those_it_grants_and_not_the_herd() {
    must_hold(a_release_wakes_those_it_grants);
    must_fail(a_release_wakes_those_it_grants, Bug::BatchGrantStops);
    must_fail(a_release_wakes_those_it_grants, Bug::UpgradeBehindQueue);
    must_fail(a_release_wakes_those_it_grants, Bug::NewestWaiterFirst);
}

#[test]
fn p9_a_downgrade_wakes_those_it_makes_room_for() {
    must_hold(a_downgrade_wakes_those_it_makes_room_for);
    must_fail(a_downgrade_wakes_those_it_makes_room_for, Bug::DowngradeWakesNobody);
}
