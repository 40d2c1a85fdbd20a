//! P1, P4, P11, P13: revisions follow true time.
//!
//! Within a group, anything that was answered before something else was requested has the lower revision. That holds
//! across locks, leases and registers, which the search for each lock can't see. A watch from now on counts as a read
//! of the revision before its first: requested when the watch was opened, and answered when the watch was told its
//! first revision. So the watch leaves out what was known before it was opened, and delivers what is requested after it
//! has begun.

use crate::call::Outcome;
use crate::event::Event;
use crate::evidence::Evidence;
use crate::report::{Promise, Report};
use std::collections::{BTreeMap, BTreeSet};

/// An event with a revision, between two places.
struct Stamp {
    revision: u64,
    open: usize,
    close: usize,
    reads: bool,
    promise: Promise,
    what: &'static str,
}

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for (group, mut stamps) in stamps(evidence) {
        stamps.sort_by_key(|stamp| stamp.open);
        let mut by_close: Vec<&Stamp> = stamps.iter().collect();
        by_close.sort_by_key(|stamp| stamp.close);
        let mut closed = by_close.into_iter().peekable();
        let mut highest: Option<&Stamp> = None;
        for stamp in &stamps {
            while let Some(before) = closed.next_if(|before| before.close < stamp.open) {
                if highest.is_none_or(|highest| highest.revision < before.revision) {
                    highest = Some(before);
                }
            }
            let Some(before) = highest else { continue };
            let watch = before.promise == Promise::P11;
            let late = stamp.revision < before.revision
                || (stamp.revision == before.revision && !stamp.reads && (!before.reads || watch));
            if late {
                let says = format!(
                    "in group {group} {} has revision {}, but {} with revision {} was known before it was asked for",
                    stamp.what, stamp.revision, before.what, before.revision
                );
                let promise = if watch { before.promise } else { stamp.promise };
                report.broken(promise, vec![before.close, stamp.open, stamp.close], says);
            }
        }
    }
}

fn stamps(evidence: &Evidence<'_>) -> BTreeMap<u32, Vec<Stamp>> {
    let mut stamps: BTreeMap<u32, Vec<Stamp>> = BTreeMap::new();
    let mut seen: BTreeSet<(u32, u64)> = BTreeSet::new();
    for track in &evidence.tracks.0 {
        for grant in &track.grants {
            let (group, revision) = (grant.group.number(), grant.token.get());
            let (open, close, reads, promise) = (grant.open, grant.close, false, Promise::P1);
            // A request for several names is one change.
            if seen.insert((group, revision)) {
                stamps.entry(group).or_default().push(Stamp {
                    revision,
                    open,
                    close,
                    reads,
                    promise,
                    what: "a grant",
                });
            }
        }
    }
    for call in &evidence.calls.all {
        let Some((close, outcome)) = call.returned else { continue };
        let (revision, reads, promise, what) = match outcome {
            Outcome::Released { revision } => (revision, false, Promise::P1, "a release"),
            Outcome::LeaseGranted { incarnation, renewed: false, .. } => {
                (incarnation, false, Promise::P4, "a grant of a lease")
            }
            Outcome::Written { revision } => (revision, false, Promise::P4, "a write"),
            Outcome::Lock { revision, .. } | Outcome::Register { revision, .. } => {
                (revision, true, Promise::P13, "a read")
            }
            _ => continue,
        };
        let (open, revision) = (call.invoked, revision.get());
        stamps.entry(call.group.number()).or_default().push(Stamp {
            revision,
            open,
            close,
            reads,
            promise,
            what,
        });
    }
    add_watches(evidence, &mut stamps);
    stamps
}

/// Adds the beginnings of watches from now on.
fn add_watches(evidence: &Evidence<'_>, stamps: &mut BTreeMap<u32, Vec<Stamp>>) {
    let mut opened: BTreeMap<u32, (u32, usize)> = BTreeMap::new();
    for (place, event) in evidence.timeline.iter() {
        match event {
            Event::Watch { watch, group, from: None, .. } => {
                opened.insert(*watch, (group.number(), place));
            }
            Event::WatchBegan { watch, from } => {
                let Some((group, open)) = opened.remove(watch) else { continue };
                stamps.entry(group).or_default().push(Stamp {
                    revision: from.previous().get(),
                    open,
                    close: place,
                    reads: true,
                    promise: Promise::P11,
                    what: "a watch from now on",
                });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::scenario::Scenario;
    use crate::event::Filter;
    use crate::report::Promise::{P1, P11, P13};

    #[test]
    fn revisions_that_rise_pass() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).lock("b", 2, 11).read("a", 11, &[(1, 10)]).unlock("a", 1, 12);
        run.passes();
    }

    #[test]
    fn a_later_grant_on_another_lock_with_a_lower_revision_is_a_violation() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).lock("b", 2, 9);
        run.breaks(P1, "a grant has revision 9, but a grant with revision 10 was known before");
    }

    #[test]
    fn a_read_of_the_past_is_a_violation() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).lock("b", 2, 12).read("a", 11, &[(1, 10)]);
        run.breaks(P13, "a read has revision 11");
    }

    #[test]
    fn a_watch_from_now_on_may_tell_or_leave_out_what_happens_while_it_is_opened() {
        for begin in [11, 12] {
            let mut run = Scenario::with_leases(1);
            run.lock("a", 1, 10).watch_now(1, Filter::All).unlock("a", 1, 11).begins(1, begin);
            run.lock("a", 1, 12);
            run.passes();
        }
    }

    #[test]
    fn a_watch_from_now_on_that_begins_before_what_was_acknowledged_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).unlock("a", 1, 11).watch_now(1, Filter::All).begins(1, 11);
        run.breaks(P11, "a watch from now on has revision 10, but a release with revision 11 was known");
    }

    #[test]
    fn a_watch_from_now_on_that_begins_after_what_was_asked_for_later_is_a_violation() {
        for begin in [11, 12] {
            let mut run = Scenario::with_leases(1);
            run.watch_now(1, Filter::All).begins(1, begin).lock("a", 1, 10);
            run.breaks(P11, "a grant has revision 10, but a watch from now on");
        }
    }
}
