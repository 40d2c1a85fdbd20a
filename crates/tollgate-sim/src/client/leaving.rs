//! Ways in which a client's single callers leave: they hang up, are cut off with their connection, or go while another
//! caller of the same request stays.
//!
//! Invariant: a caller that stood by and never asked for an end is not told that its wait was cancelled; the client
//! reports a violation if it is. Not here: the requests themselves (`work`), and that unattended waits end in time (the
//! world).

use super::call::{Call, Why};
use super::task::{Cancel, Step, Task};
use super::{Client, ClientContext};
use crate::front::{Answer, Ask, Lane, Request};
use tollgate_check::{CallId, Op};
use tollgate_core::{CancelTarget, CancelWait, Command, EndReason, WaitOutcome};
use tollgate_types::{GroupId, LeaseId, SeqRanges};

/// Next move of a task that has waited for its locks for long enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// Cancels the wait.
    Cancels,
    /// Hangs up, which a server notices, and keeps listening: a grant may be under way.
    HangsUp,
    /// Has hung up, and cancels the wait unless others want the claim, in case no node heard of the hang-up.
    HungUp,
    /// Asks by another connection as well, and then hangs up on the first.
    Moves,
    /// Has asked by another connection, and is still to hang up on the first.
    HangsUpBehind,
    /// Loses its connection, and asks again only much later.
    Vanishes,
}

impl Client {
    /// Makes the next move of a task that has waited for long enough.
    pub(super) fn leave_wait(&mut self, index: usize, lease: LeaseId, now: u64, ctx: &mut ClientContext<'_>) {
        let Step::Locking(locking) = &mut self.tasks[index].step else { return };
        let (of, group) = (locking.call, locking.plan.group);
        let sent = self.calls.get(of).map_or(0, |call| call.attempts);
        let leaving = locking.plan.leaving;
        if self.healing || sent == 0 || leaving == Leaving::Cancels {
            return self.cancel(index, lease, now, None);
        }
        match leaving {
            Leaving::Cancels => unreachable!("dealt with above"),
            Leaving::HangsUp => {
                ctx.stats.hang_ups += 1;
                locking.plan.leaving = Leaving::HungUp;
                let call = self.calls.get_mut(of).expect("it was sent");
                call.cancelled = true;
                // Should all else fail, the call asks for its outcome.
                call.next_try = now + 2_000_000;
                self.tasks[index].next_at = now + self.rng.range(50_000, 1_000_000);
                self.tell_all(group, Lane::Single, &Ask::HangUp { of }, ctx);
            }
            Leaving::HungUp => self.cancel(index, lease, now, Some(sent)),
            Leaving::Moves => {
                locking.plan.leaving = Leaving::HangsUpBehind;
                locking.attempts_before = sent;
                let call = self.calls.get_mut(of).expect("it was sent");
                call.lane = Lane::Other;
                call.next_try = now;
                self.tasks[index].next_at = now + self.rng.below(400_000);
            }
            Leaving::HangsUpBehind => {
                ctx.stats.moves += 1;
                let (seq, attempts) = (locking.seq, locking.attempts_before);
                self.tell_all(group, Lane::Single, &Ask::HangUp { of }, ctx);
                if self.rng.percent(50) {
                    self.cancel_behind(of, lease, CancelTarget::Seq(seq), group, attempts, now);
                }
                self.tasks[index].next_at = u64::MAX;
            }
            Leaving::Vanishes => {
                ctx.stats.vanished += 1;
                self.tell_all(group, Lane::Single, &Ask::StreamLost, ctx);
                // The other callers of that connection find it broken, and come by a new one.
                self.calls.ask_again_on(Lane::Single, now, &mut self.rng);
                let pause_us = self.settings.vanish_us + self.rng.below(self.settings.vanish_us);
                let call = self.calls.get_mut(of).expect("it was sent");
                call.next_try = now + pause_us;
                self.tasks[index].next_at = u64::MAX;
            }
        }
    }

    /// Handles the answer to a caller that hung up: others want the claim. The task's next move shows whether that is
    /// so.
    pub(super) fn left(&mut self, of: CallId, now: u64) {
        let waits = |task: &&mut Task| matches!(&task.step, Step::Locking(locking) if locking.call == of);
        let Some(task) = self.tasks.iter_mut().find(waits) else { return };
        if let Step::Locking(locking) = &mut task.step
            && locking.plan.leaving == Leaving::HungUp
            && locking.cancel == Cancel::No
        {
            locking.left = true;
            task.next_at = now;
        }
    }

    /// Sends the cancel that a server sends for a caller that is gone, in case the request did not get to where its
    /// caller was known. Nobody waits for the answer.
    fn cancel_behind(
        &mut self,
        of: CallId,
        lease: LeaseId,
        target: CancelTarget,
        group: GroupId,
        asks_max: u32,
        now: u64,
    ) {
        let (release_if_granted, acked) = (true, SeqRanges::default());
        let cancel = CancelWait { lease, target, release_if_granted, asks_max: Some(asks_max), acked };
        let op = Op::Cancel { of, release_if_granted };
        self.make(group, Ask::Command(Box::new(Command::CancelWait(cancel))), op, None, Why::Nobody, now);
    }

    /// Sends a message about a connection to all nodes; each of them may or may not receive it.
    fn tell_all(&mut self, group: GroupId, lane: Lane, ask: &Ask, ctx: &mut ClientContext<'_>) {
        for node in ctx.nodes {
            let call = self.calls.fresh_id();
            let request = Request { call, attempt: 1, group, alone: true, lane, ask: ask.clone() };
            ctx.out.push((*node, request));
        }
    }
}

/// Returns what is wrong with an answer to a caller that stands by, if anything is.
pub(super) fn judge(call: &Call, answer: &Answer) -> Option<String> {
    let cancelled =
        matches!(answer, Answer::Resolved { outcome: WaitOutcome::Ended(EndReason::Cancelled), .. });
    let stands_by = call.lane != Lane::Session && !call.cancelled;
    (cancelled && stands_by)
        .then(|| format!("call {} stood by and was told that its wait was cancelled, by nobody", call.id.0))
}
