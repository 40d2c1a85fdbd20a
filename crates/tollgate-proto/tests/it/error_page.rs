//! Tests that `docs/errors.md` has an entry for every reason, with the code and the answer that the code gives, and no
//! other entry.

use tollgate_proto::Retry;
use tollgate_proto::v1::ErrorReason;

const PAGE: &str = include_str!("../../../../docs/errors.md");

/// Entry of the page.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// Heading of the entry.
    reason: String,
    /// Line below the heading.
    facts: String,
    /// Number of words after that line.
    words: usize,
}

fn entries(page: &str) -> Vec<Entry> {
    let parts = page.split("\n## ").skip(1);
    let entry = |part: &str| {
        let mut lines = part.lines().filter(|line| !line.is_empty());
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (reason, facts) = (next(), next());
        Entry { reason, facts, words: lines.map(|line| line.split_whitespace().count()).sum() }
    };
    parts.map(entry).collect()
}

/// Returns the required line below the heading.
fn facts(reason: ErrorReason) -> String {
    let code = match reason {
        ErrorReason::RejectedBefore => "of the first answer".to_owned(),
        other => format!("`{}`", crate::comments::spelled(other.code())),
    };
    let status = match reason {
        ErrorReason::RejectedBefore => "of the first answer".to_owned(),
        other => other.http_status().to_string(),
    };
    let happened = if reason.may_have_happened() { "yes" } else { "no" };
    let again = match reason.retry() {
        Retry::No => "no",
        Retry::AtLeader => "at the leader",
        Retry::AtItsGroup => "in the group that has it",
        Retry::AtAnotherNode => "at another node",
        Retry::Later => "later",
        Retry::AsItIs => "as it is",
        Retry::IfStillWanted => "if still wanted",
    };
    format!("Code {code}, HTTP {status}. May have happened: {happened}. Send again: {again}.")
}

/// Returns every reason in the order of its number, as the page must have them.
fn expected() -> Vec<(String, String)> {
    let reasons = (0..1_000).filter_map(|number| ErrorReason::try_from(number).ok());
    let name = |reason: ErrorReason| reason.as_str_name().trim_start_matches("ERROR_REASON_").to_owned();
    reasons.map(|reason| (name(reason), facts(reason))).collect()
}

#[test]
fn every_reason_has_its_entry_on_the_page_and_nothing_else_does() {
    let found = entries(PAGE);
    let found: Vec<_> = found.iter().map(|entry| (entry.reason.clone(), entry.facts.clone())).collect();
    let expected = expected();
    assert!(expected.len() > 40);
    for entry in &expected {
        assert!(found.contains(entry), "docs/errors.md has no entry {entry:?}");
    }
    assert_eq!(found, expected, "in the order of their numbers, each once, and no others");
}

#[test]
fn every_entry_says_more_than_its_code() {
    for entry in entries(PAGE) {
        assert!(entry.words >= 8, "{entry:?}");
    }
}
