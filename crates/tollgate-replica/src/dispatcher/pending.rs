//! Callers that wait in a queue, pending at the group's leader until the log has the outcome.
//!
//! Invariant: each pending caller is given back exactly once: by the entry that ended its wait, because this node can
//! no longer learn the outcome, or because the caller itself is gone. Not here: how callers are answered
//! (`dispatcher`), and what happens to a wait that its callers have left (`caller_liveness`).

use super::{Caller, CallerKey};
use std::collections::BTreeMap;
use tollgate_types::{GroupId, LeaseId, Name, Revision, Seq};

/// The most callers of one wait: attempts of one request, or several requests for the same claim.
const CALLERS_PER_WAIT_MAX: usize = 8;

/// Key of a wait: joining a queue takes a revision of its own.
pub(super) type WaitKey = (GroupId, Revision);

/// Key of a waiting request, besides the key of its wait.
pub(super) type RequestKey = (GroupId, LeaseId, Seq);

/// A wait that a caller has left, and the name of one of its locks if that caller attended it.
pub(super) type Left = (WaitKey, Option<Name>);

/// Callers that left, and the wait that they left.
type Leaving<C> = (Vec<C>, Left);

#[derive(Debug)]
struct Waiting<C> {
    caller: C,
    /// Name of one of the wait's locks, if the caller attends the wait.
    attended: Option<Name>,
    request: Option<RequestKey>,
}

/// All callers that are pending on a node. The groups' limits bound the number of waits.
#[derive(Debug)]
pub(super) struct Pending<C> {
    waits: BTreeMap<WaitKey, Vec<Waiting<C>>>,
    /// Wait of each request that has pending callers.
    requests: BTreeMap<RequestKey, WaitKey>,
    /// Wait of each pending caller.
    callers: BTreeMap<CallerKey, WaitKey>,
}

impl<C> Default for Pending<C> {
    fn default() -> Pending<C> {
        Pending { waits: BTreeMap::new(), requests: BTreeMap::new(), callers: BTreeMap::new() }
    }
}

impl<C: Caller> Pending<C> {
    /// Adds a caller and returns true, unless too many callers attend the wait. A retry of a call replaces the earlier
    /// attempt.
    pub(super) fn add(
        &mut self,
        key: WaitKey,
        caller: C,
        attended: Option<Name>,
        request: Option<RequestKey>,
    ) -> bool {
        let who = caller.key();
        self.remove(who);
        if self.waits.get(&key).is_some_and(|callers| callers.len() >= CALLERS_PER_WAIT_MAX) {
            return false;
        }
        self.waits.entry(key).or_default().push(Waiting { caller, attended, request });
        self.callers.insert(who, key);
        if let Some(request) = request {
            self.requests.insert(request, key);
        }
        true
    }

    /// Removes a caller that is gone. Returns the wait on which it was pending, and the name of one of the wait's locks
    /// if it attended the wait.
    pub(super) fn remove(&mut self, who: CallerKey) -> Option<Leaving<C>> {
        let key = self.callers.get(&who).copied()?;
        let callers = self.waits.get_mut(&key).expect("who is pending is pending somewhere");
        let mut gone: Vec<_> = callers.extract_if(.., |pending| pending.caller.key() == who).collect();
        if callers.is_empty() {
            self.waits.remove(&key);
        }
        let attended = gone.iter_mut().find_map(|pending| pending.attended.take());
        Some((self.forget(gone), (key, attended)))
    }

    /// Pending callers that came over a stream.
    pub(super) fn of_stream(&self, stream: u64) -> Vec<CallerKey> {
        self.callers.range(CallerKey::all_of(stream)).map(|(who, _)| *who).collect()
    }

    /// True if any caller is pending on a wait.
    pub(super) fn any_on(&self, key: WaitKey) -> bool {
        self.waits.contains_key(&key)
    }

    /// True if any caller of the request is pending.
    pub(super) fn any_of(&self, request: RequestKey) -> bool {
        self.requests.contains_key(&request)
    }

    /// Takes the callers whose wait is over.
    pub(super) fn resolve(&mut self, key: WaitKey) -> Vec<C> {
        let callers = self.waits.remove(&key).unwrap_or_default();
        self.forget(callers)
    }

    /// Takes the callers of one request, whose wait is over for them, though it may go on for others; returns the wait
    /// too.
    pub(super) fn cancelled(&mut self, request: RequestKey) -> (Vec<C>, Option<Left>) {
        let Some(key) = self.requests.get(&request).copied() else { return (Vec::new(), None) };
        let Some(callers) = self.waits.get_mut(&key) else { return (Vec::new(), None) };
        let mut gone: Vec<_> = callers.extract_if(.., |pending| pending.request == Some(request)).collect();
        if callers.is_empty() {
            self.waits.remove(&key);
        }
        let attended = gone.iter_mut().find_map(|pending| pending.attended.take());
        (self.forget(gone), Some((key, attended)))
    }

    /// Takes all callers that wait in the group: this node may miss how their waits end.
    pub(super) fn leave(&mut self, group: GroupId) -> Vec<C> {
        let gone = self.waits.extract_if(.., |(of, _), _| *of == group);
        let gone = gone.flat_map(|(_, callers)| callers).collect();
        self.forget(gone)
    }

    fn forget(&mut self, gone: Vec<Waiting<C>>) -> Vec<C> {
        for pending in &gone {
            self.callers.remove(&pending.caller.key());
            let Some(request) = pending.request else { continue };
            // Another caller of the request may still be pending.
            let waits = self.requests.get(&request).and_then(|key| self.waits.get(key));
            if !waits.is_some_and(|callers| callers.iter().any(|other| other.request == Some(request))) {
                self.requests.remove(&request);
            }
        }
        gone.into_iter().map(|pending| pending.caller).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.callers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId::new(0);

    /// A caller given as stream, call and attempt.
    impl Caller for (u64, u64, u32) {
        fn key(&self) -> CallerKey {
            CallerKey { stream: self.0, call: self.1 }
        }
    }

    fn key(revision: u64) -> WaitKey {
        (GROUP, Revision::new(revision).unwrap())
    }

    fn request(seq: u64) -> RequestKey {
        (GROUP, LeaseId::new(9).unwrap(), Seq::new(seq).unwrap())
    }

    fn is_empty<C>(pending: &Pending<C>) -> bool {
        pending.waits.is_empty() && pending.requests.is_empty() && pending.callers.is_empty()
    }

    #[test]
    fn a_parked_caller_is_given_back_once() {
        let mut pending = Pending::default();
        pending.add(key(5), (1, 1, 1), None, None);
        pending.add(key(6), (1, 2, 1), None, Some(request(1)));
        assert_eq!(pending.len(), 2);
        assert_eq!(pending.resolve(key(5)), [(1, 1, 1)]);
        assert_eq!(pending.resolve(key(5)), []);
        assert_eq!(pending.leave(GroupId::new(1)), []);
        assert_eq!(pending.leave(GROUP), [(1, 2, 1)]);
        assert_eq!(pending.resolve(key(6)), []);
        assert!(is_empty(&pending));
    }

    #[test]
    fn a_repeat_takes_the_place_of_the_first_attempt() {
        let mut pending = Pending::default();
        pending.add(key(5), (1, 1, 1), None, None);
        pending.add(key(5), (1, 1, 2), None, None);
        pending.add(key(5), (1, 3, 1), None, None);
        assert_eq!(pending.resolve(key(5)), [(1, 1, 2), (1, 3, 1)]);
    }

    #[test]
    fn p16_too_many_on_one_wait_are_turned_away() {
        let mut pending = Pending::default();
        let taken = (0..10).filter(|call| pending.add(key(5), (1, *call, 1), None, None)).count();
        assert_eq!((taken, pending.len()), (CALLERS_PER_WAIT_MAX, CALLERS_PER_WAIT_MAX));
        assert!(pending.add(key(5), (1, 3, 2), None, None), "a later attempt has a place already");
        pending.remove(CallerKey { stream: 1, call: 0 });
        assert!(pending.add(key(5), (1, 9, 2), None, None), "one has left");
    }

    #[test]
    fn p10_a_cancelled_request_leaves_a_wait_that_goes_on_for_another() {
        let mut pending = Pending::default();
        pending.add(key(5), (1, 1, 1), None, Some(request(1)));
        pending.add(key(5), (1, 2, 1), None, Some(request(2)));
        assert_eq!(pending.cancelled(request(1)), (vec![(1, 1, 1)], Some((key(5), None))));
        assert_eq!(pending.cancelled(request(1)), (vec![], None));
        assert_eq!(pending.resolve(key(5)), [(1, 2, 1)]);
    }

    #[test]
    fn one_who_goes_leaves_the_others_of_its_request_and_of_other_streams() {
        let mut pending = Pending::default();
        let jobs = Name::new("jobs").ok();
        pending.add(key(5), (1, 1, 1), jobs.clone(), Some(request(1)));
        pending.add(key(5), (2, 1, 1), None, Some(request(1)));
        pending.add(key(6), (1, 7, 1), None, None);
        assert_eq!(pending.of_stream(1).len(), 2);
        assert_eq!(pending.remove(CallerKey { stream: 1, call: 1 }), Some((vec![(1, 1, 1)], (key(5), jobs))));
        assert_eq!(pending.remove(CallerKey { stream: 1, call: 1 }), None);
        assert!(pending.any_on(key(5)));
        assert_eq!(pending.cancelled(request(1)), (vec![(2, 1, 1)], Some((key(5), None))));
        assert!(!pending.any_on(key(5)));
        pending.remove(CallerKey { stream: 1, call: 7 });
        assert!(is_empty(&pending));
    }
}
