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
    /// None while it waits.
    pub(crate) token: Option<Token>,
    pub(crate) create_revision: Revision,
    pub(crate) mod_revision: Revision,
    pub(crate) version: u64,
    /// When it joined the queue or, once granted, when that was.
    pub(crate) since: LogTime,
    /// When the wait ends or, once granted, the hold.
    pub(crate) until: LogTime,
    /// What most claims don't have.
    pub(crate) extras: Option<Box<Extras>>,
    /// The unacknowledged requests that it answers.
    pub(crate) seqs: SmallVec<[(Seq, Part); 1]>,
    /// Whether a request without a seq asked for it too.
    pub(crate) anonymous: bool,
    /// Whether all who wait for it stand by; means nothing once it holds.
    pub(crate) attended: bool,
    /// How often it was asked for, repeats and conversions included.
    pub(crate) asks: u32,
    pub(crate) upgrade: Option<Box<Upgrade>>,

    // Derived, rebuilt on load: the records behind `names`, the lease, and the neighbours in the lease's list.
    pub(crate) locks: Locks,
    pub(crate) lease: Id<Lease>,
    pub(crate) older: Option<Id<Claim>>,
    pub(crate) younger: Option<Id<Claim>>,
}

/// What few claims have, kept apart so that the others don't pay for it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// 0 for none.
    pub(crate) max_hold: DurationMs,
    pub(crate) lock_delay: DurationMs,
    pub(crate) said: Option<Said>,
}

/// What a holder says of itself, or a waiter will say once it holds.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) value: Value,
    /// Since when: its grant or its last Proclaim; 0 while it waits.
    pub(crate) revision: Revision,
}

impl Extras {
    /// None if there is nothing in it.
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
    /// Whether all who wait for it stand by.
    pub(crate) attended: bool,
}

impl Claim {
    /// How long it may hold; 0 for ever.
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

    /// Whether it stands in the queues of its names.
    pub(crate) fn is_queued(&self) -> bool {
        self.token.is_none() || self.upgrade.is_some()
    }

    /// The mode that it stands in the queue for.
    pub(crate) fn wanted(&self) -> Mode {
        self.upgrade.as_ref().map_or(self.mode, |upgrade| upgrade.mode)
    }

    /// The number by which its wait is known.
    pub(crate) fn wait_revision(&self) -> Revision {
        self.upgrade.as_ref().map_or(self.create_revision, |upgrade| upgrade.queued_at)
    }

    /// Whether all who wait stand by.
    pub(crate) fn is_attended(&self) -> bool {
        self.upgrade.as_ref().map_or(self.attended, |upgrade| upgrade.attended)
    }

    /// It was asked for once more: by one who stands by or not, and who waits with it or not.
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

    /// One of its names as a change.
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

    /// How it is dead, if it is: by its lease, or by a deadline of its own.
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

    /// Takes a request off, whichever part of the claim it stands on.
    pub(crate) fn forget_seq(&mut self, seq: Seq) {
        self.seqs.retain(|(s, _)| *s != seq);
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.seqs.retain(|s| *s != seq);
        }
    }
}

/// What a deadline has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// The claim, why, and when that was due.
    Claim(EndReason, LogTime),
    /// Only its wait for a stronger mode.
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

/// The place in a queue: upgrades first, then in order of arrival.
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
