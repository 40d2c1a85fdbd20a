//! A leader's group messages about leases that live in one group and hold locks in another.
//!
//! The open matters are in the state: stubs that are not confirmed by their home, and ended leases whose end was not
//! acknowledged by all groups. A leader goes through both, a page at a time, and repeats group messages about matters
//! that were not settled in a while. A received group message becomes a command; its answer is written when the command
//! has been applied, so an answer never promises what could be lost. Periodically a group asks the homes of all its
//! stubs whether the leases live; a home answers only after a quorum has confirmed it.

use super::Replica;
use crate::group_message::{GroupMessage, LEASES_MAX, LeaseKey};
use crate::monotonic_time::MonotonicTime;
use crate::output::ReadId;
use crate::planted::Bug;
use crate::proposals::Asker;
use crate::turn::Turn;
use std::collections::{BTreeMap, BTreeSet};
use tollgate_core::{AckLeaseEnd, Command, ConfirmStub, EndStub, LeaseEnd, RegisterStub, Reply};
use tollgate_types::{GroupId, LeaseId, NodeId, Revision};

/// A group message is repeated if its matter was not settled within this time.
const RETELL_MS: u64 = 200;
/// Stubs and ends visited in one turn.
const PAGE: usize = 128;
/// Audits that wait for a quorum's confirmation; further audits are dropped and come again.
const AUDITS_MAX: usize = 64;
/// Bit that marks the read ids reserved for the host.
const OWN_READ: u64 = 1 << 63;

#[derive(Debug, Default)]
pub(crate) struct GroupMessaging {
    /// Time of the last group message to each group about each lease.
    told: BTreeMap<(LeaseKey, GroupId), MonotonicTime>,
    forgot_at: MonotonicTime,
    /// Group messages whose commands are queued or in the log, so that a repeated group message does not add its
    /// command again.
    in_log: BTreeSet<(LeaseKey, LeaseTask)>,
    pending_after: Option<LeaseId>,
    ends_after: Option<(LeaseId, Revision, GroupId)>,
    audit_after: Option<LeaseId>,
    audit_at: Option<MonotonicTime>,
    audits: BTreeMap<ReadId, (GroupId, Vec<LeaseKey>)>,
    reads: u64,
}

impl GroupMessaging {
    /// Forgets all group messages: after a change of leadership everything is written anew.
    pub(super) fn reset(&mut self) {
        *self = GroupMessaging { reads: self.reads, ..GroupMessaging::default() };
    }

    /// Forgets old group messages, rarely enough to cost little even if very many are unanswered by a silent group.
    fn forget_old(&mut self, now: MonotonicTime) {
        if now >= self.forgot_at.after_ms(RETELL_MS) {
            self.told.retain(|_, at| now < at.after_ms(RETELL_MS));
            self.forgot_at = now;
        }
    }

    fn should_tell(&mut self, key: LeaseKey, group: GroupId, now: MonotonicTime) -> bool {
        let due = self.told.get(&(key, group)).is_none_or(|at| now >= at.after_ms(RETELL_MS));
        if due {
            self.told.insert((key, group), now);
        }
        due
    }
}

impl Replica {
    /// Writes the due group messages at the end of a leader's turn.
    pub(super) fn correspond(&mut self, turn: &mut Turn) {
        if self.clock.is_none() || !self.raw.raft.apply_to_current_term() {
            return;
        }
        self.group_messaging.forget_old(turn.now);
        self.register_stubs(turn);
        self.tell_ends(turn);
        self.audit_stubs(turn);
    }

    fn register_stubs(&mut self, turn: &mut Turn) {
        let Some(state) = &self.state else { return };
        let page = state.pending_stubs(self.group_messaging.pending_after, PAGE);
        self.group_messaging.pending_after = (page.len() == PAGE).then(|| page[PAGE - 1].lease);
        for stub in page {
            let key = LeaseKey { lease: stub.lease, incarnation: stub.incarnation };
            if self.group_messaging.should_tell(key, stub.home, turn.now) {
                turn.post(stub.home, GroupMessage::Register { from: self.group, key, added: stub.added });
            }
        }
    }

    fn tell_ends(&mut self, turn: &mut Turn) {
        let Some(state) = &self.state else { return };
        let page = state.unacked_ends(self.group_messaging.ends_after, PAGE);
        let last = page.last().map(|end| (end.lease, end.incarnation, end.group));
        self.group_messaging.ends_after = last.filter(|_| page.len() == PAGE);
        for end in page {
            let key = LeaseKey { lease: end.lease, incarnation: end.incarnation };
            if !self.group_messaging.should_tell(key, end.group, turn.now) {
                continue;
            }
            if turn.planted.is(Bug::LeaseEndLost) {
                let acked = GroupMessage::EndAcked { from: end.group, key };
                self.group_message(acked, turn);
            } else {
                turn.post(end.group, GroupMessage::Ended { home: self.group, key, reason: end.reason });
            }
        }
    }

    fn audit_stubs(&mut self, turn: &mut Turn) {
        let Some(state) = &self.state else { return };
        let group_messaging = &mut self.group_messaging;
        let next = *group_messaging.audit_at.get_or_insert(turn.now.after_ms(turn.config.audit_ms));
        if turn.now < next {
            return;
        }
        let page = state.stubs(group_messaging.audit_after, PAGE);
        group_messaging.audit_after = (page.len() == PAGE).then(|| page[PAGE - 1].lease);
        let whole = group_messaging.audit_after.is_none();
        group_messaging.audit_at =
            Some(if whole { turn.now.after_ms(turn.config.audit_ms) } else { turn.now });
        let mut by_home: BTreeMap<GroupId, Vec<LeaseKey>> = BTreeMap::new();
        for stub in page {
            let key = LeaseKey { lease: stub.lease, incarnation: stub.incarnation };
            by_home.entry(stub.home).or_default().push(key);
        }
        for (home, keys) in by_home {
            turn.post(home, GroupMessage::Audit { from: self.group, keys });
        }
    }

    /// The node that receives group messages for this group: the group's leader, as far as this node knows. A removed
    /// node does not learn of later leaders, but may still lead other groups: it writes to the voters that it knows in
    /// turn, and they pass its group messages on.
    pub(crate) fn takes_group_messages(&self, now: MonotonicTime) -> Option<NodeId> {
        if !self.removed {
            return self.leader();
        }
        let voters = self.members.voters.len();
        let turn = usize::try_from(now.us() / 1_000 / RETELL_MS).ok()?.checked_rem(voters)?;
        self.members.voters.iter().nth(turn).copied()
    }

    /// The leader to which a group message from `from` is passed on, because `from` is not a member and may not know
    /// the leader. Group messages from members are not passed on: so none is forwarded endlessly between nodes that
    /// take each other for the leader.
    pub(crate) fn passes_on(&self, from: NodeId) -> Option<NodeId> {
        let lost = !self.leads() && !self.removed && !self.members.contains(from);
        self.leader().filter(|leader| lost && *leader != self.node)
    }

    /// Handles a group message to this group's leader.
    pub(crate) fn group_message(&mut self, group_message: GroupMessage, turn: &mut Turn) {
        let serves = self.clock.is_some() && self.raw.raft.apply_to_current_term() && !self.removed;
        if !serves || self.lacks_room(turn) || turn.shutting_down {
            return; // It comes again, to whoever leads then.
        }
        match group_message {
            GroupMessage::Audit { from, keys } => self.begin_audit(from, keys, turn),
            GroupMessage::Gone { keys } => {
                for key in keys {
                    self.carry_out(
                        GroupMessage::Registered { key, added: Revision::ZERO, lives: false },
                        turn,
                    );
                }
            }
            group_message => self.carry_out(group_message, turn),
        }
    }

    /// Queues a group message's command, unless it is in the log already or too many proposals are: then the
    /// group message comes again.
    fn carry_out(&mut self, group_message: GroupMessage, turn: &Turn) {
        if self.proposals.len() + self.queue.len() >= turn.config.proposals_max {
            return;
        }
        let (key, task) = task_of(&group_message);
        if self.group_messaging.in_log.insert((key, task)) {
            self.queue.push((Asker::GroupMessage(group_message), Box::new(task.command(key))));
        }
    }

    /// Forgets a group message whose command will not be applied.
    pub(super) fn group_message_dropped(&mut self, group_message: &GroupMessage) {
        self.group_messaging.in_log.remove(&task_of(group_message));
    }

    /// Answers a group message whose command has been applied.
    pub(super) fn group_message_applied(
        &mut self,
        group_message: &GroupMessage,
        reply: &Reply,
        turn: &mut Turn,
    ) {
        self.group_message_dropped(group_message);
        match *group_message {
            GroupMessage::Register { from, key, added } => {
                let lives = match reply {
                    Reply::StubRegistered => true,
                    Reply::LeaseUnknown => false,
                    // A limit was reached: the stub stays pending, and is registered once there is room.
                    _ => return,
                };
                turn.post(from, GroupMessage::Registered { key, added, lives });
            }
            GroupMessage::Ended { home, key, .. } => {
                turn.post(home, GroupMessage::EndAcked { from: self.group, key });
            }
            _ => {}
        }
    }

    fn begin_audit(&mut self, from: GroupId, keys: Vec<LeaseKey>, turn: &Turn) {
        if self.group_messaging.audits.len() >= AUDITS_MAX || keys.len() > LEASES_MAX {
            return;
        }
        self.group_messaging.reads += 1;
        let read = ReadId(OWN_READ | self.group_messaging.reads);
        self.group_messaging.audits.insert(read, (from, keys));
        self.reads.ask(read, turn.now);
    }

    /// Handles the end of a read of the host's own. Returns false if the read is a caller's.
    pub(super) fn own_read(&mut self, read: ReadId, confirmed: bool, turn: &mut Turn) -> bool {
        if read.0 & OWN_READ == 0 {
            return false;
        }
        let audit = self.group_messaging.audits.remove(&read);
        if let (Some((from, mut keys)), Some(state), true) = (audit, &self.state, confirmed) {
            keys.retain(|key| !state.lease_lives(key.lease, key.incarnation));
            if !keys.is_empty() {
                turn.post(from, GroupMessage::Gone { keys });
            }
        }
        true
    }
}

/// Effect of a group message on a lease in the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LeaseTask {
    Register(GroupId),
    Confirm(Revision),
    End(LeaseEnd),
    Acknowledge(GroupId),
}

fn task_of(group_message: &GroupMessage) -> (LeaseKey, LeaseTask) {
    match *group_message {
        GroupMessage::Register { from, key, .. } => (key, LeaseTask::Register(from)),
        GroupMessage::Registered { key, added, lives: true } => (key, LeaseTask::Confirm(added)),
        GroupMessage::Registered { key, lives: false, .. } => (key, LeaseTask::End(LeaseEnd::Expired)),
        GroupMessage::Ended { key, reason, .. } => (key, LeaseTask::End(reason)),
        GroupMessage::EndAcked { from, key } => (key, LeaseTask::Acknowledge(from)),
        GroupMessage::Audit { .. } | GroupMessage::Gone { .. } => {
            unreachable!("an audit and its answer are no tasks")
        }
    }
}

impl LeaseTask {
    fn command(self, key: LeaseKey) -> Command {
        let LeaseKey { lease, incarnation } = key;
        match self {
            LeaseTask::Register(group) => Command::RegisterStub(RegisterStub { lease, incarnation, group }),
            LeaseTask::Confirm(added) => Command::ConfirmStub(ConfirmStub { lease, incarnation, added }),
            LeaseTask::End(reason) => Command::EndStub(EndStub { lease, incarnation, reason }),
            LeaseTask::Acknowledge(group) => Command::AckLeaseEnd(AckLeaseEnd { lease, incarnation, group }),
        }
    }
}
