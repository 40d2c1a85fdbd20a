//! Reports the blockers of waits, for a search for deadlocks over several groups, and ends a wait that such a search
//! found to be hopeless.
//!
//! Invariant: every reported edge is *necessary*: while a reported grant stands, the reported wait is not granted. So a
//! cycle over the reports of several groups is a deadlock, however little of the rest is known. Permits are counted one
//! holder at a time: a holder that alone leaves too few is reported; several that only together do are not, because any
//! of them may make room. Not here: searching (`deadlock_search`), and the search within one group (`deadlock`), which
//! counts all holders together.

use super::State;
use crate::claim::{Claim, Death};
use crate::command::EndDeadlock;
use crate::deadlock_search::{BlockedBy, BlockedWait, Blocker, WaitEdges, Who};
use crate::lock::Lock;
use crate::planted::Bug;
use crate::reply::{EndReason, Rejection, Reply};
use crate::slab::Id;
use std::collections::{BTreeMap, VecDeque};
use tollgate_types::{Mode, Name, Revision, Token};

impl State {
    /// Reports the waits that may be part of a deadlock over several groups, in order of create revision, each with its
    /// blockers: the waits of named owners whose lease is known in several groups, and all that these wait for in turn.
    /// Looks at no more than `visits_max` claims of such owners, and then at as many claims in the way of those waits;
    /// the rest is left out, and `truncated` is set.
    pub fn wait_edges(&self, visits_max: u64) -> WaitEdges {
        let mut survey =
            Survey { state: self, frontier: VecDeque::new(), waits: BTreeMap::new(), left: visits_max };
        let mut truncated = survey.begin().is_none();
        // The waits found so far are worth following however many were not found: a cycle of reported edges is a
        // deadlock whatever is missing from the report.
        survey.left = visits_max;
        truncated |= survey.go_on().is_none();
        WaitEdges { waits: survey.waits.into_values().flatten().collect(), truncated }
    }

    /// Ends a wait that can never be granted, if it is still the wait that the search found, and as hopeless.
    pub(super) fn end_deadlock(&mut self, end: &EndDeadlock) -> Reply {
        self.settle_names(std::slice::from_ref(&end.name));
        let Some(claim) = self.queued_claim(&end.name, end.create_revision) else {
            return Reply::Rejected(Rejection::NotWaiting { name: end.name.clone() });
        };
        if !self.is_blocked_by(claim, end.blocker) && !self.planted(Bug::EndDeadlockIgnoresToken) {
            return Reply::Rejected(Rejection::NotHeld { name: end.name.clone() });
        }
        self.end_wait(claim, EndReason::Deadlock);
        Reply::Done
    }

    /// True if the grant with this token keeps out the wait, or keeps out a wait ahead of it, directly or over others.
    fn is_blocked_by(&self, id: Id<Claim>, token: Token) -> bool {
        let mut seen: BTreeMap<Revision, Id<Claim>> =
            BTreeMap::from([(self.claims.get(id).wait_revision(), id)]);
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            let claim = self.claims.get(id);
            for lock in claim.locks.as_slice().iter().map(|lock| self.locks.get(*lock)) {
                if self.living_blocker(lock, token, id).is_some() {
                    return true;
                }
                for (_, ahead) in lock.queue.range(..claim.queue_key()) {
                    let wait = self.claims.get(*ahead).wait_revision();
                    if self.death(*ahead).is_none() && seen.insert(wait, *ahead).is_none() {
                        next.push(*ahead);
                    }
                }
                if seen.len() as u64 > self.limits.deadlock_visits_max {
                    return false;
                }
            }
        }
        false
    }

    /// The holder with this token, if it is alive and keeps out this wait.
    fn living_blocker(&self, lock: &Lock, token: Token, id: Id<Claim>) -> Option<Id<Claim>> {
        let holder = lock.holder(token).filter(|holder| *holder != id && self.is_holding(*holder))?;
        keeps_out(self.claims.get(holder).mode, self.claims.get(id).wanted()).then_some(holder)
    }

    fn is_holding(&self, id: Id<Claim>) -> bool {
        self.death(id).is_none_or(|death| death == Death::Upgrade)
    }

    fn who(&self, claim: &Claim) -> Who {
        let incarnation = self.leases.get(claim.lease).home_incarnation();
        Who { lease: claim.lease_id, incarnation, owner: claim.owner.clone() }
    }
}

/// A walk over the waits, up to a bound. Its steps return none once the bound is reached.
struct Survey<'a> {
    state: &'a State,
    frontier: VecDeque<Id<Claim>>,
    /// By create revision; none for the waits in the frontier.
    waits: BTreeMap<Revision, Option<BlockedWait>>,
    left: u64,
}

impl Survey<'_> {
    fn visit(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        Some(())
    }

    /// Adds the waits of owners that may hold something in another group.
    fn begin(&mut self) -> Option<()> {
        let state = self.state;
        for lease in state.stubs.values().chain(state.registered.values()) {
            if state.is_past(state.leases.get(*lease).deadline) {
                continue;
            }
            for (id, claim) in state.claims_of(*lease) {
                self.visit()?;
                if !claim.owner.is_empty() {
                    self.add(id);
                }
            }
        }
        Some(())
    }

    fn go_on(&mut self) -> Option<()> {
        while let Some(id) = self.frontier.pop_front() {
            let claim = self.state.claims.get(id);
            let mut wait = BlockedWait {
                who: self.state.who(claim),
                name: claim.names.as_slice()[0].clone(),
                mode: claim.wanted(),
                create_revision: claim.wait_revision(),
                blockers: Vec::new(),
            };
            let finished = self.look_around(id, &mut wait.blockers);
            self.waits.insert(wait.create_revision, Some(wait));
            finished?;
        }
        Some(())
    }

    fn look_around(&mut self, id: Id<Claim>, blockers: &mut Vec<Blocker>) -> Option<()> {
        let claim = self.state.claims.get(id);
        for (name, lock) in claim.names.as_slice().iter().zip(claim.locks.as_slice()) {
            let lock = self.state.locks.get(*lock);
            if !self.look_ahead(id, name, lock, blockers)? {
                self.look_at_holders(id, name, lock, blockers)?;
            }
        }
        Some(())
    }

    /// Adds the waits ahead in the queue: the next one, and all that would keep this wait out once they hold. Returns
    /// true if one of them wants a mode at least as strong: then everything further ahead is in the way of that one as
    /// well, and is reported with it.
    fn look_ahead(
        &mut self,
        id: Id<Claim>,
        name: &Name,
        lock: &Lock,
        blockers: &mut Vec<Blocker>,
    ) -> Option<bool> {
        let state = self.state;
        let claim = state.claims.get(id);
        let mut next = true;
        for (_, other) in lock.queue.range(..claim.queue_key()).rev() {
            self.visit()?;
            if state.death(*other).is_some() {
                continue;
            }
            let ahead = state.claims.get(*other);
            let excludes = keeps_out(ahead.wanted(), claim.wanted()) && !ahead.owner.is_empty();
            if next || excludes {
                let by = BlockedBy::Ahead { create_revision: ahead.wait_revision(), excludes };
                blockers.push(Blocker { who: state.who(ahead), name: name.clone(), by });
                self.add(*other);
                self.add_waits_of(ahead)?;
            }
            if is_at_least(ahead.wanted(), claim.wanted()) {
                // An upgrade is not in its own way; the grant that it stands on is in the way of others.
                self.tell_grant(id, *other, name, lock, blockers);
                return Some(true);
            }
            next = false;
        }
        Some(false)
    }

    fn look_at_holders(
        &mut self,
        id: Id<Claim>,
        name: &Name,
        lock: &Lock,
        blockers: &mut Vec<Blocker>,
    ) -> Option<()> {
        let state = self.state;
        for (_, holder) in &lock.holders {
            self.visit()?;
            if self.tell_grant(id, *holder, name, lock, blockers) {
                self.add_waits_of(state.claims.get(*holder))?;
            }
        }
        Some(())
    }

    /// Reports a claim if it holds the name so that it keeps the wait out; returns true if so. A grant of the empty
    /// owner is not reported: that owner waits for nothing but its own upgrade, which one group sees by itself.
    fn tell_grant(
        &self,
        id: Id<Claim>,
        holder: Id<Claim>,
        name: &Name,
        lock: &Lock,
        blockers: &mut Vec<Blocker>,
    ) -> bool {
        let held = self.state.claims.get(holder);
        let Some(token) = held.token.filter(|token| self.state.living_blocker(lock, *token, id).is_some())
        else {
            return false;
        };
        if held.owner.is_empty() {
            return false;
        }
        blockers.push(Blocker { who: self.state.who(held), name: name.clone(), by: BlockedBy::Grant(token) });
        true
    }

    /// Adds the waits of a named owner: while it waits, it keeps all that it holds.
    fn add_waits_of(&mut self, claim: &Claim) -> Option<()> {
        if claim.owner.is_empty() {
            return Some(());
        }
        for id in self.state.owner_waits(claim.lease, &claim.owner) {
            self.visit()?;
            self.add(id);
        }
        Some(())
    }

    fn add(&mut self, id: Id<Claim>) {
        let claim = self.state.claims.get(id);
        if !claim.is_queued() || self.state.death(id).is_some() {
            return;
        }
        self.waits.entry(claim.wait_revision()).or_insert_with(|| {
            self.frontier.push_back(id);
            None
        });
    }
}

/// True if one holder alone, in mode `held`, keeps out a claim that wants mode `wanted`.
fn keeps_out(held: Mode, wanted: Mode) -> bool {
    match (held, wanted) {
        (Mode::Permit { n, .. }, Mode::Permit { n: more, of }) => {
            u64::from(n) + u64::from(more) > u64::from(of)
        }
        _ => !held.compatible(wanted),
    }
}

/// True if everything that keeps out mode `less` keeps out `mode` too.
fn is_at_least(mode: Mode, less: Mode) -> bool {
    match (mode, less) {
        (Mode::Permit { n, .. }, Mode::Permit { n: fewer, .. }) => n >= fewer,
        _ => mode.covers(less),
    }
}
