//! The modes in which a lock can be held, and their compatibility.

use crate::invalid::{Invalid, in_range};
use std::fmt;

/// The way in which a holder shares its lock with other holders.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Held by one holder alone.
    Exclusive,
    /// Held together with other readers.
    Shared,
    /// Intends to take `Shared` further down a tree.
    IntentShared,
    /// Intends to take `Exclusive` further down a tree.
    IntentExclusive,
    /// Reads a whole tree and intends to take `Exclusive` further down.
    SharedIntentExclusive,
    /// `n` of a semaphore's `of` permits.
    Permit {
        /// Number of permits that this holder takes.
        n: u32,
        /// Total number of permits; the same for all holders and waiters of the semaphore.
        of: u32,
    },
}

use Mode::{Exclusive, IntentExclusive, IntentShared, Permit, Shared, SharedIntentExclusive};

impl Mode {
    /// The most permits that a semaphore can have.
    pub const PERMITS_MAX: u32 = 1_000_000;

    /// The modes without permits, weakest first; a mode's place is its [`Mode::index`].
    pub const PLAIN: [Mode; 5] = [IntentShared, IntentExclusive, Shared, SharedIntentExclusive, Exclusive];

    /// `n` of `of` permits: 1 <= n <= of <= 1,000,000.
    pub fn permit(n: u32, of: u32) -> Result<Mode, Invalid> {
        in_range("permits of the semaphore", u64::from(of), 1, u64::from(Mode::PERMITS_MAX))?;
        in_range("permits asked for", u64::from(n), 1, u64::from(of))?;
        Ok(Permit { n, of })
    }

    /// The mode's place in [`Mode::PLAIN`]; none for permits.
    #[inline]
    pub const fn index(self) -> Option<usize> {
        match self {
            IntentShared => Some(0),
            IntentExclusive => Some(1),
            Shared => Some(2),
            SharedIntentExclusive => Some(3),
            Exclusive => Some(4),
            Permit { .. } => None,
        }
    }

    /// True if two different holders may have these modes at once. Always false for permits, which are counted instead:
    /// see the lock.
    ///
    /// ```
    /// use tollgate_types::Mode;
    /// assert!(Mode::IntentShared.compatible(Mode::SharedIntentExclusive));
    /// assert!(!Mode::Shared.compatible(Mode::IntentExclusive));
    /// ```
    #[inline]
    pub const fn compatible(self, other: Mode) -> bool {
        match (self, other) {
            (Exclusive | Permit { .. }, _) | (_, Exclusive | Permit { .. }) => false,
            (IntentShared, _) | (_, IntentShared) | (IntentExclusive, IntentExclusive) | (Shared, Shared) => {
                true
            }
            _ => false,
        }
    }

    /// True if a holder of `self` already has every right that `wanted` gives.
    #[inline]
    pub fn covers(self, wanted: Mode) -> bool {
        match (self, wanted) {
            (Permit { .. }, _) | (_, Permit { .. }) => self == wanted,
            _ => self.join(wanted) == Some(self),
        }
    }

    /// The weakest mode that covers both; none where permits are involved.
    pub const fn join(self, other: Mode) -> Option<Mode> {
        Some(match (self, other) {
            (Permit { .. }, _) | (_, Permit { .. }) => return None,
            (Exclusive, _) | (_, Exclusive) => Exclusive,
            (SharedIntentExclusive, _)
            | (_, SharedIntentExclusive)
            | (Shared, IntentExclusive)
            | (IntentExclusive, Shared) => SharedIntentExclusive,
            (Shared, _) | (_, Shared) => Shared,
            (IntentExclusive, _) | (_, IntentExclusive) => IntentExclusive,
            (IntentShared, IntentShared) => IntentShared,
        })
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Writes the mode as scripts, logs and the command line do.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exclusive => f.write_str("exclusive"),
            Shared => f.write_str("shared"),
            IntentShared => f.write_str("intent-shared"),
            IntentExclusive => f.write_str("intent-exclusive"),
            SharedIntentExclusive => f.write_str("shared-intent-exclusive"),
            Permit { n, of } => write!(f, "permit-{n}/{of}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The classic five-by-five matrix, in the order of `Mode::PLAIN`: IS, IX, S, SIX, X.
    const MATRIX: [[bool; 5]; 5] = [
        [true, true, true, true, false],
        [true, true, false, false, false],
        [true, false, true, false, false],
        [true, false, false, false, false],
        [false, false, false, false, false],
    ];

    #[test]
    fn compatibility_is_the_classic_matrix() {
        for (i, a) in Mode::PLAIN.into_iter().enumerate() {
            assert_eq!(a.index(), Some(i));
            for (j, b) in Mode::PLAIN.into_iter().enumerate() {
                assert_eq!(a.compatible(b), MATRIX[i][j], "{a} with {b}");
            }
        }
    }

    #[test]
    fn a_stronger_mode_excludes_all_that_a_weaker_one_does() {
        for a in Mode::PLAIN {
            for b in Mode::PLAIN {
                let join = a.join(b).unwrap();
                assert!(join.covers(a) && join.covers(b));
                for c in Mode::PLAIN {
                    assert!(!join.compatible(c) || (a.compatible(c) && b.compatible(c)), "{a} {b} {c}");
                    assert!(!(c.covers(a) && c.covers(b)) || c.covers(join), "{join} is the weakest");
                }
            }
        }
    }

    #[test]
    fn permits_are_validated() {
        assert!(Mode::permit(1, 1).is_ok());
        assert_eq!(
            Mode::permit(3, 2).unwrap_err().to_string(),
            "permits asked for is 3: it must be from 1 to 2"
        );
        assert!(Mode::permit(0, 2).is_err());
        assert!(Mode::permit(1, Mode::PERMITS_MAX + 1).is_err());
    }
}
