//! Duties of a leader: stamps and proposes commands, lets time pass, changes the members, hands leadership over.
//!
//! Proposals are gathered for a moment while others are in flight, and packed into few entries, keepalives first: after
//! a pause a lease must not end because its keepalive was read last. Every stamp is at least the previous one in the
//! log, whichever leader made it.

use super::room::Room;
use super::{MemberProgress, Replica};
use crate::balance::Led;
use crate::log_entry::{BatchWriter, COMMAND_BYTES_MAX, last_raise, last_stamp};
use crate::log_time::LogClock;
use crate::members::{MEMBERS_MAX, MemberChange, MemberRefusal};
use crate::monotonic_time::MonotonicTime;
use crate::output::{ProposalId, ProposeError};
use crate::planted::Bug;
use crate::proposals::Asker;
use crate::storage::ReplicaKind;
use crate::transfer::Sending;
use crate::turn::Turn;
use raft::ProgressState;
use raft::eraftpb::ConfChangeV2;
use std::collections::BTreeSet;
use tollgate_core::{Command, Entry, entry_format};
use tollgate_types::{GroupId, Lineage, LogTime, NodeId};

/// Divisor of the election timeout: a leader whose disk is slower than the disks of a majority waits only this part for
/// it, because a leadership transfer costs only a few round trips.
const SLOWER_THAN_OTHERS: u64 = 4;

impl Replica {
    pub(super) fn start_leading(&mut self, turn: &Turn) {
        self.told_commit = 0;
        let Some(state) = &self.state else { return };
        let log = &self.raw.raft.raft_log;
        let in_log =
            log.unstable_entries().iter().rev().find_map(last_stamp).or_else(|| self.log().last_stamp());
        let mut base = in_log.unwrap_or(state.now());
        assert!(base >= state.now(), "the log's last stamp is not behind what was applied");
        if turn.planted.is(Bug::LogTimeFromZero) {
            base = LogTime::ZERO;
        }
        if turn.planted.is(Bug::LogTimeFromMemory) {
            base = base.max(self.highest_stamp);
        }
        self.log_version = self.version_in_log(state.apply_version());
        self.last_stamp = base;
        self.clock = Some(LogClock::start(base, turn.now));
    }

    /// The apply version in force after the last entry of the log, given the version of the applied state.
    fn version_in_log(&self, applied: u32) -> u32 {
        let log = &self.raw.raft.raft_log;
        let stored = self.log().entries_from(self.applied + 1);
        let all = stored.chain(log.unstable_entries());
        all.filter_map(last_raise).max().map_or(applied, |raised| raised.max(applied))
    }

    /// Drops the leader's state and refuses all proposals, because this node can no longer learn their outcomes.
    pub(super) fn stop_leading(&mut self, turn: &mut Turn) {
        self.clock = None;
        self.sending.clear();
        self.pins.clear();
        self.group_messaging.reset();
        let lost = self.proposals.take_all();
        self.refuse_all(lost, &ProposeError::Indeterminate { group: self.group }, turn);
        self.gathered_from = MonotonicTime::NEVER;
        self.hand_on_to = None;
        self.room = Room::default();
        let queue = std::mem::take(&mut self.queue);
        let error = self.not_leader();
        self.refuse_all(queue.into_iter().map(|(asker, _)| asker), &error, turn);
    }

    /// Queues a command for the end of this turn or slightly later, or refuses it at once.
    pub(crate) fn propose(&mut self, proposal: ProposalId, command: Box<Command>, turn: &mut Turn) {
        match self.objection(turn, &command) {
            Some(error) => turn.refuse(self.group, proposal, error),
            None => self.queue.push((Asker::Caller(proposal), command)),
        }
    }

    fn objection(&self, turn: &Turn, command: &Command) -> Option<ProposeError> {
        let group = self.group;
        if self.clock.is_none() || self.removed {
            return Some(self.not_leader());
        }
        if let Some(successor) = self.raw.raft.lead_transferee {
            return Some(ProposeError::NotLeader { group, leader: NodeId::new(successor) });
        }
        if turn.shutting_down {
            return Some(ProposeError::NotLeader { group, leader: None });
        }
        if self.lacks_room(turn) {
            return Some(self.no_room_for(turn, command));
        }
        if self.proposals.len() + self.queue.len() >= turn.config.proposals_max {
            return Some(ProposeError::Overloaded { group });
        }
        match command {
            Command::RaiseApplyVersion(version) => self.version_objection(*version, turn),
            _ => None,
        }
    }

    /// The objection to a raise of the apply version. It is raised only when every member is present and knows the
    /// version: a member that does not would have to stop. So would a member whose addition is in the log but not
    /// applied yet, which was not checked.
    fn version_objection(&self, version: u32, turn: &Turn) -> Option<ProposeError> {
        if self.raw.raft.has_pending_conf() {
            return Some(ProposeError::Refused(MemberRefusal::Busy));
        }
        let lacks = |node: &NodeId| {
            if *node == self.node {
                return turn.config.apply_version < version;
            }
            !turn.is_active(*node) || turn.peers.get(node).is_none_or(|peer| peer.apply_version < version)
        };
        let node = self.members.all().into_iter().find(lacks)?;
        Some(ProposeError::VersionUnsupported { node, version })
    }

    /// Raises the apply version once the last member that did not know a newer one is replaced. All members must be
    /// present and announce it now: an absent member may come back with an older binary.
    fn raise_version_if_all_know_it(&mut self, turn: &Turn) {
        let Some(state) = &self.state else { return };
        let known = turn.config.apply_version.min(tollgate_core::APPLY_VERSION_SUPPORTED);
        let current = state.apply_version();
        if known <= current || turn.now < self.raise_from {
            return;
        }
        let all_know = |version: &u32| self.objection(turn, &Command::RaiseApplyVersion(*version)).is_none();
        if let Some(version) = (current + 1..=known).rev().find(all_know) {
            self.queue.push((Asker::Nobody, Box::new(Command::RaiseApplyVersion(version))));
            // The command may be lost; a second one only reports that the version is in force already.
            self.raise_from = turn.now.after_ms(turn.config.election_timeout_ms);
        }
    }

    /// True if this replica leads, and its state has no lineage.
    pub(crate) fn lacks_lineage(&self) -> bool {
        self.leads() && self.state.as_ref().is_some_and(|state| state.lineage().is_none())
    }

    /// Proposes a lineage for a group without one, if its apply version has lineages. The map's group draws the
    /// lineage, once in the life of a cluster and of all clusters restored from it; the others take `known`, the
    /// lineage of that group.
    pub(crate) fn give_lineage(&mut self, known: Option<Lineage>, turn: &mut Turn) {
        let Some(state) = self.state.as_ref().filter(|_| self.serves()) else { return };
        if !state.takes_lineage() || state.lineage().is_some() || turn.now < self.lineage_from {
            return;
        }
        let lineage =
            if self.group == GroupId::MAP { Lineage::new(turn.randomness.next_u64()) } else { known };
        let Some(command) = lineage.map(Command::SetLineage) else { return };
        if self.objection(turn, &command).is_none() {
            self.queue.push((Asker::Nobody, Box::new(command)));
            // The command may be lost; a second one changes nothing.
            self.lineage_from = turn.now.after_ms(turn.config.election_timeout_ms);
        }
    }

    /// Performs the leader's duties at the end of a turn.
    pub(super) fn lead(&mut self, turn: &mut Turn) {
        if !self.leads() {
            return;
        }
        self.ask_comparison(turn);
        self.raise_version_if_all_know_it(turn);
        self.look_for_room(turn);
        self.propose_queue(turn);
        self.tick_if_due(turn);
        self.leave_joint(turn);
        self.stay_with_room(turn);
        if self.should_hand_on(turn) {
            self.room.gives_way = turn.disk_full;
            self.transfer_leadership(None, turn);
        }
        self.hand_on(turn);
    }

    /// True if the queue waits for more proposals. An entry has its cost, whatever its size: so proposals are gathered
    /// until there are as many as in flight, or until those are answered. While nothing is in flight no proposal waits,
    /// many simultaneous proposals share few entries, and where members are far from each other no proposal waits
    /// longer than `gather_ms`.
    fn gathers(&mut self, turn: &Turn) -> bool {
        if !self.has_more_on_its_way() {
            return false;
        }
        self.gathered_from = self.gathered_from.min(turn.now);
        turn.now < self.gathered_until(turn)
    }

    /// True if more proposals are in the log and not applied than are queued.
    pub(super) fn has_more_on_its_way(&self) -> bool {
        self.queue.len() < self.proposals.len()
    }

    /// Time at which gathering ends, whatever is in flight.
    pub(super) fn gathered_until(&self, turn: &Turn) -> MonotonicTime {
        self.gathered_from.after_ms(turn.config.gather_ms)
    }

    fn propose_queue(&mut self, turn: &mut Turn) {
        if !self.queue.is_empty() && !self.gathers(turn) {
            self.propose_all(turn);
        }
    }

    fn propose_all(&mut self, turn: &mut Turn) {
        let Some(clock) = self.clock else { return };
        self.gathered_from = MonotonicTime::NEVER;
        let at = clock.now().max(self.last_stamp);
        let mut queue = std::mem::take(&mut self.queue);
        keepalives_first(&mut queue);
        if turn.planted.is(Bug::ProposedTwice) {
            let copy = queue.last().map(|(_, command)| (Asker::Nobody, command.clone()));
            queue.extend(copy);
        }
        let mut writer = BatchWriter::default();
        let mut askers = Vec::with_capacity(queue.len());
        let mut batch = Vec::with_capacity(queue.len());
        raises_last(&mut queue);
        let format = entry_format(self.log_version);
        for (asker, mut command) in queue {
            // The commands kept here must equal those that other replicas decode.
            if !turn.planted.is(Bug::OldFormatOverfilled) {
                command.fit_into(format);
            }
            let bytes = writer.encode(format, (at, turn.wall), &command);
            if bytes > COMMAND_BYTES_MAX {
                // No frame could carry the command: it would stay in the log for ever, and block all entries after it.
                let error = ProposeError::TooLong { bytes, bytes_max: COMMAND_BYTES_MAX };
                self.refuse_all([asker], &error, turn);
                continue;
            }
            if writer.len() + bytes > COMMAND_BYTES_MAX {
                self.propose_batch(at, &mut writer, &mut askers, &mut batch, turn);
            }
            writer.add();
            askers.push(asker);
            batch.push(command);
            if writer.len() >= turn.config.entry_bytes_max {
                self.propose_batch(at, &mut writer, &mut askers, &mut batch, turn);
            }
        }
        self.propose_batch(at, &mut writer, &mut askers, &mut batch, turn);
    }

    fn propose_batch(
        &mut self,
        at: LogTime,
        writer: &mut BatchWriter,
        askers: &mut Vec<Asker>,
        batch: &mut Vec<Box<Command>>,
        turn: &mut Turn,
    ) {
        if batch.is_empty() {
            return;
        }
        let (askers, batch) = (std::mem::take(askers), std::mem::take(batch));
        if self.raw.propose(Vec::new(), writer.take()).is_err() {
            // Too many bytes are uncommitted: Raft put nothing into the log.
            return self.refuse_all(askers, &ProposeError::Overloaded { group: self.group }, turn);
        }
        self.last_stamp = at;
        for command in &batch {
            if let Command::RaiseApplyVersion(version) = **command {
                self.log_version = self.log_version.max(version);
            }
        }
        // The entry is sent to all followers that are up to date, and the commit index with it.
        self.told_commit = self.raw.raft.raft_log.committed;
        let keepalives = batch.iter().all(|command| matches!(**command, Command::RenewLeases(_)));
        let early = turn.planted.is(Bug::AnsweredBeforeCommit)
            || (turn.planted.is(Bug::KeepaliveAckedByDeposed) && keepalives);
        if early {
            return self.answer_early(askers, at, batch, turn);
        }
        let (index, term) = (self.raw.raft.raft_log.last_index(), self.raw.raft.term);
        self.proposals.push((index, term), turn.now, askers, (at, turn.wall, batch));
    }

    /// Implements a planted bug: answers with the outcome that the command would have on a copy of the current state.
    fn answer_early(&mut self, askers: Vec<Asker>, at: LogTime, batch: Vec<Box<Command>>, turn: &mut Turn) {
        let state = self.state.as_ref().expect("a leader that proposes keeps state");
        let mut reader = tollgate_core::SnapshotReader::new();
        for chunk in state.snapshot().chunks(1 << 20) {
            reader.push(&chunk).expect("a snapshot of our own");
        }
        let mut copy = reader.finish().expect("a snapshot of our own");
        for (asker, command) in askers.into_iter().zip(batch) {
            let mut applied = copy.apply(Entry::new(at.max(copy.now()), *command));
            (applied.resolved, applied.ended_leases) = (Vec::new(), Vec::new());
            self.reply(&asker, applied, turn);
        }
    }

    /// Proposes a tick if time must pass for a pending deadline and no other entry carries the time.
    fn tick_if_due(&mut self, turn: &mut Turn) {
        let (Some(clock), Some(state)) = (self.clock, &self.state) else { return };
        let Some(deadline) = state.next_deadline() else { return };
        // Gathered commands carry the time.
        let none = turn.planted.is(Bug::NoTicks) || self.lacks_room(turn) || !self.queue.is_empty();
        // During a leadership transfer Raft takes no proposals.
        if none || self.raw.raft.lead_transferee.is_some() {
            return;
        }
        let now = clock.now();
        let all_applied = self.applied == self.raw.raft.raft_log.last_index();
        let due = deadline <= now && self.last_stamp < deadline;
        let silent = now.ms() >= self.last_stamp.ms() + turn.config.tick_ms;
        // One entry ends a limited number of claims; the rest is already due.
        let backlog = deadline <= state.now() && all_applied;
        if due || silent || backlog {
            self.queue.push((Asker::Nobody, Box::new(Command::Tick)));
            self.propose_queue(turn);
        }
    }

    /// Sends the commit index to the followers, which normally learn it with the next entries, if none have followed
    /// soon.
    pub(super) fn tell_commit_if_due(&mut self, turn: &Turn) {
        // Gathered commands are sent soon, and carry the commit index.
        let due = turn.now >= self.untold_since.after_ms(turn.config.commit_told_ms) && self.queue.is_empty();
        if self.leads() && due && !turn.planted.is(Bug::CommitNotTold) {
            self.raw.raft.bcast_append();
            // A follower that can't be sent anything now learns it with the heartbeats; and there may be no follower.
            self.told_commit = self.raw.raft.raft_log.committed;
        }
    }

    /// Records since when there is a commit index to tell.
    pub(super) fn note_untold_commit(&mut self, turn: &Turn) {
        if !self.leads() || self.raw.raft.raft_log.committed <= self.told_commit {
            self.untold_since = MonotonicTime::NEVER;
        } else if self.untold_since == MonotonicTime::NEVER || self.untold_behind != self.told_commit {
            // While entries keep following, they carry the commit index.
            (self.untold_since, self.untold_behind) = (turn.now, self.told_commit);
        }
    }

    /// Time at which a tick is due, on this node's clock.
    pub(super) fn next_stamp(&self, turn: &Turn) -> MonotonicTime {
        let (Some(clock), Some(state)) = (self.clock, &self.state) else { return MonotonicTime::NEVER };
        let Some(deadline) = state.next_deadline() else { return MonotonicTime::NEVER };
        if self.lacks_room(turn) || self.raw.raft.lead_transferee.is_some() {
            return MonotonicTime::NEVER; // Nothing can be proposed; Raft's ticks come round in any case.
        }
        if deadline <= state.now() && self.applied == self.raw.raft.raft_log.last_index() {
            return turn.now; // What is due is more than one entry ends: the rest follows at once.
        }
        let silence = LogTime::from_ms(self.last_stamp.ms() + turn.config.tick_ms);
        let due = if self.last_stamp < deadline { deadline.min(silence) } else { silence };
        // A tick that is already due was proposed in this turn, or is gathered, or Raft has no room for it.
        turn.now.after_ms(clock.ms_until(due).max(1))
    }

    /// Leaves a joint configuration if Raft did not. Raft does so by itself, unless the leader changed at the wrong
    /// moment.
    fn leave_joint(&mut self, turn: &mut Turn) {
        let raft = &self.raw.raft;
        let stuck = self.members.is_joint() && !raft.has_pending_conf() && raft.apply_to_current_term();
        if stuck && raft.lead_transferee.is_none() {
            // Raft refuses if it can't leave now; the next turn tries again.
            let _ = self.raw.propose_conf_change(Vec::new(), ConfChangeV2::default());
            self.observe(turn);
        }
    }

    /// True if leadership should be handed over: by a witness, or by a node that can't write or is about to stop.
    fn should_hand_on(&self, turn: &Turn) -> bool {
        let unfit = self.kind == ReplicaKind::Witness
            || turn.disk_full
            || turn.shutting_down
            || self.disk_hangs(turn);
        // Disks that are filled by the same entries get full at the same time: the others may be about to report it.
        let too_soon = turn.disk_full && turn.now < turn.full_since.after_ms(turn.config.heartbeat_ms);
        let in_vain = too_soon || (turn.disk_full && !self.could_elect_another(turn));
        let raft = &self.raw.raft;
        unfit && !in_vain && raft.lead_transferee.is_none() && raft.commit_to_current_term()
    }

    /// True if this node's disk is so slow that another node would lead better.
    fn disk_hangs(&self, turn: &Turn) -> bool {
        // A write that is not durable can't be applied, though the others may commit it.
        let oldest = self.outstanding.front().map_or(MonotonicTime::NEVER, |outstanding| outstanding.since);
        // While the others have the awaited entries, this disk alone keeps callers waiting.
        let log = &self.raw.raft.raft_log;
        let patience = if log.committed > log.persisted { SLOWER_THAN_OTHERS } else { 1 };
        turn.now >= oldest.after_ms(turn.config.election_timeout_ms / patience)
    }

    /// True if leadership is being handed to another node.
    pub(crate) fn hands_on(&self) -> bool {
        self.hand_on_to.is_some() || (self.leads() && self.raw.raft.lead_transferee.is_some())
    }

    /// Hands leadership to `to`, or to the full voter that has most of the log, at the end of the turn: commands that
    /// arrive until then are proposed before, keepalives first. Leadership is not handed to a node that could not take
    /// over: nothing would be proposed until Raft gives up, an election timeout later.
    pub(crate) fn transfer_leadership(&mut self, to: Option<NodeId>, turn: &Turn) {
        if self.leads() {
            // What was ordered is not given up because there is room again.
            self.room.gives_way &= to.is_none();
            self.hand_on_to = match to {
                Some(to) => Some(to).filter(|to| self.is_fit(*to, turn)),
                None => self.best_successor(turn),
            };
        }
    }

    fn hand_on(&mut self, turn: &mut Turn) {
        if let Some(to) = self.hand_on_to.take() {
            // From now on Raft takes no proposals.
            self.propose_all(turn);
            self.raw.transfer_leader(to.number());
            self.observe(turn);
        }
    }

    /// This group with the nodes that could lead it as well; none if it is not led by this node, or is in a state of
    /// change.
    pub(crate) fn may_hand_on(&self, turn: &Turn) -> Option<Led> {
        let settled = self.leads()
            && self.raw.raft.lead_transferee.is_none()
            && self.raw.raft.apply_to_current_term()
            && !self.members.is_joint();
        if !settled {
            return None;
        }
        let (prs, committed) = (self.raw.raft.prs(), self.raw.raft.raft_log.committed);
        let caught_up =
            |node: NodeId| prs.get(node.number()).is_some_and(|progress| progress.matched >= committed);
        let fit = |node: &NodeId| self.is_fit(*node, turn) && !turn.is_left_alone(*node) && caught_up(*node);
        Some(Led { group: self.group, successors: self.members.voters.iter().copied().filter(fit).collect() })
    }

    /// Hands leadership over for balance, with a shorter timeout than the one for a silent leader.
    pub(crate) fn balance(&mut self, to: NodeId, turn: &Turn) {
        self.transfer_leadership(Some(to), turn);
        self.balanced_until = turn.now.after_ms(turn.config.failover_ms);
    }

    /// Aborts a transfer for balance that takes too long. A node that is caught up takes over within some round trips,
    /// or not at all: then nothing would be proposed, and no lease end, until Raft gives up after an election timeout.
    pub(super) fn give_up_balancing(&mut self, turn: &mut Turn) {
        if turn.now < self.balanced_until {
            return;
        }
        self.balanced_until = MonotonicTime::NEVER;
        if let Some(to) = self.raw.raft.lead_transferee.filter(|_| self.leads()).and_then(NodeId::new) {
            self.raw.raft.abort_leader_transfer();
            turn.leave_alone(to);
        }
    }

    /// True if another node could lead. A node that has just died, or is about to stop, leads no group, so it would be
    /// the choice of every leader.
    fn is_fit(&self, node: NodeId, turn: &Turn) -> bool {
        let may = node != self.node && !self.members.witnesses.contains(&node);
        may && self.answers(node, turn)
    }

    pub(super) fn best_successor(&self, turn: &Turn) -> Option<NodeId> {
        let prs = self.raw.raft.prs();
        let fit = |node: &&NodeId| self.is_fit(**node, turn);
        let matched = |node: &&NodeId| prs.get(node.number()).map_or(0, |progress| progress.matched);
        self.members.voters.iter().filter(fit).max_by_key(matched).copied()
    }

    /// Proposes a change of membership, or refuses it at once.
    pub(crate) fn change_members(&mut self, proposal: ProposalId, change: &MemberChange, turn: &mut Turn) {
        // A witness may change the members too: it may be the only one left to lead.
        let error = if !self.leads() || self.removed || self.raw.raft.lead_transferee.is_some() {
            Some(self.not_leader())
        } else if self.lacks_room(turn) {
            Some(self.no_room(turn))
        } else if let Some(refusal) = self.refusal(change, turn) {
            Some(ProposeError::Refused(refusal))
        } else if change.removes(self.node) {
            self.transfer_leadership(None, turn);
            Some(ProposeError::NotLeader { group: self.group, leader: None })
        } else {
            None
        };
        if let Some(error) = error {
            return turn.refuse(self.group, proposal, error);
        }
        if self.raw.propose_conf_change(Vec::new(), change.to_raft()).is_err() {
            return turn.refuse(self.group, proposal, ProposeError::Overloaded { group: self.group });
        }
        let (index, term) = (self.raw.raft.raft_log.last_index(), self.raw.raft.term);
        let nothing = (self.last_stamp, turn.wall, Vec::new());
        self.proposals.push((index, term), turn.now, vec![Asker::Caller(proposal)], nothing);
    }

    fn refusal(&self, change: &MemberChange, turn: &Turn) -> Option<MemberRefusal> {
        if self.raw.raft.has_pending_conf() || self.members.is_joint() {
            return Some(MemberRefusal::Busy);
        }
        match *change {
            MemberChange::AddLearner { node, .. } => {
                if node.number() < self.members.next_node || node.number() == u64::MAX {
                    return Some(MemberRefusal::IdUsed { node, next: self.members.next_node });
                }
                (self.members.all().len() >= MEMBERS_MAX).then_some(MemberRefusal::TooMany)
            }
            MemberChange::Promote { node } => self.promotion_refusal(node, turn),
            MemberChange::Remove { node } => {
                if !self.members.contains(node) {
                    return Some(MemberRefusal::NotMember { node });
                }
                self.quorum_refusal(Some(node), None, turn)
            }
            MemberChange::Replace { out, by } => {
                if !self.members.voters.contains(&out) {
                    return Some(MemberRefusal::NotVoter { node: out });
                }
                self.promotion_refusal(by, turn).or_else(|| self.quorum_refusal(Some(out), Some(by), turn))
            }
        }
    }

    fn promotion_refusal(&self, node: NodeId, turn: &Turn) -> Option<MemberRefusal> {
        if !self.members.contains(node) {
            return Some(MemberRefusal::NotMember { node });
        }
        if !self.members.learners.contains(&node) {
            return Some(MemberRefusal::NotLearner { node });
        }
        let MemberProgress { behind, caught_up, .. } = self.progress_of(node, turn);
        (!caught_up).then_some(MemberRefusal::NotCaughtUp { node, behind })
    }

    /// Replication progress of every other member; none unless this replica leads.
    pub(crate) fn progress(&self, turn: &Turn) -> Option<Vec<MemberProgress>> {
        let others = self.members.all().into_iter().filter(|node| *node != self.node);
        self.leads().then(|| others.map(|node| self.progress_of(node, turn)).collect())
    }

    fn progress_of(&self, node: NodeId, turn: &Turn) -> MemberProgress {
        let raft = &self.raw.raft;
        let progress = raft.prs().get(node.number());
        let matched = progress.map_or(0, |progress| progress.matched);
        let behind = raft.raft_log.last_index().saturating_sub(matched);
        let active = self.answers(node, turn);
        // A member whose log ends before the leader's begins needs a snapshot first, however few entries it lacks. With
        // a vote it could keep the group from committing for as long as that takes.
        let awaits_snapshot = progress.is_some_and(|progress| progress.state == ProgressState::Snapshot);
        let by_entries = matched + 1 >= raft.raft_log.first_index() && !awaits_snapshot;
        let caught_up = matched > 0 && by_entries && behind <= turn.config.promote_behind_max && active;
        let sending = self.sending.get(&node);
        MemberProgress {
            node,
            matched,
            behind,
            active,
            caught_up,
            connected: turn.is_active(node),
            snapshot_received_bytes: sending.map_or(0, Sending::received_bytes),
            snapshot_bytes: sending.map_or(0, |sending| sending.file.size),
        }
    }

    /// True if a member can be relied on: it has recently sent a message in this group, its connection has not broken
    /// since, it is not about to stop, and its disk has room.
    pub(super) fn answers(&self, node: NodeId, turn: &Turn) -> bool {
        let connected = turn.is_active(node) || turn.planted.is(Bug::BrokenConnectionAnswers);
        self.is_active(node, turn) && connected && !turn.is_unfit(node)
    }

    /// Refuses a change that does not leave a quorum of reachable voters.
    fn quorum_refusal(&self, out: Option<NodeId>, by: Option<NodeId>, turn: &Turn) -> Option<MemberRefusal> {
        let mut voters: BTreeSet<NodeId> = self.members.voters.clone();
        let loses_vote = out.is_some_and(|node| voters.remove(&node));
        voters.extend(by);
        if !loses_vote && by.is_none() {
            return None;
        }
        if voters.iter().all(|node| self.members.witnesses.contains(node)) {
            return Some(MemberRefusal::NobodyKeepsLocks);
        }
        let active = voters.iter().filter(|&&node| self.answers(node, turn)).count();
        let enough = active > voters.len() / 2;
        (!enough).then_some(MemberRefusal::WouldLoseQuorum { active, voters: voters.len() })
    }
}

/// Moves raises of the apply version to the end: commands after a raise may have the format that it allows.
fn raises_last(queue: &mut [(Asker, Box<Command>)]) {
    let raises = |command: &Command| matches!(command, Command::RaiseApplyVersion(_));
    if queue.iter().any(|(_, command)| raises(command)) {
        queue.sort_by_key(|(_, command)| raises(command));
    }
}

/// Moves keepalives to the front. Without keepalives nothing moves.
fn keepalives_first(queue: &mut Vec<(Asker, Box<Command>)>) {
    let is_keepalive = |command: &Command| matches!(command, Command::RenewLeases(_));
    if queue.iter().any(|(_, command)| is_keepalive(command)) {
        let all = std::mem::take(queue).into_iter();
        let (keepalives, rest): (Vec<_>, Vec<_>) = all.partition(|(_, command)| is_keepalive(command));
        *queue = keepalives;
        queue.extend(rest);
    }
}
