//! Items that the search places, and the conditions under which it may place them.

use crate::call::{Holder, Outcome};
use crate::evidence::{Grant, Release, Seen, Track, View, Weakening};
use crate::report::Promise;
use tollgate_types::{Mode, Revision};

/// Step at the moment that the search looks for.
#[derive(Clone, Copy)]
pub(super) enum Step<'t, 'a> {
    /// The lock is granted.
    Grant(usize),
    /// A grant ends, at a known revision.
    Release(&'t Release<'a>),
    /// A grant ends, at an unknown revision.
    End(usize),
    /// A holder converts to a weaker mode.
    Weaken(&'t Weakening<'a>),
    /// An answer is true.
    View(&'t View<'a>),
}

/// One item to place.
pub(super) struct Item<'t, 'a> {
    pub(super) open: usize,
    /// Last place at which the step can happen; `usize::MAX` if it need not happen at all.
    pub(super) close: usize,
    /// Revision of a change whose order is known.
    pub(super) revision: Option<Revision>,
    pub(super) step: Step<'t, 'a>,
    pub(super) promise: Promise,
    pub(super) events: &'t [usize],
}

/// A grant that holds the lock, with its mode by now.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) grant: usize,
    pub(super) mode: Mode,
}

/// Returns all items of a lock and, for each grant, the item of its end at an unknown moment.
pub(super) fn of<'t, 'a>(track: &'t Track<'a>) -> (Vec<Item<'t, 'a>>, Vec<Option<usize>>) {
    let mut items = Vec::new();
    let mut ends = Vec::with_capacity(track.grants.len());
    for (index, grant) in track.grants.iter().enumerate() {
        let revision = Some(Revision::new(grant.token.get()).expect("tokens are revisions"));
        let (open, close, events) = (grant.open, grant.close, grant.events.as_slice());
        items.push(Item { open, close, revision, step: Step::Grant(index), promise: Promise::P1, events });
        ends.push(end_of(grant).map(|(open, close)| {
            let step = Step::End(index);
            items.push(Item { open, close, revision: None, step, promise: Promise::P1, events });
            items.len() - 1
        }));
    }
    for release in &track.releases {
        let (open, close, events) = (release.open, release.close, release.events.as_slice());
        let (revision, step) = (Some(release.revision), Step::Release(release));
        items.push(Item { open, close, revision, step, promise: Promise::P1, events });
    }
    for weakening in &track.weakenings {
        let (open, close, events) = (weakening.open, weakening.close, weakening.events.as_slice());
        let step = Step::Weaken(weakening);
        items.push(Item { open, close, revision: None, step, promise: Promise::P1, events });
    }
    for view in &track.views {
        let (open, close, events) = (view.open, view.close, view.events.as_slice());
        items.push(Item {
            open,
            close,
            revision: None,
            step: Step::View(view),
            promise: view.promise,
            events,
        });
    }
    (items, ends)
}

/// Returns the places between which a grant ends at an unknown revision, if it can.
fn end_of(grant: &Grant<'_>) -> Option<(usize, usize)> {
    (grant.ended.is_none() && grant.ends_from != usize::MAX).then_some((grant.ends_from, grant.ends_by))
}

/// Returns true if a grant may be given while `held` hold. An earlier grant of the same holder gives way to it if the
/// earlier one was weaker; else the request would have been answered with the earlier grant.
pub(super) fn goes_with(index: usize, track: &Track<'_>, held: &[Held]) -> bool {
    let grant = &track.grants[index];
    let mut own = held.iter().filter(|held| track.grants[held.grant].who() == grant.who());
    if own.any(|own| own.mode.covers(grant.mode) || matches!(own.mode, Mode::Permit { .. })) {
        return false;
    }
    let others = held.iter().filter(|held| track.grants[held.grant].who() != grant.who());
    if let Mode::Permit { n, of } = grant.mode {
        let taken = others.map(|held| match held.mode {
            Mode::Permit { n, of: same } if same == of => u64::from(n),
            _ => u64::MAX / 2,
        });
        return taken.fold(u64::from(n), u64::saturating_add) <= u64::from(of);
    }
    others.into_iter().all(|held| held.mode.compatible(grant.mode))
}

/// Returns the held grant that a release ends.
pub(super) fn released(release: &Release<'_>, track: &Track<'_>, held: &[Held]) -> Option<usize> {
    let fits = |grant: &Grant<'_>| {
        release.who.is_none_or(|who| who == grant.who())
            && release.token.is_none_or(|token| token == grant.token)
    };
    held.iter().map(|held| held.grant).find(|&grant| fits(&track.grants[grant]))
}

/// Returns true if an answer is true while `held` hold and the next change has the revision `next`.
pub(super) fn is_true(view: &View<'_>, track: &Track<'_>, held: &[Held], next: Option<Revision>) -> bool {
    let mut grants = held.iter().map(|held| &track.grants[held.grant]);
    let shown = |grant: &Grant<'_>, holders: &[Holder]| {
        let same =
            |holder: &Holder| (holder.lease, &holder.owner) == grant.who() && holder.token == grant.token;
        holders.iter().any(same)
    };
    match &view.seen {
        Seen::Exactly(holders, revision) => {
            next.is_none_or(|next| next > *revision)
                && holders.len() == held.len()
                && grants.all(|grant| shown(grant, holders))
        }
        Seen::Busy(holders, asker) => {
            let listed = grants.clone().filter(|grant| shown(grant, holders)).count();
            let left_out = |grant: &Grant<'_>| grant.who() == *asker || shown(grant, holders);
            listed == holders.len() && (listed >= Outcome::BUSY_HOLDERS_MAX || grants.all(left_out))
        }
        Seen::Holds(who, token) => grants.any(|grant| grant.who() == *who && grant.token == *token),
        Seen::NotHeldBy(who) => grants.all(|grant| grant.who() != *who),
        Seen::LeaseGone(lease) => grants.all(|grant| grant.lease != *lease),
        Seen::Highest(token) => grants.map(|grant| grant.token).max() == *token,
    }
}

/// Describes an item that could not be placed, for messages: "explains that" stands before the text, and "on" the lock
/// after it.
pub(super) fn says(item: &Item<'_, '_>, track: &Track<'_>) -> String {
    let whose = |index: usize| {
        let grant = &track.grants[index];
        format!("{}/{}, token {}, {}", grant.lease, grant.owner, grant.token, grant.mode)
    };
    match &item.step {
        Step::Grant(grant) => format!("a grant was given ({})", whose(*grant)),
        Step::Release(release) => format!("a release succeeded at revision {}", release.revision),
        Step::End(grant) => format!("a grant had ended ({})", whose(*grant)),
        Step::Weaken(weakening) => format!("a holder went on as {}", weakening.mode),
        Step::View(view) => match &view.seen {
            Seen::Exactly(holders, revision) => {
                let tokens: Vec<_> = holders.iter().map(|holder| holder.token.get()).collect();
                format!("a read at revision {revision} saw holders with tokens {tokens:?}")
            }
            Seen::Busy(holders, _) => {
                let tokens: Vec<_> = holders.iter().map(|holder| holder.token.get()).collect();
                format!("a busy answer named holders with tokens {tokens:?}")
            }
            Seen::Holds(who, token) => format!("{}/{} was told to hold with token {token}", who.0, who.1),
            Seen::NotHeldBy(who) => format!("{}/{} was told not to hold", who.0, who.1),
            Seen::LeaseGone(lease) => format!("lease {lease} was not found"),
            Seen::Highest(token) => match token {
                Some(token) => format!("token {token} was called the highest held"),
                None => "a forced release found nobody".to_owned(),
            },
        },
    }
}

/// Returns a fixed number for each item; a set of items has the exclusive or of their numbers.
pub(super) fn hash(item: usize) -> u128 {
    let half = |seed: u64| {
        let mut x = (item as u64).wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    (u128::from(half(1)) << 64) | u128::from(half(0x5851_f42d_4c95_7f2d))
}
