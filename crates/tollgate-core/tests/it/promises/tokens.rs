//! P2: tokens strictly increase per lock name and stay below 2^53, across snapshots and the self-deletion of idle
//! locks.

use super::{ensure, histories, lock_changes, must_fail, must_hold};
use crate::commands::{Replica, grant, lock, name, unlock};
use std::collections::BTreeMap;
use tollgate_core::{Bug, Event, Reply};
use tollgate_types::{Limits, Name, Token};

#[derive(Default)]
struct Tokens(BTreeMap<Name, Token>);

impl Tokens {
    fn note(&mut self, events: &[Event]) -> Result<(), String> {
        for (_, change) in lock_changes(events).flatten() {
            let token = |state: Option<tollgate_core::ClaimState>| state.and_then(|state| state.token);
            let (now, before) = (token(change.now), token(change.prev));
            let Some(given) = now.filter(|_| now != before) else { continue };
            ensure!(given.get() < 1 << 53, "{given} is no exact double");
            let last = self.0.insert(change.name.clone(), given);
            ensure!(last < Some(given), "{} gave out {given} after {last:?}", change.name);
        }
        Ok(())
    }
}

/// A lock that is taken and given back, and so deleted, again and again, now and then with a snapshot in between.
fn an_idle_lock_keeps_no_memory_and_repeats_no_token(bug: Option<Bug>) -> Result<(), String> {
    let mut replica = Replica::new(&Limits::DEFAULT, bug);
    replica.at(0, grant(1, 60_000));
    let mut last = None;
    for round in 0..2_000 {
        let reply = replica.at(0, lock(1, "jobs")).reply;
        let Reply::Acquired { token, .. } = reply else { return Err(format!("{reply:?}")) };
        ensure!(last < Some(token), "round {round}: {token} after {last:?}");
        last = Some(token);
        replica.at(0, unlock(1, "jobs"));
        ensure!(replica.state.lock(&name("jobs")).is_none(), "it deletes itself");
        if round % 100 == 0 {
            replica.restore(4_096)?;
        }
    }
    Ok(())
}

fn tokens_increase_in_random_histories(bug: Option<Bug>) -> Result<(), String> {
    for history in histories() {
        let mut replica = Replica::new(&history.limits, bug);
        let mut tokens = Tokens::default();
        for (i, entry) in history.entries.iter().enumerate() {
            let applied = replica.apply(entry);
            tokens
                .note(&replica.events_of(&applied))
                .map_err(|why| format!("seed {}: {why}", history.seed))?;
            if i % 50 == 7 {
                replica.restore(1_000)?;
            }
        }
    }
    Ok(())
}

#[test]
fn p2_tokens_increase_across_self_deletion_and_snapshots() {
    must_hold(an_idle_lock_keeps_no_memory_and_repeats_no_token);
    must_fail(an_idle_lock_keeps_no_memory_and_repeats_no_token, Bug::TokenReusedAfterSelfDeletion);
}

#[test]
fn p2_tokens_increase_in_every_history() {
    must_hold(tokens_increase_in_random_histories);
    must_fail(tokens_increase_in_random_histories, Bug::TokenReusedAfterSelfDeletion);
}
