//! Leases: their renewals, and the bounds between which each lease can have ended.
//!
//! A keepalive does not say which incarnation it renewed. Where two are possible, the keepalive is a proof of life for
//! neither, and for both a reason to live longer. An acknowledged revocation ends whichever incarnation lived before
//! it. Not here: whether leases ended when they should (`checks`).

use super::{Calls, Timeline, calls::Call};
use crate::at::At;
use crate::call::{Op, Outcome};
use crate::event::{Event, LeaseEnd};
use crate::settings::Settings;
use std::collections::BTreeMap;
use tollgate_types::{GroupId, LeaseId, Revision};

/// A grant or keepalive that renewed a lease, or may have renewed it.
#[derive(Clone, Copy)]
pub(crate) struct Renewal {
    pub(crate) invoked: usize,
    /// Place of the answer, if there is one.
    pub(crate) returned: Option<usize>,
    /// Place at which a leader last received the call.
    pub(crate) received: Option<usize>,
    /// Place at which a leader last received the call before the answer.
    pub(crate) received_before_answer: Option<usize>,
    /// Time to live that the renewal gave; none if unknown.
    pub(crate) ttl_ms: Option<u64>,
    /// True if the answer shows that this incarnation was renewed.
    pub(crate) sure: bool,
}

/// The end of a lease in one group.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) place: usize,
    pub(crate) group: GroupId,
    pub(crate) reason: LeaseEnd,
    pub(crate) revision: Revision,
    pub(crate) stub: bool,
    /// Time that messages spent in the network until the entry that ended the lease was committed, in microseconds.
    pub(crate) carried_us: u64,
}

/// One incarnation of a lease.
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) incarnation: Revision,
    /// Home group of the lease, if known.
    pub(crate) group: Option<GroupId>,
    /// Places at which the grant was first requested and first acknowledged.
    pub(crate) granted: Option<(usize, usize)>,
    pub(crate) renewals: Vec<Renewal>,
    /// Revocations that may have ended the lease: the places of each call and its answer.
    pub(crate) revokes: Vec<(usize, usize)>,
    pub(crate) ended: Vec<Ended>,
    /// Places of the call and the answer of the first acknowledged revocation that must have ended the lease.
    pub(crate) revoked: Option<(usize, usize)>,
    /// First moment at which the lease can have expired.
    pub(crate) expires_from: At,
    /// First place at which the lease can have ended in any way; not after the place where its end is recorded.
    pub(crate) may_end_from: usize,
}

impl Lease {
    fn new(id: LeaseId, incarnation: Revision) -> Lease {
        Lease {
            id,
            incarnation,
            group: None,
            granted: None,
            renewals: Vec::new(),
            revokes: Vec::new(),
            ended: Vec::new(),
            revoked: None,
            expires_from: At::ZERO,
            may_end_from: 0,
        }
    }

    /// Returns the end of the lease in its home.
    pub(crate) fn ended_at_home(&self) -> Option<&Ended> {
        self.ended.iter().find(|ended| !ended.stub)
    }

    /// Returns the end of the lease, or of its stub, in a group.
    pub(crate) fn ended_in(&self, group: GroupId) -> Option<&Ended> {
        self.ended.iter().find(|ended| ended.group == group)
    }

    /// Returns the place from which no command and no read in the home finds the lease: its end was recorded, or
    /// acknowledged.
    pub(crate) fn gone_from(&self) -> Option<usize> {
        let ended = self.ended_at_home().map(|ended| ended.place);
        ended.into_iter().chain(self.revoked.map(|(_, told)| told)).min()
    }

    /// Returns true if a call made at `invoked` and answered at `close` can have met this incarnation.
    pub(crate) fn may_meet(&self, invoked: usize, close: usize) -> bool {
        let gone = self.gone_from().is_some_and(|gone| gone < invoked);
        let not_yet = self.granted.is_some_and(|(asked, _)| asked > close);
        !gone && !not_yet
    }

    /// Returns true if the lease certainly lived between two places, as far as calls can tell.
    pub(crate) fn surely_lives(&self, from: usize, to: usize) -> bool {
        self.granted.is_some_and(|(_, told)| told < from) && self.may_end_from > to
    }

    fn bound(&mut self, settings: &Settings, timeline: Timeline<'_>) {
        self.expires_from = self.expiry_from(settings, timeline);
        let revoked_from = self.revokes.iter().map(|(invoked, _)| *invoked).min().unwrap_or(usize::MAX);
        let expired_from = timeline.place(self.expires_from);
        let from = match self.ended_at_home().map(|ended| ended.reason) {
            Some(LeaseEnd::Expired) => expired_from,
            Some(LeaseEnd::Revoked) => revoked_from,
            Some(LeaseEnd::Disconnected) => 0,
            None => expired_from.min(revoked_from),
        };
        let recorded = self.ended.iter().map(|ended| ended.place).min().unwrap_or(usize::MAX);
        let revoked = self.revoked.map_or(usize::MAX, |(invoked, _)| invoked);
        self.may_end_from = from.min(recorded).min(revoked);
    }

    /// Returns the moment before which P5 forbids the lease to expire. If all renewals gave the same time to live, the
    /// last acknowledged one counts; otherwise the one with the earliest bound among those that may be the last.
    fn expiry_from(&self, settings: &Settings, timeline: Timeline<'_>) -> At {
        let bound = |renewal: &Renewal| {
            let base = renewal.received_before_answer.unwrap_or(renewal.invoked);
            settings.at_least_after(timeline.at(base), renewal.ttl_ms.unwrap_or(0))
        };
        let ttl = self.renewals.iter().find(|renewal| renewal.sure).and_then(|renewal| renewal.ttl_ms);
        let same = self.renewals.iter().all(|renewal| renewal.ttl_ms.is_none() || renewal.ttl_ms == ttl);
        if same {
            let sure = self.renewals.iter().filter(|renewal| renewal.sure);
            return sure.map(bound).max().unwrap_or(At::ZERO);
        }
        let superseded = |renewal: &Renewal| {
            let told = renewal.returned.unwrap_or(usize::MAX);
            self.renewals.iter().any(|later| later.sure && later.invoked > told)
        };
        let last = self.renewals.iter().filter(|renewal| renewal.ttl_ms.is_some() && !superseded(renewal));
        last.map(bound).min().unwrap_or(At::ZERO)
    }
}

/// All incarnations of all leases, by id and then in order.
pub(crate) struct Leases {
    pub(crate) all: Vec<Lease>,
    by_id: BTreeMap<LeaseId, Vec<usize>>,
    /// Per id, the grants that may have made an incarnation which no client was told of: the place of each call, and
    /// the last place at which a leader can have proposed it.
    loose: BTreeMap<LeaseId, Vec<(usize, usize)>>,
}

impl Leases {
    pub(super) fn read(settings: &Settings, timeline: Timeline<'_>, calls: &Calls<'_>) -> Leases {
        let mut found: BTreeMap<(LeaseId, Revision), Lease> = BTreeMap::new();
        for call in &calls.all {
            if let Some((place, Outcome::LeaseGranted { lease, incarnation, .. })) = call.returned {
                let record = of(&mut found, *lease, *incarnation);
                record.group.get_or_insert(call.group);
                let told = (call.invoked, place);
                let first = record.granted.map_or(told, |(a, b)| (a.min(told.0), b.min(told.1)));
                record.granted = Some(first);
            }
        }
        read_ends(timeline, &mut found);
        let all = found.into_values().collect();
        let mut leases = Leases { all, by_id: BTreeMap::new(), loose: BTreeMap::new() };
        for (index, lease) in leases.all.iter().enumerate() {
            leases.by_id.entry(lease.id).or_default().push(index);
        }
        for call in &calls.all {
            leases.note_revocation(call);
            leases.note_loose_grant(settings, call);
        }
        for call in &calls.all {
            leases.take_in(call);
        }
        for lease in &mut leases.all {
            lease.bound(settings, timeline);
        }
        leases
    }

    /// Notes an acknowledged revocation. The lease that it ended lived between the call and the answer: an incarnation
    /// that was known before is that lease, or had ended before it. Either way, that incarnation is surely gone by the
    /// answer.
    fn note_revocation(&mut self, call: &Call<'_>) {
        let (Op::RevokeLease { lease }, Some((told, Outcome::LeaseRevoked))) = (call.op, call.returned)
        else {
            return;
        };
        for index in self.of_id(*lease).to_vec() {
            let known = &mut self.all[index];
            let was_there = known.granted.is_some_and(|(_, granted)| granted < call.invoked);
            let first = known.revoked.is_none_or(|(_, before)| told < before);
            if was_there && first && known.group == Some(call.group) {
                known.revoked = Some((call.invoked, told));
            }
        }
    }

    /// Notes a grant without an answer. Where servers were recorded, a grant that no leader received was never made.
    fn note_loose_grant(&mut self, settings: &Settings, call: &Call<'_>) {
        let (Op::GrantLease { lease: Some(lease), .. }, None) = (call.op, call.outcome()) else { return };
        let proposed = if settings.server_side { call.received_last } else { Some(usize::MAX) };
        if let Some(proposed) = proposed {
            self.loose.entry(*lease).or_default().push((call.invoked, proposed));
        }
    }

    /// Returns true if the id can have been granted again, unknown to everybody, after the end of `lease` and before
    /// the place `by`. A grant that a leader proposed before that end could begin stands before it in the log, or
    /// nowhere.
    pub(crate) fn may_live_anew(&self, lease: &Lease, by: usize) -> bool {
        let loose = self.loose.get(&lease.id).map_or(&[][..], Vec::as_slice);
        loose.iter().any(|(invoked, proposed)| *invoked < by && *proposed >= lease.may_end_from)
    }

    /// Returns the place from which every incarnation of an id was gone, if that was before the call was made; such a
    /// call finds no lease.
    pub(crate) fn gone_before(&self, lease: LeaseId, call: &Call<'_>) -> Option<usize> {
        let mut last: Option<(usize, &Lease)> = None;
        for known in self.incarnations(lease) {
            if known.may_meet(call.invoked, call.close()) {
                return None;
            }
            // All other incarnations came too late for the call to meet them.
            if let Some(gone) = known.gone_from().filter(|gone| *gone < call.invoked) {
                last = last.filter(|(before, _)| *before > gone).or(Some((gone, known)));
            }
        }
        let (gone, known) = last?;
        (!self.may_live_anew(known, call.close())).then_some(gone)
    }

    fn take_in(&mut self, call: &Call<'_>) {
        match (call.op, call.outcome()) {
            (Op::GrantLease { .. }, Some(Outcome::LeaseGranted { lease, incarnation, ttl_ms, .. })) => {
                let index = self.find(*lease, *incarnation).expect("found in the first pass");
                self.all[index].renewals.push(renewal(call, Some(*ttl_ms), true));
            }
            (Op::GrantLease { lease: Some(lease), ttl_ms }, None)
            | (Op::KeepAlive { lease }, Some(Outcome::Renewed { ttl_ms })) => {
                self.renew_maybe(*lease, call, Some(*ttl_ms));
            }
            (Op::KeepAlive { lease }, None) => self.renew_maybe(*lease, call, None),
            // A revocation has no seq: an attempt that found nothing may be the second.
            (Op::RevokeLease { lease }, None | Some(Outcome::LeaseRevoked | Outcome::LeaseNotFound)) => {
                for index in self.met_by(*lease, call) {
                    self.all[index].revokes.push((call.invoked, call.close()));
                }
            }
            _ => {}
        }
    }

    fn renew_maybe(&mut self, lease: LeaseId, call: &Call<'_>, ttl_ms: Option<u64>) {
        let met = self.met_by(lease, call);
        let sure = met.len() == 1 && call.returned.is_some();
        for index in met {
            self.all[index].renewals.push(renewal(call, ttl_ms, sure));
        }
    }

    fn met_by(&self, lease: LeaseId, call: &Call<'_>) -> Vec<usize> {
        let meets = |index: &usize| self.all[*index].may_meet(call.invoked, call.close());
        self.of_id(lease).iter().copied().filter(meets).collect()
    }

    fn of_id(&self, lease: LeaseId) -> &[usize] {
        self.by_id.get(&lease).map_or(&[], Vec::as_slice)
    }

    fn find(&self, lease: LeaseId, incarnation: Revision) -> Option<usize> {
        self.of_id(lease).iter().copied().find(|&index| self.all[index].incarnation == incarnation)
    }

    /// Returns all incarnations of an id.
    pub(crate) fn incarnations(&self, lease: LeaseId) -> impl Iterator<Item = &Lease> {
        self.of_id(lease).iter().map(|&index| &self.all[index])
    }

    /// Returns the incarnation that a grant in `group` with this revision hangs on: if the lease lives in the group,
    /// the last incarnation before the revision; else the first whose stub had not ended there before the revision.
    pub(crate) fn under(&self, lease: LeaseId, group: GroupId, revision: u64) -> Option<&Lease> {
        let mut here = self.incarnations(lease).filter(|lease| lease.group == Some(group)).peekable();
        if here.peek().is_some() {
            return here.filter(|lease| lease.incarnation.get() < revision).last();
        }
        let ends_after =
            |lease: &&Lease| lease.ended_in(group).is_none_or(|ended| ended.revision.get() >= revision);
        self.incarnations(lease).find(ends_after)
    }
}

fn of(found: &mut BTreeMap<(LeaseId, Revision), Lease>, id: LeaseId, incarnation: Revision) -> &mut Lease {
    found.entry((id, incarnation)).or_insert_with(|| Lease::new(id, incarnation))
}

fn read_ends(timeline: Timeline<'_>, found: &mut BTreeMap<(LeaseId, Revision), Lease>) {
    for (place, event) in timeline.iter() {
        match event {
            Event::LeaseEnded { group, lease, incarnation, reason, revision, stub, carried_us } => {
                let record = of(found, *lease, *incarnation);
                if !stub {
                    record.group.get_or_insert(*group);
                }
                let (group, reason, revision) = (*group, *reason, *revision);
                let (stub, carried_us) = (*stub, *carried_us);
                record.ended.push(Ended { place, group, reason, revision, stub, carried_us });
            }
            Event::FinalState { group, leases, .. } => {
                for (lease, incarnation) in leases {
                    of(found, *lease, *incarnation).group.get_or_insert(*group);
                }
            }
            _ => {}
        }
    }
}

fn renewal(call: &Call<'_>, ttl_ms: Option<u64>, sure: bool) -> Renewal {
    Renewal {
        invoked: call.invoked,
        returned: call.returned.map(|(place, _)| place),
        received: call.received_last,
        received_before_answer: call.received,
        ttl_ms,
        sure,
    }
}
