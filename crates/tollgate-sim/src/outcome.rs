//! The outcome of a run.

use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::trace::Trace;
use std::collections::BTreeSet;
use tollgate_check::{History, LeaseEnd, Report};

/// A run that has ended and was judged.
pub struct Outcome {
    /// The scenario of the run.
    pub scenario: Scenario,
    /// The recorded events.
    pub history: History,
    /// Counts of what happened.
    pub stats: Stats,
    /// Hash of the trace: always the same for the same scenario.
    pub trace_hash: u64,
    /// Report of the checker.
    pub report: Report,
    /// Violations that the world itself saw.
    pub violations: Vec<String>,
    /// The last events in words, if they were asked for.
    pub trace: Vec<String>,
}

impl Outcome {
    pub(crate) fn judge(
        scenario: Scenario,
        history: History,
        mut stats: Stats,
        trace: &mut Trace,
        mut violations: Vec<String>,
        whole: bool,
    ) -> Outcome {
        // A run that broke off in the middle leaves a history that means little: its own violation is enough.
        let judged = crate::panics::caught(|| if whole { history.judge() } else { Report::default() });
        let report = judged.unwrap_or_else(|says| {
            violations.push(format!("the judge panicked: {says}"));
            Report::default()
        });
        stats.grants = report.stats.grants;
        stats.observations = report.stats.observations;
        for (_, event) in history.events() {
            if let tollgate_check::Event::LeaseEnded { reason, stub: false, .. } = event {
                let expired = *reason == LeaseEnd::Expired;
                *(if expired { &mut stats.lease_expiries } else { &mut stats.lease_ends }) += 1;
            }
        }
        let trace_hash = trace.hash();
        Outcome { scenario, history, stats, trace_hash, report, violations, trace: trace.take_lines() }
    }

    /// Returns true if there are no violations.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.report.is_clean()
    }

    /// Returns the kinds of the violations, a word each: the broken promises, or the first word of another violation.
    /// The kinds tell one failure from another.
    pub fn kinds(&self) -> BTreeSet<String> {
        let kind = |finding: String| finding.split([':', ' ']).next().unwrap_or_default().to_owned();
        self.findings().into_iter().map(kind).collect()
    }

    /// Returns all violations, a sentence each.
    pub fn findings(&self) -> Vec<String> {
        self.violations
            .iter()
            .cloned()
            .chain(self.report.violations.iter().map(ToString::to_string))
            .collect()
    }
}
