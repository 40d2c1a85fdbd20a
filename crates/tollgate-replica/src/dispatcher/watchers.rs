//! Watches of the groups' histories, served by any node that keeps state.
//!
//! Invariant: the batches of a watch follow each other without gap or overlap, and never split a revision. A watch
//! without a start revision begins, and is first answered, once a read that was requested after the watch was opened is
//! confirmed: by then the local state has everything that any caller was answered before. Events are not buffered for a
//! watch without credit: the watch falls behind in the history itself, and once that part of the history is gone, the
//! watch is told so and is over. Not here: the events in the history (`tollgate_core`), how much a watch may be sent
//! (the dispatcher's user), and which watches wait for which read (`unbegun`).

use super::unbegun::Unbegun;
use super::{Answer, Caller, WatchNumber};
use crate::host::Host;
use crate::output::{HostEvent, Output, ReadError, ReadId};
use std::collections::{BTreeMap, BTreeSet};
use tollgate_core::{Event, State, Watch, WatchIndex};
use tollgate_types::{GroupId, Revision};

/// The most events in one answer, besides the rest of its last revision.
const EVENTS_MAX: usize = 256;

/// The most watches that catch up from the history in one turn: others wait for the turn to end.
const BEHIND_PER_TURN_MAX: usize = 16;

#[derive(Debug)]
struct Watcher<C> {
    caller: C,
    group: GroupId,
    filter: Watch,
    /// Exclusive end of the revisions sent so far. None until the first answer, if the watch has no start revision.
    told: Option<Revision>,
    /// Exclusive end of the revisions known to have nothing for the watch, from `told` on.
    next: Revision,
    /// Number of further events that the watch may be sent.
    credit: u64,
    /// True until the first answer, which is sent even if there are no events.
    fresh: bool,
}

/// The watches of one group.
#[derive(Debug)]
struct GroupWatches {
    /// Watches that were sent everything below `told` and have credit; new events are matched against all of them at
    /// once. None of them is behind.
    current: WatchIndex<WatchNumber>,
    told: Revision,
    /// True if there are more events for `current` than one turn looked at.
    unfinished: bool,
    /// The other watches with credit: each reads the history by itself, a few of them per turn.
    behind: BTreeSet<WatchNumber>,
    /// The watch in `behind` that was served last.
    served: WatchNumber,
}

impl Default for GroupWatches {
    fn default() -> GroupWatches {
        let (current, behind) = (WatchIndex::new(), BTreeSet::new());
        GroupWatches { current, told: Revision::ZERO, unfinished: false, behind, served: 0 }
    }
}

impl GroupWatches {
    /// Takes the next watch that is behind, round robin, so that a few watches that are far behind hold up no others.
    fn behind_next(&mut self) -> Option<WatchNumber> {
        let after = self.behind.range(self.served + 1..).next().copied();
        let next = after.or_else(|| self.behind.first().copied())?;
        self.behind.remove(&next);
        self.served = next;
        Some(next)
    }
}

/// All watches of a node.
#[derive(Debug)]
pub(super) struct Watchers<C> {
    all: BTreeMap<WatchNumber, Watcher<C>>,
    groups: BTreeMap<GroupId, GroupWatches>,
    unbegun: Unbegun,
}

impl<C> Default for Watchers<C> {
    fn default() -> Watchers<C> {
        Watchers { all: BTreeMap::new(), groups: BTreeMap::new(), unbegun: Unbegun::default() }
    }
}

impl<C: Caller> Watchers<C> {
    pub(super) fn add(
        &mut self,
        caller: C,
        number: WatchNumber,
        group: GroupId,
        from: Option<Revision>,
        filter: Watch,
        credit: u64,
    ) {
        self.remove(number);
        let next = from.unwrap_or(Revision::ZERO);
        let watcher = Watcher { caller, group, filter, told: from, next, credit, fresh: true };
        self.all.insert(number, watcher);
        let here = self.groups.entry(group).or_default();
        if from.is_none() {
            self.unbegun.add(number, group);
        } else {
            here.behind.insert(number);
        }
    }

    /// A group with watches that can't begin before a read of the group is confirmed.
    pub(super) fn to_ask(&self) -> Option<GroupId> {
        self.unbegun.to_ask()
    }

    /// Assigns a requested read to the watches of the group that need one.
    pub(super) fn asked(&mut self, group: GroupId, read: ReadId) {
        self.unbegun.ask(group, read);
    }

    /// Begins or refuses the watches that waited for an answered read. False if no watch waits for the read.
    pub(super) fn read_answered<R>(
        &mut self,
        read: ReadId,
        result: &Result<(), ReadError>,
        answers: &mut Vec<(C, Answer<R>)>,
    ) -> bool {
        let Some(numbers) = self.unbegun.answered(read) else { return false };
        for number in numbers {
            let Some(watcher) = self.all.get(&number) else { continue };
            match result {
                Ok(()) => {
                    self.groups.entry(watcher.group).or_default().behind.insert(number);
                }
                Err(error) => {
                    let (caller, error) = (watcher.caller.clone(), error.clone());
                    answers.push((caller, Answer::NotRead { what: None, error }));
                    self.remove(number);
                }
            }
        }
        true
    }

    pub(super) fn remove(&mut self, number: WatchNumber) {
        self.unbegun.remove(number);
        let Some(watcher) = self.all.remove(&number) else { return };
        let Some(group) = self.groups.get_mut(&watcher.group) else { return };
        group.current.remove(&watcher.filter, number);
        group.behind.remove(&number);
        if group.current.is_empty() && !self.all.values().any(|other| other.group == watcher.group) {
            self.groups.remove(&watcher.group);
        }
    }

    pub(super) fn give_credit(&mut self, number: WatchNumber, events: u64) {
        let Some(watcher) = self.all.get_mut(&number) else { return };
        let waits = watcher.credit == 0;
        watcher.credit = watcher.credit.saturating_add(events);
        if waits
            && !self.unbegun.contains(number)
            && let Some(group) = self.groups.get_mut(&watcher.group)
        {
            group.behind.insert(number);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// True if a watch waits for nothing but its turn.
    pub(super) fn any_ready(&self) -> bool {
        self.groups.values().any(|group| group.unfinished || !group.behind.is_empty())
    }

    /// Sends new events of the states to the watches.
    pub(super) fn serve<R>(
        &mut self,
        output: &Output,
        host: &Host,
        lose_events: bool,
        answers: &mut Vec<(C, Answer<R>)>,
    ) {
        for event in &output.events {
            match event {
                // The history began anew, and may have jumped.
                HostEvent::SnapshotInstalled { group, .. } => self.all_behind(*group),
                // A removed replica's state never changes again.
                HostEvent::Removed { group } => self.refuse_all(*group, answers),
                _ => {}
            }
        }
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            let Some(state) = host.state(group) else {
                self.refuse_all(group, answers);
                continue;
            };
            self.serve_current(group, state, lose_events, answers);
            self.serve_behind(group, state, answers);
        }
    }

    /// Refuses the watches of a group that has no state on this node, as on a witness.
    fn refuse_all<R>(&mut self, group: GroupId, answers: &mut Vec<(C, Answer<R>)>) {
        let (watchers, unbegun) = (&mut self.all, &mut self.unbegun);
        let gone = watchers.extract_if(.., |_, watcher| watcher.group == group);
        answers.extend(gone.map(|(number, gone)| {
            unbegun.remove(number);
            let error = ReadError::NoState { group };
            (gone.caller, Answer::NotRead { what: None, error })
        }));
        self.groups.remove(&group);
    }

    fn all_behind(&mut self, group: GroupId) {
        let Some(here) = self.groups.get_mut(&group) else { return };
        let told = here.told;
        for (number, watcher) in self.all.iter_mut().filter(|(_, watcher)| watcher.group == group) {
            if here.current.remove(&watcher.filter, *number) {
                watcher.next = watcher.next.max(told);
                here.behind.insert(*number);
            }
        }
    }

    fn serve_current<R>(
        &mut self,
        group: GroupId,
        state: &State,
        lose_events: bool,
        answers: &mut Vec<(C, Answer<R>)>,
    ) {
        let Some(here) = self.groups.get_mut(&group) else { return };
        if here.current.is_empty() || state.revision() < here.told {
            return;
        }
        let from = here.told;
        let Ok(batch) = state.events_since(from, &Watch::All, usize::MAX) else {
            return self.all_behind(group);
        };
        here.told = batch.next;
        here.unfinished = batch.next <= state.revision();
        let mut wanted: BTreeMap<WatchNumber, Vec<Event>> = BTreeMap::new();
        let mut matching = Vec::new();
        for event in &batch.events {
            matching.clear();
            here.current.matching(event, &mut matching);
            for number in &matching {
                let watcher = &self.all[number];
                let events = wanted.entry(*number).or_default();
                // A watch that begins in the future gets no earlier events; of more events than its credit, it matters
                // only that there are more.
                if watcher.next <= event.revision && events.len() as u64 <= watcher.credit {
                    events.push(event.clone());
                }
            }
        }
        for (number, events) in wanted.into_iter().filter(|(_, events)| !events.is_empty()) {
            let watcher = self.all.get_mut(&number).expect("what is matched is there");
            let count = events.len() as u64;
            // A watch without enough credit for all of these events reads the history by itself from here on.
            if count > watcher.credit {
                here.current.remove(&watcher.filter, number);
                watcher.next = watcher.next.max(from);
                here.behind.insert(number);
                continue;
            }
            watcher.credit -= count;
            if watcher.credit == 0 {
                here.current.remove(&watcher.filter, number);
                watcher.next = batch.next;
            }
            let (told, next) = (watcher.told.replace(batch.next).unwrap_or(from), batch.next);
            if lose_events && batch.next.get().is_multiple_of(2) {
                // The next batch claims to follow the previous one.
                watcher.told = Some(told);
                continue;
            }
            let from = told;
            answers.push((watcher.caller.clone(), Answer::Events { watch: number, from, events, next }));
        }
    }

    fn serve_behind<R>(&mut self, group: GroupId, state: &State, answers: &mut Vec<(C, Answer<R>)>) {
        let Some(here) = self.groups.get_mut(&group) else { return };
        for _ in 0..BEHIND_PER_TURN_MAX {
            let Some(number) = here.behind_next() else { return };
            let watcher = self.all.get_mut(&number).expect("what is behind is there");
            match watcher.catch_up(number, state, answers) {
                // Sent everything, and without credit for more: treated as behind without credit.
                Progress::Current if watcher.credit == 0 => {}
                Progress::Current => {
                    if here.current.is_empty() {
                        here.told = state.revision().next();
                    }
                    here.current.insert(&watcher.filter, number);
                }
                Progress::Behind => {
                    here.behind.insert(number);
                }
                Progress::NoCredit => {}
                Progress::Over => {
                    self.all.remove(&number);
                }
            }
        }
    }
}

enum Progress {
    /// The watch was sent everything that there is.
    Current,
    Behind,
    NoCredit,
    Over,
}

impl<C: Caller> Watcher<C> {
    fn catch_up<R>(
        &mut self,
        number: WatchNumber,
        state: &State,
        answers: &mut Vec<(C, Answer<R>)>,
    ) -> Progress {
        if self.credit == 0 && !self.fresh {
            return Progress::NoCredit;
        }
        let told = *self.told.get_or_insert_with(|| state.revision().next());
        self.next = self.next.max(told);
        let events_max = usize::try_from(self.credit).unwrap_or(EVENTS_MAX).clamp(1, EVENTS_MAX);
        let mut events = Vec::new();
        if self.next <= state.revision() {
            match state.events_since(self.next, &self.filter, events_max) {
                Ok(batch) => (events, self.next) = (batch.events, batch.next),
                Err(gone) => {
                    let (from, min_revision) = (told, gone.min_revision);
                    answers
                        .push((self.caller.clone(), Answer::Compacted { watch: number, from, min_revision }));
                    return Progress::Over;
                }
            }
        }
        self.credit = self.credit.saturating_sub(events.len() as u64);
        if self.fresh || !events.is_empty() {
            self.fresh = false;
            self.told = Some(self.next);
            let (from, next) = (told, self.next);
            answers.push((self.caller.clone(), Answer::Events { watch: number, from, events, next }));
        }
        if self.next > state.revision() { Progress::Current } else { Progress::Behind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{AcquireLock, Command, Entry, GrantLease, LeaseChoice, Wait};
    use tollgate_types::{
        Address, ClientId, DurationMs, LeaseId, Limits, LogTime, Metadata, Mode, Name, Names, Owner,
    };

    const GROUP: GroupId = GroupId::new(0);
    type Said = Vec<((u64, u64, u32), Answer<()>)>;

    fn apply(state: &mut State, command: Command) {
        state.apply(Entry::new(LogTime::from_ms(1), command));
    }

    fn lock(state: &mut State, name: &str) {
        let acquire = AcquireLock {
            names: Names::One(Name::new(name).unwrap()),
            lease: LeaseId::new(7).unwrap(),
            owner: Owner::LEASE,
            mode: Mode::Exclusive,
            wait: Wait::No,
            lock_delay: DurationMs::ZERO,
            max_hold: None,
            metadata: Metadata::NONE,
            value: None,
            attended: false,
            request: None,
        };
        apply(state, Command::AcquireLock(acquire));
    }

    fn state_with_lease() -> State {
        let mut state = State::new(Limits::DEFAULT);
        grant_lease(&mut state);
        state
    }

    fn grant_lease(state: &mut State) {
        let grant = GrantLease {
            id: LeaseChoice::Chosen(LeaseId::new(7).unwrap()),
            ttl: DurationMs::from_ms(10_000),
            client_id: ClientId::new("c").unwrap(),
            address: Address::NONE,
            revoke_on_disconnect: false,
        };
        apply(state, Command::GrantLease(grant));
    }

    fn serve(watchers: &mut Watchers<(u64, u64, u32)>, state: &State) -> Said {
        let mut answers = Vec::new();
        watchers.serve_current(GROUP, state, false, &mut answers);
        watchers.serve_behind(GROUP, state, &mut answers);
        answers
    }

    /// Adds a watch without a start revision, whose read is confirmed at once.
    fn add(watchers: &mut Watchers<(u64, u64, u32)>, number: WatchNumber, filter: Watch, credit: u64) {
        watchers.add((1, 1, 1), number, GROUP, None, filter, credit);
        assert_eq!(watchers.to_ask(), Some(GROUP));
        watchers.asked(GROUP, ReadId(number));
        assert!(watchers.read_answered::<()>(ReadId(number), &Ok(()), &mut Vec::new()));
    }

    /// Start, number of events, and end of each batch.
    fn batches(said: &Said) -> Vec<(u64, usize, u64)> {
        said.iter()
            .map(|(_, answer)| match answer {
                Answer::Events { from, events, next, .. } => (from.get(), events.len(), next.get()),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn p11_batches_follow_each_other_whoever_serves_them() {
        let mut state = state_with_lease();
        let mut watchers = Watchers::default();
        let begin = state.revision().get() + 1;
        add(&mut watchers, 1, Watch::LockPrefix(b"a".to_vec()), 100);
        assert_eq!(batches(&serve(&mut watchers, &state)), [(begin, 0, begin)]);
        lock(&mut state, "b1");
        assert_eq!(batches(&serve(&mut watchers, &state)), []);
        lock(&mut state, "a1");
        assert_eq!(batches(&serve(&mut watchers, &state)), [(begin, 1, begin + 2)]);
        assert!(!watchers.any_ready());
    }

    #[test]
    fn p16_a_watch_without_credit_is_told_nothing_and_goes_on_where_it_stopped() {
        let mut state = state_with_lease();
        let mut watchers = Watchers::default();
        let begin = state.revision().get() + 1;
        add(&mut watchers, 1, Watch::All, 2);
        serve(&mut watchers, &state);
        for name in ["a", "b", "c", "d"] {
            lock(&mut state, name);
        }
        assert_eq!(batches(&serve(&mut watchers, &state)), [(begin, 2, begin + 2)]);
        serve(&mut watchers, &state);
        assert_eq!(batches(&serve(&mut watchers, &state)), []);
        assert!(!watchers.any_ready());
        watchers.give_credit(1, 100);
        assert!(watchers.any_ready());
        assert_eq!(batches(&serve(&mut watchers, &state)), [(begin + 2, 2, begin + 4)]);
    }

    #[test]
    fn a_watch_from_the_future_is_told_nothing_before_and_asks_for_no_turns() {
        let mut state = state_with_lease();
        let mut watchers = Watchers::default();
        let begin = state.revision().get() + 3;
        watchers.add((1, 1, 1), 1, GROUP, Some(Revision::new(begin).unwrap()), Watch::All, 100);
        assert_eq!(batches(&serve(&mut watchers, &state)), [(begin, 0, begin)]);
        assert!(!watchers.any_ready());
        lock(&mut state, "a");
        lock(&mut state, "b");
        assert_eq!(batches(&serve(&mut watchers, &state)), []);
        lock(&mut state, "c");
        assert_eq!(batches(&serve(&mut watchers, &state)), [(begin, 1, begin + 1)]);
    }

    #[test]
    fn p11_a_watch_without_credit_is_told_when_history_has_passed_it_and_is_over() {
        let mut state = State::new(Limits { ring_bytes_max: 4_096, ..Limits::DEFAULT });
        grant_lease(&mut state);
        let mut watchers = Watchers::default();
        add(&mut watchers, 1, Watch::Lock(Name::new("a").unwrap()), 1);
        serve(&mut watchers, &state);
        lock(&mut state, "a");
        let told = batches(&serve(&mut watchers, &state))[0].2;
        // Events that the watch does not want push the history past the place where it stopped.
        for round in 0..100 {
            lock(&mut state, &format!("b{round}"));
            serve(&mut watchers, &state);
        }
        assert!(state.min_revision().get() > told);
        watchers.give_credit(1, 10);
        assert!(matches!(serve(&mut watchers, &state)[..], [(_, Answer::Compacted { .. })]));
        assert_eq!((watchers.len(), watchers.any_ready()), (0, false));
        lock(&mut state, "a2");
        assert_eq!(batches(&serve(&mut watchers, &state)), []);
    }

    #[test]
    fn a_watch_refused_before_it_begins_waits_for_no_read() {
        let state = state_with_lease();
        let mut watchers = Watchers::default();
        watchers.add((1, 1, 1), 1, GROUP, None, Watch::All, 100);
        watchers.asked(GROUP, ReadId(1));
        watchers.add((1, 1, 1), 2, GROUP, None, Watch::All, 100);
        let mut answers: Said = Vec::new();
        watchers.refuse_all(GROUP, &mut answers);
        let refused = |told: &(_, Answer<()>)| matches!(told.1, Answer::NotRead { what: None, .. });
        assert!(answers.len() == 2 && answers.iter().all(refused), "{answers:?}");
        assert_eq!(watchers.to_ask(), None);
        // The read belongs to the dispatcher, and no longer answers any watch.
        assert!(watchers.read_answered(ReadId(1), &Ok(()), &mut answers));
        assert_eq!((answers.len(), watchers.len(), watchers.any_ready()), (2, 0, false));
        assert_eq!(batches(&serve(&mut watchers, &state)), []);
    }

    #[test]
    fn a_watch_that_ended_is_forgotten() {
        let mut state = state_with_lease();
        let mut watchers = Watchers::default();
        add(&mut watchers, 1, Watch::All, 100);
        serve(&mut watchers, &state);
        watchers.remove(1);
        lock(&mut state, "a");
        assert_eq!(batches(&serve(&mut watchers, &state)), []);
        assert_eq!((watchers.len(), watchers.groups.len()), (0, 0));
    }
}
