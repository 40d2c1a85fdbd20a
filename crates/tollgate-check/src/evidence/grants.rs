//! Grants and releases of each lock, and the answers that show them.
//!
//! A grant is known by its token. A grant that no call was told of counts once it was seen in a read, a busy answer or
//! a watch. A grant that was never seen is left out, for nothing depends on it. Not here: whether all grants are
//! consistent (`checks`).

use super::{Calls, Lease, Leases, Timeline, Who, calls::Call};
use crate::call::{Holder, Op, Outcome};
use crate::event::{Change, ChangeKind, Event, FinalLock};
use crate::report::{Promise, Report};
use crate::settings::Settings;
use std::collections::BTreeMap;
use tollgate_types::{GroupId, LeaseId, Mode, Name, Names, Owner, Revision, Token};

/// A grant of one lock.
pub(crate) struct Grant<'a> {
    pub(crate) token: Token,
    pub(crate) lease: LeaseId,
    pub(crate) owner: &'a Owner,
    pub(crate) mode: Mode,
    pub(crate) group: GroupId,
    /// Bounds of the place at which the lock was granted: not before `open`, and not after `close`.
    pub(crate) open: usize,
    pub(crate) close: usize,
    /// Index (among the calls) of the first call that was told of the grant.
    pub(crate) told_by: Option<usize>,
    /// Revision at which the holder joined the queue, if it was reported and the holder certainly took its turn there.
    pub(crate) queued: Option<Revision>,
    /// Revision at which the grant ended, if known.
    pub(crate) ended: Option<Revision>,
    /// Bounds of the place at which the grant ended, if it did: not before `ends_from`, and surely by `ends_by`.
    pub(crate) ends_from: usize,
    pub(crate) ends_by: usize,
    /// A revision at which the grant was surely gone.
    pub(crate) gone_by: Option<Revision>,
    pub(crate) events: Vec<usize>,
}

impl<'a> Grant<'a> {
    pub(crate) fn who(&self) -> Who<'a> {
        (self.lease, self.owner)
    }
}

/// The end of a grant, at a known revision.
pub(crate) struct Release<'a> {
    pub(crate) revision: Revision,
    pub(crate) who: Option<Who<'a>>,
    pub(crate) token: Option<Token>,
    pub(crate) open: usize,
    pub(crate) close: usize,
    /// True if the grant may be one that was never seen.
    pub(crate) unseen: bool,
    pub(crate) events: Vec<usize>,
}

/// A conversion to a weaker mode: no answer reports its revision.
pub(crate) struct Weakening<'a> {
    pub(crate) who: Who<'a>,
    pub(crate) mode: Mode,
    pub(crate) open: usize,
    /// Place by which the conversion has happened; `usize::MAX` if it may never have happened.
    pub(crate) close: usize,
    pub(crate) events: Vec<usize>,
}

/// Statement of an answer about the holders of a lock.
pub(crate) enum Seen<'a> {
    /// These holders hold the lock as of this revision, and nobody else.
    Exactly(&'a [Holder], Revision),
    /// These holders hold the lock; the requester, named second, may be left out.
    Busy(&'a [Holder], Who<'a>),
    /// This lease and owner hold the lock, with this token.
    Holds(Who<'a>, Token),
    /// This lease and owner do not hold the lock.
    NotHeldBy(Who<'a>),
    /// No owner of this lease holds the lock.
    LeaseGone(LeaseId),
    /// The highest token among the holders; none if nobody holds the lock.
    Highest(Option<Token>),
}

/// An answer that must have been true at some moment between two places.
pub(crate) struct View<'a> {
    pub(crate) open: usize,
    pub(crate) close: usize,
    pub(crate) seen: Seen<'a>,
    /// The promise that is broken if the answer was never true.
    pub(crate) promise: Promise,
    pub(crate) events: Vec<usize>,
}

/// All evidence about one lock.
pub(crate) struct Track<'a> {
    pub(crate) name: &'a Name,
    /// Sorted by token.
    pub(crate) grants: Vec<Grant<'a>>,
    pub(crate) releases: Vec<Release<'a>>,
    pub(crate) weakenings: Vec<Weakening<'a>>,
    pub(crate) views: Vec<View<'a>>,
}

/// All evidence about every lock, sorted by name.
pub(crate) struct Tracks<'a>(pub(crate) Vec<Track<'a>>);

/// One sighting of a grant: in an answer to its holder, in a read, a busy answer or a watch.
struct Sighting<'a> {
    token: Token,
    who: Who<'a>,
    mode: Option<Mode>,
    group: GroupId,
    place: usize,
    /// Index of the call that was told of the grant, and the revision at which its holder joined the queue.
    told: Option<(usize, Option<Revision>)>,
}

/// A request that may have been granted without an answer, or whose grant may have ended without having been seen.
struct Loose<'a> {
    who: Who<'a>,
    mode: Mode,
    invoked: usize,
    answered: bool,
}

/// A call that may have ended a grant, without an answer that says so.
struct MayEnd<'a> {
    who: Option<Who<'a>>,
    token: Option<Token>,
    from: usize,
}

#[derive(Default)]
struct Draft<'a> {
    group: Option<GroupId>,
    sightings: Vec<Sighting<'a>>,
    loose: Vec<Loose<'a>>,
    releases: Vec<Release<'a>>,
    weakenings: Vec<Weakening<'a>>,
    may_end: Vec<MayEnd<'a>>,
    max_holds: Vec<(Who<'a>, u64, usize)>,
    /// Ends of grants that a watch delivered: the revision and the place, by token.
    watched_ends: BTreeMap<Token, (Revision, usize)>,
    /// Tokens that an answer called ended, with the place of the answer.
    told_ended: Vec<(Token, usize)>,
    views: Vec<View<'a>>,
}

type Drafts<'a> = BTreeMap<&'a Name, Draft<'a>>;

impl<'a> Tracks<'a> {
    pub(super) fn read(
        settings: &Settings,
        timeline: Timeline<'a>,
        calls: &Calls<'a>,
        leases: &Leases,
        report: &mut Report,
    ) -> Tracks<'a> {
        let mut drafts = Drafts::new();
        for (index, call) in calls.all.iter().enumerate() {
            read_call(&mut drafts, calls, index, call);
        }
        read_watches(&mut drafts, timeline);
        read_final_states(&mut drafts, timeline);
        let context = Context { settings, timeline, calls, leases };
        let tracks: Vec<Track<'a>> =
            drafts.into_iter().map(|(name, draft)| context.track(name, draft, report)).collect();
        report.stats.names = tracks.len() as u64;
        report.stats.grants = tracks.iter().map(|track| track.grants.len() as u64).sum();
        report.stats.observations = tracks.iter().map(|track| track.views.len() as u64).sum();
        Tracks(tracks)
    }
}

fn read_call<'a>(drafts: &mut Drafts<'a>, calls: &Calls<'a>, index: usize, call: &Call<'a>) {
    match call.op {
        Op::Lock { .. } | Op::Convert { .. } | Op::Unlock { .. } => {
            let (names, who) = call.claim().expect("these have one");
            for name in names.as_slice() {
                let draft = drafts.entry(name).or_default();
                draft.group.get_or_insert(call.group);
                draft.claim(index, call, who, names.as_slice().len() == 1);
            }
        }
        Op::ForceRelease { name, token } => {
            let draft = drafts.entry(name).or_default();
            draft.group.get_or_insert(call.group);
            draft.force_release(call, *token);
        }
        Op::Cancel { of, release_if_granted } => {
            let Some(of) = calls.get(*of) else { return };
            let Some((names, who)) = of.claim() else { return };
            for name in names.as_slice() {
                let draft = drafts.entry(name).or_default();
                draft.cancel(call, of, who, *release_if_granted, names.as_slice().len() == 1);
            }
        }
        Op::ReadLock { name } => {
            let draft = drafts.entry(name).or_default();
            draft.group.get_or_insert(call.group);
            if let Some((place, Outcome::Lock { revision, holders })) = call.returned {
                draft.see_holders(holders, call.group, place);
                draft.view(call, Seen::Exactly(holders, *revision));
            }
        }
        _ => {}
    }
}

impl<'a> Draft<'a> {
    fn claim(&mut self, index: usize, call: &Call<'a>, who: Who<'a>, alone: bool) {
        if let Op::Unlock { token, .. } = call.op {
            self.unlock(call, who, *token, alone);
        } else {
            self.request(index, call, who, alone);
        }
        if matches!(call.outcome(), Some(Outcome::LeaseNotFound)) {
            self.view(call, Seen::LeaseGone(who.0));
        }
    }

    /// Takes in a Lock or a Convert.
    fn request(&mut self, index: usize, call: &Call<'a>, who: Who<'a>, alone: bool) {
        let (Op::Lock { mode, .. } | Op::Convert { mode, .. }) = call.op else { return };
        if let Op::Lock { max_hold_ms: Some(ms), .. } = call.op {
            self.max_holds.push((who, *ms, call.invoked));
        }
        if let (Op::Convert { mode, .. }, Some((_, Outcome::Ended { .. } | Outcome::LeaseNotFound))) =
            (call.op, call.returned)
        {
            self.weakenings.push(Weakening {
                who,
                mode: *mode,
                open: call.invoked,
                close: usize::MAX,
                events: call.events(),
            });
        }
        let mut sight = |place, token, mode, told| {
            self.sightings.push(Sighting { token, who, mode: Some(mode), group: call.group, place, told });
        };
        match call.returned {
            Some((place, Outcome::Granted { token, create_revision, mode })) => {
                sight(place, *token, *mode, Some((index, *create_revision)));
            }
            Some((place, Outcome::Ended { token: Some(token), .. })) => {
                sight(place, *token, *mode, Some((index, None)));
                self.told_ended.push((*token, place));
            }
            Some((_, Outcome::Busy { holders })) if alone => {
                self.see_holders(holders, call.group, call.close());
                self.view(call, Seen::Busy(holders, who));
            }
            _ => {}
        }
        for (place, outcome, _) in &call.again {
            if let Outcome::Granted { token, mode, .. } = outcome {
                let told = Some((index, None));
                let sighting = Sighting {
                    token: *token,
                    who,
                    mode: Some(*mode),
                    group: call.group,
                    place: *place,
                    told,
                };
                self.sightings.push(sighting);
            }
        }
        // The lease may have ended between the attempt that was granted and the attempt that was answered.
        if matches!(call.outcome(), None | Some(Outcome::Ended { .. } | Outcome::LeaseNotFound)) {
            let answered = matches!(call.outcome(), Some(Outcome::Ended { .. }));
            self.loose.push(Loose { who, mode: *mode, invoked: call.invoked, answered });
        }
        if matches!((call.op, call.returned), (Op::Convert { .. }, None)) {
            self.weaken(call, who, *mode);
        }
    }

    fn weaken(&mut self, call: &Call<'a>, who: Who<'a>, mode: Mode) {
        let (open, close, events) = (call.invoked, call.close(), call.events());
        self.weakenings.push(Weakening { who, mode, open, close, events });
    }

    fn unlock(&mut self, call: &Call<'a>, who: Who<'a>, token: Option<Token>, alone: bool) {
        match call.returned {
            None | Some((_, Outcome::LeaseNotFound)) => {
                self.may_end.push(MayEnd { who: Some(who), token, from: call.invoked });
            }
            Some((_, Outcome::Released { revision })) => self.release(call, *revision, Some(who), token),
            Some((_, Outcome::NotHeld)) if alone => self.view(call, Seen::NotHeldBy(who)),
            Some((place, Outcome::StaleToken { held })) if alone => {
                let (token, mode, group, told) = (*held, None, call.group, None);
                self.sightings.push(Sighting { token, who, mode, group, place, told });
                self.view(call, Seen::Holds(who, *held));
            }
            Some(_) => {}
        }
    }

    fn force_release(&mut self, call: &Call<'a>, token: Token) {
        // A forced release has no seq: an attempt that found nothing may be the second.
        if !matches!(call.outcome(), Some(Outcome::Released { .. } | Outcome::Refused)) {
            self.may_end.push(MayEnd { who: None, token: Some(token), from: call.invoked });
        }
        match call.outcome() {
            Some(Outcome::Released { revision }) => self.release(call, *revision, None, Some(token)),
            Some(Outcome::NotHeld) => self.view(call, Seen::Highest(None)),
            Some(Outcome::StaleToken { held }) => self.view(call, Seen::Highest(Some(*held))),
            _ => {}
        }
    }

    fn cancel(
        &mut self,
        call: &Call<'a>,
        of: &Call<'a>,
        who: Who<'a>,
        release_if_granted: bool,
        alone: bool,
    ) {
        match call.returned {
            // A repeated cancel is told only that the claim is over: the cancel's own first attempt may have released
            // the grant.
            None | Some((_, Outcome::Ended { .. })) if release_if_granted => {
                self.may_end.push(MayEnd { who: Some(who), token: None, from: call.invoked });
            }
            Some((place, Outcome::Granted { token, mode, .. })) => {
                let (token, mode, group, told) = (*token, Some(*mode), of.group, None);
                self.sightings.push(Sighting { token, who, mode, group, place, told });
            }
            Some((_, Outcome::Released { revision })) if alone => {
                self.release(call, *revision, Some(who), None);
            }
            // A cancel of several names released those that were left: this one may have been taken away before.
            Some((_, Outcome::Released { .. })) => {
                self.may_end.push(MayEnd { who: Some(who), token: None, from: call.invoked });
                self.view(call, Seen::NotHeldBy(who));
            }
            _ => {}
        }
    }

    fn release(&mut self, call: &Call<'a>, revision: Revision, who: Option<Who<'a>>, token: Option<Token>) {
        let (open, close, events) = (call.invoked, call.close(), call.events());
        self.releases.push(Release { revision, who, token, open, close, unseen: false, events });
    }

    fn view(&mut self, call: &Call<'a>, seen: Seen<'a>) {
        let (open, close, events) = (call.invoked, call.close(), call.events());
        let observes = matches!(call.op, Op::ReadLock { .. }) || matches!(seen, Seen::Busy(..));
        let promise = if observes { Promise::P13 } else { Promise::P1 };
        self.views.push(View { open, close, seen, promise, events });
    }

    fn see_holders(&mut self, holders: &'a [Holder], group: GroupId, place: usize) {
        for holder in holders {
            let (who, mode) = ((holder.lease, &holder.owner), Some(holder.mode));
            self.sightings.push(Sighting { token: holder.token, who, mode, group, place, told: None });
        }
    }
}

fn read_watches<'a>(drafts: &mut Drafts<'a>, timeline: Timeline<'a>) {
    let mut groups: BTreeMap<u32, GroupId> = BTreeMap::new();
    for (place, event) in timeline.iter() {
        match event {
            Event::Watch { watch, group, .. } => {
                groups.insert(*watch, *group);
            }
            Event::WatchEvents { watch, changes, .. } => {
                let Some(&group) = groups.get(watch) else { continue };
                for change in changes {
                    let draft = drafts.entry(&change.name).or_default();
                    draft.group.get_or_insert(group);
                    draft.watched(change, group, place);
                }
            }
            _ => {}
        }
    }
}

impl<'a> Draft<'a> {
    fn watched(&mut self, change: &'a Change, group: GroupId, place: usize) {
        match change.kind {
            ChangeKind::Granted { token, mode } => {
                let (who, mode) = ((change.lease, &change.owner), Some(mode));
                self.sightings.push(Sighting { token, who, mode, group, place, told: None });
            }
            ChangeKind::Ended { token: Some(token), .. } => {
                self.watched_ends.entry(token).or_insert((change.revision, place));
            }
            ChangeKind::Queued | ChangeKind::Changed | ChangeKind::Ended { token: None, .. } => {}
        }
    }
}

fn read_final_states<'a>(drafts: &mut Drafts<'a>, timeline: Timeline<'a>) {
    for (place, event) in timeline.iter() {
        let Event::FinalState { group, asked, revision, locks, .. } = event else { continue };
        let by_name: BTreeMap<&Name, &FinalLock> = locks.iter().map(|lock| (&lock.name, lock)).collect();
        for name in by_name.keys() {
            drafts.entry(name).or_default().group.get_or_insert(*group);
        }
        for (name, draft) in drafts.iter_mut().filter(|(_, draft)| draft.group == Some(*group)) {
            let holders = by_name.get(name).map_or(&[][..], |lock| &lock.holders);
            draft.see_holders(holders, *group, place);
            let (open, seen) = (timeline.place(*asked).min(place), Seen::Exactly(holders, *revision));
            draft.views.push(View { open, close: place, seen, promise: Promise::P4, events: vec![place] });
        }
    }
}

/// Everything needed to turn a draft into a track.
struct Context<'c, 'a> {
    settings: &'c Settings,
    timeline: Timeline<'a>,
    calls: &'c Calls<'a>,
    leases: &'c Leases,
}

impl<'a> Context<'_, 'a> {
    fn track(&self, name: &'a Name, mut draft: Draft<'a>, report: &mut Report) -> Track<'a> {
        let mut grants = self.grants(name, &mut draft, report);
        draft.releases.sort_by_key(|release| release.revision);
        let watched: BTreeMap<Revision, Token> =
            draft.watched_ends.iter().map(|(token, (revision, _))| (*revision, *token)).collect();
        for release in &mut draft.releases {
            release.token = release.token.or(watched.get(&release.revision).copied());
            // A release that names no token, or whose grant was never seen, may have ended a grant that was never seen.
            let loose = |loose: &Loose<'_>| Some(loose.who) == release.who && loose.invoked < release.close;
            let grant = released(&mut grants, release);
            let may_be_unseen = (release.token.is_none() || grant.is_none())
                && (release.who.is_none() || draft.loose.iter().any(loose));
            release.unseen = may_be_unseen;
            let grant = grant.filter(|grant| grant.ended.is_none());
            let Some(grant) = grant else { continue };
            if grant.ends_by == usize::MAX {
                (grant.ends_from, grant.ends_by) = (release.open, release.close);
                grant.gone_by = Some(release.revision);
                grant.events.extend(&release.events);
            }
            if !may_be_unseen {
                grant.ended = Some(release.revision);
            }
        }
        for grant in &mut grants {
            if grant.ended.is_none() {
                self.bound_end(grant, &mut draft);
            }
        }
        supersede(&mut grants, &draft.weakenings);
        // The holder of a token that only forced releases were told of is unknown.
        let unknown = |token: Token| !grants.iter().any(|grant| grant.token == token);
        draft.views.retain(|view| !matches!(view.seen, Seen::Highest(Some(token)) if unknown(token)));
        let Draft { releases, weakenings, views, .. } = draft;
        Track { name, grants, releases, weakenings, views }
    }

    /// Returns one grant for each token and holder that were told or seen, sorted by token.
    fn grants(&self, name: &'a Name, draft: &mut Draft<'a>, report: &mut Report) -> Vec<Grant<'a>> {
        let sightings = std::mem::take(&mut draft.sightings);
        let mut by_token: BTreeMap<(Token, Who<'a>), Vec<Sighting<'a>>> = BTreeMap::new();
        for sighting in sightings {
            by_token.entry((sighting.token, sighting.who)).or_default().push(sighting);
        }
        let mut grants = Vec::with_capacity(by_token.len());
        for ((token, who), mut seen) in by_token {
            seen.sort_by_key(|sighting| sighting.place);
            grants.push(self.grant(name, token, who, &seen, draft, report));
        }
        grants
    }

    fn grant(
        &self,
        name: &'a Name,
        token: Token,
        who: Who<'a>,
        seen: &[Sighting<'a>],
        draft: &mut Draft<'a>,
        report: &mut Report,
    ) -> Grant<'a> {
        let close = seen[0].place;
        let told: Vec<usize> = seen.iter().filter_map(|sighting| Some(sighting.told?.0)).collect();
        let first_told = told.first().map(|&index| &self.calls.all[index]);
        let loose = |loose: &&Loose<'_>| loose.who == who && loose.invoked < close && !loose.answered;
        let unanswered = draft.loose.iter().filter(loose).min_by_key(|loose| loose.invoked);
        let asked = told.iter().map(|&index| self.calls.all[index].invoked).min();
        let open = asked.into_iter().chain(unanswered.map(|loose| loose.invoked)).min();
        if open.is_none_or(|open| open > close) {
            let says = format!(
                "{}/{} was seen to hold {name} with token {token}, but none of its requests can have been granted it",
                who.0, who.1
            );
            report.broken(Promise::P10, vec![close], says);
        }
        let weakest =
            draft.loose.iter().filter(loose).map(|loose| loose.mode).min_by_key(|mode| mode.index());
        let mode = seen.iter().find_map(|sighting| sighting.mode).or(weakest);
        let takes_turn =
            unanswered.is_none() && first_told.is_some_and(|call| matches!(call.op, Op::Lock { .. }));
        let queued = seen.iter().find_map(|sighting| sighting.told?.1).filter(|_| takes_turn);
        self.tell_again(token, who, &told, draft);
        Grant {
            token,
            lease: who.0,
            owner: who.1,
            mode: mode.unwrap_or(Mode::Exclusive),
            group: seen[0].group,
            open: open.unwrap_or(0).min(close),
            close,
            told_by: told.first().copied(),
            queued,
            ended: None,
            ends_from: usize::MAX,
            ends_by: usize::MAX,
            gone_by: None,
            events: first_told.map_or(vec![close], Call::events),
        }
    }

    /// Notes the calls that were told of a grant: all but the one that made the grant say that it was held. A
    /// conversion may have made the grant weaker.
    fn tell_again(&self, token: Token, who: Who<'a>, told: &[usize], draft: &mut Draft<'a>) {
        for (nth, &index) in told.iter().enumerate() {
            let call = &self.calls.all[index];
            let Some(Outcome::Granted { token: told_token, mode, .. }) = call.outcome() else { continue };
            if *told_token != token || (nth > 0 && index == told[0]) {
                continue;
            }
            if nth > 0 {
                draft.view(call, Seen::Holds(who, token));
            }
            if matches!(call.op, Op::Convert { .. }) {
                draft.weaken(call, who, *mode);
            }
        }
    }

    /// Sets the bounds between which a grant without a known release can have ended.
    fn bound_end(&self, grant: &mut Grant<'a>, draft: &mut Draft<'a>) {
        let lease = self.leases.under(grant.lease, grant.group, grant.token.get());
        let ends_it = |end: &&MayEnd<'_>| {
            end.who.is_none_or(|who| who == grant.who()) && end.token.is_none_or(|token| token == grant.token)
        };
        let by_call = draft.may_end.iter().filter(ends_it).map(|end| end.from).min();
        let max_holds = draft.max_holds.iter().filter(|(who, _, _)| *who == grant.who());
        let by_max_hold = max_holds
            .map(|(_, ms, open)| {
                self.timeline.place(self.settings.at_least_after(self.timeline.at(*open), *ms))
            })
            .min();
        let by_lease = lease.map_or(0, |lease| lease.may_end_from);
        // A request for a stronger mode that was never answered may have given the holder another token.
        let weakened = draft.weakenings.iter().any(|weakening| weakening.who == grant.who());
        let upgrades = |loose: &&Loose<'_>| {
            let for_more = weakened || !grant.mode.covers(loose.mode);
            loose.who == grant.who() && !loose.answered && for_more
        };
        let by_upgrade = draft.loose.iter().filter(upgrades).map(|loose| loose.invoked).min();
        let others = [by_call, by_max_hold, by_upgrade].into_iter().flatten();
        grant.ends_from = others.fold(grant.ends_from.min(by_lease), usize::min);
        // A grant with a higher token hangs on another incarnation, or is judged for that alone (`durability`).
        let ended = lease.and_then(|lease| lease.ended_in(grant.group));
        if let Some(ended) = ended.filter(|ended| ended.revision.get() >= grant.token.get()) {
            grant.ends_by = grant.ends_by.min(ended.place);
            grant.gone_by = Some(grant.gone_by.map_or(ended.revision, |gone_by| gone_by.min(ended.revision)));
            grant.events.push(ended.place);
        }
        if let Some((invoked, told)) = lease.and_then(|lease| self.revoked(lease, grant)) {
            grant.ends_by = grant.ends_by.min(told);
            grant.events.extend([invoked, told]);
        }
        for (token, place) in &draft.told_ended {
            if *token == grant.token {
                grant.ends_by = grant.ends_by.min(*place);
            }
        }
        if let Some((revision, place)) = draft.watched_ends.get(&grant.token).copied() {
            grant.ended = Some(revision);
            let (open, close) = (grant.ends_from.min(place), grant.ends_by.min(place));
            let (who, token, events) = (Some(grant.who()), Some(grant.token), vec![place]);
            draft.releases.push(Release { revision, who, token, open, close, unseen: false, events });
        }
    }
}

impl<'a> Context<'_, 'a> {
    /// Returns the call and the answer of the acknowledged revocation by which a grant was surely gone. In groups other
    /// than the lease's home, the locks may stay for a while.
    fn revoked(&self, lease: &Lease, grant: &Grant<'a>) -> Option<(usize, usize)> {
        let (invoked, told) = lease.revoked?;
        let hangs_on_it = lease.group == Some(grant.group) && grant.open < told;
        (hangs_on_it && !self.leases.may_live_anew(lease, grant.close)).then_some((invoked, told))
    }
}

/// Bounds the ends of superseded grants. A holder has one grant at a time: an earlier one ends at the latest where the
/// next begins.
fn supersede(grants: &mut [Grant<'_>], weakenings: &[Weakening<'_>]) {
    let mut last: BTreeMap<Who<'_>, usize> = BTreeMap::new();
    for index in 0..grants.len() {
        let Some(before) = last.insert(grants[index].who(), index) else { continue };
        let Grant { open, close, token, mode, .. } = grants[index];
        let grant = &mut grants[before];
        if grant.ended.is_none() {
            // An upgrade ends the earlier grant by itself. If the earlier grant covered the new mode already, it ended
            // in another way first.
            let weakened = weakenings.iter().any(|weakening| weakening.who == grant.who());
            if weakened || !(grant.mode.covers(mode) || matches!(grant.mode, Mode::Permit { .. })) {
                grant.ends_from = grant.ends_from.min(open);
            }
            grant.ends_by = grant.ends_by.min(close);
            let revision = Revision::new(token.get()).expect("tokens are revisions");
            grant.gone_by = Some(grant.gone_by.map_or(revision, |gone_by| gone_by.min(revision)));
        }
    }
}

/// Returns the grant that a release ended: the one with the release's token, or the last one before it.
fn released<'g, 'a>(grants: &'g mut [Grant<'a>], release: &Release<'a>) -> Option<&'g mut Grant<'a>> {
    grants.iter_mut().rev().find(|grant| {
        release.who.is_none_or(|who| who == grant.who())
            && release.token.map_or(grant.token.get() < release.revision.get(), |token| token == grant.token)
    })
}

/// Lists all names of a request, for messages.
pub(crate) fn listed(names: &Names) -> String {
    names.as_slice().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
