//! P8: no waiter is forgotten.
//!
//! Once all faults are over, a request whose client is still there is answered within the time allowed, counted from
//! the healing, from the request, or from the deadline of its wait, whichever is last. A request that waits for ever is
//! excused while somebody is in its way: according to the final state, or without one to the grants that nothing ended.
//! Not here: a waiter that ends twice (`retries`).

use crate::at::At;
use crate::call::{Op, Wait};
use crate::event::{Event, FinalLock};
use crate::evidence::{Call, Evidence, Track, Who, listed};
use crate::report::{Promise, Report};
use std::collections::{BTreeMap, BTreeSet};
use tollgate_types::{Name, Names};

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let Some(run) = Run::read(evidence) else { return };
    for call in &evidence.calls.all {
        let (Op::Lock { names, wait, .. } | Op::Convert { names, wait, .. }) = call.op else { continue };
        if run.gone.contains(&call.client) {
            continue;
        }
        if let Some(says) = run.forgotten(evidence, call, names, *wait) {
            report.broken(Promise::P8, call.events(), says);
        }
    }
}

/// State of the run at its end.
struct Run<'a> {
    healed: At,
    over: At,
    gone: BTreeSet<u32>,
    /// Locks as the final state shows them; none if there was no final state.
    locks: Option<BTreeMap<&'a Name, &'a FinalLock>>,
    final_state: usize,
    /// True if any request was for more than one lock: then the waiters of one lock alone don't show who waits for
    /// whom.
    several_names: bool,
    tracks: BTreeMap<&'a Name, &'a Track<'a>>,
}

impl<'a> Run<'a> {
    fn read(evidence: &'a Evidence<'a>) -> Option<Run<'a>> {
        let (mut healed, mut over, mut locks, mut final_state) = (None, None, None, usize::MAX);
        let mut gone = BTreeSet::new();
        for (place, event) in evidence.timeline.iter() {
            let at = evidence.timeline.at(place);
            match event {
                Event::Healed => healed = Some(at),
                Event::End => over = Some(at),
                Event::ClientGone { client } => {
                    gone.insert(*client);
                }
                Event::FinalState { locks: seen, .. } => {
                    let all = locks.get_or_insert_with(BTreeMap::new);
                    all.extend(seen.iter().map(|lock| (&lock.name, lock)));
                    final_state = final_state.min(place);
                }
                _ => {}
            }
        }
        let tracks = evidence.tracks.0.iter().map(|track| (track.name, track)).collect();
        let several = |call: &Call<'_>| call.claim().is_some_and(|(names, _)| names.as_slice().len() > 1);
        let several_names = evidence.calls.all.iter().any(several);
        Some(Run { healed: healed?, over: over?, gone, locks, final_state, several_names, tracks })
    }

    fn forgotten(
        &self,
        evidence: &Evidence<'_>,
        call: &Call<'_>,
        names: &Names,
        wait: Wait,
    ) -> Option<String> {
        let (invoked, settings) = (evidence.timeline.at(call.invoked), evidence.settings);
        let waits_until = match wait {
            Wait::No => invoked,
            Wait::ForMs(ms) => settings.at_most_after(invoked, ms),
            Wait::Forever => At::NEVER,
        };
        let by = waits_until.max(self.healed).after_ms(settings.healed_within_ms);
        let answered = call.returned.map_or(self.over, |(place, _)| evidence.timeline.at(place));
        if answered > by && invoked.max(self.healed) <= answered {
            return Some(format!("{} for {} had to be answered by {by}", call.id, listed(names)));
        }
        let patient = call.returned.is_none() && waits_until > self.over;
        let by = invoked.max(self.healed).after_ms(settings.healed_within_ms);
        if patient && self.over > by && !self.is_blocked(call, names) {
            return Some(format!("{} still waits for {}, but nobody is in its way", call.id, listed(names)));
        }
        None
    }

    /// Returns true if somebody is in the way of a request that still waits: a holder of one of its locks, or of a lock
    /// that somebody in the queue of such a lock waits for too.
    fn is_blocked(&self, call: &Call<'_>, names: &Names) -> bool {
        let Some(locks) = self.locks.as_ref().filter(|_| call.invoked < self.final_state) else {
            return self.several_names || names.as_slice().iter().any(|name| self.may_be_held(name));
        };
        let who = call.claim().expect("requests have one").1;
        let waits = |name: &&Name| locks.get(name).is_some_and(|lock| is_waiter(lock, who));
        if matches!(call.op, Op::Lock { .. }) && !names.as_slice().iter().all(|name| waits(&name)) {
            return false;
        }
        let mut reached: BTreeSet<&Name> = names.as_slice().iter().collect();
        let mut unseen: Vec<&Name> = reached.iter().copied().collect();
        while let Some(name) = unseen.pop() {
            // Nobody holds this lock or waits for it: the other locks may show a holder.
            let Some(lock) = locks.get(name) else { continue };
            if !lock.holders.is_empty() {
                return true;
            }
            for (lease, owner) in &lock.waiters {
                let elsewhere = locks.iter().filter(|(_, other)| is_waiter(other, (*lease, owner)));
                unseen.extend(elsewhere.map(|(name, _)| *name).filter(|name| reached.insert(name)));
            }
        }
        false
    }

    fn may_be_held(&self, name: &Name) -> bool {
        let track = self.tracks.get(name);
        track.is_some_and(|track| {
            track.grants.iter().any(|grant| grant.ended.is_none() && grant.ends_by == usize::MAX)
        })
    }
}

fn is_waiter(lock: &FinalLock, who: Who<'_>) -> bool {
    lock.waiters.iter().any(|(lease, owner)| (*lease, owner) == who)
}

#[cfg(test)]
mod tests {
    use crate::checks::scenario::Scenario;
    use crate::report::Promise::P8;
    use tollgate_types::Mode::Exclusive;

    #[test]
    fn a_waiter_behind_a_live_holder_passes() {
        let mut run = Scenario::with_leases(2).with_long_leases();
        run.lock("a", 1, 10);
        run.wait_for("a", 2, Exclusive);
        run.healed().wait_ms(20_000).end();
        run.passes();
    }

    #[test]
    fn a_waiter_with_nobody_in_its_way_is_a_violation() {
        let mut run = Scenario::with_leases(2).with_long_leases();
        run.lock("a", 1, 10);
        run.wait_for("a", 2, Exclusive);
        run.unlock("a", 1, 12).healed().wait_ms(20_000).end();
        run.breaks(P8, "still waits for a, but nobody is in its way");
    }

    #[test]
    fn a_waiter_that_is_not_in_the_queue_is_a_violation() {
        let mut run = Scenario::with_leases(2).with_long_leases();
        run.lock("a", 1, 10);
        run.wait_for("a", 2, Exclusive);
        run.healed().wait_ms(20_000).final_state(11, &[1, 2], &[("a", 1, 10)]).end();
        run.breaks(P8, "still waits for a");
    }

    #[test]
    fn a_waiter_behind_the_holder_of_one_of_its_locks_passes() {
        let mut run = Scenario::with_leases(2).with_long_leases();
        run.lock("a", 1, 10).convert_unanswered(&["a", "b"], 2);
        run.healed().wait_ms(20_000).final_state(11, &[1, 2], &[("a", 1, 10)]).end();
        run.passes();
    }

    #[test]
    fn a_waiter_past_its_deadline_is_a_violation() {
        let mut run = Scenario::with_leases(2).with_long_leases();
        run.lock("a", 1, 10);
        run.wait_for_ms("a", 2, 3_000);
        run.healed().wait_ms(14_000).end();
        run.breaks(P8, "had to be answered by");
    }

    #[test]
    fn a_waiter_whose_client_is_gone_passes() {
        let mut run = Scenario::with_leases(2).with_long_leases();
        run.wait_for_ms("a", 2, 3_000);
        run.client_gone(2).healed().wait_ms(14_000).end();
        run.passes();
    }
}
