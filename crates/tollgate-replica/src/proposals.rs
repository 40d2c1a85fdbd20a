//! Proposals that are in the log of a leader and not applied yet, to deliver their outcomes to their callers.
//!
//! A proposal is identified by its position: (index, term). If an entry of another term is applied at that index, the
//! proposal is lost. The decoded commands are kept as well, so that a leader need not decode what it encoded itself.

use crate::group_message::GroupMessage;
use crate::monotonic_time::MonotonicTime;
use crate::output::ProposalId;
use std::collections::VecDeque;
use tollgate_core::Command;
use tollgate_types::{LogTime, WallTime};

/// The origin of a proposal, which waits for the outcome.
#[derive(Debug, Clone)]
pub(crate) enum Asker {
    /// No caller: a command of the leader itself, or of a caller that was already answered.
    Nobody,
    /// A caller of the host.
    Caller(ProposalId),
    /// Another group, whose group message this is.
    GroupMessage(GroupMessage),
}

#[derive(Debug)]
pub(crate) struct Waiting {
    index: u64,
    term: u64,
    /// Time of the proposal.
    pub(crate) since: MonotonicTime,
    pub(crate) askers: Vec<Asker>,
    /// The proposed commands, stamped `at`, when the leader's clock showed `wall`.
    pub(crate) batch: Vec<Box<Command>>,
    pub(crate) at: LogTime,
    pub(crate) wall: WallTime,
}

#[derive(Debug, Default)]
pub(crate) struct Proposals {
    waiting: VecDeque<Waiting>,
    count: usize,
}

/// Result of claiming the proposals at an index.
pub(crate) enum Claimed {
    /// This node did not propose the entry.
    None,
    /// The entry is the one that was proposed.
    Same(Waiting),
    /// Another entry took the place of the proposed one.
    Lost(Vec<Asker>),
}

impl Proposals {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn push(
        &mut self,
        (index, term): (u64, u64),
        since: MonotonicTime,
        askers: Vec<Asker>,
        (at, wall, batch): (LogTime, WallTime, Vec<Box<Command>>),
    ) {
        assert!(self.waiting.back().is_none_or(|last| last.index < index), "a log grows at its end");
        self.count += askers.len();
        self.waiting.push_back(Waiting { index, term, since, askers, batch, at, wall });
    }

    /// Takes the proposals at `index`, whose entry with `term` is being applied.
    pub(crate) fn claim(&mut self, index: u64, term: u64) -> Claimed {
        match self.waiting.front() {
            Some(first) if first.index == index => {}
            Some(first) => {
                assert!(first.index > index, "entries are applied in order, none is left out");
                return Claimed::None;
            }
            None => return Claimed::None,
        }
        let first = self.waiting.pop_front().expect("looked at above");
        self.count -= first.askers.len();
        if first.term == term { Claimed::Same(first) } else { Claimed::Lost(first.askers) }
    }

    /// Takes the callers that wait, which are told that the outcome is unknown. Their commands stay in the log; if they
    /// are applied, no caller is answered.
    pub(crate) fn take_callers(&mut self) -> Vec<ProposalId> {
        let askers = self.waiting.iter_mut().flat_map(|waiting| &mut waiting.askers);
        let caller = |asker: &mut Asker| match *asker {
            Asker::Caller(proposal) => {
                *asker = Asker::Nobody;
                Some(proposal)
            }
            Asker::Nobody | Asker::GroupMessage(_) => None,
        };
        askers.filter_map(caller).collect()
    }

    /// Takes all askers, because leadership is lost.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Asker> + use<> {
        self.count = 0;
        std::mem::take(&mut self.waiting).into_iter().flat_map(|waiting| waiting.askers)
    }
}
