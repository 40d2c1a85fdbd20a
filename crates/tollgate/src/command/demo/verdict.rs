//! The claims of a demo, and whether each was seen.

use crate::output::Paint;

/// The claims of a demo, each seen or not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict(Vec<Claim>);

#[derive(Debug, PartialEq, Eq)]
struct Claim {
    seen: bool,
    says: String,
}

impl Verdict {
    pub(super) fn new() -> Verdict {
        Verdict::default()
    }

    /// Adds a claim.
    #[must_use]
    pub(super) fn claim(mut self, seen: bool, says: impl Into<String>) -> Verdict {
        self.0.push(Claim { seen, says: says.into() });
        self
    }

    /// True if all claims were seen. A demo without claims has shown nothing.
    pub(super) fn holds(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|claim| claim.seen)
    }

    pub(super) fn render(&self, paint: Paint) -> String {
        let line = |claim: &Claim| {
            let mark = if claim.seen { paint.good("seen    ") } else { paint.bad("NOT SEEN") };
            format!("{mark}  {}\n", claim.says)
        };
        self.0.iter().map(line).collect()
    }

    /// Returns the claims that were not seen.
    #[cfg(test)]
    pub(super) fn missing(&self) -> Vec<&str> {
        self.0.iter().filter(|claim| !claim.seen).map(|claim| claim.says.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_claim_that_was_not_seen_is_enough_and_none_at_all_is_too() {
        assert!(!Verdict::new().holds());
        assert!(Verdict::new().claim(true, "a").holds());
        let verdict = Verdict::new().claim(true, "a").claim(false, "b");
        assert!(!verdict.holds());
        assert_eq!(verdict.missing(), ["b"]);
        assert_eq!(verdict.render(Paint::PLAIN), "seen      a\nNOT SEEN  b\n");
    }
}
