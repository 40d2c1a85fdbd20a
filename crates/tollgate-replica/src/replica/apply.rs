//! Applies committed entries to the state, each once and in order.

use super::Replica;
use crate::log_entry::EncodedBatch;
use crate::members::added;
use crate::output::{AppliedCommand, AppliedEntry, HostEvent, ProposalOutcome, ProposalReply, ProposeError};
use crate::planted::Bug;
use crate::proposals::{Asker, Claimed};
use crate::turn::Turn;
use crate::{MemberRefusal, ReplicaKind};
use protobuf::Message as _;
use raft::eraftpb::{ConfChangeV2, Entry, EntryType};
use tollgate_core::{Applied, Command, Entry as Stamped, Noting};

impl Replica {
    pub(super) fn apply(&mut self, entries: &[Entry], turn: &mut Turn) {
        for entry in entries {
            assert_eq!(
                entry.index,
                self.applied + 1,
                "entries are applied in order, none twice, none left out"
            );
            match entry.get_entry_type() {
                EntryType::EntryNormal => self.apply_commands(entry, turn),
                EntryType::EntryConfChangeV2 => self.apply_membership(entry, turn),
                EntryType::EntryConfChange => unreachable!("changes of the first kind are never proposed"),
            }
            self.applied = entry.index;
            self.hash_if_asked(turn);
        }
    }

    fn apply_commands(&mut self, entry: &Entry, turn: &mut Turn) {
        let claimed = self.proposals.claim(entry.index, entry.term);
        let mut took_us = None;
        let (askers, kept) = match claimed {
            Claimed::Same(waiting) => {
                took_us = Some(turn.now.us().saturating_sub(waiting.since.us()));
                (waiting.askers, Some(((waiting.at, waiting.wall), waiting.batch)))
            }
            Claimed::Lost(askers) => {
                // An entry of another leader is at this index.
                self.refuse_all(askers, &ProposeError::Indeterminate { group: self.group }, turn);
                (Vec::new(), None)
            }
            Claimed::None => (Vec::new(), None),
        };
        if entry.data.is_empty() {
            // A new leader's empty entry, or a change of membership that Raft made empty because another was pending.
            return self.refuse_all(askers, &MemberRefusal::Busy.into(), turn);
        }
        if self.kind == ReplicaKind::Witness {
            return;
        }
        let again = turn.planted.is(Bug::AppliedTwice) && entry.index <= self.replays_to;
        if turn.planted.is(Bug::SkipsEntry) && entry.index == self.replays_to {
            return;
        }
        let mut whole = AppliedEntry {
            group: self.group,
            index: entry.index,
            revision: self.state.as_ref().expect("a full replica with a log has state").revision(),
            events_from: None,
            resolved: Vec::new(),
            ended_leases: Vec::new(),
            notes: Vec::new(),
            commands: 0,
            took_us,
        };
        // Notes are taken once in a group: by its leader, and not again for entries that were in the log before the
        // start.
        let noting =
            if self.leads() && entry.index > self.replays_to { turn.config.noting } else { Noting::Nothing };
        self.state.as_mut().expect("as above").take_notes_of(noting);
        match kept {
            Some(((at, wall), batch)) => {
                let batch = batch.into_iter().map(|command| Stamped { at, wall, command: *command });
                self.apply_batch(batch, &askers, &mut whole, turn);
            }
            None => self.apply_batch(decoded(entry), &askers, &mut whole, turn),
        }
        if again {
            for command in decoded(entry) {
                self.state.as_mut().expect("as above").apply(command);
            }
        }
        if noting != Noting::Nothing {
            whole.notes = self.state.as_mut().expect("as above").notes();
        }
        turn.out.applied.push(whole);
    }

    /// Applies commands one after the other, and answers their askers.
    fn apply_batch(
        &mut self,
        batch: impl Iterator<Item = Stamped>,
        askers: &[Asker],
        whole: &mut AppliedEntry,
        turn: &mut Turn,
    ) {
        let shift = usize::from(turn.planted.is(Bug::RepliesShifted) && askers.len() > 1);
        for command in batch {
            if let Command::RaiseApplyVersion(version) = command.command {
                must_know(version, turn);
            }
            let state = self.state.as_mut().expect("a full replica with a log has state");
            let mut applied = state.apply(command);
            whole.revision = applied.revision;
            whole.events_from = whole.events_from.or(applied.events_from);
            whole.resolved.append(&mut applied.resolved);
            whole.ended_leases.append(&mut applied.ended_leases);
            let asker = (whole.commands + shift).checked_rem(askers.len()).map(|at| &askers[at]);
            whole.commands += 1;
            if let Some(asker) = asker {
                self.reply(asker, applied, turn);
            }
        }
        assert!(askers.is_empty() || askers.len() == whole.commands, "everybody asked for one command");
    }

    pub(super) fn reply(&mut self, asker: &Asker, applied: Applied, turn: &mut Turn) {
        match asker {
            Asker::Nobody => {}
            Asker::Caller(proposal) => {
                let Applied { revision, reply, events_from, .. } = applied;
                let result = Ok(ProposalOutcome::Applied(AppliedCommand { revision, reply, events_from }));
                turn.out.replies.push(ProposalReply { proposal: *proposal, group: self.group, result });
            }
            Asker::GroupMessage(group_message) => {
                self.group_message_applied(group_message, &applied.reply, turn);
            }
        }
    }

    /// Tells all askers that there is no outcome. Other groups repeat their group messages without further action.
    pub(super) fn refuse_all(
        &mut self,
        askers: impl IntoIterator<Item = Asker>,
        error: &ProposeError,
        turn: &mut Turn,
    ) {
        for asker in askers {
            match asker {
                Asker::Nobody => {}
                Asker::Caller(proposal) => turn.refuse(self.group, proposal, error.clone()),
                Asker::GroupMessage(group_message) => self.group_message_dropped(&group_message),
            }
        }
    }

    /// Implements a planted bug: applies membership changes when they are appended.
    pub(super) fn apply_membership_early(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| entry.get_entry_type() == EntryType::EntryConfChangeV2) {
            let change = ConfChangeV2::parse_from_bytes(&entry.data).expect("as when it is applied");
            let added = added(&change).expect("as when it is applied");
            if let Ok(conf) = self.raw.apply_conf_change(&change) {
                self.members = self.members.after(&conf, added);
            }
        }
    }

    fn apply_membership(&mut self, entry: &Entry, turn: &mut Turn) {
        let change = ConfChangeV2::parse_from_bytes(&entry.data)
            .expect("a change in our own log is what we put there");
        let added = added(&change).expect("a change's context is what we put there");
        if !turn.planted.is(Bug::MembershipEarly) {
            let conf =
                self.raw.apply_conf_change(&change).expect("a change is checked before it is proposed");
            self.members = self.members.after(&conf, added);
        }
        // The commit of this entry must be durable: a node that restarts with the old members may need the vote of a
        // removed one. All other commit indexes are written along with the next write.
        self.write.vote = Some(self.vote);
        turn.event(HostEvent::MembersChanged { group: self.group, members: self.members.clone() });
        match self.proposals.claim(entry.index, entry.term) {
            Claimed::Same(waiting) => {
                for asker in waiting.askers {
                    let Asker::Caller(proposal) = asker else { continue };
                    let result = Ok(ProposalOutcome::Members(Box::new(self.members.clone())));
                    turn.out.replies.push(ProposalReply { proposal, group: self.group, result });
                }
            }
            Claimed::Lost(askers) => {
                self.refuse_all(askers, &ProposeError::Indeterminate { group: self.group }, turn);
            }
            Claimed::None => {}
        }
        if !self.members.contains(self.node) && !self.removed {
            self.removed = true;
            if self.leads() {
                // This node became leader while its removal was under way. The others elect a new one.
                let term = self.raw.raft.term;
                self.raw.raft.become_follower(term, raft::INVALID_ID);
                self.observe(turn);
            }
            turn.event(HostEvent::Removed { group: self.group });
        }
    }
}

/// Panics if the group has an apply version that this binary does not know: its replica would compute another state
/// than the others.
pub(super) fn must_know(version: u32, turn: &Turn) {
    let known = turn.config.apply_version;
    assert!(
        version <= known,
        "the group moved on to apply version {version} and this binary knows {known}: upgrade it"
    );
}

/// Decodes the commands of an entry, as its leader encoded them.
fn decoded(entry: &Entry) -> impl Iterator<Item = Stamped> {
    EncodedBatch::new(&entry.data).map(|command| command.expect("a committed entry is what a leader encoded"))
}
