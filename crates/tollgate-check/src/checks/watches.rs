//! P11: a watch has no gap and no duplicate, and says so where history is gone.
//!
//! Every watch is compared with one list of facts: the grants and releases that calls were told of, and the changes
//! that any watch delivered. A fact that a watch wants and whose revision it claims to have passed must have been
//! delivered exactly once. Not here: the revision at which a watch from now on may begin (`revisions`).

use crate::event::{Change, ChangeKind, Event, Filter};
use crate::evidence::Evidence;
use crate::report::{Promise, Report};
use std::collections::{BTreeMap, BTreeSet};
use tollgate_types::{GroupId, LeaseId, Name, Owner, Revision};

/// Kind of change of a fact, without the details that only some sources report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    Queued,
    Granted,
    Changed,
    Ended,
}

/// A change that happened: revision, lock, kind, lease and owner.
type Fact<'a> = (Revision, &'a Name, What, LeaseId, &'a Owner);

/// One watch, as delivered.
struct Stream<'a> {
    group: GroupId,
    filter: &'a Filter,
    opened: usize,
    /// Revision that the watch wants next; zero as long as a watch from now on has not begun.
    next: Revision,
    /// Ranges of revisions that the watch claims to have passed: from, to (not included).
    covered: Vec<(Revision, Revision)>,
    delivered: BTreeMap<Fact<'a>, usize>,
}

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let mut streams: BTreeMap<u32, Stream<'_>> = BTreeMap::new();
    for (place, event) in evidence.timeline.iter() {
        match event {
            Event::Watch { watch, group, from, filter } => {
                let (group, next) = (*group, from.unwrap_or(Revision::ZERO));
                let (covered, delivered) = (Vec::new(), BTreeMap::new());
                let stream = Stream { group, filter, opened: place, next, covered, delivered };
                if streams.insert(*watch, stream).is_some() {
                    report.malformed(Promise::P11, vec![place], format!("watch {watch} is opened twice"));
                }
            }
            Event::WatchBegan { watch, from } => match streams.get_mut(watch) {
                Some(stream) if stream.next == Revision::ZERO => stream.next = *from,
                Some(_) => report.malformed(Promise::P11, vec![place], format!("watch {watch} begins twice")),
                None => {
                    report.malformed(Promise::P11, vec![place], format!("watch {watch} was never opened"));
                }
            },
            Event::WatchEvents { watch, changes, next } => match streams.get_mut(watch) {
                Some(stream) => stream.deliver(*watch, place, changes, *next, report),
                None => {
                    report.malformed(Promise::P11, vec![place], format!("watch {watch} was never opened"));
                }
            },
            Event::WatchCompacted { watch, min_revision } => match streams.get_mut(watch) {
                Some(stream) => stream.compact(*watch, place, *min_revision, report),
                None => {
                    report.malformed(Promise::P11, vec![place], format!("watch {watch} was never opened"));
                }
            },
            _ => {}
        }
    }
    if streams.is_empty() {
        return;
    }
    let facts = facts(evidence, &streams);
    for (watch, stream) in &streams {
        stream.has_all(*watch, &facts, report);
    }
}

impl<'a> Stream<'a> {
    fn deliver(
        &mut self,
        watch: u32,
        place: usize,
        changes: &'a [Change],
        next: Revision,
        report: &mut Report,
    ) {
        let mut blame = |says: String| report.broken(Promise::P11, vec![self.opened, place], says);
        if self.next == Revision::ZERO {
            blame(format!("watch {watch} delivers up to {next} before it was told that it has begun"));
        }
        let mut last = self.next;
        for change in changes {
            let revision = change.revision;
            if revision < self.next {
                blame(format!(
                    "watch {watch} delivers revision {revision} after it had passed {}",
                    self.next
                ));
            } else if revision < last || revision >= next {
                blame(format!(
                    "watch {watch} delivers revision {revision} out of order, between {last} and {next}"
                ));
            }
            if !self.filter.wants(&change.name, change.lease) {
                let (name, lease) = (&change.name, change.lease);
                blame(format!(
                    "watch {watch} delivers a change of {name} by {lease}, which it does not want"
                ));
            }
            if self.delivered.insert(fact(change), place).is_some() {
                blame(format!("watch {watch} delivers a change of {} at {revision} twice", change.name));
            }
            last = last.max(revision);
        }
        if next < self.next {
            blame(format!("watch {watch} goes back from {} to {next}", self.next));
        }
        match self.covered.last_mut() {
            Some(last) if last.1 == self.next => last.1 = next.max(self.next),
            _ if self.next < next => self.covered.push((self.next, next)),
            _ => {}
        }
        self.next = self.next.max(next);
        report.stats.watched_changes += changes.len() as u64;
    }

    fn compact(&mut self, watch: u32, place: usize, min_revision: Revision, report: &mut Report) {
        if min_revision <= self.next {
            let says =
                format!("watch {watch} at {} was told that history is gone below {min_revision}", self.next);
            report.broken(Promise::P11, vec![self.opened, place], says);
        }
        self.next = self.next.max(min_revision);
    }

    fn has_all(&self, watch: u32, facts: &BTreeMap<u32, BTreeSet<Fact<'a>>>, report: &mut Report) {
        let Some(facts) = facts.get(&self.group.number()) else { return };
        for &(from, to) in &self.covered {
            let first = facts.iter().skip_while(|fact| fact.0 < from).take_while(|fact| fact.0 < to);
            for fact in
                first.filter(|fact| self.filter.wants(fact.1, fact.3) && !self.delivered.contains_key(*fact))
            {
                let (revision, name, what, lease, owner) = fact;
                let says = format!(
                    "watch {watch} passed revision {revision} without the change of {name}: {what:?} {lease}/{owner}"
                );
                report.broken(Promise::P11, vec![self.opened], says);
            }
        }
    }
}

fn fact(change: &Change) -> Fact<'_> {
    let what = match change.kind {
        ChangeKind::Queued => What::Queued,
        ChangeKind::Granted { .. } => What::Granted,
        ChangeKind::Changed => What::Changed,
        ChangeKind::Ended { .. } => What::Ended,
    };
    (change.revision, &change.name, what, change.lease, &change.owner)
}

/// Returns everything that is known to have happened, by group.
fn facts<'a>(
    evidence: &'a Evidence<'_>,
    streams: &BTreeMap<u32, Stream<'a>>,
) -> BTreeMap<u32, BTreeSet<Fact<'a>>> {
    let mut facts: BTreeMap<u32, BTreeSet<Fact<'a>>> = BTreeMap::new();
    for stream in streams.values() {
        facts.entry(stream.group.number()).or_default().extend(stream.delivered.keys().copied());
    }
    for track in &evidence.tracks.0 {
        for grant in &track.grants {
            let facts = facts.entry(grant.group.number()).or_default();
            let revision = Revision::new(grant.token.get()).expect("tokens are revisions");
            facts.insert((revision, track.name, What::Granted, grant.lease, grant.owner));
            if let Some(revision) = grant.ended {
                facts.insert((revision, track.name, What::Ended, grant.lease, grant.owner));
            }
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use crate::checks::scenario::{Scenario, ended, gave};
    use crate::event::Filter;
    use crate::report::Promise::P11;
    use tollgate_types::{LeaseId, Name};

    /// A run in which lease 1 takes and releases two locks.
    fn run() -> Scenario {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).unlock("a", 1, 11).lock("b", 1, 12).unlock("b", 1, 13);
        run
    }

    #[test]
    fn watches_that_see_all_they_want_pass() {
        let mut run = run();
        run.watch(1, 1, Filter::All).delivers(1, &[gave("a", 1, 10), ended("a", 1, 10, 11)], 12);
        run.delivers(1, &[gave("b", 1, 12), ended("b", 1, 12, 13)], 14);
        run.watch(2, 11, Filter::Name(Name::new("a").unwrap())).delivers(2, &[ended("a", 1, 10, 11)], 14);
        run.watch(3, 1, Filter::Prefix("b".to_owned())).compacted(3, 13).delivers(
            3,
            &[ended("b", 1, 12, 13)],
            14,
        );
        run.passes();
    }

    #[test]
    fn a_watch_from_now_on_that_tells_all_from_its_beginning_on_passes() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).watch_now(1, Filter::All).begins(1, 11);
        run.unlock("a", 1, 11).delivers(1, &[ended("a", 1, 10, 11)], 12);
        run.passes();
    }

    #[test]
    fn a_watch_from_now_on_that_tells_anything_before_it_has_begun_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.watch_now(1, Filter::All).lock("a", 1, 10).delivers(1, &[gave("a", 1, 10)], 11);
        run.breaks(P11, "watch 1 delivers up to 11 before it was told that it has begun");
    }

    #[test]
    fn a_gap_after_the_beginning_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.watch_now(1, Filter::All).begins(1, 10).lock("a", 1, 10).delivers(1, &[], 12);
        run.breaks(P11, "watch 1 passed revision 10 without the change of a: Granted");
    }

    #[test]
    fn a_gap_is_a_violation() {
        let mut run = run();
        run.watch(1, 1, Filter::All).delivers(1, &[gave("a", 1, 10)], 12);
        run.breaks(P11, "watch 1 passed revision 11 without the change of a: Ended");
    }

    #[test]
    fn a_change_that_only_another_watch_saw_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.lock_unanswered("a", 1);
        run.watch(1, 1, Filter::All).delivers(1, &[gave("a", 1, 10)], 12);
        run.watch(2, 1, Filter::All).delivers(2, &[], 12);
        run.breaks(P11, "watch 2 passed revision 10");
    }

    #[test]
    fn a_watch_on_a_lease_wants_all_of_that_lease_and_nothing_else() {
        let of = |lease| Filter::Lease(LeaseId::new(lease).unwrap());
        let two = || {
            let mut run = Scenario::with_leases(2);
            run.lock("a", 1, 10).lock("b", 2, 11).unlock("a", 1, 12).unlock("b", 2, 13);
            run
        };
        let (first, second) =
            ([gave("a", 1, 10), ended("a", 1, 10, 12)], [gave("b", 2, 11), ended("b", 2, 11, 13)]);
        let mut run = two();
        run.watch(1, 1, of(1)).delivers(1, &first, 14).watch(2, 1, of(2)).delivers(2, &second, 14);
        run.passes();
        let mut run = two();
        run.watch(1, 1, of(1)).delivers(1, &first[..1], 14);
        run.breaks(P11, "watch 1 passed revision 12 without the change of a: Ended");
        let mut run = two();
        run.watch(1, 1, of(1)).delivers(1, &[first[0].clone(), second[0].clone(), first[1].clone()], 14);
        run.breaks(P11, "delivers a change of b by L-0000000000000002, which it does not want");
    }

    #[test]
    fn a_duplicate_is_a_violation() {
        let mut run = run();
        let changes = [gave("a", 1, 10), gave("a", 1, 10), ended("a", 1, 10, 11)];
        run.watch(1, 1, Filter::All).delivers(1, &changes, 12);
        run.breaks(P11, "twice");
    }

    #[test]
    fn a_revision_in_two_deliveries_is_a_violation() {
        let mut run = run();
        run.watch(1, 1, Filter::All).delivers(1, &[gave("a", 1, 10)], 11).delivers(
            1,
            &[gave("b", 1, 10)],
            11,
        );
        run.breaks(P11, "delivers revision 10 after it had passed 11");
    }

    #[test]
    fn changes_out_of_order_are_a_violation() {
        let mut run = run();
        run.watch(1, 1, Filter::All).delivers(1, &[ended("a", 1, 10, 11), gave("a", 1, 10)], 12);
        run.breaks(P11, "out of order");
    }

    #[test]
    fn history_that_is_not_gone_but_called_so_is_a_violation() {
        let mut run = run();
        run.watch(1, 5, Filter::All).compacted(1, 4);
        run.breaks(P11, "was told that history is gone below 4");
    }
}
