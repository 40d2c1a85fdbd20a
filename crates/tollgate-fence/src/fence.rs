//! The fence around one resource: its highest exclusive token, and whether it takes a token twice.
//!
//! Invariant (P3): `highest` never falls, and no token below it is accepted. Not here: many resources (`fences`).

use crate::fenced_token::{FenceMode, FencedToken};
use crate::planted::{Bug, Planted};
use crate::rejected::Rejected;
use tollgate_types::Token;

/// Guards one resource, which one lock name stands for.
///
/// A number and a comparison. The caller makes the check and the write one step; here, with a mutex over both:
///
/// ```
/// use std::sync::Mutex;
/// use tollgate_fence::{Fence, FencedToken, Rejected};
///
/// struct Document {
///     inside: Mutex<(Fence, String)>,
/// }
///
/// impl Document {
///     fn write(&self, text: &str, token: FencedToken) -> Result<(), Rejected> {
///         let mut inside = self.inside.lock().expect("no writer panics");
///         inside.0.accept(token)?;
///         inside.1 = text.to_owned();
///         Ok(())
///     }
/// }
/// # use tollgate_types::Token;
/// # let document = Document { inside: Mutex::new((Fence::new(), String::new())) };
/// # document.write("second", FencedToken::exclusive(Token::new(2)?))?;
/// # assert!(document.write("first", FencedToken::exclusive(Token::new(1)?)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Fence {
    highest: Option<Token>,
    strict: bool,
    planted: Planted,
}

impl Fence {
    /// Makes a fence that has accepted nothing yet, around a resource that was never written to.
    ///
    /// If there is data already, its mark was kept with it: use [`Fence::restored`].
    pub fn new() -> Fence {
        Fence::default()
    }

    /// Makes a fence that accepts each exclusive token only once: one write per grant. For stores where making a write
    /// twice does harm, as a retry would: appending, paying, sending.
    ///
    /// ```
    /// use tollgate_fence::{Fence, FencedToken, Rejected};
    /// use tollgate_types::Token;
    ///
    /// let mut fence = Fence::strict();
    /// let token = FencedToken::exclusive(Token::new(7)?);
    /// fence.accept(token)?;
    /// assert_eq!(fence.accept(token), Err(Rejected::Repeated { presented: token }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn strict() -> Fence {
        Fence { strict: true, ..Fence::new() }
    }

    /// Returns this fence with a mark that was kept; the fence's own mark never falls.
    ///
    /// ```
    /// use tollgate_fence::{Fence, FencedToken};
    /// use tollgate_types::Token;
    ///
    /// let mut fence = Fence::new();
    /// fence.accept(FencedToken::exclusive(Token::new(7)?))?;
    /// let kept: Option<Token> = fence.highest();          // written with the data, read after a restart
    ///
    /// let fence = Fence::new().restored(kept);
    /// assert!(fence.check(FencedToken::exclusive(Token::new(6)?)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn restored(self, highest: Option<Token>) -> Fence {
        let highest = if self.planted.is(Bug::RestoreLowers) { highest } else { self.highest.max(highest) };
        Fence { highest, ..self }
    }

    /// Returns true if each exclusive token is accepted only once.
    pub const fn is_strict(&self) -> bool {
        self.strict
    }

    /// Returns the highest exclusive token accepted so far: the mark to keep with the data.
    pub const fn highest(&self) -> Option<Token> {
        self.highest
    }

    /// Checks if [`Fence::accept`] would accept the token; changes nothing.
    ///
    /// For reads, and to refuse early. A write needs `accept`: a token that passes the check may be stale a moment
    /// later.
    pub fn check(&self, presented: FencedToken) -> Result<(), Rejected> {
        let Some(highest) = self.highest else { return Ok(()) };
        let exclusive = presented.mode == FenceMode::Exclusive;
        let spared = if exclusive { Bug::StaleAccepted } else { Bug::SharedNotChecked };
        if presented.token < highest && !self.planted.is(spared) {
            return Err(Rejected::Stale { presented, highest });
        }
        let once =
            (self.strict && !self.planted.is(Bug::StrictIgnored)) || self.planted.is(Bug::AlwaysStrict);
        let counted = exclusive || self.planted.is(Bug::StrictForShared);
        if once && counted && presented.token == highest {
            return Err(Rejected::Repeated { presented });
        }
        Ok(())
    }

    /// Accepts the token of a write, or says why the write must not be made.
    ///
    /// Call it first and write then, in one step that no other write comes between. If the write fails after this, the
    /// mark stays raised, which is safe: a fence that is not strict takes the same token again.
    pub fn accept(&mut self, presented: FencedToken) -> Result<(), Rejected> {
        self.check(presented)?;
        if presented.mode == FenceMode::Exclusive || self.planted.is(Bug::SharedRaises) {
            self.highest = Some(presented.token);
        }
        Ok(())
    }

    /// Plants a bug in this fence.
    #[cfg(feature = "planted-bugs")]
    #[must_use]
    pub fn with_bug(self, bug: Bug) -> Fence {
        self.with(Planted::some(bug))
    }

    pub(crate) fn with(mut self, planted: Planted) -> Fence {
        self.planted = planted;
        self
    }
}
