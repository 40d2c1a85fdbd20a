//! Findings: one broken rule at one place each.

use std::fmt;

/// A broken rule. Findings sort by place. The advice says what to do, not only what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// Line number from 1; a finding about a whole file is on line 1.
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) advice: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, rule: &'static str, advice: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, rule, advice: advice.into() }
    }
}

/// Formats the finding so that editors can jump to its place.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_as_place_rule_advice() {
        let finding = Finding::new("a/b.rs", 7, "tabs", "indent with spaces");
        assert_eq!(finding.to_string(), "a/b.rs:7: tabs: indent with spaces");
    }
}
