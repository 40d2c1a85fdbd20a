//! Reasons for which a fence turns a token away, with advice for the writer.

use crate::fenced_token::FencedToken;
use tollgate_types::Token;

/// A token that was turned away. Nothing changed; the write must not be made.
///
/// The text can go to the writer as it is: it names both tokens and says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// The lock was granted again since, and its later holder has written here. The writer has lost the lock, whatever
    /// it believes.
    #[error(
        "{} token {} is stale: a write with token {highest} came first. Stop writing: the lock is lost. \
         Acquire it again, and read again what you meant to change", presented.mode, presented.token
    )]
    Stale {
        /// Token of the write.
        presented: FencedToken,
        /// The highest exclusive token accepted so far.
        highest: Token,
    },
    /// A strict fence takes each exclusive token once, and this one was taken before. If the write is a retry, its
    /// first attempt was accepted.
    #[error(
        "exclusive token {} was accepted before (the highest so far is {}), and this store takes each once. \
         If you repeat a write, it has been made; for another one acquire the lock again",
        presented.token, presented.token
    )]
    Repeated {
        /// Token of the write; equal to the highest exclusive token accepted so far.
        presented: FencedToken,
    },
    /// The fence has forgotten this resource, and can't tell a good token from a stale one below its floor.
    #[error(
        "{} token {} is not above {floor}, below which this store has forgotten what it took. \
         It may or may not be stale: acquire the lock again and use the new token",
        presented.mode, presented.token
    )]
    Forgotten {
        /// Token of the write.
        presented: FencedToken,
        /// The highest mark that was forgotten.
        floor: Token,
    },
    /// There is no room to remember one more resource, and the fences may not forget any.
    #[error(
        "{} token {} can't be remembered: this store already guards {capacity} resources, as many as it may. \
         Raise its capacity, or drop resources that no longer exist",
        presented.mode, presented.token
    )]
    Full {
        /// Token of the write.
        presented: FencedToken,
        /// Number of resources that the fences may remember.
        capacity: usize,
    },
}

impl Rejected {
    /// Returns the token that was turned away.
    pub const fn presented(&self) -> FencedToken {
        match *self {
            Rejected::Stale { presented, .. }
            | Rejected::Repeated { presented }
            | Rejected::Forgotten { presented, .. }
            | Rejected::Full { presented, .. } => presented,
        }
    }
}
