//! Plan of a chaos run: its length, its size and its seed, as given to `make chaos`.
//!
//! Not here: the draws from the seed (`lane`, `faults`).

use crate::record::Recorder;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tollgate_types::{GroupId, Name};

/// Parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) span: Duration,
    pub(crate) nodes: usize,
    pub(crate) groups: u32,
    pub(crate) gateways: usize,
    /// Maximum number of operations per second that all clients together begin: as many as the judge can take.
    pub(crate) rate_per_s: u32,
}

impl Plan {
    /// Returns the plan of a run that other tests can wait for.
    pub(crate) fn short(seed: u64, span: Duration) -> Plan {
        Plan { seed, span, nodes: 3, groups: 2, gateways: 1, rate_per_s: 300 }
    }

    /// Reads the plan from the variables `CHAOS_MINUTES`, `CHAOS_SEED`, `CHAOS_NODES`, `CHAOS_GROUPS`, `CHAOS_GATEWAYS`
    /// and `CHAOS_RATE`; empty ones count as not set.
    pub(crate) fn from_env() -> Plan {
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let minutes = number("CHAOS_MINUTES").unwrap_or(1);
        Plan {
            seed: number("CHAOS_SEED").unwrap_or(today % 1_000_000),
            span: Duration::from_secs(60 * minutes),
            nodes: usize::try_from(number("CHAOS_NODES").unwrap_or(5)).unwrap(),
            groups: u32::try_from(number("CHAOS_GROUPS").unwrap_or(4)).unwrap(),
            gateways: usize::try_from(number("CHAOS_GATEWAYS").unwrap_or(2)).unwrap(),
            rate_per_s: u32::try_from(number("CHAOS_RATE").unwrap_or(400)).unwrap(),
        }
    }

    /// Returns the number of nodes that may be broken at once while a majority is left.
    pub(crate) fn minority(&self) -> usize {
        (self.nodes - 1) / 2
    }

    /// Returns the command that brings the same faults again.
    pub(crate) fn again(&self) -> String {
        let Plan { seed, span, nodes, groups, gateways, .. } = self;
        let minutes = span.as_secs().div_ceil(60);
        format!("make chaos MINUTES={minutes} SEED={seed} NODES={nodes} GROUPS={groups} GATEWAYS={gateways}")
    }

    /// Returns tags for the braces in names, so that every group has names: one for each, or two if there is only one
    /// group.
    pub(crate) fn tags(&self, recorder: &Recorder) -> Arc<[String]> {
        let mut tags = Vec::new();
        for group in (0..self.groups).map(GroupId::new) {
            let there = (0..).map(|number| format!("t{number}")).filter(|tag| {
                let name = Name::new(format!("{{{tag}}}")).unwrap();
                recorder.group_of_name(&name) == group
            });
            tags.extend(there.take(if self.groups == 1 { 2 } else { 1 }));
        }
        tags.into()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, span, nodes, groups, gateways, rate_per_s } = self;
        let seconds = span.as_secs();
        write!(
            f,
            "chaos: seed {seed}, {seconds} s, {nodes} nodes, {groups} groups, {gateways} gateways, \
             {rate_per_s} operations/s; "
        )?;
        write!(f, "again: {}", self.again())
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}: a whole number is expected")))
}
