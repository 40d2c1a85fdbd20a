//! A leader's letters about leases that live in one group and hold locks in another.
//!
//! The open matters are in the state: stubs that are not confirmed by their home, and ended leases whose end was not
//! acknowledged by all groups. A leader goes through both, a page at a time, and repeats letters about matters that
//! were not settled in a while. A received letter becomes a command; its answer is written when the command has been
//! applied, so an answer never promises what could be lost. Periodically a group asks the homes of all its stubs
//! whether the leases live; a home answers only after a quorum has confirmed it.

use super::Replica;
use crate::letter::{LEASES_MAX, LeaseKey, Letter};
use crate::moment::Moment;
use crate::output::ReadId;
use crate::planted::Bug;
use crate::proposals::Asker;
use crate::turn::Turn;
use std::collections::{BTreeMap, BTreeSet};
use tollgate_core::{AckLeaseEnd, Command, ConfirmStub, EndStub, LeaseEnd, RegisterStub, Reply};
use tollgate_types::{GroupId, LeaseId, NodeId, Revision};

/// A letter is repeated if its matter was not settled within this time.
const RETELL_MS: u64 = 200;
/// Stubs and ends visited in one turn.
const PAGE: usize = 128;
/// Audits that wait for a quorum's confirmation; further audits are dropped and come again.
const AUDITS_MAX: usize = 64;
/// Bit that marks the read ids reserved for the host.
const OWN_READ: u64 = 1 << 63;

#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// Time of the last letter to each group about each lease.
    told: BTreeMap<(LeaseKey, GroupId), Moment>,
    forgot_at: Moment,
    /// Letters whose commands are queued or in the log, so that a repeated letter does not add its command again.
    in_log: BTreeSet<(LeaseKey, Errand)>,
    pending_after: Option<LeaseId>,
    ends_after: Option<(LeaseId, Revision, GroupId)>,
    audit_after: Option<LeaseId>,
    audit_at: Option<Moment>,
    audits: BTreeMap<ReadId, (GroupId, Vec<LeaseKey>)>,
    reads: u64,
}

impl Exchange {
    /// Forgets all letters: after a change of leadership everything is written anew.
    pub(super) fn reset(&mut self) {
        *self = Exchange { reads: self.reads, ..Exchange::default() };
    }

    /// Forgets old letters, rarely enough to cost little even if very many are unanswered by a silent group.
    fn forget_old(&mut self, now: Moment) {
        if now >= self.forgot_at.after_ms(RETELL_MS) {
            self.told.retain(|_, at| now < at.after_ms(RETELL_MS));
            self.forgot_at = now;
        }
    }

    fn should_tell(&mut self, key: LeaseKey, group: GroupId, now: Moment) -> bool {
        let due = self.told.get(&(key, group)).is_none_or(|at| now >= at.after_ms(RETELL_MS));
        if due {
            self.told.insert((key, group), now);
        }
        due
    }
}

impl Replica {
    /// Writes the due letters at the end of a leader's turn.
    pub(super) fn correspond(&mut self, turn: &mut Turn) {
        if self.clock.is_none() || !self.raw.raft.apply_to_current_term() {
            return;
        }
        self.exchange.forget_old(turn.now);
        self.register_stubs(turn);
        self.tell_ends(turn);
        self.audit_stubs(turn);
    }

    fn register_stubs(&mut self, turn: &mut Turn) {
        let Some(state) = &self.state else { return };
        let page = state.pending_stubs(self.exchange.pending_after, PAGE);
        self.exchange.pending_after = (page.len() == PAGE).then(|| page[PAGE - 1].lease);
        for stub in page {
            let key = LeaseKey { lease: stub.lease, incarnation: stub.incarnation };
            if self.exchange.should_tell(key, stub.home, turn.now) {
                turn.post(stub.home, Letter::Register { from: self.group, key, added: stub.added });
            }
        }
    }

    fn tell_ends(&mut self, turn: &mut Turn) {
        let Some(state) = &self.state else { return };
        let page = state.unacked_ends(self.exchange.ends_after, PAGE);
        let last = page.last().map(|end| (end.lease, end.incarnation, end.group));
        self.exchange.ends_after = last.filter(|_| page.len() == PAGE);
        for end in page {
            let key = LeaseKey { lease: end.lease, incarnation: end.incarnation };
            if !self.exchange.should_tell(key, end.group, turn.now) {
                continue;
            }
            if turn.planted.is(Bug::LeaseEndLost) {
                let acked = Letter::EndAcked { from: end.group, key };
                self.letter(acked, turn);
            } else {
                turn.post(end.group, Letter::Ended { home: self.group, key, reason: end.reason });
            }
        }
    }

    fn audit_stubs(&mut self, turn: &mut Turn) {
        let Some(state) = &self.state else { return };
        let exchange = &mut self.exchange;
        let next = *exchange.audit_at.get_or_insert(turn.now.after_ms(turn.config.audit_ms));
        if turn.now < next {
            return;
        }
        let page = state.stubs(exchange.audit_after, PAGE);
        exchange.audit_after = (page.len() == PAGE).then(|| page[PAGE - 1].lease);
        let whole = exchange.audit_after.is_none();
        exchange.audit_at = Some(if whole { turn.now.after_ms(turn.config.audit_ms) } else { turn.now });
        let mut by_home: BTreeMap<GroupId, Vec<LeaseKey>> = BTreeMap::new();
        for stub in page {
            let key = LeaseKey { lease: stub.lease, incarnation: stub.incarnation };
            by_home.entry(stub.home).or_default().push(key);
        }
        for (home, keys) in by_home {
            turn.post(home, Letter::Audit { from: self.group, keys });
        }
    }

    /// The node that receives letters for this group: the group's leader, as far as this node knows. A removed node
    /// does not learn of later leaders, but may still lead other groups: it writes to the voters that it knows in turn,
    /// and they pass its letters on.
    pub(crate) fn takes_letters(&self, now: Moment) -> Option<NodeId> {
        if !self.removed {
            return self.leader();
        }
        let voters = self.members.voters.len();
        let turn = usize::try_from(now.us() / 1_000 / RETELL_MS).ok()?.checked_rem(voters)?;
        self.members.voters.iter().nth(turn).copied()
    }

    /// The leader to which a letter from `from` is passed on, because `from` is not a member and may not know the
    /// leader. Letters from members are not passed on: so none is forwarded endlessly between nodes that take each
    /// other for the leader.
    pub(crate) fn passes_on(&self, from: NodeId) -> Option<NodeId> {
        let lost = !self.leads() && !self.removed && !self.members.contains(from);
        self.leader().filter(|leader| lost && *leader != self.node)
    }

    /// Handles a letter to this group's leader.
    pub(crate) fn letter(&mut self, letter: Letter, turn: &mut Turn) {
        let serves = self.clock.is_some() && self.raw.raft.apply_to_current_term() && !self.removed;
        if !serves || self.lacks_room(turn) || turn.shutting_down {
            return; // It comes again, to whoever leads then.
        }
        match letter {
            Letter::Audit { from, keys } => self.begin_audit(from, keys, turn),
            Letter::Gone { keys } => {
                for key in keys {
                    self.carry_out(Letter::Registered { key, added: Revision::ZERO, lives: false }, turn);
                }
            }
            letter => self.carry_out(letter, turn),
        }
    }

    /// Queues a letter's command, unless it is in the log already or too many proposals are: then the letter comes
    /// again.
    fn carry_out(&mut self, letter: Letter, turn: &Turn) {
        if self.proposals.len() + self.queue.len() >= turn.config.proposals_max {
            return;
        }
        let (key, errand) = errand_of(&letter);
        if self.exchange.in_log.insert((key, errand)) {
            self.queue.push((Asker::Letter(letter), Box::new(errand.command(key))));
        }
    }

    /// Forgets a letter whose command will not be applied.
    pub(super) fn letter_dropped(&mut self, letter: &Letter) {
        self.exchange.in_log.remove(&errand_of(letter));
    }

    /// Answers a letter whose command has been applied.
    pub(super) fn letter_applied(&mut self, letter: &Letter, reply: &Reply, turn: &mut Turn) {
        self.letter_dropped(letter);
        match *letter {
            Letter::Register { from, key, added } => {
                let lives = match reply {
                    Reply::StubRegistered => true,
                    Reply::LeaseUnknown => false,
                    // A limit was reached: the stub stays pending, and is registered once there is room.
                    _ => return,
                };
                turn.post(from, Letter::Registered { key, added, lives });
            }
            Letter::Ended { home, key, .. } => turn.post(home, Letter::EndAcked { from: self.group, key }),
            _ => {}
        }
    }

    fn begin_audit(&mut self, from: GroupId, keys: Vec<LeaseKey>, turn: &Turn) {
        if self.exchange.audits.len() >= AUDITS_MAX || keys.len() > LEASES_MAX {
            return;
        }
        self.exchange.reads += 1;
        let read = ReadId(OWN_READ | self.exchange.reads);
        self.exchange.audits.insert(read, (from, keys));
        self.reads.ask(read, turn.now);
    }

    /// Handles the end of a read of the host's own. Returns false if the read is a caller's.
    pub(super) fn own_read(&mut self, read: ReadId, confirmed: bool, turn: &mut Turn) -> bool {
        if read.0 & OWN_READ == 0 {
            return false;
        }
        let audit = self.exchange.audits.remove(&read);
        if let (Some((from, mut keys)), Some(state), true) = (audit, &self.state, confirmed) {
            keys.retain(|key| !state.lease_lives(key.lease, key.incarnation));
            if !keys.is_empty() {
                turn.post(from, Letter::Gone { keys });
            }
        }
        true
    }
}

/// Effect of a letter on a lease in the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Errand {
    Register(GroupId),
    Confirm(Revision),
    End(LeaseEnd),
    Acknowledge(GroupId),
}

fn errand_of(letter: &Letter) -> (LeaseKey, Errand) {
    match *letter {
        Letter::Register { from, key, .. } => (key, Errand::Register(from)),
        Letter::Registered { key, added, lives: true } => (key, Errand::Confirm(added)),
        Letter::Registered { key, lives: false, .. } => (key, Errand::End(LeaseEnd::Expired)),
        Letter::Ended { key, reason, .. } => (key, Errand::End(reason)),
        Letter::EndAcked { from, key } => (key, Errand::Acknowledge(from)),
        Letter::Audit { .. } | Letter::Gone { .. } => unreachable!("an audit and its answer are no errands"),
    }
}

impl Errand {
    fn command(self, key: LeaseKey) -> Command {
        let LeaseKey { lease, incarnation } = key;
        match self {
            Errand::Register(group) => Command::RegisterStub(RegisterStub { lease, incarnation, group }),
            Errand::Confirm(added) => Command::ConfirmStub(ConfirmStub { lease, incarnation, added }),
            Errand::End(reason) => Command::EndStub(EndStub { lease, incarnation, reason }),
            Errand::Acknowledge(group) => Command::AckLeaseEnd(AckLeaseEnd { lease, incarnation, group }),
        }
    }
}
