//! What a server does around a host: takes requests of clients, proposes and reads, and answers.
//!
//! Invariant: an answer is what the log or a confirmed read said, or an error that tells whether the request may still
//! take effect. A caller whose request queues is parked, and answered once: when its wait ends, or when this node no
//! longer leads and it must ask elsewhere, with the same seq. Nothing of it survives a crash. Not here: when clients
//! repeat themselves (`client`), and the ends of leases, which the world records for all nodes.

mod parked;
mod watchers;
mod wire;

pub use wire::{Answer, Ask, Request, Response};

use crate::types::{At, ClientNo};
use parked::{Parked, WaitKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tollgate_check::{CallId, Event, History, Holder};
use tollgate_core::{Command, ReleaseBy, RenewLeases, Renewal, Renewed, Reply, State};
use tollgate_replica::{
    Host, HostEvent, Output, ProposalId, ProposalOutcome, ProposalReply, ProposeError, ReadId, ReadReply,
    Role,
};
use tollgate_types::{GroupId, Key, LeaseId, Name, NodeId, Owner};
use watchers::Watchers;

/// Who asked, and what the answer must carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Caller {
    client: ClientNo,
    call: CallId,
    attempt: u32,
    group: GroupId,
}

/// A proposal under way.
#[derive(Debug)]
enum Proposed {
    /// A client's command; under which lease and owner it would wait.
    Command(Caller, Option<(LeaseId, Owner)>),
    /// The keepalives of a turn, in order.
    Renewals(Vec<Caller>),
}

/// What a read is about.
#[derive(Debug)]
enum Reading {
    Lock(Name),
    Register(Key),
}

/// The server around one node's host, from its start to its crash.
#[derive(Debug)]
pub struct Front {
    node: NodeId,
    /// The next id for a proposal or read.
    next_id: u64,
    proposed: BTreeMap<ProposalId, Proposed>,
    reading: BTreeMap<ReadId, (Caller, Reading)>,
    /// The keepalives of this turn.
    keepalives: BTreeMap<GroupId, Vec<(Caller, Renewal)>>,
    parked: Parked,
    watchers: Watchers,
    taken: Taken,
}

/// Ids of one start are below those of the next.
const IDS_PER_BOOT_BITS: u32 = 40;

impl Front {
    /// A server that has just started. `boot` is another number at each start of any node: ids of proposals and reads
    /// begin with it, so the world's own must begin with another.
    pub fn new(node: NodeId, boot: u64) -> Front {
        assert!(boot < 1 << (u64::BITS - IDS_PER_BOOT_BITS), "boot {boot} leaves no room for ids");
        Front {
            node,
            next_id: boot << IDS_PER_BOOT_BITS,
            proposed: BTreeMap::new(),
            reading: BTreeMap::new(),
            keepalives: BTreeMap::new(),
            parked: Parked::default(),
            watchers: Watchers::default(),
            taken: Taken::default(),
        }
    }

    /// Which node this is.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// A request has arrived. Between the host's begin and end of a turn.
    pub fn request(
        &mut self,
        from: ClientNo,
        request: Request,
        host: &mut Host,
        at: At,
        history: &mut History,
    ) {
        let Request { call, attempt, group, ask } = request;
        let caller = Caller { client: from, call, attempt, group };
        match ask {
            Ask::Command(command) => self.command(caller, *command, host, at, history),
            Ask::KeepAlive(renewal) => {
                if self.taken.is_new(caller) {
                    self.keepalives.entry(group).or_default().push((caller, renewal));
                }
            }
            Ask::ReadLock(name) => self.read(caller, Reading::Lock(name), host),
            Ask::ReadRegister(key) => self.read(caller, Reading::Register(key), host),
            Ask::Watch { watch, from, filter } => self.watchers.subscribe(caller, watch, from, filter, at),
        }
    }

    fn command(&mut self, caller: Caller, command: Command, host: &mut Host, at: At, history: &mut History) {
        if !has_seq(&command) && !self.taken.is_new(caller) {
            return;
        }
        if matches!(command, Command::GrantLease(_)) && leads(host, caller.group) {
            received(caller.call, at, history);
        }
        let waiter = waiter_of(&command);
        let id = ProposalId(self.fresh_id());
        self.proposed.insert(id, Proposed::Command(caller, waiter));
        host.propose(caller.group, id, command);
    }

    fn read(&mut self, caller: Caller, reading: Reading, host: &mut Host) {
        let id = ReadId(self.fresh_id());
        self.reading.insert(id, (caller, reading));
        host.read(caller.group, id);
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The turn is about to end: proposes the keepalives that it brought, one command a group.
    pub fn before_end_turn(&mut self, host: &mut Host, at: At, history: &mut History) {
        for (group, gathered) in std::mem::take(&mut self.keepalives) {
            if leads(host, group) {
                for (caller, _) in &gathered {
                    received(caller.call, at, history);
                }
            }
            let (callers, renewals) = gathered.into_iter().unzip();
            let id = ProposalId(self.fresh_id());
            self.proposed.insert(id, Proposed::Renewals(callers));
            host.propose(group, id, Command::RenewLeases(RenewLeases { renewals }));
        }
    }

    /// The turn has ended: takes its own replies and reads out of the output, leaves those of others, and answers.
    pub fn output(
        &mut self,
        output: &mut Output,
        host: &Host,
        at: At,
        _history: &mut History,
        out: &mut Vec<(ClientNo, Response)>,
    ) {
        let answer = &mut |caller: Caller, answer: Answer| {
            let Caller { client, call, attempt, group } = caller;
            out.push((client, Response { call, attempt, group, answer }));
        };
        // Replies first: what one of them parks, an entry of the same turn may resolve.
        let replies = std::mem::take(&mut output.replies);
        output.replies = replies.into_iter().filter_map(|reply| self.reply(reply, host, answer)).collect();
        let reads = std::mem::take(&mut output.reads);
        output.reads = reads.into_iter().filter_map(|read| self.read_reply(read, host, answer)).collect();
        for entry in &output.applied {
            for resolution in &entry.resolved {
                let (create_revision, outcome) = (resolution.create_revision, resolution.outcome);
                for caller in self.parked.resolve(entry.group, resolution) {
                    answer(caller, Answer::Resolved { create_revision, outcome });
                }
            }
        }
        for group in output.events.iter().filter_map(left_group) {
            for caller in self.parked.leave(group) {
                answer(caller, not_leader(host, group));
            }
        }
        self.serve_watchers(output, host, at, answer);
    }

    /// Answers a proposal; gives it back if it is not one of ours.
    fn reply(
        &mut self,
        reply: ProposalReply,
        host: &Host,
        answer: &mut dyn FnMut(Caller, Answer),
    ) -> Option<ProposalReply> {
        let Some(proposed) = self.proposed.remove(&reply.proposal) else { return Some(reply) };
        match (reply.result, proposed) {
            (Ok(ProposalOutcome::Applied(applied)), Proposed::Command(caller, waiter)) => {
                self.applied(caller, waiter, applied.reply, host, answer);
            }
            (Ok(ProposalOutcome::Applied(applied)), Proposed::Renewals(callers)) => {
                renewed(callers, applied.reply, answer);
            }
            (Ok(ProposalOutcome::Members(members)), proposed) => {
                unreachable!("{proposed:?} is no change of membership: {members:?}")
            }
            (Err(error), Proposed::Command(caller, _)) => answer(caller, Answer::NotDone(error)),
            (Err(error), Proposed::Renewals(callers)) => {
                for caller in callers {
                    answer(caller, Answer::NotDone(error.clone()));
                }
            }
        }
        None
    }

    fn applied(
        &mut self,
        caller: Caller,
        waiter: Option<(LeaseId, Owner)>,
        reply: Reply,
        host: &Host,
        answer: &mut dyn FnMut(Caller, Answer),
    ) {
        let Reply::Queued { create_revision, position } = reply else {
            answer(caller, Answer::Reply(Box::new(reply)));
            return;
        };
        let group = caller.group;
        if !leads(host, group) {
            // It was proposed while this node led. A follower may skip entries by a snapshot, and never tell.
            answer(caller, not_leader(host, group));
            return;
        }
        let (lease, owner) = waiter.expect("only commands of an owner queue");
        self.parked.park(WaitKey { group, lease, owner, create_revision }, caller);
        answer(caller, Answer::Queued { position });
    }

    /// Answers a read; gives it back if it is not one of ours.
    fn read_reply(
        &mut self,
        reply: ReadReply,
        host: &Host,
        answer: &mut dyn FnMut(Caller, Answer),
    ) -> Option<ReadReply> {
        let Some((caller, reading)) = self.reading.remove(&reply.read) else { return Some(reply) };
        match reply.result {
            Ok(()) => {
                let state = host.state(reply.group).expect("a confirmed read has a state to look at");
                answer(caller, look(state, &reading));
            }
            Err(error) => answer(caller, Answer::NotRead(error)),
        }
        None
    }

    fn serve_watchers(
        &mut self,
        output: &Output,
        host: &Host,
        at: At,
        answer: &mut dyn FnMut(Caller, Answer),
    ) {
        let mut groups: BTreeSet<GroupId> = output.applied.iter().map(|entry| entry.group).collect();
        groups.extend(output.events.iter().filter_map(left_group));
        groups.extend(host.groups().filter(|group| self.watchers.has_fresh(*group)));
        for group in groups {
            if let Some(state) = host.state(group) {
                self.watchers.serve(group, state, at, answer);
            }
        }
    }
}

/// Requests without a seq that were taken already: a copy of one would have an effect of its own.
#[derive(Debug, Default)]
struct Taken {
    set: BTreeSet<(CallId, u32)>,
    order: VecDeque<(CallId, u32)>,
}

/// Far more than the network can hold copies of.
const TAKEN_MAX: usize = 10_000;

impl Taken {
    fn is_new(&mut self, caller: Caller) -> bool {
        let key = (caller.call, caller.attempt);
        if !self.set.insert(key) {
            return false;
        }
        self.order.push_back(key);
        if self.order.len() > TAKEN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
        true
    }
}

fn received(call: CallId, at: At, history: &mut History) {
    history.record(tollgate_check::At::from_us(at), Event::Received { call });
}

fn leads(host: &Host, group: GroupId) -> bool {
    host.status(group).is_some_and(|status| status.role == Role::Leader)
}

fn not_leader(host: &Host, group: GroupId) -> Answer {
    let leader = host.status(group).and_then(|status| status.leader);
    Answer::NotDone(ProposeError::NotLeader { group, leader })
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

/// Whether a repeat of the command is known as one.
pub(crate) fn has_seq(command: &Command) -> bool {
    match command {
        Command::AcquireLock(acquire) => acquire.request.is_some(),
        Command::ConvertLock(convert) => convert.request.is_some(),
        Command::ReleaseLock(release) => {
            matches!(&release.by, ReleaseBy::Holder { request: Some(_), .. })
        }
        Command::Txn(txn) => txn.request.is_some(),
        _ => false,
    }
}

fn waiter_of(command: &Command) -> Option<(LeaseId, Owner)> {
    match command {
        Command::AcquireLock(acquire) => Some((acquire.lease, acquire.owner.clone())),
        Command::ConvertLock(convert) => Some((convert.lease, convert.owner.clone())),
        _ => None,
    }
}

fn renewed(callers: Vec<Caller>, reply: Reply, answer: &mut dyn FnMut(Caller, Answer)) {
    match reply {
        Reply::LeasesRenewed(results) => {
            assert_eq!(callers.len(), results.len(), "one result per renewal");
            for (caller, result) in callers.into_iter().zip::<Vec<Renewed>>(results) {
                answer(caller, Answer::Renewed(result));
            }
        }
        other => {
            for caller in callers {
                answer(caller, Answer::Reply(Box::new(other.clone())));
            }
        }
    }
}

fn look(state: &State, reading: &Reading) -> Answer {
    let revision = state.revision();
    match reading {
        Reading::Lock(name) => {
            let view = state.lock(name);
            let holders = view.map_or_else(Vec::new, |view| view.holders);
            Answer::Lock { revision, holders: holders.into_iter().map(seen_holder).collect() }
        }
        Reading::Register(key) => {
            let found = state.register(key).map(|register| (register.value, register.mod_revision));
            Answer::Register { revision, found }
        }
    }
}

/// A holder as the history shows it.
pub(crate) fn seen_holder(holder: tollgate_core::HolderView) -> Holder {
    Holder { lease: holder.lease, owner: holder.owner, token: holder.token, mode: holder.mode }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_request_without_seq_is_taken_once() {
        let mut taken = Taken::default();
        let caller = |call, attempt| Caller {
            client: ClientNo(1),
            call: CallId(call),
            attempt,
            group: GroupId::new(0),
        };
        assert!(taken.is_new(caller(1, 1)));
        assert!(!taken.is_new(caller(1, 1)));
        assert!(taken.is_new(caller(1, 2)));
        for call in 2..20_000 {
            assert!(taken.is_new(caller(call, 1)));
        }
        assert_eq!(taken.set.len(), TAKEN_MAX);
    }
}
