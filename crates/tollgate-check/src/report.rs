//! Report of a judgement: the violations found, and how much was judged.

use std::fmt;

/// A promise of Tollgate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// Exclusion.
    P1,
    /// Tokens strictly increase.
    P2,
    /// A fenced store takes no stale token.
    P3,
    /// Acknowledged effects are not lost.
    P4,
    /// A lease does not end early.
    P5,
    /// A lease does not end late.
    P6,
    /// A client does not believe in its lease for too long.
    P7,
    /// No waiter is forgotten.
    P8,
    /// Grants follow the queue.
    P9,
    /// A repeated request has one effect and one answer.
    P10,
    /// A watch has no gap and no duplicate.
    P11,
    /// Replicas agree.
    P12,
    /// Only a leader that a quorum has confirmed answers.
    P13,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Certainty of a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The promise is broken.
    Broken,
    /// The search gave up: the promise may be kept or broken, and neither has been shown.
    Unknown,
    /// The history contradicts itself in a way that no system could cause: the recorder has a bug.
    Malformed,
}

/// A violation of a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub promise: Promise,
    /// Certainty of the violation.
    pub kind: Kind,
    /// Description for a human reader.
    pub says: String,
    /// Events that show the violation, as indices into the history.
    pub events: Vec<usize>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Broken => write!(f, "{}: {} {:?}", self.promise, self.says, self.events),
            kind => write!(f, "{} {kind:?}: {} {:?}", self.promise, self.says, self.events),
        }
    }
}

/// Counts of what was judged. A report without violations says little if these are small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Events of any kind.
    pub events: u64,
    /// Calls made.
    pub calls: u64,
    /// Calls that were never answered.
    pub calls_unanswered: u64,
    /// Names that were asked for.
    pub names: u64,
    /// Grants, including those that no call was told of but that somebody saw.
    pub grants: u64,
    /// Incarnations of leases.
    pub leases: u64,
    /// Linearizable reads, busy answers and final states that had to be explained.
    pub observations: u64,
    /// Steps of the search, over all names.
    pub search_steps: u64,
    /// Entries whose hash was recorded for at least two nodes.
    pub hashes_compared: u64,
    /// Changes that watches delivered.
    pub watched_changes: u64,
    /// Writes to fenced stores.
    pub fenced_writes: u64,
}

/// The judgement of one history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// All violations; empty if all promises were kept.
    pub violations: Vec<Violation>,
    /// Counts of what was judged.
    pub stats: Stats,
}

impl Report {
    /// Returns true if the report has no violations.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Returns true if the report has a violation of this promise.
    pub fn blames(&self, promise: Promise) -> bool {
        self.violations.iter().any(|violation| violation.promise == promise)
    }

    pub(crate) fn broken(&mut self, promise: Promise, events: Vec<usize>, says: String) {
        self.violations.push(Violation { promise, kind: Kind::Broken, says, events });
    }

    pub(crate) fn malformed(&mut self, promise: Promise, events: Vec<usize>, says: String) {
        self.violations.push(Violation { promise, kind: Kind::Malformed, says, events });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        write!(f, "{} violations in {} calls", self.violations.len(), self.stats.calls)
    }
}
