//! The history that all clients of a test are recorded in, and the stores that they write to under their locks.
//!
//! Invariant: events are ordered by time, by one clock that counts suspend: a call is recorded before it is sent, an
//! answer after it came. Events that are learnt later, such as the keepalives that the client library sends, are dated
//! back. Not here: the clients (`work`), the judgement (`tollgate-check`).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tollgate_check::{At, Event, FenceMode, History, Kind, Report, Settings};
use tollgate_client::{BootClock, Clock};
use tollgate_fence::{Fence, FencedToken};
use tollgate_types::{GroupId, LeaseId, Mode, Name, SLOTS, Slot, Token};

/// Tolerated clock drift in parts per million: far more than the drift between clocks of one machine.
pub(crate) const RHO_PPM: u32 = 10_000;

/// Recorder of the events that clients see.
pub(crate) struct Recorder {
    /// Start time, by [`BootClock`].
    began: Duration,
    groups: u32,
    callers: AtomicU32,
    written: Mutex<Written>,
    pub(crate) counts: Counts,
}

struct Written {
    /// Events as they were recorded: in order, but for those that were dated back.
    events: Vec<(At, Event)>,
    /// Fences of each lock's data in each store.
    fences: BTreeMap<(u32, Name), Fence>,
}

/// Counters of the run, for its output.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) grants: AtomicU64,
    pub(crate) releases: AtomicU64,
    pub(crate) renewals: AtomicU64,
    /// Leases that clients gave up because no answer had come in time.
    pub(crate) lapses: AtomicU64,
    /// Leases that were gone while their client still believed in them.
    pub(crate) lost_leases: AtomicU64,
    /// Calls that were sent again.
    pub(crate) repeats: AtomicU64,
    pub(crate) cancels: AtomicU64,
    pub(crate) deadlocks: AtomicU64,
    /// Streams that broke or were given up.
    pub(crate) moves: AtomicU64,
    /// Errors that ask for a repeat, by their message.
    pub(crate) troubles: Mutex<BTreeMap<String, u64>>,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// First client number that is assigned one by one.
const CALLERS_FROM: u32 = 1 << 16;

impl Recorder {
    pub(crate) fn new() -> Arc<Recorder> {
        Recorder::of_groups(1)
    }

    /// Makes a recorder for a cluster with this many groups.
    pub(crate) fn of_groups(groups: u32) -> Arc<Recorder> {
        Arc::new(Recorder {
            began: BootClock.now(),
            groups,
            callers: AtomicU32::new(CALLERS_FROM),
            written: Mutex::new(Written { events: Vec::new(), fences: BTreeMap::new() }),
            counts: Counts::default(),
        })
    }

    pub(crate) fn now(&self) -> At {
        At::from_us(u64::try_from(BootClock.now().saturating_sub(self.began).as_micros()).unwrap())
    }

    /// Returns the group that a slot belongs to: slots are divided into equal ranges.
    pub(crate) fn group_of(&self, slot: Slot) -> GroupId {
        let group = u64::from(slot.number()) * u64::from(self.groups) / u64::from(SLOTS);
        GroupId::new(u32::try_from(group).unwrap())
    }

    pub(crate) fn group_of_name(&self, name: &Name) -> GroupId {
        self.group_of(name.slot())
    }

    pub(crate) fn group_of_lease(&self, lease: LeaseId) -> GroupId {
        self.group_of(lease.slot())
    }

    /// Returns all groups of the cluster.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.groups).map(GroupId::new)
    }

    /// Returns a name that lives in the group and has this ending.
    pub(crate) fn name_in(&self, group: GroupId, end: &str) -> Name {
        let mut names = (0..).map(|number| Name::new(format!("{{g{number}}}/{end}")).unwrap());
        names.find(|name| self.group_of_name(name) == group).expect("every group has names")
    }

    /// Returns a client number that no other client has.
    pub(crate) fn next_caller(&self) -> u32 {
        self.callers.fetch_add(1, Ordering::Relaxed)
    }

    /// Records an event now, and returns its time.
    pub(crate) fn record(&self, event: Event) -> At {
        let mut written = self.written.lock();
        let at = self.now();
        written.events.push((at, event));
        at
    }

    /// Records an event with an earlier time.
    pub(crate) fn record_at(&self, at: At, event: Event) {
        self.written.lock().events.push((at, event));
    }

    /// Records an event now, unless `until` has passed.
    pub(crate) fn record_before(&self, until: At, event: Event) -> Option<At> {
        let mut written = self.written.lock();
        let at = self.now();
        (at < until).then(|| written.events.push((at, event)))?;
        Some(at)
    }

    /// Writes to a store that checks tokens. Stores with odd numbers are strict: they accept each exclusive token once.
    pub(crate) fn write(&self, store: u32, name: &Name, token: Token, mode: Mode) {
        // Intent modes give no right to write.
        let Some(presented) = FencedToken::of_grant(token, mode) else { return };
        let strict = store % 2 == 1;
        let mut written = self.written.lock();
        let fence = written.fences.entry((store, name.clone()));
        let fence = fence.or_insert_with(if strict { Fence::strict } else { Fence::new });
        let accepted = fence.accept(presented).is_ok();
        let mode = match presented.mode {
            tollgate_fence::FenceMode::Exclusive => FenceMode::Exclusive,
            tollgate_fence::FenceMode::Permit => FenceMode::Permit,
            tollgate_fence::FenceMode::Shared => FenceMode::Shared,
        };
        let at = self.now();
        let event = Event::FencedWrite { store, name: name.clone(), token, mode, strict, accepted };
        written.events.push((at, event));
    }

    /// Returns all events so far, in order of time.
    pub(crate) fn history(&self) -> History {
        // No server is recorded: only the evidence of calls is judged.
        let settings = Settings {
            server_side: false,
            healed_within_ms: 20_000,
            search_steps_max: 5_000_000,
            ..Settings::with_rho_ppm(RHO_PPM)
        };
        let mut events = self.written.lock().events.clone();
        events.sort_by_key(|(at, _)| *at);
        let mut history = History::new(settings);
        for (at, event) in events {
            history.record(at, event);
        }
        history
    }

    /// Judges all events so far, and fails with the events that show a violation.
    pub(crate) fn judge(&self) {
        let history = self.history();
        let report = history.judge();
        println!("{:?}\n{:?}", report.stats, self.counts);
        explain(&history, &report);
        let unknown = report.violations.iter().filter(|violation| violation.kind == Kind::Unknown).count();
        assert!(report.is_clean(), "{} violations, {unknown} unknown", report.violations.len());
    }
}

/// Prints the broken promises, with the events that show them.
pub(crate) fn explain(history: &History, report: &Report) {
    for violation in &report.violations {
        eprintln!("{violation}");
        for index in violation.events.iter().take(12) {
            let (at, event) = &history.events()[*index];
            eprintln!("    {index:>6} {at} {event:?}");
        }
    }
}
