//! The one history that all clients of a test write into, and the stores that they write to under their locks.
//!
//! Invariant: events stand in the order in which they were recorded, by one clock: a call is recorded before it is
//! sent, an answer after it came. Not here: what clients do (`work`), what is judged (`tollgate-check`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tollgate_check::{At, Event, FenceMode, History, Kind, Settings};
use tollgate_types::{Mode, Name, Token};

/// By how much clocks may be off: far more than those of one machine are.
pub(crate) const RHO_PPM: u32 = 10_000;

/// What happened, as the clients saw it.
pub(crate) struct Recorder {
    began: Instant,
    written: Mutex<Written>,
    pub(crate) counts: Counts,
}

struct Written {
    history: History,
    /// The highest exclusive token that each store took for each lock.
    highest: BTreeMap<(u32, Name), Token>,
}

/// What there was much or little of.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) grants: AtomicU64,
    pub(crate) releases: AtomicU64,
    pub(crate) renewals: AtomicU64,
    /// Leases that clients gave up because nobody had answered in time.
    pub(crate) lapses: AtomicU64,
    /// Leases that were gone though their client still believed in them.
    pub(crate) lost_leases: AtomicU64,
    /// Calls that were sent again.
    pub(crate) repeats: AtomicU64,
    pub(crate) cancels: AtomicU64,
    pub(crate) deadlocks: AtomicU64,
    /// Streams that broke or were given up.
    pub(crate) moves: AtomicU64,
    /// Errors that ask for a repeat, by what they said.
    pub(crate) troubles: Mutex<BTreeMap<String, u64>>,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Recorder {
    pub(crate) fn new() -> Arc<Recorder> {
        // No server is recorded: only what calls show is judged.
        let settings = Settings {
            server_side: false,
            healed_within_ms: 20_000,
            search_steps_max: 5_000_000,
            ..Settings::with_rho_ppm(RHO_PPM)
        };
        let written = Written { history: History::new(settings), highest: BTreeMap::new() };
        Arc::new(Recorder { began: Instant::now(), written: Mutex::new(written), counts: Counts::default() })
    }

    pub(crate) fn now(&self) -> At {
        At::from_us(u64::try_from(self.began.elapsed().as_micros()).unwrap())
    }

    /// Writes down what happens now; when that is.
    pub(crate) fn record(&self, event: Event) -> At {
        let mut written = self.written.lock().unwrap();
        let at = self.now();
        written.history.record(at, event);
        at
    }

    /// Writes down what happens now if it is not too late for that.
    pub(crate) fn record_before(&self, until: At, event: Event) -> Option<At> {
        let mut written = self.written.lock().unwrap();
        let at = self.now();
        (at < until).then(|| written.history.record(at, event))?;
        Some(at)
    }

    /// A write to a store that checks tokens. The odd one is strict: it takes each exclusive token once.
    pub(crate) fn write(&self, store: u32, name: &Name, token: Token, mode: Mode) {
        let mode = match mode {
            Mode::Exclusive => FenceMode::Exclusive,
            Mode::Permit { .. } => FenceMode::Permit,
            _ => FenceMode::Shared,
        };
        let (strict, exclusive) = (store % 2 == 1, mode == FenceMode::Exclusive);
        let mut written = self.written.lock().unwrap();
        let accepted = match written.highest.get(&(store, name.clone())) {
            None => true,
            Some(highest) if strict && exclusive => token > *highest,
            Some(highest) => token >= *highest,
        };
        if accepted && exclusive {
            written.highest.insert((store, name.clone()), token);
        }
        let at = self.now();
        let event = Event::FencedWrite { store, name: name.clone(), token, mode, strict, accepted };
        written.history.record(at, event);
    }

    /// Judges everything so far, and fails with the events that speak against it.
    pub(crate) fn judge(&self) {
        let written = self.written.lock().unwrap();
        let report = written.history.judge();
        println!("{:?}\n{:?}", report.stats, self.counts);
        for violation in &report.violations {
            eprintln!("{violation}");
            for index in violation.events.iter().take(12) {
                let (at, event) = &written.history.events()[*index];
                eprintln!("    {index:>6} {at} {event:?}");
            }
        }
        let unknown = report.violations.iter().filter(|violation| violation.kind == Kind::Unknown).count();
        assert!(report.is_clean(), "{} violations, {unknown} unknown", report.violations.len());
    }
}
