//! Report of a chaos run.
//!
//! All of it is computed from the history, the log of faults and the judgement: clients count nothing for it. Not here:
//! the definition of a broken promise (`tollgate-check`).

use super::clients::{LAPSE_PREFIX, LAPSE_TTL_MS};
use super::fault_log::FaultLog;
use super::plan::Plan;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tollgate_check::{At, CallId, Event, History, Op, Outcome, Report as Judgement};
use tollgate_types::{GroupId, Name, Owner};

/// Maximum lateness: of the end of a lease, and then of the notice to its waiter (P6).
const LATE_MS_MAX: u64 = 500 + 500;

/// Maximum time to tell another group of the end, if the lock and the lease are in different groups.
const TOLD_MS_MAX: u64 = 500;

/// Minimum number of faults per minute.
const FAULTS_PER_MINUTE: u64 = 10;

pub(crate) struct Report {
    again: String,
    span: Duration,
    faults: BTreeMap<&'static str, u64>,
    gateways: usize,
    members_replaced: usize,
    /// Number of operations, by kind and result.
    operations: BTreeMap<(&'static str, &'static str), u64>,
    /// For each group, the longest time without a grant: at all, and while a majority was there.
    gaps: BTreeMap<GroupId, (Duration, Duration)>,
    lapses: Lapses,
    judgement: Judgement,
    judged_in: Duration,
    problems: Vec<String>,
}

/// Leases that were not renewed.
#[derive(Debug, Default)]
struct Lapses {
    seen: u64,
    late_ms_max: u64,
    /// The same counts without leases that met a fault.
    calm: u64,
    calm_late_ms_max: u64,
}

impl Report {
    pub(crate) fn new(
        plan: &Plan,
        history: &History,
        judgement: &Judgement,
        log: &FaultLog,
        mut problems: Vec<String>,
        judged_in: Duration,
    ) -> Report {
        let lapses = lapses(history, log, &mut problems);
        Report {
            again: plan.again(),
            span: plan.span,
            faults: log.counts().into_iter().map(|(kind, count)| (kind.name(), count)).collect(),
            gateways: plan.gateways,
            members_replaced: log.members_replaced(),
            operations: operations(history),
            gaps: gaps(history, log),
            lapses,
            judgement: judgement.clone(),
            judged_in,
            problems,
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.judgement.is_clean() && self.problems.is_empty()
    }

    /// Checks that a long run had enough faults: with few, it says little.
    pub(crate) fn assert_enough_faults(&self, plan: &Plan) {
        let count: u64 = self.faults.values().sum();
        let least = plan.span.as_secs() * FAULTS_PER_MINUTE / 60;
        assert!(count >= least, "only {count} faults in {:?}: {least} were to be expected", plan.span);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: u64 = self.faults.values().sum();
        writeln!(f, "\n{}\n{} s, {faults} faults:", self.again, self.span.as_secs())?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {count:>6} {kind}")?;
        }
        writeln!(f, "{} gateways, {} members replaced", self.gateways, self.members_replaced)?;
        let operations: u64 = self.operations.values().sum();
        writeln!(f, "{operations} operations:")?;
        for ((asked, came), count) in &self.operations {
            writeln!(f, "  {count:>6} {asked:<14} {came}")?;
        }
        for (group, (all, led)) in &self.gaps {
            let (all, led) = (all.as_secs_f64(), led.as_secs_f64());
            writeln!(
                f,
                "group {group}: longest time without a grant {all:.2} s, {led:.2} s with a majority"
            )?;
        }
        let Lapses { seen, late_ms_max, calm, calm_late_ms_max } = self.lapses;
        writeln!(f, "{seen} leases left to expire: at most {late_ms_max} ms late")?;
        writeln!(f, "  {calm} of them away from faults: at most {calm_late_ms_max} ms late")?;
        writeln!(f, "{:?}", self.judgement.stats)?;
        writeln!(f, "judged in {:.1} s", self.judged_in.as_secs_f64())?;
        for problem in &self.problems {
            writeln!(f, "{problem}")?;
        }
        write!(f, "{} violations", self.judgement.violations.len() + self.problems.len())
    }
}

/// Counts calls by kind and by result.
fn operations(history: &History) -> BTreeMap<(&'static str, &'static str), u64> {
    let mut asked: BTreeMap<CallId, (&'static str, &'static str)> = BTreeMap::new();
    for (_, event) in history.events() {
        match event {
            Event::Invoke { call, op, .. } => {
                asked.insert(*call, (name_of(op), "no answer"));
            }
            Event::Return { call, outcome } => {
                if let Some((_, came)) = asked.get_mut(call) {
                    *came = outcome_of(outcome);
                }
            }
            _ => {}
        }
    }
    let mut counts = BTreeMap::new();
    for pair in asked.into_values() {
        *counts.entry(pair).or_default() += 1;
    }
    counts
}

fn name_of(op: &Op) -> &'static str {
    match op {
        Op::GrantLease { .. } => "grant lease",
        Op::KeepAlive { .. } => "keepalive",
        Op::RevokeLease { .. } => "revoke lease",
        Op::Lock { .. } => "lock",
        Op::Convert { .. } => "convert",
        Op::Unlock { .. } => "unlock",
        Op::ForceRelease { .. } => "force release",
        Op::Cancel { .. } => "cancel",
        Op::ReadLock { .. } => "read lock",
        Op::PutRegister { .. } => "put register",
        Op::ReadRegister { .. } => "read register",
    }
}

fn outcome_of(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::LeaseGranted { .. } | Outcome::Granted { .. } => "granted",
        Outcome::Renewed { .. } => "renewed",
        Outcome::LeaseRevoked => "revoked",
        Outcome::LeaseNotFound => "lease not found",
        Outcome::Busy { .. } => "busy",
        Outcome::Ended { .. } => "ended",
        Outcome::Deadlock => "deadlock",
        Outcome::Released { .. } => "released",
        Outcome::Cancelled => "cancelled",
        Outcome::NotHeld => "not held",
        Outcome::StaleToken { .. } => "stale token",
        Outcome::NotWaiting => "not waiting",
        Outcome::Lock { .. } | Outcome::Register { .. } => "read",
        Outcome::Written { .. } => "written",
        Outcome::Refused => "refused",
    }
}

/// Returns the longest times between two grants of each group, while clients asked for some.
fn gaps(history: &History, log: &FaultLog) -> BTreeMap<GroupId, (Duration, Duration)> {
    let mut locks: BTreeMap<CallId, GroupId> = BTreeMap::new();
    let mut last: BTreeMap<GroupId, At> = BTreeMap::new();
    let mut longest: BTreeMap<GroupId, (u64, u64)> = BTreeMap::new();
    for (at, event) in history.events() {
        match event {
            Event::Invoke { call, group, op: Op::Lock { .. }, .. } => {
                locks.insert(*call, *group);
            }
            Event::Return { call, outcome: Outcome::Granted { .. } } => {
                let Some(&group) = locks.get(call) else { continue };
                if let Some(before) = last.insert(group, *at) {
                    let (all, led) = longest.entry(group).or_default();
                    *all = (*all).max(at.since(before));
                    if !log.majority_was_lost(before, *at) {
                        *led = (*led).max(at.since(before));
                    }
                }
            }
            Event::Healed => break,
            _ => {}
        }
    }
    let micros = Duration::from_micros;
    longest.into_iter().map(|(group, (all, led))| (group, (micros(all), micros(led)))).collect()
}

/// The grant of a lock whose holder falls silent: the time of its answer, and the latest end of its lease.
struct Silent {
    told: At,
    due: At,
    late_ms_max: u64,
}

/// Measures how late locks of silent holders passed on. A late one without a fault is a problem.
fn lapses(history: &History, log: &FaultLog, problems: &mut Vec<String>) -> Lapses {
    let mut calls: BTreeMap<CallId, (GroupId, &Op)> = BTreeMap::new();
    let mut leases: BTreeMap<u64, (GroupId, At)> = BTreeMap::new();
    let mut silent: BTreeMap<&Name, Silent> = BTreeMap::new();
    let mut found = Lapses::default();
    for (at, event) in history.events() {
        match event {
            Event::Invoke { call, group, op, .. } => {
                calls.insert(*call, (*group, op));
            }
            Event::Return { call, outcome: Outcome::LeaseGranted { lease, .. } } => {
                leases.insert(lease.get(), (calls[call].0, at.after_ms(LAPSE_TTL_MS)));
            }
            Event::Return { call, outcome: Outcome::Granted { .. } } => {
                let Some((group, Op::Lock { names, lease, owner, .. })) = calls.get(call) else { continue };
                let name = &names.as_slice()[0];
                if !name.as_bytes().starts_with(LAPSE_PREFIX.as_bytes()) {
                    continue;
                }
                if *owner == Owner::LEASE {
                    let (home, due) = leases[&lease.get()];
                    let late_ms_max = LATE_MS_MAX + if home == *group { 0 } else { TOLD_MS_MAX };
                    silent.insert(name, Silent { told: *at, due, late_ms_max });
                } else if let Some(Silent { told, due, late_ms_max }) = silent.remove(name) {
                    let late_ms = at.since(due) / 1_000;
                    found.count(late_ms, log.disturbed_us(told, *at) == 0);
                    let disturbed_ms = log.disturbed_us(told, *at) / 1_000;
                    if late_ms > late_ms_max + disturbed_ms {
                        problems
                            .push(format!("P6: {name} passed on {late_ms} ms late at {at}, without a fault"));
                    }
                }
            }
            _ => {}
        }
    }
    found
}

impl Lapses {
    fn count(&mut self, late_ms: u64, calm: bool) {
        self.seen += 1;
        self.late_ms_max = self.late_ms_max.max(late_ms);
        if calm {
            self.calm += 1;
            self.calm_late_ms_max = self.calm_late_ms_max.max(late_ms);
        }
    }
}
