//! P1, P4, P13: for each lock, some order of all that happened to it explains every answer.
//!
//! A search in the manner of Wing and Gong: each answer must be true at one moment between its call and its return.
//! Three rules keep the search near linear. Changes with a revision are tried only in the order of their revisions. An
//! answer that only observes is placed as soon as it is true, which never spoils a later step. A grant that ends at an
//! unknown moment ends only when another step needs it to. No state is tried twice: a state is known by the set of
//! placed items, which determines the holders of the lock.
//!
//! Not here: exclusion by revisions alone (`exclusion`), a second judgement that shares nothing with this one.

mod items;

use crate::evidence::{Evidence, Track};
use crate::report::{Kind, Promise, Report, Violation};
use crate::settings::Settings;
use items::{Held, Item, Step, goes_with};
use std::collections::BTreeSet;

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for track in &evidence.tracks.0 {
        let mut search = Search::new(track, evidence.settings);
        let verdict = search.run();
        report.stats.search_steps += search.steps;
        if let Err(violation) = verdict {
            report.violations.push(violation);
        }
    }
}

/// A choice that can be undone.
struct Frame {
    /// Alternatives that are still to be tried, the next one last.
    untried: Vec<usize>,
    trail_len: usize,
    cursors: Cursors,
    held: Vec<Held>,
}

/// Positions in the sorted lists before which everything is placed.
#[derive(Clone, Copy, Default)]
struct Cursors {
    change: usize,
    close: usize,
    view: usize,
}

struct Search<'t, 'a> {
    track: &'t Track<'a>,
    steps_max: u64,
    items: Vec<Item<'t, 'a>>,
    /// Changes with a revision, sorted by revision.
    changes: Vec<usize>,
    /// Items that must be placed, sorted by the place by which they must be.
    by_close: Vec<usize>,
    /// Observations, sorted by the first place at which they can be placed.
    views: Vec<usize>,
    /// Per grant, the item of its end at an unknown moment.
    ends: Vec<Option<usize>>,
    weakenings: Vec<usize>,
    placed: Vec<bool>,
    trail: Vec<usize>,
    cursors: Cursors,
    held: Vec<Held>,
    tried: BTreeSet<u128>,
    placed_hash: u128,
    steps: u64,
    /// The furthest attempt: the number of items placed, the item that was due then, and the grants that held the lock.
    furthest: (usize, Option<usize>, Vec<usize>),
}

impl<'t, 'a> Search<'t, 'a> {
    fn new(track: &'t Track<'a>, settings: &Settings) -> Self {
        let (items, ends) = items::of(track);
        let select = |wanted: fn(&Item<'_, '_>) -> bool| -> Vec<usize> {
            (0..items.len()).filter(|&item| wanted(&items[item])).collect()
        };
        let mut changes = select(|item| item.revision.is_some());
        changes.sort_by_key(|&item| items[item].revision);
        let mut by_close = select(|item| item.close != usize::MAX);
        by_close.sort_by_key(|&item| items[item].close);
        let mut views = select(|item| matches!(item.step, Step::View(_)));
        views.sort_by_key(|&item| items[item].open);
        let weakenings = select(|item| matches!(item.step, Step::Weaken(_)));
        Search {
            track,
            steps_max: settings.search_steps_max,
            placed: vec![false; items.len()],
            items,
            changes,
            by_close,
            views,
            ends,
            weakenings,
            trail: Vec::new(),
            cursors: Cursors::default(),
            held: Vec::new(),
            tried: BTreeSet::new(),
            placed_hash: 0,
            steps: 0,
            furthest: (0, None, Vec::new()),
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
        let mut frames: Vec<Frame> = Vec::new();
        loop {
            self.place_views();
            let Some(due) = self.due() else { return Ok(()) };
            self.note_progress(due);
            let mut untried =
                if self.tried.insert(self.placed_hash) { self.choices(due) } else { Vec::new() };
            if let Some(item) = untried.pop() {
                if !untried.is_empty() {
                    let (trail_len, cursors, held) = (self.trail.len(), self.cursors, self.held.clone());
                    frames.push(Frame { untried, trail_len, cursors, held });
                }
                self.take(item);
            } else if !self.step_back(&mut frames) {
                return Err(self.unexplained());
            }
            self.steps += 1;
            if self.steps > self.steps_max {
                return Err(self.gave_up());
            }
        }
    }

    /// Goes back to the last choice that has an alternative, and takes the alternative; false if there is none.
    fn step_back(&mut self, frames: &mut Vec<Frame>) -> bool {
        let Some(frame) = frames.last_mut() else { return false };
        let item = frame.untried.pop().expect("frames without an alternative are dropped");
        while self.trail.len() > frame.trail_len {
            let undone = self.trail.pop().expect("longer than it was");
            self.placed[undone] = false;
            self.placed_hash ^= items::hash(undone);
        }
        self.cursors = frame.cursors;
        self.held.clone_from(&frame.held);
        if frame.untried.is_empty() {
            frames.pop();
        }
        self.take(item);
        true
    }

    /// Returns the item that must be placed next: the unplaced one with the lowest last place.
    fn due(&mut self) -> Option<usize> {
        while let Some(&item) = self.by_close.get(self.cursors.close) {
            if !self.placed[item] {
                return Some(item);
            }
            self.cursors.close += 1;
        }
        None
    }

    fn next_change(&mut self) -> Option<usize> {
        while let Some(&item) = self.changes.get(self.cursors.change) {
            if !self.placed[item] {
                return Some(item);
            }
            self.cursors.change += 1;
        }
        None
    }

    /// Places every observation that can be placed and is true.
    fn place_views(&mut self) {
        while self.views.get(self.cursors.view).is_some_and(|&item| self.placed[item]) {
            self.cursors.view += 1;
        }
        let mut index = self.cursors.view;
        let Some(mut limit) = self.due().map(|due| self.items[due].close) else { return };
        while let Some(&item) = self.views.get(index) {
            if self.items[item].open > limit {
                break;
            }
            index += 1;
            if !self.placed[item] && self.is_true(item) {
                self.mark(item);
                limit = self.due().map_or(usize::MAX, |due| self.items[due].close);
            }
        }
    }

    fn is_true(&mut self, item: usize) -> bool {
        let next = self.next_change().and_then(|change| self.items[change].revision);
        let Step::View(view) = &self.items[item].step else { return false };
        items::is_true(view, self.track, &self.held, next)
    }

    /// Returns the items that can be placed now, the most promising last.
    fn choices(&mut self, due: usize) -> Vec<usize> {
        let limit = self.items[due].close;
        let mut choices = Vec::new();
        for &item in &self.weakenings {
            if !self.placed[item] && self.items[item].open <= limit && self.can_weaken(item) {
                choices.push(item);
            }
        }
        for held in &self.held {
            let end = self.ends[held.grant].filter(|&end| self.items[end].open <= limit);
            choices.extend(end.filter(|&end| !self.placed[end]));
        }
        let change = self.next_change();
        choices.extend(change.filter(|&item| self.items[item].open <= limit && self.is_legal(item)));
        // The due item is tried first: it has to happen now or never.
        if let Some(at) = choices.iter().position(|&item| item == due) {
            let due = choices.remove(at);
            choices.push(due);
        }
        choices
    }

    fn can_weaken(&self, item: usize) -> bool {
        let Step::Weaken(weakening) = &self.items[item].step else { return false };
        let own = self.held.iter().find(|held| self.track.grants[held.grant].who() == weakening.who);
        own.is_some_and(|held| held.mode.covers(weakening.mode))
    }

    fn is_legal(&self, item: usize) -> bool {
        match &self.items[item].step {
            Step::Grant(grant) => goes_with(*grant, self.track, &self.held),
            Step::Release(release) => {
                release.unseen || items::released(release, self.track, &self.held).is_some()
            }
            Step::View(_) | Step::End(_) | Step::Weaken(_) => true,
        }
    }

    fn take(&mut self, item: usize) {
        self.mark(item);
        match self.items[item].step {
            Step::Grant(grant) => {
                let who = self.track.grants[grant].who();
                self.drop_held(|track, held| track.grants[held.grant].who() == who);
                self.held.push(Held { grant, mode: self.track.grants[grant].mode });
            }
            Step::Release(release) => {
                if let Some(grant) = items::released(release, self.track, &self.held) {
                    self.drop_held(|_, held| held.grant == grant);
                }
            }
            Step::End(grant) => {
                self.held.retain(|held| held.grant != grant);
            }
            Step::Weaken(weakening) => {
                let (track, own) = (self.track, self.held.iter_mut());
                for held in own.filter(|held| track.grants[held.grant].who() == weakening.who) {
                    held.mode = weakening.mode;
                }
            }
            Step::View(_) => {}
        }
    }

    /// Removes holders, and with them the ends that they would have had at an unknown moment.
    fn drop_held(&mut self, gone: impl Fn(&Track<'a>, &Held) -> bool) {
        let track = self.track;
        for index in (0..self.held.len()).rev() {
            if gone(track, &self.held[index]) {
                let held = self.held.remove(index);
                if let Some(end) = self.ends[held.grant].filter(|&end| !self.placed[end]) {
                    self.mark(end);
                }
            }
        }
    }

    fn mark(&mut self, item: usize) {
        self.placed[item] = true;
        self.placed_hash ^= items::hash(item);
        self.trail.push(item);
    }

    fn note_progress(&mut self, due: usize) {
        if self.trail.len() >= self.furthest.0 {
            let holders = self.held.iter().map(|held| held.grant).collect();
            self.furthest = (self.trail.len(), Some(due), holders);
        }
    }

    fn unexplained(&self) -> Violation {
        let due = self.furthest.1.expect("something is due before the search can fail");
        let item = &self.items[due];
        let mut events = item.events.to_vec();
        let mut holders = Vec::new();
        for &grant in &self.furthest.2 {
            let grant = &self.track.grants[grant];
            events.extend(&grant.events);
            holders.push(format!("{}/{} with token {}", grant.lease, grant.owner, grant.token));
        }
        events.sort_unstable();
        events.dedup();
        let holders = if holders.is_empty() { "nobody".to_owned() } else { holders.join(", ") };
        let says = format!(
            "no order of events explains that {} on {}: as far as they can be explained it is held by {holders}",
            items::says(item, self.track),
            self.track.name,
        );
        Violation { promise: item.promise, kind: Kind::Broken, says, events }
    }

    fn gave_up(&self) -> Violation {
        let says = format!(
            "gave up after {} steps of searching for an order of events on {}",
            self.steps, self.track.name
        );
        let events = self.furthest.1.map_or(Vec::new(), |due| self.items[due].events.to_vec());
        Violation { promise: Promise::P1, kind: Kind::Unknown, says, events }
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::scenario::Scenario;
    use crate::report::Kind;
    use crate::report::Promise::{P1, P4, P13};
    use tollgate_types::Mode::{Exclusive, Shared};

    #[test]
    fn answers_that_some_order_explains_pass() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).read("a", 10, &[(1, 10)]).lock_busy("a", 2, &[(1, 10)]);
        let waiting = run.wait_for("a", 2, Exclusive);
        run.unlock("a", 1, 12).unlock_not_held("a", 1).granted(waiting, 13, 11, Exclusive).read(
            "a",
            13,
            &[(2, 13)],
        );
        run.unlock("a", 2, 14).lock_busy("a", 1, &[]).read("a", 15, &[]);
        run.passes();
    }

    #[test]
    fn a_busy_answer_that_names_a_holder_of_the_past_is_a_violation() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).unlock("a", 1, 11).lock_busy("a", 2, &[(1, 10)]);
        run.breaks(P13, "a busy answer named holders with tokens [10]");
    }

    #[test]
    fn a_read_that_no_order_explains_is_a_violation() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).unlock("a", 1, 11).lock("a", 2, 12).read("a", 12, &[(1, 10)]);
        run.breaks(P13, "a read at revision 12 saw holders with tokens [10]");
    }

    #[test]
    fn a_final_state_that_no_order_explains_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).unlock("a", 1, 11).final_state(12, &[1], &[("a", 1, 10)]);
        run.breaks(P4, "a read at revision 12 saw holders with tokens [10]");
    }

    #[test]
    fn a_release_of_what_was_released_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).unlock("a", 1, 11).unlock("a", 1, 12);
        run.breaks(P1, "a release succeeded at revision 12");
    }

    #[test]
    fn a_holder_that_is_told_not_to_hold_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).unlock_not_held("a", 1).read("a", 10, &[(1, 10)]);
        run.breaks(P1, "was told not to hold");
    }

    #[test]
    fn a_request_without_an_answer_may_or_may_not_have_been_granted() {
        let mut run = Scenario::with_leases(2);
        run.lock_unanswered("a", 1).lock_busy("a", 2, &[(1, 10)]).unlock("a", 1, 11).lock("a", 2, 12);
        run.passes();
        let mut run = Scenario::with_leases(2);
        run.lock_unanswered("a", 1).lock("a", 2, 12).read("a", 12, &[(2, 12)]);
        run.passes();
    }

    #[test]
    fn a_release_may_end_a_grant_that_nobody_saw() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).unlock("a", 1, 11).lock_unanswered("a", 1).unlock("a", 1, 13).lock("a", 2, 14);
        run.passes();
    }

    #[test]
    fn a_release_without_an_answer_happens_once() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).unlock_unanswered("a", 1).read("a", 10, &[(1, 10)]).read("a", 11, &[]);
        run.passes();
        run.read("a", 11, &[(1, 10)]);
        run.breaks(P13, "saw holders with tokens [10]");
    }

    #[test]
    fn a_holder_is_seen_until_its_lease_can_have_ended_and_not_after_it_did() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).wait_ms(9_000).read("a", 10, &[(1, 10)]).wait_ms(1_200).read("a", 11, &[]);
        run.lease_expired(1, 11).read("a", 11, &[]);
        run.passes();
        run.read("a", 11, &[(1, 10)]);
        run.breaks(P13, "");
    }

    #[test]
    fn conversions_are_followed() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).convert("a", 1, 10, Shared).lock_as("a", 2, 12, Shared).unlock("a", 2, 13);
        run.convert("a", 1, 14, Exclusive).read("a", 14, &[(1, 14)]).unlock("a", 1, 15);
        run.passes();
    }

    #[test]
    fn an_upgrade_past_a_reader_is_a_violation() {
        let mut run = Scenario::with_leases(2);
        run.lock_as("a", 1, 10, Shared).lock_as("a", 2, 12, Shared).convert("a", 1, 14, Exclusive);
        run.breaks(P1, "a grant was given");
    }

    #[test]
    fn a_holder_that_is_given_another_token_for_what_it_has_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).lock("a", 1, 12);
        run.breaks(P1, "a grant had ended");
    }

    #[test]
    fn a_search_that_gives_up_is_reported() {
        let mut run = Scenario::with_leases(1);
        run.limit_search(2).lock("a", 1, 10).unlock("a", 1, 11).lock("a", 1, 12);
        let report = run.judge();
        assert_eq!(report.violations.len(), 1);
        assert_eq!(report.violations[0].kind, Kind::Unknown);
    }
}
