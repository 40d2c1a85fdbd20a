//! The part of a server around a host: accepts requests of callers, proposes and reads for them, and produces answers.
//!
//! Invariant: an answer is the result from the log or from a confirmed read, or an error that tells whether the request
//! may still take effect. A caller whose request queues is pending, and answered once more: when its wait ends, or when
//! the end could take for ever because this node no longer leads, or can't have anything written; then the caller must
//! ask again, with the same seq. A wait that only single callers asked for ends when the last of them hangs up, or when
//! none has attended the wait for a while. Nothing here survives a crash. The dispatcher belongs to the host's crate
//! and not to the node's, so that the simulator runs it too. Not here: sockets, forwarding to the leader, and the
//! delivery of an answer.

mod caller_liveness;
mod pending;
mod unattended;
mod unbegun;
mod under_way;
mod watchers;

use crate::host::Host;
use crate::members::{MemberChange, Members};
use crate::output::{
    HostEvent, Output, ProposalId, ProposalOutcome, ProposalReply, ProposeError, ReadError, ReadId, ReadReply,
};
use crate::planted::{Bug, Planted};
use caller_liveness::CallerLiveness;
use pending::{Pending, RequestKey, WaitKey};
use std::collections::{BTreeMap, HashMap};
use tollgate_core::{
    AcquireLock, CancelTarget, CancelWait, Command, EndReason, Event, RENEWALS_MAX, RenewLeases, Renewal,
    Renewed, Reply, Request, State, Wait, WaitOutcome, Watch,
};
use tollgate_types::{GroupId, LeaseId, Name, Names, NodeId, Revision};
use under_way::UnderWay;
use watchers::Watchers;

/// A caller as the user of a dispatcher identifies it.
pub trait Caller: Clone {
    /// Key of the caller. A retry of a call has the same key, and replaces the earlier attempt.
    fn key(&self) -> CallerKey;
}

/// Key of a caller, valid while the caller is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallerKey {
    /// Connection of the caller: when it breaks, all of its callers are lost.
    pub stream: u64,
    /// Number of the call within the connection.
    pub call: u64,
}

impl CallerKey {
    /// All callers of a stream.
    fn all_of(stream: u64) -> std::ops::RangeInclusive<CallerKey> {
        CallerKey { stream, call: 0 }..=CallerKey { stream, call: u64::MAX }
    }
}

/// Number that the dispatcher's user gives to a watch.
pub type WatchNumber = u64;

/// An answer to a caller. `R` describes a read of the dispatcher's user.
#[derive(Debug)]
pub enum Answer<R> {
    /// The command was applied. Never [`Reply::Queued`].
    Replied {
        /// The group's revision after the command.
        revision: Revision,
        /// Result of the command.
        reply: Reply,
        /// True if the command changed anything that watches see. A retry does not, nor does a lock request by the
        /// holder.
        changed: bool,
    },
    /// The request waits in the queue; the outcome follows.
    Queued {
        /// Revision at which the request joined the queue.
        create_revision: Revision,
        /// Position in the queue; 1 is the next in line.
        position: u64,
    },
    /// The request's wait is over.
    Resolved {
        /// Revision at which the request joined the queue; for an upgrade, at which the upgrade did.
        create_revision: Revision,
        /// The group's revision after the entry that ended the wait.
        revision: Revision,
        /// Outcome of the wait.
        outcome: WaitOutcome,
    },
    /// The lock is not available at once: answered after a quorum confirmed this leader, without an entry in the log.
    Busy {
        /// Revision of the state in which the lock is busy.
        revision: Revision,
        /// [`Reply::Busy`].
        reply: Reply,
    },
    /// The keepalive was applied.
    Renewed {
        /// The group's revision after the keepalive.
        revision: Revision,
        /// Result of the keepalive.
        renewed: Renewed,
    },
    /// The group's state may be read now, and is at least as new as when the read was requested.
    MayRead {
        /// Group to read.
        group: GroupId,
        /// The requested read.
        what: R,
    },
    /// The read could not be confirmed; it is safe to ask again, because a read changes nothing.
    NotRead {
        /// The requested read; none for a watch.
        what: Option<R>,
        /// Reason of the failure.
        error: ReadError,
    },
    /// The request still waits in the queue, as far as this node knows, but this node can't learn how the wait ends:
    /// the caller must ask again with the same seq, and ask the leader if one is known.
    AskAgain {
        /// The group.
        group: GroupId,
        /// Leader of the group, if known.
        leader: Option<NodeId>,
    },
    /// The request waits in the queue, but so many callers attend the same wait that only those callers learn its end.
    Crowded {
        /// The group.
        group: GroupId,
    },
    /// The caller hung up while its request waited, and gets no further answer.
    Left,
    /// The request was not carried out, or the outcome is unknown: the error tells which.
    NotDone(ProposeError),
    /// The membership changed; these are the members after the change.
    Members(Box<Members>),
    /// All events that a watch wants of the revisions from `from` to before `next`.
    Events {
        /// Number of the watch.
        watch: WatchNumber,
        /// First revision of this batch: the end of the previous batch.
        from: Revision,
        /// Events in order; a revision is never split.
        events: Vec<Event>,
        /// First revision of the next batch.
        next: Revision,
    },
    /// The history that the watch wants is compacted; the watch is over.
    Compacted {
        /// Number of the watch.
        watch: WatchNumber,
        /// The first revision that the watch still wanted.
        from: Revision,
        /// The first revision that is still available.
        min_revision: Revision,
    },
}

/// Purpose of a proposal under way.
#[derive(Debug)]
enum Proposed<C> {
    /// A command, and its relation to waiting requests.
    Command(C, About),
    /// Keepalives, in order.
    Renewals(Vec<C>),
    /// The dispatcher's own command: ends a wait that no caller attends.
    End(WaitKey, Name),
}

/// Relation of a command to requests that wait.
#[derive(Debug, Clone)]
enum About {
    /// The command may wait.
    Wait(MayWait),
    /// The command ends the wait of one request.
    CancelOf(RequestKey),
    /// The command has nothing to do with waits.
    Nothing,
}

/// A request that may wait.
#[derive(Debug, Clone)]
struct MayWait {
    /// Name of one of its locks, if its caller attends the wait.
    attended: Option<Name>,
    /// Key of the request, if it has a seq.
    request: Option<RequestKey>,
}

/// Purpose of a read under way.
#[derive(Debug)]
enum Reading<R> {
    Caller(R),
    /// Confirms that a lock request that does not wait would find the lock busy.
    Busy(Held),
}

/// A lock request that looked busy.
#[derive(Debug)]
struct Held {
    group: GroupId,
    /// [`Command::AcquireLock`].
    command: Box<Command>,
    /// Proposals up to this id were requested earlier, and are answered first: one may be the same client's release.
    after: ProposalId,
}

/// Counts of answers since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DispatcherCounts {
    /// Requests answered busy without an entry.
    pub fast_answers: u64,
    /// Requests that looked busy and then went through the log after all.
    pub fast_misses: u64,
}

/// The dispatcher of one node, from its start to its crash.
#[derive(Debug)]
pub struct Dispatcher<C, R> {
    /// Proposals under way, by proposal id.
    proposed: UnderWay<Proposed<C>>,
    last_read: u64,
    // Looked up by id only, never iterated: the order of the hash map has no effect.
    reading: HashMap<ReadId, (C, Reading<R>)>,
    /// Requests whose lock a quorum confirmed to look busy, but that an earlier request may still free.
    held: Vec<(C, Held)>,
    keepalives: BTreeMap<GroupId, Vec<(C, Renewal)>>,
    /// Lock requests that looked busy, and go through the log after all.
    again: Vec<(C, GroupId, Box<Command>)>,
    pending: Pending<C>,
    caller_liveness: CallerLiveness,
    /// Waits whose last caller has hung up: to end in the next turn.
    abandoned: Vec<(WaitKey, Name)>,
    /// Callers that asked to cancel a wait that another caller attends; the wait goes on.
    left_alone: Vec<(C, GroupId)>,
    /// Callers that hung up in this turn, and whose wait goes on without them.
    hung_up: Vec<C>,
    /// Groups whose log has requests whose callers were told that the outcome is unknown, with the index of the last
    /// such entry: once that entry is applied, one of the requests may wait without a caller that attends it.
    unheard: BTreeMap<GroupId, u64>,
    /// Callers that hung up, and whose wait is to end for that reason: a grant may be on its way, and must not be lost.
    leaving: BTreeMap<WaitKey, Vec<C>>,
    watchers: Watchers<C>,
    counts: DispatcherCounts,
    planted: Planted,
}

impl<C: Caller, R> Dispatcher<C, R> {
    /// Makes a dispatcher whose proposals and reads are numbered from `first_id` on. The ids must never overlap with
    /// those of another user of the same host.
    pub fn new(first_id: u64) -> Dispatcher<C, R> {
        Dispatcher {
            proposed: UnderWay::new(first_id),
            last_read: first_id,
            reading: HashMap::new(),
            held: Vec::new(),
            keepalives: BTreeMap::new(),
            again: Vec::new(),
            pending: Pending::default(),
            caller_liveness: CallerLiveness::default(),
            abandoned: Vec::new(),
            left_alone: Vec::new(),
            hung_up: Vec::new(),
            unheard: BTreeMap::new(),
            leaving: BTreeMap::new(),
            watchers: Watchers::default(),
            counts: DispatcherCounts::default(),
            planted: Planted::default(),
        }
    }

    /// Plants a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Bug) {
        self.planted = Planted::some(bug);
    }

    /// Handles a command. To be called between the host's begin and end of a turn, like every request to the
    /// dispatcher.
    ///
    /// `fast` means that this is the first attempt of its call and that no copy of it is in flight: only then may a
    /// lock request that does not wait be answered as busy without an entry.
    pub fn command(
        &mut self,
        caller: C,
        group: GroupId,
        command: impl Into<Box<Command>>,
        fast: bool,
        host: &mut Host,
    ) {
        let command = command.into();
        let acquire = match &*command {
            Command::AcquireLock(acquire) if fast && acquire.wait == Wait::No => Some(acquire),
            _ => None,
        };
        if acquire.is_some_and(|acquire| looks_busy(host, group, acquire)) {
            let after = ProposalId(self.proposed.last());
            let id = self.fresh_read();
            self.reading.insert(id, (caller, Reading::Busy(Held { group, command, after })));
            host.read(group, id);
        } else if acquire.is_none() && host.leads(group) && self.is_wanted(group, &command) {
            self.left_alone.push((caller, group));
        } else {
            self.propose(caller, group, command, host);
        }
    }

    fn propose(&mut self, caller: C, group: GroupId, command: Box<Command>, host: &mut Host) {
        let about = about(group, &command);
        self.asks(&caller, &about);
        let id = ProposalId(self.proposed.begin(Proposed::Command(caller, about)));
        host.propose(group, id, command);
    }

    /// Handles a keepalive. All keepalives of a turn go into the log together.
    pub fn keep_alive(&mut self, caller: C, group: GroupId, renewal: Renewal) {
        self.keepalives.entry(group).or_default().push((caller, renewal));
    }

    /// Requests a linearizable read, on any node that keeps state: [`Answer::MayRead`] returns `what` once the read may
    /// be done.
    pub fn read(&mut self, caller: C, group: GroupId, what: R, host: &mut Host) {
        let id = self.fresh_read();
        self.reading.insert(id, (caller, Reading::Caller(what)));
        host.read(group, id);
    }

    /// Proposes a change of membership.
    pub fn change_members(&mut self, caller: C, group: GroupId, change: &MemberChange, host: &mut Host) {
        let id = ProposalId(self.proposed.begin(Proposed::Command(caller, About::Nothing)));
        host.change_members(group, id, change);
    }

    /// Opens a watch, on any node that keeps state; a number that is in use starts again. The watch may be sent
    /// `credit` events, besides the rest of a revision, until [`Dispatcher::give_credit`].
    ///
    /// To be called between the host's begin and end of a turn. A watch `from` a revision is answered at the end of the
    /// turn. A watch without `from` begins after everything that was acknowledged before, on any node: that takes a
    /// confirmed read, and until then the watch has no answer. If none is confirmed in time, the answer is
    /// [`Answer::NotRead`].
    pub fn watch(
        &mut self,
        caller: C,
        watch: WatchNumber,
        group: GroupId,
        from: Option<Revision>,
        filter: Watch,
        credit: u64,
    ) {
        self.watchers.add(caller, watch, group, from, filter, credit);
    }

    /// Requests the reads that watches without a start revision need: one read per group for all watches opened in this
    /// turn.
    fn ask_for_watches(&mut self, host: &mut Host) {
        while let Some(group) = self.watchers.to_ask() {
            let read = self.fresh_read();
            self.watchers.asked(group, read);
            if self.planted.is(Bug::WatchBeginsUnconfirmed) {
                self.watchers.read_answered::<R>(read, &Ok(()), &mut Vec::new());
                continue;
            }
            host.read(group, read);
        }
    }

    /// Allows that many more events for a watch.
    pub fn give_credit(&mut self, watch: WatchNumber, events: u64) {
        self.watchers.give_credit(watch, events);
    }

    /// Ends a watch.
    pub fn unwatch(&mut self, watch: WatchNumber) {
        self.watchers.remove(watch);
    }

    fn fresh_read(&mut self) -> ReadId {
        self.last_read += 1;
        ReadId(self.last_read)
    }

    /// True while there is work that waits for no input: then the next turn must begin at once.
    pub fn wants_turn(&self) -> bool {
        let minds = !self.abandoned.is_empty() || self.caller_liveness.searching();
        minds || !self.again.is_empty() || self.watchers.any_ready()
    }

    /// Number of pending callers.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Number of callers that have hung up and whose waits have yet to end.
    pub fn leaving_count(&self) -> usize {
        self.leaving.values().map(Vec::len).sum()
    }

    /// Number of watches.
    pub fn watch_count(&self) -> usize {
        self.watchers.len()
    }

    /// Counts of answers since the start.
    pub fn counts(&self) -> DispatcherCounts {
        self.counts
    }

    /// Proposes what was gathered. To be called before the turn ends.
    pub fn before_end_turn(&mut self, host: &mut Host) {
        self.mind_waits(host);
        self.ask_for_watches(host);
        for (caller, group, command) in std::mem::take(&mut self.again) {
            self.propose(caller, group, command, host);
        }
        for (group, gathered) in std::mem::take(&mut self.keepalives) {
            let limit = host.state(group).map_or(u64::MAX, |state| state.limits().renewals_per_entry_max);
            let limit = usize::try_from(limit).unwrap_or(RENEWALS_MAX).clamp(1, RENEWALS_MAX);
            let mut gathered = gathered.into_iter().peekable();
            while gathered.peek().is_some() {
                let (callers, renewals) = gathered.by_ref().take(limit).unzip();
                let id = ProposalId(self.proposed.begin(Proposed::Renewals(callers)));
                host.propose(group, id, Command::RenewLeases(RenewLeases { renewals }));
            }
        }
    }

    /// Takes the dispatcher's own replies and reads out of the output of a turn, leaves those of other users, and adds
    /// the answers to callers. To be called after the turn has ended.
    pub fn after_turn(&mut self, output: &mut Output, host: &Host, answers: &mut Vec<(C, Answer<R>)>) {
        for (caller, group) in std::mem::take(&mut self.left_alone) {
            let revision = host.state(group).map_or(Revision::ZERO, State::revision);
            answers.push((caller, Answer::Replied { revision, reply: Reply::Done, changed: false }));
        }
        answers.extend(self.hung_up.drain(..).map(|caller| (caller, Answer::Left)));
        // Replies first: an entry of the same turn may resolve a wait that a reply parks.
        let replies = std::mem::take(&mut output.replies);
        output.replies = replies.into_iter().filter_map(|reply| self.reply(reply, host, answers)).collect();
        let reads = std::mem::take(&mut output.reads);
        output.reads = reads.into_iter().filter_map(|read| self.read_reply(read, answers)).collect();
        for entry in &output.applied {
            for resolution in &entry.resolved {
                let (create_revision, outcome) = (resolution.create_revision, resolution.outcome);
                self.caller_liveness.forget((entry.group, create_revision));
                let leaving = self.leaving.remove(&(entry.group, create_revision)).unwrap_or_default();
                for caller in self.pending.resolve((entry.group, create_revision)).into_iter().chain(leaving)
                {
                    let revision = entry.revision;
                    answers.push((caller, Answer::Resolved { create_revision, revision, outcome }));
                }
            }
        }
        for event in &output.events {
            if let HostEvent::LeadershipGained { group, .. } = event {
                self.caller_liveness.begin_search(*group);
            }
            if let HostEvent::OutOfRoom { group } = event {
                self.out_of_room(*group, host, answers);
            }
            let Some(group) = left_group(event) else { continue };
            self.unheard.remove(&group);
            self.caller_liveness.leave(group);
            let leaving = self.leaving.extract_if(.., |(of, _), _| *of == group).flat_map(|(_, gone)| gone);
            for caller in self.pending.leave(group).into_iter().chain(leaving) {
                answers.push((caller, ask_again(host, group)));
            }
        }
        self.look_for_unheard(host);
        self.answer_held(host, answers);
        let events_lost = self.planted.is(Bug::WatchSkipsBatch);
        self.watchers.serve(output, host, events_lost, answers);
    }

    /// Answers a proposal; returns the reply if the proposal is not the dispatcher's.
    fn reply(
        &mut self,
        reply: ProposalReply,
        host: &Host,
        answers: &mut Vec<(C, Answer<R>)>,
    ) -> Option<ProposalReply> {
        let Some(proposed) = self.proposed.end(reply.proposal.0) else { return Some(reply) };
        let group = reply.group;
        match (reply.result, proposed) {
            (Ok(ProposalOutcome::Applied(applied)), Proposed::Command(caller, about)) => {
                let revision = applied.revision;
                let gone = self.answered(&caller, &about);
                match (applied.reply, about) {
                    (Reply::Queued { create_revision, position }, About::Wait(request)) => {
                        let wait = (group, create_revision);
                        match gone {
                            Some(gone) => {
                                if let Some(caller) =
                                    self.queued_for_nobody(caller, wait, request, gone, host)
                                {
                                    answers.push((caller, Answer::Left));
                                }
                            }
                            None => self.queued(caller, wait, position, request, host, answers),
                        }
                    }
                    (reply, about) => {
                        if let (Reply::Cancelled, About::CancelOf(request)) = (&reply, about) {
                            self.cancelled(request, revision, answers);
                        }
                        let changed = applied.events_from.is_some();
                        answers.push((caller, Answer::Replied { revision, reply, changed }));
                    }
                }
            }
            (Ok(ProposalOutcome::Applied(applied)), Proposed::Renewals(callers)) => {
                self.renewed(callers, applied.revision, applied.reply, answers);
            }
            (Ok(ProposalOutcome::Members(members)), Proposed::Command(caller, _)) => {
                answers.push((caller, Answer::Members(members)));
            }
            (Ok(ProposalOutcome::Members(_)), Proposed::Renewals(_) | Proposed::End(..)) => {
                unreachable!("neither keepalives nor ends of waits are a change of membership")
            }
            (result, Proposed::End(wait, name)) => self.end_answered(result, wait, name, host, answers),
            (Err(error), Proposed::Command(caller, about)) => {
                if matches!(error, ProposeError::NoRoomMidway { .. }) {
                    self.note_unheard(group, host);
                }
                self.answered(&caller, &about);
                // The caller is told to ask again, so it no longer attends the wait of an earlier attempt of the same
                // call.
                if let Some((_, (wait, attended))) = self.pending.remove(caller.key()) {
                    self.left(wait, attended);
                }
                answers.push((caller, Answer::NotDone(error)));
            }
            (Err(error), Proposed::Renewals(callers)) => {
                answers.extend(callers.into_iter().map(|caller| (caller, Answer::NotDone(error.clone()))));
            }
        }
        None
    }

    /// Parks the caller of a request that waits.
    fn queued(
        &mut self,
        caller: C,
        (group, create_revision): WaitKey,
        position: u64,
        MayWait { attended, request }: MayWait,
        host: &Host,
        answers: &mut Vec<(C, Answer<R>)>,
    ) {
        if !host.leads(group) {
            // The request was proposed while this node led. A follower may skip entries by a snapshot, and never see
            // the outcome.
            answers.push((caller, ask_again(host, group)));
            return;
        }
        let told = caller.clone();
        self.caller_liveness.forget((group, create_revision));
        let pending = self.pending.add((group, create_revision), caller, attended, request);
        let answer =
            if pending { Answer::Queued { create_revision, position } } else { Answer::Crowded { group } };
        answers.push((told, answer));
    }

    /// Ends a cancelled request's wait. If another request shares the wait, the wait goes on, and no entry reports an
    /// end.
    fn cancelled(&mut self, request: RequestKey, revision: Revision, answers: &mut Vec<(C, Answer<R>)>) {
        let (callers, wait) = self.pending.cancelled(request);
        let Some((wait, attended)) = wait else { return };
        // If the whole wait is over, an entry of this turn says so, and the wait is forgotten again.
        self.left(wait, attended);
        let create_revision = wait.1;
        let outcome = WaitOutcome::Ended(EndReason::Cancelled);
        let told = callers.into_iter();
        answers.extend(told.map(|caller| (caller, Answer::Resolved { create_revision, revision, outcome })));
    }

    /// Answers requests that still look busy, once every earlier request is answered.
    fn answer_held(&mut self, host: &Host, answers: &mut Vec<(C, Answer<R>)>) {
        let oldest = self.proposed.oldest().map(ProposalId);
        let ready = |held: &Held| oldest.is_none_or(|oldest| oldest > held.after);
        for (caller, held) in self.held.extract_if(.., |(_, held)| ready(held)) {
            let Held { group, command, .. } = held;
            let Command::AcquireLock(acquire) = &*command else { unreachable!("nothing else is held up") };
            if let Some(state) = host.state(group).filter(|_| looks_busy(host, group, acquire)) {
                self.counts.fast_answers += 1;
                let (revision, reply) = (state.revision(), state.busy(&acquire.names));
                answers.push((caller, Answer::Busy { revision, reply }));
            } else {
                // The lock is free by now: the log decides.
                self.counts.fast_misses += 1;
                self.again.push((caller, group, command));
            }
        }
    }

    fn renewed(
        &mut self,
        callers: Vec<C>,
        revision: Revision,
        reply: Reply,
        answers: &mut Vec<(C, Answer<R>)>,
    ) {
        let Reply::LeasesRenewed(mut results) = reply else {
            let told = callers.into_iter().map(|caller| {
                let reply = reply.clone();
                (caller, Answer::Replied { revision, reply, changed: false })
            });
            answers.extend(told);
            return;
        };
        assert_eq!(callers.len(), results.len(), "one result per renewal");
        if self.planted.is(Bug::RenewalsMixedUp) && results.len() > 1 {
            results.rotate_left(1);
        }
        let told = callers.into_iter().zip(results);
        answers.extend(told.map(|(caller, renewed)| (caller, Answer::Renewed { revision, renewed })));
    }

    /// Answers a read; returns the reply if the read is not the dispatcher's.
    fn read_reply(&mut self, reply: ReadReply, answers: &mut Vec<(C, Answer<R>)>) -> Option<ReadReply> {
        if self.watchers.read_answered(reply.read, &reply.result, answers) {
            return None;
        }
        let Some((caller, reading)) = self.reading.remove(&reply.read) else { return Some(reply) };
        let group = reply.group;
        match (reading, reply.result) {
            (Reading::Caller(what), Ok(())) => answers.push((caller, Answer::MayRead { group, what })),
            (Reading::Caller(what), Err(error)) => {
                answers.push((caller, Answer::NotRead { what: Some(what), error }));
            }
            (Reading::Busy(held), Ok(())) => self.held.push((caller, held)),
            // The read can't be confirmed: the log decides.
            (Reading::Busy(held), Err(_)) => {
                self.counts.fast_misses += 1;
                self.again.push((caller, held.group, held.command));
            }
        }
        None
    }
}

/// True if this node leads and, as far as it knows, a lock request that does not wait would be answered as busy.
fn looks_busy(host: &Host, group: GroupId, acquire: &AcquireLock) -> bool {
    let (Some(at), Some(state)) = (host.log_time(group), host.state(group)) else { return false };
    state.would_be_busy(acquire, at)
}

fn ask_again<R>(host: &Host, group: GroupId) -> Answer<R> {
    Answer::AskAgain { group, leader: host.leader(group) }
}

/// The group in which this node no longer leads, or has skipped entries, if the event says so.
fn left_group(event: &HostEvent) -> Option<GroupId> {
    match event {
        HostEvent::LeadershipLost { group, .. }
        | HostEvent::SnapshotInstalled { group, .. }
        | HostEvent::Removed { group } => Some(*group),
        _ => None,
    }
}

fn about(group: GroupId, command: &Command) -> About {
    let may_wait = |names: &Names, lease: LeaseId, attended: bool, request: &Option<Request>| {
        let attended = attended.then(|| names.as_slice()[0].clone());
        let request = request.as_ref().map(|request| (group, lease, request.seq));
        About::Wait(MayWait { attended, request })
    };
    match command {
        Command::AcquireLock(acquire) => {
            may_wait(&acquire.names, acquire.lease, acquire.attended, &acquire.request)
        }
        Command::ConvertLock(convert) => {
            may_wait(&convert.names, convert.lease, convert.attended, &convert.request)
        }
        Command::CancelWait(CancelWait {
            lease,
            target: CancelTarget::Seq(seq) | CancelTarget::SeqOn { seq, .. },
            ..
        }) => About::CancelOf((group, *lease, *seq)),
        _ => About::Nothing,
    }
}
