//! A claim: what one request for locks made. It waits in the queues of its names, then holds them.

use crate::event::ClaimState;
use crate::format::LockChanged;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::reply::EndReason;
use crate::requests::Part;
use crate::slab::Id;
use smallvec::SmallVec;
use std::sync::Arc;
use tollgate_types::{
    DurationMs, LeaseId, LogTime, Metadata, Mode, Name, Names, Owner, Reason, Revision, Seq, Token, Value,
};

#[derive(Clone)]
pub(crate) struct Claim {
    pub(crate) names: Names,
    pub(crate) lease_id: LeaseId,
    pub(crate) owner: Owner,
    pub(crate) metadata: Metadata,
    pub(crate) mode: Mode,
    /// Fencing token of the grant; none while the claim waits.
    pub(crate) token: Option<Token>,
    pub(crate) create_revision: Revision,
    pub(crate) mod_revision: Revision,
    pub(crate) version: u64,
    /// Log time at which the claim joined the queue or, once granted, log time of the grant.
    pub(crate) since: LogTime,
    /// Log time at which the wait ends or, once granted, the hold.
    pub(crate) until: LogTime,
    /// Rarely used fields; none if all of them are unset.
    pub(crate) extras: Option<Box<Extras>>,
    /// Unacknowledged requests that are answered with this claim.
    pub(crate) seqs: SmallVec<[(Seq, Part); 1]>,
    /// True if a request without a seq asked for the claim too.
    pub(crate) anonymous: bool,
    /// True while every caller that waits for the claim stands by; means nothing once the claim holds.
    pub(crate) attended: bool,
    /// Number of requests for the claim, repeats and conversions included.
    pub(crate) asks: u32,
    pub(crate) upgrade: Option<Box<Upgrade>>,

    // Derived, rebuilt on load: the records behind `names`, the lease, and the neighbours in the lease's list.
    pub(crate) locks: Locks,
    pub(crate) lease: Id<Lease>,
    pub(crate) older: Option<Id<Claim>>,
    pub(crate) younger: Option<Id<Claim>>,
}

/// Fields that few claims use, kept apart so that the other claims don't pay for them.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Zero for no max hold.
    pub(crate) max_hold: DurationMs,
    pub(crate) lock_delay: DurationMs,
    pub(crate) said: Option<Said>,
}

/// Value that a holder proclaims, or that a waiter will proclaim once it holds.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) value: Value,
    /// Revision of the grant or of the last Proclaim that set the value; 0 while the claim waits.
    pub(crate) revision: Revision,
}

impl Extras {
    /// Boxes the extras; none if all of them are unset.
    pub(crate) fn packed(self) -> Option<Box<Extras>> {
        (self != Extras::default()).then(|| Box::new(self))
    }
}

/// A holder's wait for a stronger mode.
#[derive(Clone)]
pub(crate) struct Upgrade {
    pub(crate) mode: Mode,
    pub(crate) queued_at: Revision,
    /// The log time of `queued_at`.
    pub(crate) since: LogTime,
    pub(crate) wait_until: LogTime,
    pub(crate) seqs: SmallVec<[Seq; 1]>,
    pub(crate) anonymous: bool,
    /// True while every caller that waits for the upgrade stands by.
    pub(crate) attended: bool,
}

impl Claim {
    /// Longest time that the claim may hold; zero means for ever.
    pub(crate) fn max_hold(&self) -> DurationMs {
        self.extras.as_ref().map_or(DurationMs::ZERO, |extras| extras.max_hold)
    }

    pub(crate) fn lock_delay(&self) -> DurationMs {
        self.extras.as_ref().map_or(DurationMs::ZERO, |extras| extras.lock_delay)
    }

    pub(crate) fn said(&self) -> Option<&Said> {
        self.extras.as_ref().and_then(|extras| extras.said.as_ref())
    }

    pub(crate) fn holds(&self) -> bool {
        self.token.is_some()
    }

    /// True if the claim stands in the queues of its names.
    pub(crate) fn is_queued(&self) -> bool {
        self.token.is_none() || self.upgrade.is_some()
    }

    /// Mode for which the claim stands in the queue, or in which it holds.
    pub(crate) fn wanted(&self) -> Mode {
        self.upgrade.as_ref().map_or(self.mode, |upgrade| upgrade.mode)
    }

    /// Revision that identifies the claim's wait.
    pub(crate) fn wait_revision(&self) -> Revision {
        self.upgrade.as_ref().map_or(self.create_revision, |upgrade| upgrade.queued_at)
    }

    /// True while every caller that waits stands by.
    pub(crate) fn is_attended(&self) -> bool {
        self.upgrade.as_ref().map_or(self.attended, |upgrade| upgrade.attended)
    }

    /// Counts one more request for the claim. `attended`: its caller stands by; `waits`: the request waits with the
    /// claim.
    pub(crate) fn asked(&mut self, attended: bool, waits: bool) {
        self.asks = self.asks.saturating_add(1);
        if !attended && waits {
            match &mut self.upgrade {
                Some(upgrade) => upgrade.attended = false,
                None => self.attended = false,
            }
        }
    }

    pub(crate) fn queue_key(&self) -> QueueKey {
        match &self.upgrade {
            Some(upgrade) => QueueKey::upgrade(upgrade.queued_at),
            None => QueueKey::waiter(self.create_revision),
        }
    }

    pub(crate) fn state(&self) -> ClaimState {
        ClaimState {
            mode: self.mode,
            token: self.token,
            wants: self.upgrade.as_ref().map(|upgrade| upgrade.mode),
            mod_revision: self.mod_revision,
            version: self.version,
        }
    }

    /// Change event for one of the claim's names.
    pub(crate) fn changed<'a>(
        &'a self,
        name: &'a Name,
        now: Option<ClaimState>,
        prev: Option<ClaimState>,
        end: Option<EndReason>,
        note: &'a Reason,
    ) -> LockChanged<'a> {
        let says = now.is_some_and(|now| now.token.is_some());
        LockChanged {
            name,
            lease: self.lease_id,
            owner: &self.owner,
            metadata: &self.metadata,
            create_revision: self.create_revision,
            now,
            prev,
            end,
            note,
            value: self.said().filter(|_| says).map(|said| &said.value),
            vacant: false,
        }
    }

    /// Cause of death if the claim is dead: its lease's end, or a deadline of the claim or its upgrade.
    pub(crate) fn death(&self, lease: &Lease, lease_ended: bool, now: LogTime) -> Option<Death> {
        if lease_ended {
            return Some(Death::Claim(lease.end_reason, lease.deadline));
        }
        if self.until <= now {
            let reason = if self.holds() { EndReason::MaxHold } else { EndReason::TimedOut };
            return Some(Death::Claim(reason, self.until));
        }
        let upgrade = self.upgrade.as_ref()?;
        (upgrade.wait_until <= now).then_some(Death::Upgrade)
    }

    /// Removes a request's seq from the claim and from its upgrade.
    pub(crate) fn forget_seq(&mut self, seq: Seq) {
        self.seqs.retain(|(s, _)| *s != seq);
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.seqs.retain(|s| *s != seq);
        }
    }
}

/// End that a deadline has brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// The whole claim, with the reason and the log time at which the end was due.
    Claim(EndReason, LogTime),
    /// Only the claim's wait for a stronger mode.
    Upgrade,
}

/// The locks of a claim, in the order of its names.
#[derive(Clone)]
pub(crate) enum Locks {
    One(Id<Lock>),
    Many(Arc<[Id<Lock>]>),
}

impl Locks {
    pub(crate) fn new(locks: Vec<Id<Lock>>) -> Locks {
        if let [one] = locks[..] { Locks::One(one) } else { Locks::Many(locks.into()) }
    }

    pub(crate) fn as_slice(&self) -> &[Id<Lock>] {
        match self {
            Locks::One(one) => std::slice::from_ref(one),
            Locks::Many(many) => many,
        }
    }
}

/// Place in a queue: upgrades first, then in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    not_upgrade: bool,
    revision: Revision,
}

impl QueueKey {
    pub(crate) fn upgrade(queued_at: Revision) -> QueueKey {
        QueueKey { not_upgrade: false, revision: queued_at }
    }

    pub(crate) fn waiter(create_revision: Revision) -> QueueKey {
        QueueKey { not_upgrade: true, revision: create_revision }
    }

    pub(crate) fn is_upgrade(self) -> bool {
        !self.not_upgrade
    }
}
