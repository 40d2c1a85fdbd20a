//! A client's watch on locks: one stream, carried on over lost messages, other nodes and compaction.
//!
//! Every other client watches from the first revision on, as long as it lives; the others from now on, again and again.
//! Invariant: a batch is taken only if it begins where the last one ended; else the client asks again from there, of
//! any node. A watch from now on that has not begun is asked for again from now on: it counts as opened when it was
//! asked for first. Not here: how a node serves it (`front`), and where it may begin (`tollgate-check`).

use super::verdict::end_reason;
use super::{Client, ClientContext, plan};
use crate::front::{Answer, Ask, Lane, Request};
use crate::types::{At, ClientNo};
use tollgate_check::{Change, ChangeKind, Event, Filter};
use tollgate_core::{LockChange, Watch};
use tollgate_types::{GroupId, Revision};

/// A subscription is made anew this often: nodes forget those that are not.
const SUBSCRIBE_EVERY_US: u64 = 1_500_000;

/// A watch from now on that has begun gives way to another when its subscription is to be made anew after so long.
const FROM_NOW_FOR_US: u64 = 3_000_000;

/// A watch and how far it has come.
#[derive(Debug)]
pub(super) struct Watching {
    /// In the history: no two watches of all clients have the same.
    number: u32,
    group: GroupId,
    filter: Filter,
    /// Everything below this was delivered. None for a watch from now on that was not told yet where it begins.
    next: Option<Revision>,
    pub(super) next_try: u64,
    opened: bool,
    /// After this another watch takes its place.
    until: u64,
}

/// The number of a client's watch in the history.
fn number(client: ClientNo, opened: u32) -> u32 {
    assert!(client.0 < 1 << 16 && opened < 1 << 16, "there are more watches than numbers");
    opened << 16 | client.0
}

impl Client {
    /// Chooses what to watch, and when to begin.
    pub(super) fn plan_watch(&mut self, now: u64) {
        let (name, group) = plan::hot_lock(&self.settings, self.groups, &mut self.rng);
        let filter = match self.rng.below(3) {
            0 => Filter::All,
            1 => Filter::Name(name),
            _ => Filter::Prefix("lock/".to_owned()),
        };
        let next_try = now + self.rng.below(2_000_000);
        let number = number(self.no, self.watches_opened);
        self.watches_opened += 1;
        let from_now = self.no.0 % 2 == 1;
        let next = (!from_now).then(|| Revision::ZERO.next());
        let until = if from_now { next_try + FROM_NOW_FOR_US } else { u64::MAX };
        self.watching = Some(Watching { number, group, filter, next, next_try, opened: false, until });
    }

    /// Subscribes, first or again.
    pub(super) fn mind_watch(&mut self, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        let over = |watching: &Watching| watching.next.is_some() && watching.until <= now;
        if self.watching.as_ref().is_some_and(over) {
            self.plan_watch(now);
        }
        let Some(watching) = self.watching.as_mut().filter(|watching| watching.next_try <= now) else {
            return;
        };
        let (watch, group, from) = (watching.number, watching.group, watching.next);
        if !watching.opened {
            watching.opened = true;
            // Some of those that want everything follow their own lease, if it lives by now: by the number of the watch
            // and of the client, so that a seed makes the same world with and without.
            let own = self.session.as_ref().and_then(|session| session.believed(now));
            let chosen = ((watch >> 16) + (watch >> 1)) % 2 == 1;
            if let (Filter::All, Some(lease)) = (&watching.filter, own.filter(|_| chosen)) {
                watching.filter = Filter::Lease(lease);
            }
            let event = Event::Watch { watch, group, from, filter: watching.filter.clone() };
            ctx.history.record(tollgate_check::At::from_us(at), event);
        }
        watching.next_try = now + SUBSCRIBE_EVERY_US + self.rng.below(SUBSCRIBE_EVERY_US / 2);
        let filter = match &watching.filter {
            Filter::All => Watch::LockPrefix(Vec::new()),
            Filter::Name(name) => Watch::Lock(name.clone()),
            Filter::Prefix(prefix) => Watch::LockPrefix(prefix.as_bytes().to_vec()),
            Filter::Lease(lease) => Watch::Lease(*lease),
        };
        let call = self.calls.fresh_id();
        let node = *self.rng.pick(ctx.nodes);
        ctx.out.push((
            node,
            Request {
                call,
                attempt: 1,
                group,
                alone: true,
                lane: Lane::Session,
                ask: Ask::Watch { watch, from, filter },
            },
        ));
    }

    /// A batch has come, or word that there is none.
    pub(super) fn watched(&mut self, answer: Answer, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        let Some(watching) = &mut self.watching else { return };
        let at = tollgate_check::At::from_us(at);
        let (Answer::Events { watch, .. } | Answer::Compacted { watch, .. }) = &answer else { return };
        let watch = *watch;
        // Of one that another has taken the place of, or that was asked for by no request of this one.
        if watch != watching.number || !watching.opened {
            return;
        }
        if let (Answer::Events { from, .. }, None) = (&answer, watching.next) {
            ctx.stats.watches_begun += 1;
            watching.next = Some(*from);
            ctx.history.record(at, Event::WatchBegan { watch, from: *from });
        }
        let Some(wanted) = watching.next else { return };
        match answer {
            Answer::Events { from, events, next, .. } if from == wanted => {
                let changes: Vec<Change> = events.into_iter().filter_map(change).collect();
                ctx.stats.watched += changes.len() as u64;
                if next != from {
                    watching.next = Some(next);
                    ctx.history.record(at, Event::WatchEvents { watch, changes, next });
                }
            }
            Answer::Compacted { from, min_revision, .. } if from == wanted => {
                ctx.stats.compacted += 1;
                (watching.next, watching.next_try) = (Some(min_revision), now);
                ctx.history.record(at, Event::WatchCompacted { watch, min_revision });
            }
            Answer::Events { from, .. } | Answer::Compacted { from, .. } if from > wanted => {
                // One on the way was lost or overtaken. What is older than needed is a copy.
                ctx.stats.watch_gaps += 1;
                watching.next_try = watching.next_try.min(now + 20_000);
            }
            _ => {}
        }
    }
}

fn change(event: tollgate_core::Event) -> Option<Change> {
    let tollgate_core::Change::Lock(lock) = event.change else { return None };
    let kind = kind(&lock);
    Some(Change { revision: event.revision, name: lock.name, lease: lock.lease, owner: lock.owner, kind })
}

fn kind(lock: &LockChange) -> ChangeKind {
    let before = lock.prev.and_then(|prev| prev.token);
    let Some(now) = lock.now else {
        let reason = end_reason(lock.end.expect("what has ended says why"));
        return ChangeKind::Ended { token: before, reason };
    };
    match now.token {
        None if lock.prev.is_none() => ChangeKind::Queued,
        Some(token) if before != Some(token) => ChangeKind::Granted { token, mode: now.mode },
        _ => ChangeKind::Changed,
    }
}
