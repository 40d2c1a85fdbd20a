//! Log of the faults, with their times.
//!
//! Not here: the effects of faults (`faults`).

use super::faults::{FaultKind, Reach};
use std::collections::BTreeMap;
use tollgate_check::At;

/// Every fault, in the order in which they began.
#[derive(Debug, Default)]
pub(crate) struct FaultLog(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    kind: FaultKind,
    from: At,
    /// `None` while the fault lasts.
    to: Option<At>,
}

/// Time after the end of a fault that still counts as disturbed: elections and reconnections go on.
const AFTERMATH_MS: u64 = 3_000;

impl FaultLog {
    /// Records the beginning of a fault. Returns the number by which its end is recorded.
    pub(crate) fn begin(&mut self, kind: FaultKind, at: At) -> usize {
        self.0.push(Entry { kind, from: at, to: None });
        self.0.len() - 1
    }

    pub(crate) fn end(&mut self, number: usize, at: At) {
        self.0[number].to = Some(at);
    }

    pub(crate) fn counts(&self) -> BTreeMap<FaultKind, u64> {
        let mut counts = BTreeMap::new();
        for entry in &self.0 {
            *counts.entry(entry.kind).or_default() += 1;
        }
        counts
    }

    /// Returns the part of a span, in microseconds, in which a fault of nodes lasted, or had ended only recently.
    pub(crate) fn disturbed_us(&self, from: At, to: At) -> u64 {
        covered_us(self.0.iter().filter(|entry| entry.kind.reach() != Reach::Gateway), from, to)
    }

    /// Returns the number of nodes that took another's place, or were meant to.
    pub(crate) fn members_replaced(&self) -> usize {
        let changes = [FaultKind::Replace, FaultKind::GrowAndShrink];
        self.0.iter().filter(|entry| changes.contains(&entry.kind)).count()
    }

    /// True if a majority was lost in a span, or had not been back for long.
    pub(crate) fn majority_was_lost(&self, from: At, to: At) -> bool {
        covered_us(self.0.iter().filter(|entry| entry.kind == FaultKind::Majority), from, to) > 0
    }
}

fn covered_us<'a>(entries: impl Iterator<Item = &'a Entry>, from: At, to: At) -> u64 {
    let mut spans: Vec<(At, At)> = entries
        .map(|entry| {
            let over = entry.to.unwrap_or(At::NEVER).after_ms(AFTERMATH_MS);
            (entry.from.max(from), over.min(to))
        })
        .filter(|(from, to)| from < to)
        .collect();
    spans.sort();
    let (mut covered, mut reached) = (0, from);
    for (from, to) in spans {
        let from = from.max(reached);
        covered += to.since(from);
        reached = reached.max(to);
    }
    covered
}

#[test]
fn a_span_is_disturbed_once_where_faults_overlap() {
    let mut log = FaultLog::default();
    let first = log.begin(FaultKind::Kill, At::from_ms(1_000));
    let second = log.begin(FaultKind::Majority, At::from_ms(1_500));
    let third = log.begin(FaultKind::GatewayKill, At::from_ms(2_500));
    log.end(first, At::from_ms(2_000));
    log.end(second, At::from_ms(3_000));
    log.end(third, At::from_ms(9_000));
    assert_eq!(log.disturbed_us(At::ZERO, At::from_ms(10_000)), 5_000_000);
    assert_eq!(log.disturbed_us(At::from_ms(6_500), At::from_ms(10_000)), 0);
    assert!(log.majority_was_lost(At::from_ms(5_900), At::from_ms(7_000)));
    assert!(!log.majority_was_lost(At::ZERO, At::from_ms(1_400)));
}
