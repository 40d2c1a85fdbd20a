//! Callers that wait in a queue, parked at the group's leader until the log says what became of them.
//!
//! Invariant: each caller parked is given back exactly once, by the entry that ended its wait or because this node
//! can no longer tell. Not here: how they are answered (`desk`).

use super::Caller;
use std::collections::BTreeMap;
use tollgate_types::{GroupId, LeaseId, Revision, Seq};

/// Callers of one wait: attempts of one request, or several who ask for the same.
const CALLERS_PER_WAIT_MAX: usize = 8;

/// The name of a wait: joining a queue takes a revision of its own.
pub(super) type WaitKey = (GroupId, Revision);

/// By what a request that waits is known beside that.
pub(super) type RequestKey = (GroupId, LeaseId, Seq);

#[derive(Debug)]
struct Waiting<C> {
    caller: C,
    request: Option<RequestKey>,
}

/// All callers that are parked on a node. There are no more waits than the groups' limits let wait.
#[derive(Debug)]
pub(super) struct Parked<C> {
    waits: BTreeMap<WaitKey, Vec<Waiting<C>>>,
    /// Where the callers of a request are.
    requests: BTreeMap<RequestKey, WaitKey>,
    /// How many callers there are.
    count: usize,
}

impl<C> Default for Parked<C> {
    fn default() -> Parked<C> {
        Parked { waits: BTreeMap::new(), requests: BTreeMap::new(), count: 0 }
    }
}

impl<C: Caller> Parked<C> {
    /// Parks a caller. A later attempt of a call takes the place of an earlier one. Gives back who must go for it: the
    /// oldest, if too many wait for the same; most likely nobody listens there any more.
    pub(super) fn park(&mut self, key: WaitKey, caller: C, request: Option<RequestKey>) -> Option<C> {
        let callers = self.waits.entry(key).or_default();
        self.count -= callers.len();
        callers.retain(|parked| !caller.replaces(&parked.caller));
        let oldest = (callers.len() >= CALLERS_PER_WAIT_MAX).then(|| callers.remove(0).caller);
        callers.push(Waiting { caller, request });
        self.count += callers.len();
        if let Some(request) = request {
            self.requests.insert(request, key);
        }
        oldest
    }

    /// Those whose wait is over.
    pub(super) fn resolve(&mut self, key: WaitKey) -> Vec<C> {
        let callers = self.waits.remove(&key).unwrap_or_default();
        self.forget(callers)
    }

    /// The callers of one request, whose wait is over for them, though it may go on for others; and which wait it is.
    pub(super) fn cancelled(&mut self, request: RequestKey) -> (Vec<C>, Option<Revision>) {
        let Some(key) = self.requests.get(&request).copied() else { return (Vec::new(), None) };
        let Some(callers) = self.waits.get_mut(&key) else { return (Vec::new(), None) };
        let gone = callers.extract_if(.., |parked| parked.request == Some(request)).collect();
        if callers.is_empty() {
            self.waits.remove(&key);
        }
        (self.forget(gone), Some(key.1))
    }

    /// Everyone who waits in the group: this node may miss how their waits end.
    pub(super) fn leave(&mut self, group: GroupId) -> Vec<C> {
        let gone = self.waits.extract_if(.., |(of, _), _| *of == group);
        let gone = gone.flat_map(|(_, callers)| callers).collect();
        self.forget(gone)
    }

    fn forget(&mut self, gone: Vec<Waiting<C>>) -> Vec<C> {
        self.count -= gone.len();
        for request in gone.iter().filter_map(|parked| parked.request) {
            self.requests.remove(&request);
        }
        gone.into_iter().map(|parked| parked.caller).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId::new(0);

    /// Call and attempt.
    impl Caller for (u64, u32) {
        fn replaces(&self, other: &(u64, u32)) -> bool {
            self.0 == other.0
        }
    }

    fn key(revision: u64) -> WaitKey {
        (GROUP, Revision::new(revision).unwrap())
    }

    fn request(seq: u64) -> RequestKey {
        (GROUP, LeaseId::new(9).unwrap(), Seq::new(seq).unwrap())
    }

    #[test]
    fn a_parked_caller_is_given_back_once() {
        let mut parked = Parked::default();
        parked.park(key(5), (1, 1), None);
        parked.park(key(6), (2, 1), Some(request(1)));
        assert_eq!(parked.len(), 2);
        assert_eq!(parked.resolve(key(5)), [(1, 1)]);
        assert_eq!(parked.resolve(key(5)), []);
        assert_eq!(parked.leave(GroupId::new(1)), []);
        assert_eq!(parked.leave(GROUP), [(2, 1)]);
        assert_eq!(parked.resolve(key(6)), []);
        assert_eq!((parked.len(), parked.requests.len()), (0, 0));
    }

    #[test]
    fn a_repeat_takes_the_place_of_the_first_attempt() {
        let mut parked = Parked::default();
        parked.park(key(5), (1, 1), None);
        parked.park(key(5), (1, 2), None);
        parked.park(key(5), (3, 1), None);
        assert_eq!(parked.resolve(key(5)), [(1, 2), (3, 1)]);
    }

    #[test]
    fn p16_of_too_many_on_one_wait_the_oldest_goes() {
        let mut parked = Parked::default();
        let gone: Vec<_> = (0..10).filter_map(|call| parked.park(key(5), (call, 1), None)).collect();
        assert_eq!(gone, [(0, 1), (1, 1)]);
        assert_eq!(parked.len(), CALLERS_PER_WAIT_MAX);
    }

    #[test]
    fn p10_a_cancelled_request_leaves_a_wait_that_goes_on_for_another() {
        let mut parked = Parked::default();
        parked.park(key(5), (1, 1), Some(request(1)));
        parked.park(key(5), (2, 1), Some(request(2)));
        assert_eq!(parked.cancelled(request(1)), (vec![(1, 1)], Some(key(5).1)));
        assert_eq!(parked.cancelled(request(1)), (vec![], None));
        assert_eq!(parked.resolve(key(5)), [(2, 1)]);
    }
}
