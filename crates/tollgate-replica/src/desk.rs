//! What a server does around a host: takes what callers ask, proposes and reads for them, and says what to answer.
//!
//! Invariant: an answer is what the log or a confirmed read said, or an error that tells whether the request may still
//! take effect. A caller whose request queues is parked, and answered once more: when its wait ends, or when that could
//! take for ever because this node no longer leads, or can have nothing written; then it must ask again, with the same
//! seq. A wait that only single callers asked for ends when the last of them hangs up, or when none has stood by for a
//! while. Nothing here survives a crash. It stands beside the
//! host, and not in the node, so that the simulator runs it too. Not here: sockets, forwarding to the leader, and what
//! becomes of an answer.

mod attendance;
mod parked;
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
use attendance::Attendance;
use parked::{Parked, RequestKey, WaitKey};
use std::collections::{BTreeMap, HashMap};
use tollgate_core::{
    AcquireLock, CancelTarget, CancelWait, Command, EndReason, Event, RENEWALS_MAX, RenewLeases, Renewal,
    Renewed, Reply, Request, State, Wait, WaitOutcome, Watch,
};
use tollgate_types::{GroupId, LeaseId, Name, Names, NodeId, Revision};
use under_way::UnderWay;
use watchers::Watchers;

/// By what the caller of a desk knows who asked.
pub trait Caller: Clone {
    /// Which caller it is. A later attempt of a call has the same, and takes the place of the earlier one.
    fn key(&self) -> CallerKey;
}

/// The name of a caller, as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallerKey {
    /// By which connection it came: when that breaks, all of its callers are lost.
    pub stream: u64,
    /// Which of that connection's calls it is.
    pub call: u64,
}

impl CallerKey {
    /// All callers of a stream.
    fn all_of(stream: u64) -> std::ops::RangeInclusive<CallerKey> {
        CallerKey { stream, call: 0 }..=CallerKey { stream, call: u64::MAX }
    }
}

/// The desk's user's number for a watch.
pub type WatchNumber = u64;

/// What to tell a caller. `R` is what the desk's user reads.
#[derive(Debug)]
pub enum Answer<R> {
    /// The command was applied. Never [`Reply::Queued`].
    Replied {
        /// The group's revision behind it.
        revision: Revision,
        /// What it answered.
        reply: Reply,
        /// Whether it changed anything that watches see. A repeat does not, nor does a lock request by who holds.
        changed: bool,
    },
    /// It waits in the queue; the outcome follows.
    Queued {
        /// When it joined.
        create_revision: Revision,
        /// 1 for the next in line.
        position: u64,
    },
    /// Its wait is over.
    Resolved {
        /// When it joined the queue; for an upgrade, when that did.
        create_revision: Revision,
        /// The group's revision behind the entry that ended the wait.
        revision: Revision,
        /// What became of it.
        outcome: WaitOutcome,
    },
    /// The lock is not to be had at once: said after a quorum confirmed this leader, without an entry in the log.
    Busy {
        /// As of which revision.
        revision: Revision,
        /// [`Reply::Busy`].
        reply: Reply,
    },
    /// The keepalive was applied.
    Renewed {
        /// The group's revision behind it.
        revision: Revision,
        /// What it did.
        renewed: Renewed,
    },
    /// The group's state may be read now, and is as new as when it was asked for.
    MayRead {
        /// Which group.
        group: GroupId,
        /// What was to be read.
        what: R,
    },
    /// The read could not be confirmed; it changes nothing to ask again.
    NotRead {
        /// What was to be read; none for a watch.
        what: Option<R>,
        /// Why.
        error: ReadError,
    },
    /// It waits in the queue still, as far as this node knows, but how that ends is not to be learned here: ask again
    /// with the same seq, the leader if one is known.
    AskAgain {
        /// The group.
        group: GroupId,
        /// Who leads it.
        leader: Option<NodeId>,
    },
    /// It waits in the queue, but so many stand by for the same that how it ends is told to them alone.
    Crowded {
        /// The group.
        group: GroupId,
    },
    /// It hung up while it waited, and hears no more of it.
    Left,
    /// It was not carried out, or nobody knows: the error tells.
    NotDone(ProposeError),
    /// The membership changed; these are the members now.
    Members(Box<Members>),
    /// All that a watch wants of the revisions from `from` to before `next`.
    Events {
        /// Which watch.
        watch: WatchNumber,
        /// Where this batch begins: where the one before ended.
        from: Revision,
        /// In order; never part of a revision.
        events: Vec<Event>,
        /// Where the next one will begin.
        next: Revision,
    },
    /// The history that the watch wants is gone; the watch is over.
    Compacted {
        /// Which watch.
        watch: WatchNumber,
        /// The first revision that it still wanted.
        from: Revision,
        /// The first that is still there.
        min_revision: Revision,
    },
}

/// What a proposal under way is for.
#[derive(Debug)]
enum Proposed<C> {
    /// A command, and the request that it is about.
    Command(C, About),
    /// Keepalives, in order.
    Renewals(Vec<C>),
    /// The desk's own: the end of a wait that nobody stands by.
    End(WaitKey, Name),
}

/// What a command has to do with requests that wait.
#[derive(Debug, Clone)]
enum About {
    /// It may wait.
    Wait(MayWait),
    /// It ends the wait of one.
    CancelOf(RequestKey),
    /// Nothing.
    Nothing,
}

/// A request that may wait.
#[derive(Debug, Clone)]
struct MayWait {
    /// One of its locks, if its caller stands by.
    attended: Option<Name>,
    /// Its number, if it has one.
    request: Option<RequestKey>,
}

/// What a read under way is for.
#[derive(Debug)]
enum Reading<R> {
    Caller(R),
    /// Whether a lock request that does not wait would find the lock busy.
    Busy(Held),
}

/// A lock request that looked busy.
#[derive(Debug)]
struct Held {
    group: GroupId,
    /// [`Command::AcquireLock`].
    command: Box<Command>,
    /// What was proposed up to this id was asked for before it, and counts first: it may be the same client's release.
    after: ProposalId,
}

/// How callers have been answered since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeskCounts {
    /// Requests answered busy without an entry.
    pub fast_answers: u64,
    /// Requests that looked busy and then went through the log after all.
    pub fast_misses: u64,
}

/// The desk of one node, from its start to its crash.
#[derive(Debug)]
pub struct Desk<C, R> {
    /// By the numbers of their proposals.
    proposed: UnderWay<Proposed<C>>,
    last_read: u64,
    // Looked up by id alone, never walked: the order of a hash map does not show.
    reading: HashMap<ReadId, (C, Reading<R>)>,
    /// Requests that a quorum confirmed to look busy, but that something asked for before them may still free.
    held: Vec<(C, Held)>,
    keepalives: BTreeMap<GroupId, Vec<(C, Renewal)>>,
    /// What looked busy, and goes through the log after all.
    again: Vec<(C, GroupId, Box<Command>)>,
    parked: Parked<C>,
    attendance: Attendance,
    /// Waits whose last caller has hung up: to end in the next turn.
    abandoned: Vec<(WaitKey, Name)>,
    /// Who wanted to cancel what somebody else stands by for.
    left_alone: Vec<(C, GroupId)>,
    /// Who hung up in this turn, and whose wait goes on without it.
    hung_up: Vec<C>,
    /// Groups of which the log has requests whose callers were told that nobody knows, and where the last one stands:
    /// once that is applied, one of them may wait, and nobody stand by.
    unheard: BTreeMap<GroupId, u64>,
    /// Who hung up, and whose wait is to end for that: a grant may be on its way, and must not go to nobody.
    leaving: BTreeMap<WaitKey, Vec<C>>,
    watchers: Watchers<C>,
    counts: DeskCounts,
    planted: Planted,
}

impl<C: Caller, R> Desk<C, R> {
    /// A desk whose proposals and reads are numbered from `first_id` on. Ids must never meet those of another user of
    /// the same host.
    pub fn new(first_id: u64) -> Desk<C, R> {
        Desk {
            proposed: UnderWay::new(first_id),
            last_read: first_id,
            reading: HashMap::new(),
            held: Vec::new(),
            keepalives: BTreeMap::new(),
            again: Vec::new(),
            parked: Parked::default(),
            attendance: Attendance::default(),
            abandoned: Vec::new(),
            left_alone: Vec::new(),
            hung_up: Vec::new(),
            unheard: BTreeMap::new(),
            leaving: BTreeMap::new(),
            watchers: Watchers::default(),
            counts: DeskCounts::default(),
            planted: Planted::default(),
        }
    }

    /// Plants a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Bug) {
        self.planted = Planted::some(bug);
    }

    /// A command. Between the host's begin and end of a turn, as all that asks for something.
    ///
    /// `fast` says that this is the first attempt of its call and that no copy of it is on its way: only then may a
    /// lock request that does not wait be told that the lock is busy without an entry.
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

    /// A keepalive. Those of a turn go into the log together.
    pub fn keep_alive(&mut self, caller: C, group: GroupId, renewal: Renewal) {
        self.keepalives.entry(group).or_default().push((caller, renewal));
    }

    /// A linearizable read, on any node that keeps state: [`Answer::MayRead`] gives `what` back when it may be done.
    pub fn read(&mut self, caller: C, group: GroupId, what: R, host: &mut Host) {
        let id = self.fresh_read();
        self.reading.insert(id, (caller, Reading::Caller(what)));
        host.read(group, id);
    }

    /// A change of membership.
    pub fn change_members(&mut self, caller: C, group: GroupId, change: &MemberChange, host: &mut Host) {
        let id = ProposalId(self.proposed.begin(Proposed::Command(caller, About::Nothing)));
        host.change_members(group, id, change);
    }

    /// Opens a watch, on any node that keeps state; a number that is in use begins anew. It may be told of `credit`
    /// events, beside the rest of a revision, until [`Desk::give_credit`].
    ///
    /// Between the host's begin and end of a turn. A watch `from` a revision is answered with the end of the turn. One
    /// from now on (none) begins behind everything that was acknowledged before, on any node: that takes a confirmed
    /// read, and until then the watch has no answer. If none is confirmed in time it is told [`Answer::NotRead`].
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

    /// Asks for what watches from now on wait for: one read for all that were opened in this turn, in each group.
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

    /// A watch may be told of so many events more.
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

    /// Whether there is something to do that waits for no input: then the next turn must begin at once.
    pub fn wants_turn(&self) -> bool {
        let minds = !self.abandoned.is_empty() || self.attendance.searching();
        minds || !self.again.is_empty() || self.watchers.any_ready()
    }

    /// How many callers are parked.
    pub fn parked_count(&self) -> usize {
        self.parked.len()
    }

    /// How many have hung up and are yet to hear how their waits end.
    pub fn leaving_count(&self) -> usize {
        self.leaving.values().map(Vec::len).sum()
    }

    /// How many watches there are.
    pub fn watch_count(&self) -> usize {
        self.watchers.len()
    }

    /// How callers have been answered.
    pub fn counts(&self) -> DeskCounts {
        self.counts
    }

    /// The turn is about to end: proposes what it gathered.
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

    /// The turn has ended: takes the desk's own replies and reads out of the output, leaves those of others, and says
    /// what to answer.
    pub fn after_turn(&mut self, output: &mut Output, host: &Host, answers: &mut Vec<(C, Answer<R>)>) {
        for (caller, group) in std::mem::take(&mut self.left_alone) {
            let revision = host.state(group).map_or(Revision::ZERO, State::revision);
            answers.push((caller, Answer::Replied { revision, reply: Reply::Done, changed: false }));
        }
        answers.extend(self.hung_up.drain(..).map(|caller| (caller, Answer::Left)));
        // Replies first: what one of them parks, an entry of the same turn may resolve.
        let replies = std::mem::take(&mut output.replies);
        output.replies = replies.into_iter().filter_map(|reply| self.reply(reply, host, answers)).collect();
        let reads = std::mem::take(&mut output.reads);
        output.reads = reads.into_iter().filter_map(|read| self.read_reply(read, answers)).collect();
        for entry in &output.applied {
            for resolution in &entry.resolved {
                let (create_revision, outcome) = (resolution.create_revision, resolution.outcome);
                self.attendance.forget((entry.group, create_revision));
                let leaving = self.leaving.remove(&(entry.group, create_revision)).unwrap_or_default();
                for caller in self.parked.resolve((entry.group, create_revision)).into_iter().chain(leaving) {
                    let revision = entry.revision;
                    answers.push((caller, Answer::Resolved { create_revision, revision, outcome }));
                }
            }
        }
        for event in &output.events {
            if let HostEvent::LeadershipGained { group, .. } = event {
                self.attendance.begin_search(*group);
            }
            if let HostEvent::OutOfRoom { group } = event {
                self.out_of_room(*group, host, answers);
            }
            let Some(group) = left_group(event) else { continue };
            self.unheard.remove(&group);
            self.attendance.leave(group);
            let leaving = self.leaving.extract_if(.., |(of, _), _| *of == group).flat_map(|(_, gone)| gone);
            for caller in self.parked.leave(group).into_iter().chain(leaving) {
                answers.push((caller, ask_again(host, group)));
            }
        }
        self.look_for_unheard(host);
        self.answer_held(host, answers);
        let events_lost = self.planted.is(Bug::WatchSkipsBatch);
        self.watchers.serve(output, host, events_lost, answers);
    }

    /// Answers a proposal; gives it back if it is not one of ours.
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
                // It is told to ask again, so it does not stand by what an earlier attempt of the same call waits for.
                if let Some((_, (wait, attended))) = self.parked.remove(caller.key()) {
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

    /// A request waits: so does its caller.
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
            // It was proposed while this node led. A follower may skip entries by a snapshot, and never tell.
            answers.push((caller, ask_again(host, group)));
            return;
        }
        let told = caller.clone();
        self.attendance.forget((group, create_revision));
        let parked = self.parked.park((group, create_revision), caller, attended, request);
        let answer =
            if parked { Answer::Queued { create_revision, position } } else { Answer::Crowded { group } };
        answers.push((told, answer));
    }

    /// A request's wait was cancelled. If another request shares the wait, that goes on, and no entry tells of an end.
    fn cancelled(&mut self, request: RequestKey, revision: Revision, answers: &mut Vec<(C, Answer<R>)>) {
        let (callers, wait) = self.parked.cancelled(request);
        let Some((wait, attended)) = wait else { return };
        // If the wait is over, an entry of this turn says so, and it is forgotten again.
        self.left(wait, attended);
        let create_revision = wait.1;
        let outcome = WaitOutcome::Ended(EndReason::Cancelled);
        let told = callers.into_iter();
        answers.extend(told.map(|caller| (caller, Answer::Resolved { create_revision, revision, outcome })));
    }

    /// Answers those who look busy still, once all that was asked for before them is answered.
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
                // Free by now: the log decides.
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

    /// Answers a read; gives it back if it is not one of ours.
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
            // Not to be confirmed: the log decides.
            (Reading::Busy(held), Err(_)) => {
                self.counts.fast_misses += 1;
                self.again.push((caller, held.group, held.command));
            }
        }
        None
    }
}

/// Whether this node leads and, as far as it knows, a lock request that does not wait would be told that it is busy.
fn looks_busy(host: &Host, group: GroupId, acquire: &AcquireLock) -> bool {
    let (Some(at), Some(state)) = (host.log_time(group), host.state(group)) else { return false };
    state.would_be_busy(acquire, at)
}

fn ask_again<R>(host: &Host, group: GroupId) -> Answer<R> {
    Answer::AskAgain { group, leader: host.leader(group) }
}

/// The group in which this node no longer leads, or has skipped entries.
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
