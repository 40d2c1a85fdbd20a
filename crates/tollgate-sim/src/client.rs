//! A client: one session (a lease and its keepalives) and the work under that lease.
//!
//! A client knows its own clock alone, drives its calls through lost, late and repeated messages, and records its
//! requests and the answers. Invariant: one call is one request in the history, whatever it took to have it answered;
//! and nothing counts as done or undone that no answer settled. Not here: the servers (`front`), and the death of
//! clients (the world).

mod belief;
mod call;
mod leaving;
mod plan;
mod session;
mod settings;
mod stats;
mod task;
mod twin;
mod verdict;
mod watching;
mod work;

pub use settings::ClientSettings;
pub use stats::ClientStats;

use crate::fenced::FencedStores;
use crate::front::{Answer, Ask, Request, Response};
use crate::rng::Rng;
use crate::types::{At, ClientNo};
use belief::TrueTime;
use call::{Again, Calls, Why, set_acked};
use session::Session;
use std::collections::BTreeMap;
use task::{Task, Zombie};
use tollgate_check::{CallId, Event, History, Op, Outcome};
use tollgate_types::{GroupId, NodeId};
use twin::Twin;
use verdict::{Verdict, verdict};
use watching::Watching;

/// A simulated client.
#[derive(Debug)]
pub struct Client {
    no: ClientNo,
    settings: ClientSettings,
    rng: Rng,
    true_time: TrueTime,
    /// Number of groups.
    groups: u32,
    session: Option<Session>,
    twin: Twin,
    /// Number of sessions that the client has begun.
    epoch: u32,
    /// Local time from which the next session may begin.
    session_from: u64,
    calls: Calls,
    /// Leader of each group, as far as the client was told.
    leaders: BTreeMap<GroupId, NodeId>,
    tasks: Vec<Task>,
    zombies: Vec<Zombie>,
    watches: bool,
    watching: Option<Watching>,
    /// Number of watches that the client has opened.
    watches_opened: u32,
    /// Numbers of owners and of values that the client has made up.
    owners: u64,
    values: u64,
    healing: bool,
    lease_at_end: LeaseAtEnd,
}

/// Fate of a client's lease when the client's work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseAtEnd {
    /// The client goes on renewing the lease.
    Kept,
    /// The client will revoke the lease.
    Revoked,
    /// The client has asked to revoke the lease, and left.
    Left,
}

/// Surroundings of a client while it acts.
pub struct ClientContext<'a> {
    /// History in which the client records its requests and the answers.
    pub history: &'a mut History,
    /// Stores that the client writes to under its locks.
    pub stores: &'a mut FencedStores,
    /// Messages that the client sends.
    pub out: &'a mut Vec<(NodeId, Request)>,
    /// Nodes that the client knows of; at least one.
    pub nodes: &'a [NodeId],
    /// Number of groups.
    pub groups: u32,
    /// True if all groups go by the newest rules from here on.
    pub raised: bool,
    /// Counts over all clients.
    pub stats: &'a mut ClientStats,
    /// Violations that the client saw.
    pub violations: &'a mut Vec<String>,
}

impl Client {
    /// Creates a client that has just started.
    pub fn new(no: ClientNo, settings: ClientSettings, mut rng: Rng) -> Client {
        let tasks = (0..settings.tasks.max(1)).map(|_| Task::new(0)).collect();
        let lease_at_end = if rng.percent(50) { LeaseAtEnd::Revoked } else { LeaseAtEnd::Kept };
        let watches = rng.percent(settings.watch_percent);
        Client {
            no,
            settings,
            rng,
            true_time: TrueTime::default(),
            groups: 1,
            session: None,
            twin: Twin::default(),
            epoch: 0,
            session_from: 0,
            calls: Calls::new(no.0),
            leaders: BTreeMap::new(),
            tasks,
            zombies: Vec::new(),
            watches,
            watching: None,
            watches_opened: 0,
            owners: 0,
            values: 0,
            healing: false,
            lease_at_end,
        }
    }

    /// Returns the local time at which the client next wants to be woken; `u64::MAX` for never.
    pub fn next_wake(&self) -> u64 {
        let session = match &self.session {
            Some(session) => session.next_wake(),
            None if self.healing => u64::MAX,
            None => self.session_from,
        };
        let tasks = self.tasks.iter().map(|task| task.next_at).min().unwrap_or(u64::MAX);
        let zombies = self.zombies.iter().map(|zombie| zombie.next_at).min().unwrap_or(u64::MAX);
        let watch = self.watching.as_ref().map_or(u64::MAX, |watching| watching.next_try);
        [session, tasks, zombies, watch, self.calls.next_try()].into_iter().min().unwrap_or(u64::MAX)
    }

    /// Does what is due when the client's clock reads `local_now`.
    pub fn wake(&mut self, local_now: u64, at: At, ctx: &mut ClientContext<'_>) {
        self.look_at_clock(local_now, at, ctx);
        self.record_belief(local_now, at, ctx);
        self.mind_lease(local_now, at, ctx);
        for index in 0..self.tasks.len() {
            self.act(index, local_now, at, ctx);
        }
        self.write_as_zombies(local_now, at, ctx);
        self.act_as_twin(local_now, ctx);
        self.mind_watch(local_now, at, ctx);
        self.leave_if_done(local_now, at, ctx);
        self.send_due(local_now, at, ctx);
    }

    fn look_at_clock(&mut self, now: u64, at: At, ctx: &ClientContext<'_>) {
        self.groups = ctx.groups;
        self.true_time.note(now, at);
        if self.watches && self.watching.is_none() && !self.healing {
            self.plan_watch(now);
        }
    }

    /// Handles a message from a node.
    pub fn response(
        &mut self,
        from: NodeId,
        response: Response,
        local_now: u64,
        at: At,
        ctx: &mut ClientContext<'_>,
    ) {
        self.look_at_clock(local_now, at, ctx);
        self.lapse(local_now, at, ctx);
        if matches!(response.answer, Answer::Events { .. } | Answer::Compacted { .. }) {
            self.watched(response.answer, local_now, at, ctx);
        } else {
            self.answer(from, &response, local_now, at, ctx);
        }
        self.leave_if_done(local_now, at, ctx);
        self.send_due(local_now, at, ctx);
    }

    fn answer(&mut self, from: NodeId, response: &Response, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        let Some(call) = self.calls.get_mut(response.call) else { return };
        if call.why == Why::Twin {
            call.done = true;
            ctx.stats.twins += 1;
            ctx.violations.extend(twin::judge(call, &response.answer));
            return;
        }
        if call.lane != response.lane {
            // The call hung up on that connection, and hears nothing of what is said there.
            return;
        }
        if matches!(response.answer, Answer::Left) {
            return self.left(response.call, now);
        }
        if let Some(says) = leaving::judge(call, &response.answer) {
            ctx.violations.push(says);
        }
        let (id, group, epoch) = (call.id, call.group, call.epoch);
        let renews = matches!(call.why, Why::Grant | Why::KeepAlive);
        // Answered without the log, so it says nothing about a later attempt: that one may be granted yet.
        let logged = !matches!(response.answer, Answer::Busy(_));
        if !logged && (call.done || call.attempts != response.attempt) {
            return;
        }
        if matches!(response.answer, Answer::Reply(_) | Answer::Queued { .. } | Answer::Renewed(_)) {
            self.leaders.insert(group, from);
        }
        let (rng, verdict) = (&mut self.rng, verdict(call.op.as_ref(), &response.answer));
        match verdict {
            Verdict::Done(outcome) => return self.done(id, Some(outcome), logged, now, at, ctx),
            Verdict::Unknown => return self.done(id, None, logged, now, at, ctx),
            Verdict::Ignore => return,
            Verdict::Queued => {
                if !call.done {
                    ctx.stats.queued += u64::from(call.attempts == 1);
                    call.is_queued(now, rng);
                }
                return;
            }
            Verdict::AskLeader(leader) => {
                ctx.stats.redirected += 1;
                match leader.filter(|leader| *leader != from) {
                    Some(leader) => self.leaders.insert(group, leader),
                    None => self.leaders.remove(&group),
                };
                call.ask_again(now, if leader.is_some() { 10_000 } else { 100_000 }, rng);
            }
            Verdict::Indeterminate => {
                ctx.stats.indeterminate += 1;
                self.leaders.remove(&group);
                call.ask_again(now, 50_000, rng);
            }
            Verdict::AskLater => call.ask_again(now, 200_000, rng),
            Verdict::StubPending => {
                ctx.stats.stubs_pending += 1;
                call.ask_again(now, 30_000, rng);
            }
        }
        if renews {
            self.renew_soon(epoch, now);
        }
    }

    /// Handles a final answer to a call: the first one, or a further one.
    fn done(
        &mut self,
        id: CallId,
        outcome: Option<Outcome>,
        logged: bool,
        now: u64,
        at: At,
        ctx: &mut ClientContext<'_>,
    ) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let at_checked = tollgate_check::At::from_us(at);
        let pretends =
            !call.done && call.again == Again::Same && self.rng.percent(self.settings.answers_lost_percent);
        if call.done || pretends {
            if pretends {
                ctx.stats.answers_dropped += 1;
                call.ask_again(now, 50_000, &mut self.rng);
            }
            // A call without a seq, or one that went past the log, is answered anew each time: only a repeat must get
            // the same answer.
            if let Some(outcome) = outcome.filter(|_| logged && call.seq.is_some()) {
                ctx.stats.answered_again += 1;
                ctx.history.record(at_checked, Event::AnsweredAgain { call: id, outcome });
            }
            return;
        }
        call.done = true;
        ctx.stats.answers += 1;
        let (why, seq, group, origin) = (call.why, call.seq, call.group, (call.epoch, call.first_sent));
        if let (Some(seq), Some(outcome), true) = (seq, &outcome, logged && origin.0 == self.epoch) {
            self.twin.note(seq, group, outcome);
        }
        if let (Some(outcome), true) = (&outcome, call.op.is_some()) {
            ctx.history.record(at_checked, Event::Return { call: id, outcome: outcome.clone() });
        }
        let is_lock = matches!(call.op, Some(Op::Lock { .. }));
        // A lock's answer is acknowledged by its task: a cancel may still need the seq.
        if let (Some(seq), Some(session)) = (seq, &mut self.session)
            && origin.0 == self.epoch
            && !(is_lock && matches!(why, Why::Task(_)))
        {
            session.has_answer(seq);
        }
        if matches!((&call.op, &outcome), (Some(Op::ForceRelease { .. }), Some(Outcome::Released { .. }))) {
            ctx.stats.forced += 1;
        }
        match (why, outcome) {
            (Why::Grant, Some(outcome)) => self.granted(origin, &outcome, now, at, ctx),
            (Why::KeepAlive, Some(outcome)) => self.renewed(origin, &outcome, now, at, ctx),
            (Why::Stub, _) => self.stub_answered(origin.0, group, ctx),
            (Why::Task(index), outcome) => self.task_answered(index, id, outcome, now, ctx),
            (Why::Cancel { task, of }, outcome) => self.cancel_answered(task, of, outcome, now, ctx),
            (Why::Revoke | Why::Nobody | Why::Twin | Why::Grant | Why::KeepAlive, _) => {}
        }
    }

    /// Sends all calls that are due.
    fn send_due(&mut self, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        while let Some(id) = self.calls.due(now) {
            self.send(id, now, at, ctx);
        }
    }

    fn send(&mut self, mut id: CallId, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        let call = self.calls.get(id).expect("it is due");
        let under_lease = call.seq.is_some() || matches!(call.why, Why::Cancel { .. });
        let (group, current) = (call.group, call.epoch == self.epoch);
        let (again, repeats, unheard) = (call.again, call.attempts > 0, call.unheard);
        if under_lease && current && !self.is_ready_in(group, now) {
            let call = self.calls.get_mut(id).expect("it is due");
            call.next_try = now + 30_000;
            return;
        }
        if repeats {
            ctx.stats.retries += 1;
            if unheard {
                self.leaders.remove(&group);
            }
            if again == Again::NewCall {
                id = self.calls.make_again(id);
            }
        }
        let call = self.calls.get_mut(id).expect("it is due, or was just made");
        if let (true, Some(session)) = (current, &mut self.session) {
            set_acked(&mut call.ask, session.acked(self.rng.percent(50)));
        }
        call.sent(now, &mut self.rng);
        if call.attempts == 1 {
            ctx.stats.calls += 1;
            if let Some(op) = call.op.clone() {
                let event = Event::Invoke { call: id, client: self.no.0, group, op };
                ctx.history.record(tollgate_check::At::from_us(at), event);
            }
        }
        let reads = matches!(call.ask, Ask::ReadLock(_) | Ask::ReadRegister(_));
        let twice = call.seq.is_some() && self.rng.percent(self.settings.twice_percent);
        let (attempt, lane, ask) = (call.attempts, call.lane, call.ask.clone());
        let request = Request { call: id, attempt, group, alone: !twice, lane, ask };
        let leader = self.leaders.get(&group).copied().filter(|leader| !reads && ctx.nodes.contains(leader));
        let node = leader.unwrap_or_else(|| *self.rng.pick(ctx.nodes));
        if twice {
            ctx.out.push((*self.rng.pick(ctx.nodes), request.clone()));
        }
        ctx.out.push((node, request));
    }

    /// Ends the work because the world is well again: starts nothing new, ends waits, and releases all locks.
    pub fn heal(&mut self) {
        self.healing = true;
        self.zombies.clear();
        self.watching = None;
        self.calls.come_back();
        for task in &mut self.tasks {
            task.next_at = 0;
        }
    }

    /// Returns true if no call of the client waits for an answer, keepalives apart. After `heal` this stays true once
    /// it is.
    pub fn is_quiet(&self) -> bool {
        let left = self.session.is_none() || self.lease_at_end != LeaseAtEnd::Revoked;
        !self.calls.any_open() && self.tasks.iter().all(Task::is_idle) && (left || !self.healing)
    }

    fn leave_if_done(&mut self, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        let done = !self.calls.any_open() && self.tasks.iter().all(Task::is_idle);
        if self.healing && self.lease_at_end == LeaseAtEnd::Revoked && done {
            self.lease_at_end = LeaseAtEnd::Left;
            self.leave(now, at, ctx);
        }
    }
}

#[cfg(test)]
mod tests;
