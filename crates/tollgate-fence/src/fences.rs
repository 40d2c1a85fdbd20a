//! Fences around many resources, by name, in bounded memory.
//!
//! Invariant: a resource whose mark is not kept is fenced by the floor, and the floor is never below a mark that was
//! forgotten. So forgetting can turn away a good token, and never lets in a stale one. Not here: the rule itself
//! (`fence`).

use crate::fence::Fence;
use crate::fenced_token::{FenceMode, FencedToken};
use crate::planted::{Bug, Planted};
use crate::rejected::Rejected;
use std::collections::{BTreeMap, BTreeSet};
use tollgate_types::{Name, Token};

/// Policy for a resource that there is no room to remember. There is no default: each policy has a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Refuse exclusive tokens for new resources ([`Rejected::Full`]) until some are dropped. The right choice if the
    /// number of resources is known beforehand.
    Refuse,
    /// Forget the resource with the lowest mark, and remember that mark as a *floor*: for resources that are not
    /// remembered, no token below the floor is accepted. That is safe, and the price is paid by writers that held their
    /// lock for long: a good token below the floor is refused too ([`Rejected::Forgotten`]), and its holder must
    /// acquire the lock again.
    ///
    /// Only for resources whose locks live in one group of a cluster: their tokens come from one counter, so a new
    /// grant is above every floor. Tokens of different groups can't be compared, and a resource of a group whose
    /// counter is slower could be locked out for good.
    Forget,
}

/// Fences for many resources, each by the name of the lock that guards it.
///
/// ```
/// use tollgate_fence::{FencedToken, Fences, WhenFull};
/// use tollgate_types::{Name, Token};
///
/// let mut fences = Fences::new(10_000, WhenFull::Refuse);
/// let (a, b) = (Name::new("accounts/7")?, Name::new("accounts/8")?);
/// fences.accept(&a, FencedToken::exclusive(Token::new(5)?))?;
/// fences.accept(&b, FencedToken::exclusive(Token::new(4)?))?;     // another resource, another fence
/// assert!(fences.accept(&a, FencedToken::exclusive(Token::new(4)?)).is_err());
///
/// // Kept with the data, and restored after a restart.
/// let kept = fences.marks();
/// let mut fences = Fences::new(10_000, WhenFull::Refuse);
/// fences.restore(&kept)?;
/// assert_eq!(fences.highest(&a), Some(Token::new(5)?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Shared and permit tokens raise no mark and so take no room.
#[derive(Debug, Clone)]
pub struct Fences {
    marks: BTreeMap<Name, Token>,
    /// The same marks, lowest first, to choose the one to forget. Kept only with [`WhenFull::Forget`].
    lowest_first: BTreeSet<(Token, Name)>,
    /// Fences all resources without a mark of their own.
    floor: Option<Token>,
    capacity: usize,
    when_full: WhenFull,
    strict: bool,
    planted: Planted,
}

impl Fences {
    /// Makes fences that remember at most `capacity` resources, each in some 100 bytes and its name.
    pub fn new(capacity: usize, when_full: WhenFull) -> Fences {
        Fences {
            marks: BTreeMap::new(),
            lowest_first: BTreeSet::new(),
            floor: None,
            capacity,
            when_full,
            strict: false,
            planted: Planted::default(),
        }
    }

    /// Like [`Fences::new`], but each exclusive token is accepted only once per resource: see [`Fence::strict`].
    pub fn strict(capacity: usize, when_full: WhenFull) -> Fences {
        Fences { strict: true, ..Fences::new(capacity, when_full) }
    }

    /// Returns the number of resources remembered.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Returns true if no resource is remembered.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Returns the highest exclusive token accepted for the resource; none if it was never written to, or is forgotten.
    pub fn highest(&self, name: &Name) -> Option<Token> {
        self.marks.get(name).copied()
    }

    /// Returns the floor, the mark that fences resources that are not remembered; none while nothing was forgotten.
    pub const fn floor(&self) -> Option<Token> {
        self.floor
    }

    /// Checks if [`Fences::accept`] would accept the token; changes nothing.
    pub fn check(&self, name: &Name, presented: FencedToken) -> Result<(), Rejected> {
        match self.marks.get(name) {
            Some(mark) => self.fence(Some(*mark)).check(presented),
            None => self.check_unremembered(presented),
        }
    }

    /// Accepts the token of a write to the resource, or says why the write must not be made: see [`Fence::accept`].
    pub fn accept(&mut self, name: &Name, presented: FencedToken) -> Result<(), Rejected> {
        self.check(name, presented)?;
        let mark = self.marks.get(name).copied();
        let mut fence = self.fence(mark);
        fence.accept(presented)?;
        if let Some(raised) = fence.highest()
            && mark != Some(raised)
        {
            self.set(name, raised);
            self.make_room();
        }
        Ok(())
    }

    /// Drops a resource that no longer exists, so that its room can be used. Its mark becomes part of the floor: if the
    /// name comes back, stale tokens of the dropped resource stay out.
    ///
    /// The price is that of [`WhenFull::Forget`], with the same advice.
    pub fn drop_resource(&mut self, name: &Name) {
        if let Some(mark) = self.unset(name)
            && !self.planted.is(Bug::DropForgetsMark)
        {
            self.raise_floor(mark);
        }
    }

    /// Returns all marks and the floor, to be kept with the data.
    ///
    /// Copies everything. A store that keeps each mark beside the data it guards needs only [`Fences::highest`] and
    /// [`Fences::floor`], after each write.
    pub fn marks(&self) -> Marks {
        let floor = self.floor.filter(|_| !self.planted.is(Bug::FloorNotKept));
        Marks { floor, of: self.marks.iter().map(|(name, mark)| (name.clone(), *mark)).collect() }
    }

    /// Takes over marks that were kept, before the first write.
    ///
    /// Refused, and nothing is changed, if these fences have been in use (two sets of marks can't be merged without
    /// calling good tokens stale), or if there are more marks than fit and nothing may be forgotten.
    pub fn restore(&mut self, kept: &Marks) -> Result<(), Unfit> {
        if !self.is_empty() || self.floor.is_some() {
            return Err(Unfit::InUse);
        }
        if self.when_full == WhenFull::Refuse && kept.of.len() > self.capacity {
            return Err(Unfit::TooMany { marks: kept.of.len(), capacity: self.capacity });
        }
        self.floor = kept.floor;
        for (name, mark) in &kept.of {
            // A store may have kept a name twice by mistake: the higher mark counts.
            let highest = self.highest(name).max(Some(*mark));
            self.set(name, highest.expect("one of the two is there"));
        }
        self.make_room();
        Ok(())
    }

    /// Plants a bug in these fences.
    #[cfg(feature = "planted-bugs")]
    #[must_use]
    pub fn with_bug(self, bug: Bug) -> Fences {
        Fences { planted: Planted::some(bug), ..self }
    }

    fn fence(&self, mark: Option<Token>) -> Fence {
        let fence = if self.strict { Fence::strict() } else { Fence::new() };
        fence.restored(mark).with(self.planted)
    }

    fn check_unremembered(&self, presented: FencedToken) -> Result<(), Rejected> {
        if let Some(floor) = self.floor {
            let spared = self.planted.is(Bug::FloorNotStrict) && presented.token == floor;
            let behind = self.fence(Some(floor)).check(presented).is_err() && !spared;
            if behind {
                return Err(Rejected::Forgotten { presented, floor });
            }
        }
        let raises = presented.mode == FenceMode::Exclusive;
        if raises && self.when_full == WhenFull::Refuse && self.marks.len() >= self.capacity {
            return Err(Rejected::Full { presented, capacity: self.capacity });
        }
        Ok(())
    }

    fn set(&mut self, name: &Name, mark: Token) {
        self.unset(name);
        self.marks.insert(name.clone(), mark);
        if self.when_full == WhenFull::Forget {
            self.lowest_first.insert((mark, name.clone()));
        }
    }

    fn unset(&mut self, name: &Name) -> Option<Token> {
        let (name, mark) = self.marks.remove_entry(name)?;
        self.lowest_first.remove(&(mark, name));
        Some(mark)
    }

    fn make_room(&mut self) {
        while self.marks.len() > self.capacity {
            let (mark, name) =
                self.lowest_first.pop_first().expect("what is full and refuses takes no new name");
            self.marks.remove(&name);
            if !self.planted.is(Bug::FloorForgotten) {
                self.raise_floor(mark);
            }
        }
    }

    fn raise_floor(&mut self, mark: Token) {
        let falls = self.planted.is(Bug::FloorFalls);
        self.floor = if falls { Some(mark) } else { self.floor.max(Some(mark)) };
    }
}

/// The marks of many fences, which must be kept with the data, and be as durable.
///
/// The fields are plain, to be written in any form that the store uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// The highest mark that was forgotten.
    pub floor: Option<Token>,
    /// The highest exclusive token accepted for each resource that is remembered, by name.
    pub of: Vec<(Name, Token)>,
}

/// Reason why marks that were kept can't be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The fences have marks or a floor already.
    #[error("these fences have been in use: restore into new ones, before the first write")]
    InUse,
    /// There are more marks than may be remembered, and none may be forgotten.
    #[error(
        "{marks} resources were kept, and {capacity} may be remembered: raise the capacity to at least {marks}"
    )]
    TooMany {
        /// Number of marks kept.
        marks: usize,
        /// Number of marks that the fences may remember.
        capacity: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn exclusive(number: u64) -> FencedToken {
        FencedToken::exclusive(Token::new(number).unwrap())
    }

    #[test]
    fn p3_a_forgotten_resource_takes_no_stale_token() {
        let mut fences = Fences::new(2, WhenFull::Forget);
        for (resource, token) in [("a", 5), ("b", 6), ("c", 7)] {
            fences.accept(&name(resource), exclusive(token)).unwrap();
        }
        assert_eq!((fences.len(), fences.highest(&name("a"))), (2, None));
        let floor = Token::new(5).unwrap();
        assert_eq!(
            fences.accept(&name("a"), exclusive(4)),
            Err(Rejected::Forgotten { presented: exclusive(4), floor })
        );
        fences.accept(&name("a"), exclusive(5)).unwrap();
        fences.accept(&name("d"), exclusive(8)).unwrap();
    }

    #[test]
    fn fences_that_refuse_when_full_still_serve_those_they_remember() {
        let mut fences = Fences::new(1, WhenFull::Refuse);
        fences.accept(&name("a"), exclusive(5)).unwrap();
        let presented = exclusive(9);
        assert_eq!(fences.accept(&name("b"), presented), Err(Rejected::Full { presented, capacity: 1 }));
        fences.accept(&name("b"), FencedToken::shared(Token::new(9).unwrap())).unwrap();
        fences.accept(&name("a"), exclusive(6)).unwrap();

        fences.drop_resource(&name("a"));
        fences.accept(&name("b"), exclusive(9)).unwrap();
    }

    #[test]
    fn marks_that_do_not_fit_are_refused_whole() {
        let mut fences = Fences::new(1, WhenFull::Refuse);
        let token = Token::new(3).unwrap();
        let kept = Marks { floor: Some(token), of: vec![(name("a"), token), (name("b"), token)] };
        assert_eq!(fences.restore(&kept), Err(Unfit::TooMany { marks: 2, capacity: 1 }));
        assert_eq!(fences.marks(), Marks::default());

        fences.accept(&name("a"), exclusive(5)).unwrap();
        assert_eq!(fences.restore(&Marks::default()), Err(Unfit::InUse));
    }

    #[test]
    fn a_resource_that_was_dropped_and_came_back_takes_no_token_of_its_first_life() {
        let mut fences = Fences::strict(4, WhenFull::Refuse);
        fences.accept(&name("a"), exclusive(5)).unwrap();
        fences.drop_resource(&name("a"));
        assert!(fences.accept(&name("a"), exclusive(5)).is_err());
        fences.accept(&name("a"), exclusive(6)).unwrap();
    }
}
