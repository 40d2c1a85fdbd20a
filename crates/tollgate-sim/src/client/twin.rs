//! A twin: a program that starts again. It has the lease of the program before it, which still lives, and numbers its
//! own requests as if the lease were new.
//!
//! The twin is told that each seq was used already, and never that it has what it asked for: that answer would belong
//! to another request. Not here: the program before it, which goes on meanwhile and loses nothing (`session`, `work`).

use super::call::{Again, Call, NewCall, Why};
use super::{Client, ClientContext};
use crate::front::{Answer, Ask};
use std::collections::VecDeque;
use tollgate_check::Outcome;
use tollgate_core::{AcquireLock, Command, Rejection, ReleaseBy, ReleaseLock, Reply, Request, Scope, Wait};
use tollgate_types::{DurationMs, GroupId, LeaseId, Metadata, Mode, Name, Names, Owner, Seq, SeqRanges};

/// Number of recently used seqs that are remembered: most of the others are acknowledged by then.
const USED_MAX: usize = 4;

/// Average time between two requests of the twin, in microseconds.
const EVERY_US: u64 = 700_000;

/// State of the twin: the seqs that it would use again.
#[derive(Debug, Default)]
pub(super) struct Twin {
    /// Seqs that a group has surely seen.
    used: VecDeque<(Seq, GroupId)>,
    next_at: u64,
    /// Session that the seqs belong to; `judged` is true if all of the session goes by the newest rules.
    epoch: u32,
    judged: bool,
    count: u64,
}

impl Twin {
    /// Remembers the seq of a request that had an effect, or is kept as if it had.
    pub(super) fn note(&mut self, seq: Seq, group: GroupId, outcome: &Outcome) {
        if matches!(outcome, Outcome::Granted { .. } | Outcome::Released { .. } | Outcome::Written { .. }) {
            self.used.push_back((seq, group));
            if self.used.len() > USED_MAX {
                self.used.pop_front();
            }
        }
    }
}

impl Client {
    /// Uses a seq again, now and then.
    pub(super) fn act_as_twin(&mut self, now: u64, ctx: &ClientContext<'_>) {
        if self.twin.epoch != self.epoch {
            let (epoch, judged) = (self.epoch, ctx.raised);
            self.twin = Twin { epoch, judged, count: self.twin.count, ..Twin::default() };
        }
        let Some(lease) = self.session.as_ref().and_then(|session| session.believed(now)) else { return };
        if !self.twin.judged || self.healing || now < self.twin.next_at || self.twin.used.is_empty() {
            return;
        }
        self.twin.next_at = now + EVERY_US / 2 + self.rng.below(EVERY_US);
        let (seq, group) =
            self.twin.used[usize::try_from(self.rng.below(self.twin.used.len() as u64)).expect("few")];
        self.twin.count += 1;
        let command = self.mistaken(lease, seq, group);
        let (ask, op, why, again) = (Ask::Command(Box::new(command)), None, Why::Twin, Again::Never);
        self.calls.make(NewCall { group, ask, op, seq: None, why, again, epoch: self.epoch }, now);
    }

    /// Returns a request that nobody has made before, under a seq that somebody has used.
    fn mistaken(&mut self, lease: LeaseId, seq: Seq, group: GroupId) -> Command {
        let request = Some(Request { seq, acked: SeqRanges::default(), scope: Scope::Whole });
        let text = |number: u64| format!("twin/{}/{number}", self.twin.count);
        let in_group = |number: &u64| {
            let name = Name::new(text(*number)).expect("a short text is a name");
            crate::types::group_of(name.slot(), self.groups) == group
        };
        let number = (0..u64::MAX).find(in_group).expect("every group has names");
        let names = Names::One(Name::new(text(number)).expect("a short text is a name"));
        let owner = Owner::new("twin").expect("a short text is an owner");
        if self.rng.percent(30) {
            let by = ReleaseBy::Holder { lease, owner, token: None, request };
            return Command::ReleaseLock(ReleaseLock { names, by });
        }
        Command::AcquireLock(AcquireLock {
            names,
            lease,
            owner,
            mode: Mode::Exclusive,
            wait: if self.rng.percent(50) { Wait::Forever } else { Wait::No },
            lock_delay: DurationMs::ZERO,
            max_hold: None,
            metadata: Metadata::NONE,
            value: None,
            attended: false,
            request,
        })
    }
}

/// Returns what is wrong with an answer to the twin, if anything is.
pub(super) fn judge(call: &Call, answer: &Answer) -> Option<String> {
    let refused = match answer {
        Answer::Reply(reply) => match &**reply {
            Reply::Rejected(rejection) => !matches!(rejection, Rejection::RejectedBefore { .. }),
            _ => false,
        },
        Answer::NotDone(_) | Answer::NotRead(_) | Answer::Left => true,
        _ => false,
    };
    (!refused).then(|| format!("{} used a number again, {:?}, and was told {answer:?}", call.id, call.ask))
}
