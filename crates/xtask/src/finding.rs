//! One broken rule at one place.

use std::fmt;

/// Sorts by place. The advice says what to do, not only what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// From 1; a finding about a whole file is on line 1.
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) advice: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, rule: &'static str, advice: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, rule, advice: advice.into() }
    }
}

/// In the form that editors jump to.
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
