//! The core and the oracle side by side, and everything about them that must be the same.

use super::place::Place;
use super::{Bug, texts};
use crate::oracle::Oracle;
use std::collections::BTreeSet;
use std::fmt::Debug;
use tollgate_core::{
    Applied, BlockedBy, BlockedWait, Change, Command, Entry, Event, KeySelector, LockView, RangeQuery,
    Rejection, Reply, SnapshotReader, Sort, State, StubView, Watch,
};
use tollgate_types::{DurationMs, Key, LeaseId, Limits, LogTime, Name, Revision};

/// One entry, and what happens to the core's states after it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) entry: Entry,
    /// True if the entry carries the seq of an entry before it.
    pub(super) repeat: bool,
    /// For each of the two states, the chunk size in bytes of a snapshot that it goes through after the entry, if any.
    pub(super) restore: [Option<usize>; 2],
    /// Set if all of them go on as from a backup: the increase of their revision, and the time for which nothing is
    /// granted.
    pub(super) resume: Option<(u64, DurationMs)>,
}

/// A difference. The kind stays the same while a sequence is shrunk; the text is for people.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) kind: &'static str,
    pub(super) text: String,
}

/// Interval, in entries, at which lists are compared.
const LISTS_EVERY: u64 = 3;

/// Interval, in entries, at which the whole ring is compared, which is by far the most expensive comparison.
const RING_EVERY: u64 = 8;

pub(super) struct Pair {
    oracle: Oracle,
    core: State,
    /// A state with the same entries and snapshots at other points: its hash must be the same at the end.
    twin: State,
    bug: Option<Bug>,
    names: Vec<Name>,
    keys: Vec<Key>,
    leases: BTreeSet<LeaseId>,
    entries: u64,
}

impl Pair {
    pub(super) fn new(limits: &Limits, place: &Place, bug: Option<Bug>) -> Pair {
        Pair {
            oracle: place.oracle(limits),
            core: planted(place.state(limits), bug),
            twin: planted(place.state(limits), bug),
            bug,
            names: place.names(),
            keys: place.keys(),
            leases: place.lease_ids().into_iter().chain(texts::stub_lease_ids()).collect(),
            entries: 0,
        }
    }

    pub(super) fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// Applies one entry to all and compares. Returns what the oracle answered.
    pub(super) fn step(&mut self, step: &Step) -> Result<Applied, Failure> {
        self.entries += 1;
        let busy = self.would_be_busy(&step.entry);
        let expected = self.oracle.apply(&step.entry);
        if busy && !matches!(expected.reply, Reply::Busy { .. }) {
            let text = format!("foretold, and then: {:?}", expected.reply);
            return Err(Failure { kind: "a busy answer", text });
        }
        let actual = self.core.apply(step.entry.clone());
        let of_twin = self.twin.apply(step.entry.clone());
        same("a replica's answer", &actual, &of_twin)?;
        self.compare_applied(&expected, actual)?;
        if let Reply::LeaseGranted { lease, .. } = expected.reply {
            self.leases.insert(lease);
        }
        self.compare_state()?;
        self.compare_entry_events(expected.events_from)?;
        if self.entries.is_multiple_of(RING_EVERY) {
            self.compare_ring()?;
        }
        self.core.assert_invariants();
        self.oracle.check_settled().map_err(|text| Failure { kind: "a waiter left behind", text })?;
        if let Some((raise, grace)) = step.resume {
            self.resume(raise, grace)?;
        }
        for (state, chunk_bytes) in [&mut self.core, &mut self.twin].into_iter().zip(step.restore) {
            if let Some(chunk_bytes) = chunk_bytes {
                *state = planted(restored(state, chunk_bytes)?, self.bug);
            }
        }
        Ok(expected)
    }

    fn resume(&mut self, raise: u64, grace: DurationMs) -> Result<(), Failure> {
        let above = self.oracle.revision().get() + raise;
        self.oracle.resume(above, grace);
        for state in [&mut self.core, &mut self.twin] {
            let refused = |error| Failure { kind: "a restore", text: format!("refused: {error}") };
            state.resume(above, grace).map_err(refused)?;
        }
        self.core.assert_invariants();
        self.compare_state()?;
        self.compare_ring()
    }

    /// The core's forecast of a busy answer.
    fn would_be_busy(&self, entry: &Entry) -> bool {
        match &entry.command {
            Command::AcquireLock(acquire) => self.core.would_be_busy(acquire, entry.at),
            _ => false,
        }
    }

    /// Checks that must hold at the end of a sequence.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.compare_ring()?;
        same("the hash of a replica", &self.core.snapshot().hash(), &self.twin.snapshot().hash())
    }

    /// Compares the answers. Any true cycle of a deadlock will do; the rest must be exactly equal.
    fn compare_applied(&self, expected: &Applied, mut actual: Applied) -> Result<(), Failure> {
        if let Reply::Rejected(Rejection::Deadlock { cycle }) = &actual.reply
            && matches!(expected.reply, Reply::Rejected(Rejection::Deadlock { .. }))
        {
            let judged = self.oracle.check_cycle(cycle);
            judged
                .map_err(|text| Failure { kind: "the cycle", text: format!("{text}\n  cycle: {cycle:?}") })?;
            actual.reply = expected.reply.clone();
        }
        same("the reply", &expected.reply, &actual.reply)?;
        same("the resolutions", &expected.resolved, &actual.resolved)?;
        same("the rest of the answer", expected, &actual)
    }

    /// Compares lists of locks and leases, whole and cut in two places.
    fn compare_lists(&self) -> Result<(), Failure> {
        let (oracle, snapshot) = (&self.oracle, self.core.snapshot());
        let names = oracle.lock_names();
        let after = names.get(names.len() / 2);
        let views = |prefix: &[u8], after: Option<&Name>, limit: usize| -> Vec<LockView> {
            let wanted =
                |name: &&Name| name.as_bytes().starts_with(prefix) && after.is_none_or(|after| *name > after);
            let mut names: Vec<&Name> = names.iter().filter(wanted).collect();
            names.sort();
            names.into_iter().filter_map(|name| oracle.lock(name)).take(limit).collect()
        };
        for (prefix, after, limit) in
            [(&b""[..], None, 100), (b"a", None, 100), (b"", after, 2), (b"", None, 1)]
        {
            same("a list of locks", &views(prefix, after, limit), &snapshot.locks(prefix, after, limit))?;
        }
        let mut leases = oracle.lease_ids();
        leases.sort();
        let expected: Vec<_> =
            leases.iter().skip(1).take(2).filter_map(|lease| oracle.lease(*lease)).collect();
        same("a list of leases", &expected, &snapshot.leases(leases.first().copied(), 2))
    }

    fn compare_state(&self) -> Result<(), Failure> {
        let (oracle, core) = (&self.oracle, &self.core);
        same("the log time", &oracle.now(), &core.now())?;
        same("the revision", &oracle.revision(), &core.revision())?;
        same("the limits", oracle.limits(), core.limits())?;
        same("the lineage", &oracle.lineage(), &core.lineage())?;
        for name in &self.names {
            same("a lock", &oracle.lock(name), &core.lock(name))?;
        }
        for lease in &self.leases {
            same("a lease", &oracle.lease(*lease), &core.lease(*lease))?;
        }
        if self.entries.is_multiple_of(LISTS_EVERY) {
            self.compare_lists()?;
        }
        self.compare_homes()?;
        if self.entries.is_multiple_of(LISTS_EVERY) {
            self.compare_wait_edges()?;
        }
        let registers = oracle.registers();
        for key in &self.keys {
            let expected = registers.iter().find(|register| register.key == *key).cloned();
            same("a register", &expected, &core.register(key))?;
        }
        let sorts = [Sort::Key, Sort::KeyDescending, Sort::Create, Sort::CreateDescending];
        let turn = usize::try_from(self.entries).expect("few entries");
        let prefix = self.keys[turn % self.keys.len()].clone();
        for keys in [KeySelector::All, KeySelector::Prefix(prefix)] {
            let limit = u32::try_from(self.entries % 4).expect("below 4");
            let query = RangeQuery { keys, limit, sort: sorts[turn / 4 % 4] };
            same("a range", &oracle.read_range(&query), &core.range(&query))?;
        }
        let next: Option<LogTime> = oracle.next_deadline();
        same("the next deadline", &next, &core.next_deadline())
    }

    /// Compares the reads that the leader needs for messages to other groups, whole and page by page.
    fn compare_homes(&self) -> Result<(), Failure> {
        let (oracle, core) = (&self.oracle, &self.core);
        let stubs = oracle.stubs();
        let pending: Vec<StubView> = stubs.iter().copied().filter(|stub| stub.pending).collect();
        same("the stubs", &stubs, &core.stubs(None, usize::MAX))?;
        same("the pending stubs", &pending, &core.pending_stubs(None, usize::MAX))?;
        let after = |stubs: &[StubView]| stubs.first().map(|stub| stub.lease);
        let page = |stubs: &[StubView]| stubs.iter().skip(1).take(1).copied().collect::<Vec<_>>();
        same("a page of stubs", &page(&stubs), &core.stubs(after(&stubs), 1))?;
        same("a page of pending stubs", &page(&pending), &core.pending_stubs(after(&pending), 1))?;
        let ends = oracle.unacked_ends();
        let (mut read, mut last) = (Vec::new(), None);
        loop {
            let page = core.unacked_ends(last, 2);
            let Some(end) = page.last() else { break };
            last = Some((end.lease, end.incarnation, end.group));
            read.extend(page);
        }
        same("the ends to be told", &ends, &read)?;
        same("all ends to be told", &ends, &core.unacked_ends(None, usize::MAX))?;
        for lease in &self.leases {
            let known = oracle.lease(*lease).map(|lease| lease.incarnation);
            for incarnation in [known.unwrap_or_default(), oracle.revision()] {
                let expected = oracle.lease_lives(*lease, incarnation);
                same("whether a lease lives", &expected, &core.lease_lives(*lease, incarnation))?;
            }
        }
        Ok(())
    }

    /// Compares the blockers of each wait that a search over groups begins with, as the core reports them.
    fn compare_wait_edges(&self) -> Result<(), Failure> {
        let edges = self.core.wait_edges(u64::MAX);
        same("whether a look at all waits was cut off", &false, &edges.truncated)?;
        let told = |id: Revision| edges.waits.iter().find(|wait| wait.create_revision == id);
        for (id, tokens) in self.oracle.blocked_waits() {
            let (mut waits, mut found, mut at) = (vec![id], BTreeSet::new(), 0);
            while let Some(wait) = waits.get(at).copied() {
                at += 1;
                let Some(wait) = told(wait) else {
                    let text = format!("the wait of {wait:?} is not told of: {edges:?}");
                    return Err(Failure { kind: "the wait edges", text });
                };
                for blocker in &wait.blockers {
                    match blocker.by {
                        BlockedBy::Grant(token) => _ = found.insert(token),
                        BlockedBy::Ahead { create_revision: ahead, .. } if !waits.contains(&ahead) => {
                            waits.push(ahead);
                        }
                        BlockedBy::Ahead { .. } => {}
                    }
                }
            }
            same("what blocks a wait", &tokens, &found)?;
        }
        for visits_max in [0, 1, 5] {
            let fewer = self.core.wait_edges(visits_max);
            let known = |wait: &BlockedWait| {
                told(wait.create_revision)
                    .is_some_and(|whole| wait.blockers.iter().all(|it| whole.blockers.contains(it)))
            };
            same("that a cut look tells nothing else", &true, &fewer.waits.iter().all(known))?;
        }
        Ok(())
    }

    /// Compares the events of this entry, which the ring keeps at least until the next.
    fn compare_entry_events(&self, from: Option<Revision>) -> Result<(), Failure> {
        let from = from.unwrap_or(self.oracle.revision().next());
        self.compare_events(from, &Watch::All, |_| true)
    }

    /// Compares all that the ring should still hold, by each kind of watch, and checks that it holds nothing older.
    fn compare_ring(&self) -> Result<(), Failure> {
        let compacted = self.oracle.compacted();
        if let Some(gone) = compacted
            && self.core.events_since(gone, &Watch::All, usize::MAX).is_ok()
        {
            let text = format!("events of {gone:?} should have left the ring");
            return Err(Failure { kind: "the ring", text });
        }
        let kept = self.oracle.events().iter().find(|event| Some(event.revision) > compacted);
        let from = kept.map_or(self.oracle.revision().next(), |event| event.revision);
        let turn = usize::try_from(self.entries).expect("few entries");
        let name = self.names[turn % self.names.len()].clone();
        let key = self.keys[turn % self.keys.len()].clone();
        let lock_name = |event: &Event| match &event.change {
            Change::Lock(change) => Some(change.name.clone()),
            Change::Register(_) => None,
        };
        let register_key = |event: &Event| match &event.change {
            Change::Lock(_) => None,
            Change::Register(change) => Some(change.key.clone()),
        };
        self.compare_events(from, &Watch::All, |_| true)?;
        if let Some(lease) = self.leases.iter().nth(turn % self.leases.len().max(1)) {
            let of_lease =
                |event: &Event| matches!(&event.change, Change::Lock(change) if change.lease == *lease);
            self.compare_events(from, &Watch::Lease(*lease), of_lease)?;
        }
        self.compare_events(from, &Watch::Lock(name.clone()), |event| {
            lock_name(event).as_ref() == Some(&name)
        })?;
        self.compare_events(from, &Watch::LockPrefix(b"a".to_vec()), |event| {
            lock_name(event).is_some_and(|name| name.as_bytes().starts_with(b"a"))
        })?;
        self.compare_events(from, &Watch::Register(key.clone()), |event| {
            register_key(event).as_ref() == Some(&key)
        })?;
        self.compare_events(from, &Watch::RegisterPrefix(b"k/1".to_vec()), |event| {
            register_key(event).is_some_and(|key| key.as_bytes().starts_with(b"k/1"))
        })
    }

    fn compare_events(
        &self,
        from: Revision,
        watch: &Watch,
        which: impl Fn(&Event) -> bool,
    ) -> Result<(), Failure> {
        let all = self.oracle.events();
        let start = all.partition_point(|event| event.revision < from);
        let expected: Vec<&Event> = all[start..].iter().filter(|event| which(event)).collect();
        match self.core.events_since(from, watch, usize::MAX) {
            Ok(batch) => same("the events", &expected, &batch.events.iter().collect()),
            Err(compacted) => {
                let text = format!("{watch:?} from {from:?}: {compacted:?} instead of {expected:?}");
                Err(Failure { kind: "the ring", text })
            }
        }
    }
}

fn planted(mut state: State, bug: Option<Bug>) -> State {
    if let Some(bug) = bug {
        state.plant(bug);
    }
    state
}

/// The state loaded from a snapshot of `state`.
fn restored(state: &State, chunk_bytes: usize) -> Result<State, Failure> {
    let snapshot = state.snapshot();
    let broken = |text: String| Failure { kind: "the snapshot", text };
    let mut reader = SnapshotReader::new();
    for chunk in snapshot.chunks(chunk_bytes) {
        reader.push(&chunk).map_err(|error| broken(format!("a chunk was refused: {error:?}")))?;
    }
    let restored = reader.finish().map_err(|error| broken(format!("the snapshot was refused: {error:?}")))?;
    same("the hash after a restore", &snapshot.hash(), &restored.snapshot().hash())?;
    Ok(restored)
}

fn same<T: PartialEq + Debug>(kind: &'static str, expected: &T, actual: &T) -> Result<(), Failure> {
    if expected == actual {
        return Ok(());
    }
    Err(Failure { kind, text: format!("{kind} differs\n  expected: {expected:?}\n  actual:   {actual:?}") })
}
