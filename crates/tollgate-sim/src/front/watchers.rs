//! Clients that watch a group through this node.
//!
//! Invariant: the batches of a subscription follow each other without gap or overlap; each says where it begins, so
//! that a client that missed one can tell. A subscription that is not renewed is forgotten. Not here: what a client
//! makes of the batches (`client::watching`).

use super::{Answer, Caller};
use crate::types::{At, ClientNo};
use std::collections::BTreeMap;
use tollgate_core::{State, Watch};
use tollgate_types::{GroupId, Revision};

/// A subscription is served for so long after it was made.
const SERVED_FOR_US: u64 = 5_000_000;

/// How many events one answer has, beside the rest of its last revision.
const EVENTS_MAX: usize = 64;

#[derive(Debug)]
struct Watcher {
    caller: Caller,
    filter: Watch,
    /// The client has, or will have, everything below this.
    told: Revision,
    /// There is nothing for it from `told` to before this.
    next: Revision,
    until: At,
    /// Whether it has had no answer yet: it gets one even if there is nothing to tell.
    fresh: bool,
}

/// All subscriptions of a node.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    watchers: BTreeMap<(GroupId, ClientNo, u32), Watcher>,
}

impl Watchers {
    pub(super) fn subscribe(&mut self, caller: Caller, watch: u32, from: Revision, filter: Watch, at: At) {
        let key = (caller.group, caller.client, watch);
        let until = at.saturating_add(SERVED_FOR_US);
        self.watchers.insert(key, Watcher { caller, filter, told: from, next: from, until, fresh: true });
    }

    /// Whether somebody awaits a first answer from the group.
    pub(super) fn has_fresh(&self, group: GroupId) -> bool {
        self.watchers.iter().any(|((of, ..), watcher)| *of == group && watcher.fresh)
    }

    /// Tells everyone who watches the group what is new in its state.
    pub(super) fn serve(
        &mut self,
        group: GroupId,
        state: &State,
        at: At,
        answer: &mut dyn FnMut(Caller, Answer),
    ) {
        self.watchers.retain(|(of, _, watch), watcher| {
            *of != group || (at < watcher.until && watcher.serve(*watch, state, answer))
        });
    }
}

impl Watcher {
    /// Whether the subscription goes on.
    fn serve(&mut self, watch: u32, state: &State, answer: &mut dyn FnMut(Caller, Answer)) -> bool {
        while self.fresh || self.next <= state.revision() {
            let batch = match state.events_since(self.next, &self.filter, EVENTS_MAX) {
                Ok(batch) => batch,
                Err(gone) => {
                    let (from, min_revision) = (self.told, gone.min_revision);
                    answer(self.caller, Answer::Compacted { watch, from, min_revision });
                    return false;
                }
            };
            self.next = batch.next;
            if self.fresh || !batch.events.is_empty() {
                let (from, next) = (self.told, self.next);
                answer(self.caller, Answer::Events { watch, from, events: batch.events, next });
                self.told = next;
                self.fresh = false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_check::CallId;
    use tollgate_core::{AcquireLock, Command, Entry, GrantLease, LeaseChoice, Wait};
    use tollgate_types::{
        Address, ClientId, DurationMs, LeaseId, Limits, LogTime, Metadata, Mode, Name, Names, Owner,
    };

    const GROUP: GroupId = GroupId::new(0);

    fn apply(state: &mut State, command: Command) {
        state.apply(Entry { at: LogTime::from_ms(1), command });
    }

    fn lock(state: &mut State, name: &str) {
        let lease = LeaseId::new(7).unwrap();
        apply(
            state,
            Command::AcquireLock(AcquireLock {
                names: Names::One(Name::new(name).unwrap()),
                lease,
                owner: Owner::LEASE,
                mode: Mode::Exclusive,
                wait: Wait::No,
                lock_delay: DurationMs::ZERO,
                max_hold: None,
                metadata: Metadata::NONE,
                request: None,
            }),
        );
    }

    fn state_with_lease() -> State {
        let mut state = State::new(Limits::DEFAULT);
        let id = LeaseChoice::Chosen(LeaseId::new(7).unwrap());
        let ttl = DurationMs::from_secs(10);
        let (client_id, address) = (ClientId::NONE, Address::NONE);
        apply(
            &mut state,
            Command::GrantLease(GrantLease { id, ttl, client_id, address, revoke_on_disconnect: false }),
        );
        state
    }

    #[test]
    fn batches_follow_each_other_whatever_lies_between() {
        let mut state = state_with_lease();
        let mut watchers = Watchers::default();
        let caller = Caller { client: ClientNo(1), call: CallId(1), attempt: 1, group: GROUP };
        let filter = Watch::LockPrefix(b"jobs/".to_vec());
        watchers.subscribe(caller, 3, Revision::ZERO.next(), filter, 0);
        let mut batches = Vec::new();
        for name in ["jobs/1", "other", "jobs/2"] {
            lock(&mut state, name);
            watchers.serve(GROUP, &state, 1, &mut |_, answer| match answer {
                Answer::Events { from, events, next, .. } => {
                    batches.push((from.get(), events.len(), next.get()));
                }
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(batches, [(1, 1, 3), (3, 1, 5)]);
        watchers.serve(GROUP, &state, SERVED_FOR_US, &mut |_, answer| panic!("{answer:?}"));
        assert!(watchers.watchers.is_empty());
    }
}
