//! Summary of many runs in a few lines. Belongs to the binary.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;
use tollgate_sim::Stats;

/// The part of a run's outcome that is kept for the summary.
pub(crate) struct Row {
    pub(crate) stats: Stats,
    pub(crate) clean: bool,
}

/// Sums and medians over runs.
pub(crate) struct Summary {
    seeds: usize,
    failed: usize,
    total: Stats,
    elections: u64,
    expiries: u64,
}

impl Summary {
    pub(crate) fn new(rows: &BTreeMap<u64, Row>) -> Summary {
        let mut total = Stats::default();
        for row in rows.values() {
            total.add(&row.stats);
        }
        Summary {
            seeds: rows.len(),
            failed: rows.values().filter(|row| !row.clean).count(),
            total,
            elections: median(rows.values().map(|row| row.stats.elections)),
            expiries: median(rows.values().map(|row| row.stats.lease_expiries)),
        }
    }

    /// Returns the progress, in a line.
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    pub(crate) fn line(&self, elapsed: Duration, jobs: usize) -> String {
        let elapsed = elapsed.as_secs_f64().max(1e-3);
        let simulated = self.total.simulated_seconds();
        format!(
            "{} seeds ({} failed), {:.1} seeds/s, {:.2} simulated hours, {:.0}x real time per core",
            self.seeds,
            self.failed,
            self.seeds as f64 / elapsed,
            simulated / 3_600.0,
            simulated / elapsed / jobs as f64
        )
    }

    /// Returns all numbers as a table.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        writeln!(text, "median seed: {} elections, {} lease expiries", self.elections, self.expiries).ok();
        for (name, value) in self.total.rows() {
            writeln!(text, "  {name:22} {value:>14}").ok();
        }
        writeln!(text, "faults (skipped because they were not safe at their time):").ok();
        for label in tollgate_sim::FaultKind::LABELS {
            let count = |counts: &BTreeMap<&str, u64>| counts.get(label).copied().unwrap_or(0);
            let (happened, skipped) = (count(&self.total.faults), count(&self.total.faults_skipped));
            writeln!(text, "  {label:22} {happened:>14} ({skipped})").ok();
        }
        text.trim_end().to_owned()
    }
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
