//! List of unattended waits: since when no caller has attended each of them, and which of them are to end.
//!
//! A caller attends a wait while it stays connected for the answer. A wait that only single callers asked for ends when
//! its last caller hangs up, or when no caller has attended it for a while: the connection of the callers broke,
//! another node led and the callers have not found the way here, or they were told that nothing can be written. A
//! session's wait does not end: the state knows which waits are which. Invariant: a wait in a group that this node
//! leads, that the state calls attended and on which nobody is pending, is under way here, on the list, or yet to be
//! found by a search: a search begins with every leadership, and when there is room on disks again. Not here: pending
//! callers (`pending`), and the entry that ends a wait (`dispatcher`).

use super::CallerKey;
use super::pending::{RequestKey, WaitKey};
use crate::monotonic_time::MonotonicTime;
use std::collections::{BTreeMap, BTreeSet};
use tollgate_types::{GroupId, Name};

/// Way in which a caller left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// The caller hung up and wants no answer any more.
    HungUp,
    /// The caller's stream broke: the caller may come back over another.
    Lost,
}

/// A request that may wait and is not answered yet.
#[derive(Debug)]
struct UnderWay {
    attempts: u32,
    request: Option<RequestKey>,
    gone: Option<Gone>,
}

/// Record of callers that left, of unattended waits, and of searches for such waits.
#[derive(Debug, Default)]
pub(super) struct CallerLiveness {
    under_way: BTreeMap<CallerKey, UnderWay>,
    /// Number of callers that have each request under way and have not left.
    requests: BTreeMap<RequestKey, u32>,
    /// Time since which each wait is unattended, and the name of one of the wait's locks.
    since: BTreeMap<WaitKey, (MonotonicTime, Name)>,
    by_time: BTreeSet<(MonotonicTime, WaitKey)>,
    /// Groups whose state is to be searched, and the position at which the search continues.
    searches: BTreeMap<GroupId, usize>,
    /// Time of the last turn.
    turn: MonotonicTime,
    /// Time that counts for waits: the sum of the turns' steps, each capped at `STEP_MAX_US`.
    now: MonotonicTime,
}

/// The most time that one turn can add: a machine that was suspended must first read the input that arrived meanwhile.
const STEP_MAX_US: u64 = 500_000;

impl CallerLiveness {
    /// Advances the time at the start of a turn.
    pub(super) fn pass(&mut self, turn: MonotonicTime) {
        let step_us = turn.us_since(self.turn).min(STEP_MAX_US);
        self.now = MonotonicTime::from_us(self.now.us() + step_us);
        self.turn = turn;
    }

    /// Records that a request that may wait is proposed.
    pub(super) fn asks(&mut self, who: CallerKey, request: Option<RequestKey>) {
        let known = self.under_way.get(&who).map_or(0, |under_way| under_way.attempts);
        self.uncount(who);
        // A caller that asks again is present.
        self.under_way.insert(who, UnderWay { attempts: known + 1, request, gone: None });
        if let Some(request) = request {
            *self.requests.entry(request).or_default() += 1;
        }
    }

    /// True if a caller that has not left has the request under way.
    pub(super) fn any_asks(&self, request: RequestKey) -> bool {
        self.requests.contains_key(&request)
    }

    /// Stops counting a caller for its request.
    fn uncount(&mut self, who: CallerKey) {
        let counts = self.under_way.get(&who).filter(|under_way| under_way.gone.is_none());
        let Some(request) = counts.and_then(|under_way| under_way.request) else { return };
        if let std::collections::btree_map::Entry::Occupied(mut count) = self.requests.entry(request) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Records an answer. Returns how the caller left in the meantime, if it did.
    pub(super) fn answered(&mut self, who: CallerKey) -> Option<Gone> {
        let under_way = self.under_way.get_mut(&who)?;
        under_way.attempts -= 1;
        let (gone, last) = (under_way.gone, under_way.attempts == 0);
        if last {
            self.uncount(who);
            self.under_way.remove(&who);
        }
        gone
    }

    /// Records that a caller left while its request was under way.
    pub(super) fn went(&mut self, who: CallerKey, how: Gone) {
        self.uncount(who);
        if let Some(under_way) = self.under_way.get_mut(&who) {
            under_way.gone = Some(how);
        }
    }

    /// Records that all callers of a stream left.
    pub(super) fn stream_lost(&mut self, stream: u64) {
        let of_stream = self.under_way.range(CallerKey::all_of(stream));
        let there = of_stream.filter(|(_, under_way)| under_way.gone.is_none());
        for who in there.map(|(who, _)| *who).collect::<Vec<_>>() {
            self.went(who, Gone::Lost);
        }
    }

    /// Puts a wait on the list because no caller attends it any more. A time that is already recorded stays.
    pub(super) fn left(&mut self, wait: WaitKey, name: Name) {
        let now = self.now;
        if let std::collections::btree_map::Entry::Vacant(place) = self.since.entry(wait) {
            place.insert((now, name));
            self.by_time.insert((now, wait));
        }
    }

    /// Takes a wait off the list because it is attended again, or over.
    pub(super) fn forget(&mut self, wait: WaitKey) {
        if let Some((since, _)) = self.since.remove(&wait) {
            self.by_time.remove(&(since, wait));
        }
    }

    /// Takes the waits that have been unattended for `for_ms`: at most `count_max`, the oldest first.
    pub(super) fn take_due(&mut self, for_ms: u64, count_max: usize) -> Vec<(WaitKey, Name)> {
        let is_due = |since: MonotonicTime| since.after_ms(for_ms) <= self.now;
        let due = self.by_time.iter().take_while(|(since, _)| is_due(*since)).take(count_max);
        let due: Vec<WaitKey> = due.map(|(_, wait)| *wait).collect();
        let named = |wait| {
            let (since, name) = self.since.remove(&wait).expect("both lists have it");
            self.by_time.remove(&(since, wait));
            (wait, name)
        };
        due.into_iter().map(named).collect()
    }

    /// Begins a search of a group that this node leads from now on.
    pub(super) fn begin_search(&mut self, group: GroupId) {
        self.searches.insert(group, 0);
    }

    /// Groups to search, and where each search continues.
    pub(super) fn searches(&self) -> Vec<(GroupId, usize)> {
        self.searches.iter().map(|(group, from)| (*group, *from)).collect()
    }

    /// Records that a part of a group was searched, and where the search continues, if it does.
    pub(super) fn searched(&mut self, group: GroupId, next: Option<usize>) {
        match next {
            Some(next) => self.searches.insert(group, next),
            None => self.searches.remove(&group),
        };
    }

    /// True while a search has begun and is not finished.
    pub(super) fn searching(&self) -> bool {
        self.searches.values().any(|from| *from > 0)
    }

    /// Drops the waits and the search of a group that this node no longer leads. Requests under way are still answered.
    pub(super) fn leave(&mut self, group: GroupId) {
        self.searches.remove(&group);
        self.since.retain(|(of, _), _| *of != group);
        self.by_time.retain(|(_, (of, _))| *of != group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::{LeaseId, Revision, Seq};

    fn wait(revision: u64) -> WaitKey {
        (GroupId::new(0), Revision::new(revision).unwrap())
    }

    fn at(ms: u64) -> MonotonicTime {
        MonotonicTime::from_us(0).after_ms(ms)
    }

    fn name() -> Name {
        Name::new("jobs").unwrap()
    }

    #[test]
    fn a_wait_is_due_when_nobody_came_back_in_time() {
        let mut caller_liveness = CallerLiveness::default();
        caller_liveness.pass(at(5));
        caller_liveness.left(wait(1), name());
        caller_liveness.left(wait(2), name());
        caller_liveness.pass(at(6));
        caller_liveness.left(wait(3), name());
        caller_liveness.pass(at(9));
        // Wait 1 was left already: the earlier time counts.
        caller_liveness.left(wait(1), name());
        caller_liveness.forget(wait(2));
        caller_liveness.pass(at(104));
        assert_eq!(caller_liveness.take_due(100, 9), []);
        caller_liveness.pass(at(105));
        assert_eq!(caller_liveness.take_due(100, 9), [(wait(1), name())]);
        caller_liveness.pass(at(200));
        assert_eq!(caller_liveness.take_due(100, 9), [(wait(3), name())]);
        assert!(caller_liveness.since.is_empty() && caller_liveness.by_time.is_empty());
    }

    #[test]
    fn what_a_machine_that_stood_still_missed_is_not_held_against_callers() {
        let mut caller_liveness = CallerLiveness::default();
        caller_liveness.pass(at(10));
        caller_liveness.left(wait(1), name());
        caller_liveness.pass(at(60_000));
        assert_eq!(caller_liveness.take_due(10_000, 9), []);
    }

    #[test]
    fn one_who_went_while_its_request_was_under_way_is_known_until_the_last_answer() {
        let (one, other) = (CallerKey { stream: 1, call: 1 }, CallerKey { stream: 2, call: 1 });
        let mut caller_liveness = CallerLiveness::default();
        let key = (GroupId::new(0), LeaseId::new(9).unwrap(), Seq::new(1).unwrap());
        let (request, wanted) = (Some(key), |caller_liveness: &CallerLiveness| caller_liveness.any_asks(key));
        caller_liveness.asks(one, request);
        caller_liveness.asks(one, request);
        caller_liveness.asks(other, request);
        caller_liveness.stream_lost(1);
        assert!(wanted(&caller_liveness), "by the other");
        assert_eq!(caller_liveness.answered(one), Some(Gone::Lost));
        caller_liveness.went(one, Gone::HungUp);
        assert_eq!(caller_liveness.answered(one), Some(Gone::HungUp));
        assert_eq!(caller_liveness.answered(other), None);
        assert!(!wanted(&caller_liveness));
        caller_liveness.asks(one, request);
        caller_liveness.went(one, Gone::HungUp);
        assert!(!wanted(&caller_liveness));
        caller_liveness.asks(one, request);
        assert!(wanted(&caller_liveness));
        assert_eq!(caller_liveness.answered(one), None, "it came back");
        caller_liveness.answered(one);
        assert!(caller_liveness.requests.is_empty() && caller_liveness.under_way.is_empty());
    }
}
