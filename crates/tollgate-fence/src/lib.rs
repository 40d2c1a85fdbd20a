//! Turns away writes whose fencing token is stale, on the side of the store.
//!
//! A lock alone protects nothing against a pause: its holder may be stopped for a minute between "I hold the lock" and
//! the write, by a garbage collector, a hypervisor or a closed lid. Meanwhile its lease ends, another client gets the
//! lock and writes, and then the first one wakes up and writes as well. Only the store can tell the two apart, by the
//! token that came with each grant: it remembers the highest token it took, and takes none below. That is all a fence
//! is.
//!
//! ```
//! use tollgate_fence::{Fence, FencedToken, Rejected};
//! use tollgate_types::Token;
//!
//! let mut fence = Fence::new();
//! let (old, new) = (FencedToken::exclusive(Token::new(33)?), FencedToken::exclusive(Token::new(34)?));
//!
//! fence.accept(old)?;             // the first holder writes, then pauses
//! fence.accept(new)?;             // its lease ended: the next holder writes
//! let refused = fence.accept(old).unwrap_err();       // the first one wakes up
//! assert!(matches!(refused, Rejected::Stale { highest, .. } if highest == new.token));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The rule (P3): a fence never accepts a token below the highest exclusive token that it accepted, and a *strict*
//! fence accepts no exclusive token equal to it either. Shared and permit tokens raise nothing: their holders work side
//! by side, and the one who came first must not be turned away because of the one who came second. So the mode travels
//! with the token ([`FencedToken`]).
//!
//! The caller has three duties, without which none of this holds:
//!
//! 1. **One step.** No other write may come between [`Fence::accept`] and the write that it stands for: hold one
//!    mutex over both, or put both in one transaction of the database.
//! 2. **As durable as the data.** A mark that is lost in a crash while the data survives opens the door to stale
//!    writers again. Keep the mark with the data ([`Fence::highest`], [`Fence::restored`]; [`Fences::marks`],
//!    [`Fences::restore`]), written in the same step.
//! 3. **One fence per lock name.** Tokens of different names may be compared only where [`WhenFull::Forget`] says so.
//!
//! A fence keeps late writers out; it does not undo the writes that a writer made before it lost the lock, and a *read*
//! is fenced only if it passes the fence too. Nothing here does IO, reads a clock or blocks. Not here: fences inside
//! real stores (Postgres, Redis, files), and how a client gets its token (`tollgate-client`).

mod fence;
mod fenced_token;
mod fences;
mod planted;
mod rejected;

pub use fence::Fence;
pub use fenced_token::{FenceMode, FencedToken, ParseError};
pub use fences::{Fences, Marks, Unfit, WhenFull};
#[cfg(feature = "planted-bugs")]
pub use planted::Bug;
pub use rejected::Rejected;
