//! A lock: its holders, its queue and its lock-delay.
//!
//! All of it is derived from claims and closures and rebuilt on load; a snapshot never reads it.

use crate::claim::{Claim, QueueKey};
use crate::lease::Lease;
use crate::reply::Kind;
use crate::sizes::threshold;
use crate::slab::Id;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use tollgate_types::{LogTime, Mode, Name, Owner, Token};

/// The claims on a lock, by lease and owner.
pub(crate) type ByOwner = BTreeMap<(Id<Lease>, Owner), Id<Claim>>;

/// Number of members above which a lock indexes them by owner too.
const CROWD: usize = threshold(16, 2);

pub(crate) struct Lock {
    pub(crate) name: Name,
    pub(crate) hash: u64,
    /// In order of token.
    pub(crate) holders: SmallVec<[(Token, Id<Claim>); 1]>,
    pub(crate) held: Held,
    pub(crate) queue: BTreeMap<QueueKey, Id<Claim>>,
    pub(crate) closure: Option<Id<Closure>>,
    /// Kind of the lock's members; without members it means nothing.
    pub(crate) kind: Kind,
    /// The moment (`Scratch::moment`) at which no dead member was left on the lock.
    pub(crate) purged_at: u64,
    /// The lock's claims by owner, once scanning them would cost more.
    crowd: Option<Box<ByOwner>>,
}

/// A name that a lock-delay keeps closed.
#[derive(Clone)]
pub(crate) struct Closure {
    pub(crate) name: Name,
    pub(crate) until: LogTime,
}

impl Lock {
    pub(crate) fn new(name: Name, hash: u64, kind: Kind) -> Lock {
        Lock {
            name,
            hash,
            holders: SmallVec::new(),
            held: Held::default(),
            queue: BTreeMap::new(),
            closure: None,
            kind,
            purged_at: 0,
            crowd: None,
        }
    }

    pub(crate) fn has_members(&self) -> bool {
        !self.holders.is_empty() || !self.queue.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.has_members() && self.closure.is_none()
    }

    pub(crate) fn add_holder(&mut self, token: Token, mode: Mode, claim: Id<Claim>) {
        let after = self.holders.last().is_none_or(|(last, _)| *last < token);
        let at = if after { self.holders.len() } else { self.holders.partition_point(|(t, _)| *t < token) };
        self.holders.insert(at, (token, claim));
        self.held.add(mode);
    }

    pub(crate) fn remove_holder(&mut self, token: Token, mode: Mode) {
        let at =
            self.holders.binary_search_by_key(&token, |(t, _)| *t).expect("a holder is listed by its token");
        self.holders.remove(at);
        self.held.remove(mode);
    }

    pub(crate) fn holder(&self, token: Token) -> Option<Id<Claim>> {
        self.holders.binary_search_by_key(&token, |(t, _)| *t).ok().map(|at| self.holders[at].1)
    }

    /// Every claim on the lock, each once.
    pub(crate) fn members(&self) -> impl Iterator<Item = Id<Claim>> {
        let waiters = self.queue.iter().filter(|(key, _)| !key.is_upgrade()).map(|(_, claim)| *claim);
        self.holders.iter().map(|(_, claim)| *claim).chain(waiters)
    }

    fn member_count(&self) -> usize {
        self.holders.len() + self.queue.len()
    }

    /// Returns the claim of (lease, owner) on this lock, if there is one. `claim_of` reads a member.
    pub(crate) fn find_member<'a>(
        &self,
        lease: Id<Lease>,
        owner: &Owner,
        claim_of: impl Fn(Id<Claim>) -> &'a Claim,
    ) -> Option<Id<Claim>> {
        match &self.crowd {
            Some(crowd) => crowd.get(&(lease, owner.clone())).copied(),
            None => self.members().find(|id| {
                let claim = claim_of(*id);
                claim.lease == lease && claim.owner == *owner
            }),
        }
    }

    /// Adds a new member to the index by owner; builds the index when the lock gets crowded.
    pub(crate) fn note_member<'a>(
        &mut self,
        lease: Id<Lease>,
        owner: &Owner,
        id: Id<Claim>,
        claim_of: impl Fn(Id<Claim>) -> &'a Claim,
    ) {
        if self.crowd.is_none() && self.member_count() > CROWD {
            let by_owner = self.members().filter(|member| *member != id).map(|member| {
                let claim = claim_of(member);
                ((claim.lease, claim.owner.clone()), member)
            });
            self.crowd = Some(Box::new(by_owner.collect()));
        }
        if let Some(crowd) = &mut self.crowd {
            crowd.insert((lease, owner.clone()), id);
        }
    }

    pub(crate) fn forget_member(&mut self, lease: Id<Lease>, owner: &Owner) {
        if let Some(crowd) = &mut self.crowd {
            crowd.remove(&(lease, owner.clone()));
            if crowd.is_empty() {
                self.crowd = None;
            }
        }
    }

    /// The index by owner, for the invariant check.
    pub(crate) fn crowd(&self) -> Option<&ByOwner> {
        self.crowd.as_deref()
    }
}

/// The holders counted by mode, so that compatibility takes one look.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    by_mode: [u32; 5],
    permits: u64,
}

impl Held {
    pub(crate) fn add(&mut self, mode: Mode) {
        match (mode, mode.index()) {
            (Mode::Permit { n, .. }, _) => self.permits += u64::from(n),
            (_, Some(index)) => self.by_mode[index] += 1,
            (_, None) => unreachable!("only permits have no index"),
        }
    }

    pub(crate) fn remove(&mut self, mode: Mode) {
        match (mode, mode.index()) {
            (Mode::Permit { n, .. }, _) => self.permits -= u64::from(n),
            (_, Some(index)) => self.by_mode[index] -= 1,
            (_, None) => unreachable!("only permits have no index"),
        }
    }

    /// True if a new holder in `mode` is compatible with these.
    pub(crate) fn goes_with(&self, mode: Mode) -> bool {
        if let Mode::Permit { n, of } = mode {
            return self.permits + u64::from(n) <= u64::from(of) && self.by_mode == [0; 5];
        }
        let others = Mode::PLAIN.iter().zip(self.by_mode);
        self.permits == 0 && others.into_iter().all(|(held, count)| count == 0 || held.compatible(mode))
    }

    /// Like [`Held::goes_with`], for one of these holders that wants another mode.
    pub(crate) fn goes_with_others(&self, mine: Mode, wanted: Mode) -> bool {
        let mut others = *self;
        others.remove(mine);
        others.goes_with(wanted)
    }
}
