//! Counts of what happened in a run, which show whether the fault schedules have any effect.

use crate::types::At;
use std::collections::BTreeMap;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Counts of one run, or the sum over many.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[doc = $doc])* pub $name: u64,)*
            /// Faults that happened, by kind.
            pub faults: BTreeMap<&'static str, u64>,
            /// Faults that could not happen safely when their time came, by kind.
            pub faults_skipped: BTreeMap<&'static str, u64>,
        }

        impl Stats {
            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Stats) {
                $(self.$name += other.$name;)*
                for (label, count) in &other.faults {
                    *self.faults.entry(label).or_default() += count;
                }
                for (label, count) in &other.faults_skipped {
                    *self.faults_skipped.entry(label).or_default() += count;
                }
            }

            /// Returns the name and value of each count, except the faults.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Simulated microseconds.
    simulated_us,
    /// Events of the world.
    happenings,
    /// Turns that hosts took.
    turns,
    /// Frames and client messages sent.
    messages,
    /// Messages lost.
    messages_lost,
    /// Messages delivered twice.
    messages_doubled,
    /// Fsyncs that succeeded.
    fsyncs,
    /// Writes that a crash lost.
    writes_lost,
    /// Processes started, the first time included.
    boots,
    /// Leaders elected.
    elections,
    /// Entries applied, once per node.
    entries_applied,
    /// State hashes taken.
    hashes,
    /// Snapshots saved by the node that took them.
    snapshots_saved,
    /// Snapshots installed from a peer.
    snapshots_installed,
    /// Damaged snapshots noticed.
    snapshots_damaged,
    /// Changes of membership that a leader applied.
    membership_changes,
    /// Disks lost, including those found corrupt.
    disks_lost,
    /// Voters with an empty disk that were refused.
    blank_voters_refused,
    /// Comparisons of two replicas that found the same state.
    states_agreed,
    /// Requests answered busy without an entry in the log.
    fast_answers,
    /// Unattended waits, counted each time that they were looked at.
    waits_unattended,
    /// Waits ended to break deadlocks over groups.
    deadlocks_over_groups,
    /// Callers that hung up.
    hang_ups,
    /// Callers that hung up while another caller of the same request stayed.
    moves,
    /// Callers that were cut off and stayed away for long.
    vanished,
    /// Grants of locks.
    grants,
    /// Leases that were not renewed in time.
    lease_expiries,
    /// Leases that ended for another reason.
    lease_ends,
    /// Calls made by clients.
    calls,
    /// Attempts of calls beyond the first.
    retries,
    /// Linearizable reads, busy answers and final states that the checker explained.
    observations,
}

impl Stats {
    pub(crate) fn fault(&mut self, label: &'static str, happened: bool) {
        let counts = if happened { &mut self.faults } else { &mut self.faults_skipped };
        *counts.entry(label).or_default() += 1;
    }

    /// Returns the simulated time in seconds.
    pub fn simulated_seconds(&self) -> f64 {
        seconds(self.simulated_us)
    }
}

/// Converts microseconds to seconds, for people.
#[allow(clippy::cast_precision_loss, reason = "for people")]
pub fn seconds(at: At) -> f64 {
    at as f64 / 1e6
}
