//! A client's watch on locks: one stream of changes, continued over lost messages, other nodes and compaction.
//!
//! Every other client watches from the first revision on, as long as it lives; the others watch from now on, again and
//! again. Invariant: a batch is accepted only if it begins where the last one ended; otherwise the client asks again
//! from there, at any node. A watch from now on that has not begun is requested again from now on: it counts as opened
//! when it was first requested. Not here: how a node serves a watch (`front`), and the revision at which it may begin
//! (`tollgate-check`).

use super::verdict::end_reason;
use super::{Client, ClientContext, plan};
use crate::front::{Answer, Ask, Lane, Request};
use crate::types::{At, ClientNo};
use tollgate_check::{Change, ChangeKind, Event, Filter};
use tollgate_core::{LockChange, Watch};
use tollgate_types::{GroupId, Revision};

/// Interval at which a subscription is renewed: nodes forget those that are not.
const SUBSCRIBE_EVERY_US: u64 = 1_500_000;

/// Time after which a watch from now on that has begun is replaced by another, at the next renewal of its subscription.
const FROM_NOW_FOR_US: u64 = 3_000_000;

/// A watch and its progress.
#[derive(Debug)]
pub(super) struct Watching {
    /// Number of the watch in the history: no two watches of all clients have the same.
    number: u32,
    group: GroupId,
    filter: Filter,
    /// Revision below which everything was delivered; none for a watch from now on that was not told its first revision
    /// yet.
    next: Option<Revision>,
    pub(super) next_try: u64,
    opened: bool,
    /// Local time after which another watch takes the place of this one.
    until: u64,
}

/// Returns the number of a client's watch in the history.
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

    /// Subscribes, or renews the subscription.
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
            // Some of the watches of everything follow the client's own lease instead, if it lives by now: chosen by
            // the numbers of the watch and the client, so that a seed makes the same world with and without this
            // choice.
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

    /// Handles a batch of changes, or the answer that history is gone.
    pub(super) fn watched(&mut self, answer: Answer, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        let Some(watching) = &mut self.watching else { return };
        let at = tollgate_check::At::from_us(at);
        let (Answer::Events { watch, .. } | Answer::Compacted { watch, .. }) = &answer else { return };
        let watch = *watch;
        // The answer is to a watch that was replaced, or to no request of this watch.
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
                // A batch was lost or overtaken. A batch older than wanted is a copy.
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
