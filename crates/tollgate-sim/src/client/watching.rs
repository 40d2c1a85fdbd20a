//! A client's watch on locks: one stream, carried on over lost messages, other nodes and compaction.
//!
//! Invariant: a batch is taken only if it begins where the last one ended; else the client asks again from there, of
//! any node. Not here: how a node serves it (`front`).

use super::verdict::end_reason;
use super::{Client, ClientContext};
use crate::front::{Answer, Ask, Lane, Request};
use crate::types::At;
use tollgate_check::{Change, ChangeKind, Event, Filter};
use tollgate_core::{LockChange, Watch};
use tollgate_types::{GroupId, Revision};

/// A subscription is made anew this often: nodes forget those that are not.
const SUBSCRIBE_EVERY_US: u64 = 1_500_000;

/// A watch and how far it has come.
#[derive(Debug)]
pub(super) struct Watching {
    /// In the history; one a client, so the client's number will do.
    number: u32,
    group: GroupId,
    filter: Filter,
    /// Everything below this was delivered.
    next: Revision,
    pub(super) next_try: u64,
    begun: bool,
}

impl Watching {
    pub(super) fn new(number: u32, group: GroupId, filter: Filter, next_try: u64) -> Watching {
        Watching { number, group, filter, next: Revision::ZERO.next(), next_try, begun: false }
    }
}

impl Client {
    /// Subscribes, first or again.
    pub(super) fn mind_watch(&mut self, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        let Some(watching) = self.watching.as_mut().filter(|watching| watching.next_try <= now) else {
            return;
        };
        let (watch, group, from) = (watching.number, watching.group, watching.next);
        if !watching.begun {
            watching.begun = true;
            // Every other of those that want everything follows its own lease, if it has one by now: by the number, so
            // that a seed makes the same world with and without.
            let own = self.session.as_ref().and_then(|session| session.believed(now));
            if let (Filter::All, Some(lease)) = (&watching.filter, own.filter(|_| watch % 2 == 1)) {
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
        let watch = watching.number;
        match answer {
            Answer::Events { from, events, next, .. } if from == watching.next => {
                let changes: Vec<Change> = events.into_iter().filter_map(change).collect();
                ctx.stats.watched += changes.len() as u64;
                if next != from {
                    watching.next = next;
                    ctx.history.record(at, Event::WatchEvents { watch, changes, next });
                }
            }
            Answer::Compacted { from, min_revision, .. } if from == watching.next => {
                ctx.stats.compacted += 1;
                (watching.next, watching.next_try) = (min_revision, now);
                ctx.history.record(at, Event::WatchCompacted { watch, min_revision });
            }
            Answer::Events { from, .. } | Answer::Compacted { from, .. } if from > watching.next => {
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
