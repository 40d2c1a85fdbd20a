//! Revisions and fencing tokens.

use crate::invalid::{Invalid, in_range};
use std::fmt;
use std::num::NonZeroU64;

/// Exclusive upper bound of revisions and tokens: a double holds every number below exactly.
pub const REVISION_END: u64 = 1 << 53;

/// A group's counter of state changes. 0 means that nothing has changed yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(u64);

impl Revision {
    /// The revision before the first change.
    pub const ZERO: Revision = Revision(0);

    /// A revision by number, below 2^53.
    pub fn new(number: u64) -> Result<Revision, Invalid> {
        in_range("revision", number, 0, REVISION_END - 1).map(Revision)
    }

    /// The revision of the next change.
    ///
    /// Panics at 2^53: a million changes a second take 285 years to get there, so it can only be a corrupted counter.
    #[must_use]
    #[inline]
    pub fn next(self) -> Revision {
        assert!(self.0 + 1 < REVISION_END, "revisions stay below 2^53");
        Revision(self.0 + 1)
    }

    /// The revision before this one; zero stays zero.
    #[must_use]
    pub const fn previous(self) -> Revision {
        Revision(self.0.saturating_sub(1))
    }

    /// The revision as a number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// The fencing token of a grant: the revision at which the lock was granted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// A token by number: 1 to 2^53 - 1.
    pub fn new(number: u64) -> Result<Token, Invalid> {
        let number = in_range("fencing token", number, 1, REVISION_END - 1)?;
        Ok(Token(NonZeroU64::new(number).expect("at least 1")))
    }

    /// The token of a grant made at `revision`.
    #[inline]
    pub fn of_grant(revision: Revision) -> Token {
        Token(NonZeroU64::new(revision.0).expect("a grant is a change, so its revision is above 0"))
    }

    /// The token as a number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_stay_below_two_to_the_53() {
        assert!(Token::new(0).is_err());
        assert!(Token::new(REVISION_END).is_err());
        assert!(Token::new(REVISION_END - 1).is_ok());
    }

    #[test]
    #[should_panic(expected = "revisions stay below 2^53")]
    fn a_counter_at_the_end_is_a_fault() {
        let _ = Revision::new(REVISION_END - 1).unwrap().next();
    }
}
