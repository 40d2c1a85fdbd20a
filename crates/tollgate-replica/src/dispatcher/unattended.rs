//! Handling of waits that their callers have left.
//!
//! Invariant: a wait is ended only by an entry that does nothing if somebody asked for the wait after the dispatcher
//! looked. So a caller that arrives between the decision and the entry keeps its place; a caller that arrives after the
//! entry is told that the request was cancelled, or queues again if its request had no seq. Not here: which caller left
//! when (`caller_liveness`).

use super::caller_liveness::Gone;
use super::pending::WaitKey;
use super::{About, Answer, Caller, CallerKey, Dispatcher, MayWait, Proposed, ask_again};
use crate::host::Host;
use crate::output::{ProposalId, ProposalOutcome, ProposeError};
use crate::planted::Bug;
use tollgate_core::{CancelTarget, CancelWait, Command, Reply};
use tollgate_types::{GroupId, Name, SeqRanges};

/// Claims searched in one turn, after a change of leaders.
const SEARCHED_PER_TURN: usize = 4_096;

/// The most waits that are ended in one turn.
const ENDS_PER_TURN_MAX: usize = 1_000;

impl<C: Caller, R> Dispatcher<C, R> {
    /// Handles a caller that wants no answer any more. If it was the last caller that attended its wait, the wait ends.
    /// The caller is still answered once: with the end of the wait, because a grant may come before that end; or with
    /// [`Answer::Left`] if the wait goes on without the caller.
    pub fn hang_up(&mut self, who: CallerKey, host: &mut Host) {
        self.caller_liveness.went(who, Gone::HungUp);
        let Some((callers, (wait, attended))) = self.pending.remove(who) else { return };
        let ends = attended.is_some_and(|name| self.end_wait(wait, name, host));
        if ends && !self.planted.is(Bug::HangUpToldTooSoon) {
            self.leaving.entry(wait).or_default().extend(callers);
        } else {
            self.hung_up.extend(callers);
        }
    }

    /// Handles a broken connection, whose callers get no answer. The callers may come back over another connection, so
    /// their waits go on for a while.
    pub fn stream_lost(&mut self, stream: u64) {
        self.caller_liveness.stream_lost(stream);
        for who in self.pending.of_stream(stream) {
            if let Some((_, (wait, attended))) = self.pending.remove(who) {
                self.left(wait, attended);
            }
        }
    }

    /// Records that a request is proposed.
    pub(super) fn asks(&mut self, caller: &C, about: &About) {
        if let About::Wait(MayWait { attended: Some(_), request }) = about {
            self.caller_liveness.asks(caller.key(), *request);
        }
    }

    /// True if the command cancels a single caller's request while another caller of the same request attends it.
    pub(super) fn is_wanted(&self, group: GroupId, command: &Command) -> bool {
        match command {
            Command::CancelWait(CancelWait {
                lease,
                target: CancelTarget::Seq(seq) | CancelTarget::SeqOn { seq, .. },
                asks_max: Some(_),
                ..
            }) => {
                let request = (group, *lease, *seq);
                self.pending.any_of(request) || self.caller_liveness.any_asks(request)
            }
            _ => false,
        }
    }

    /// Records that a request is answered. Returns how its caller left in the meantime, if it did.
    pub(super) fn answered(&mut self, caller: &C, about: &About) -> Option<Gone> {
        match about {
            About::Wait(MayWait { attended: Some(_), .. }) => self.caller_liveness.answered(caller.key()),
            _ => None,
        }
    }

    /// Handles a request that queues after its caller has left. Returns the caller if it is not to learn how the wait
    /// ends.
    pub(super) fn queued_for_nobody(
        &mut self,
        caller: C,
        wait: WaitKey,
        request: MayWait,
        gone: Gone,
        host: &Host,
    ) -> Option<C> {
        if !host.leads(wait.0) {
            return Some(caller);
        }
        match (gone, request.attended) {
            (Gone::HungUp, Some(name)) => {
                self.abandoned.push((wait, name));
                self.leaving.entry(wait).or_default().push(caller);
                None
            }
            (_, attended) => {
                self.left(wait, attended);
                Some(caller)
            }
        }
    }

    /// Records that a caller was told that its outcome is unknown while its request is in this leader's log.
    pub(super) fn note_unheard(&mut self, group: GroupId, host: &Host) {
        if let Some(status) = host.status(group) {
            self.unheard.insert(group, status.last_index);
        }
    }

    /// Begins a search for the waits of such requests, once the requests are applied.
    pub(super) fn look_for_unheard(&mut self, host: &Host) {
        let applied = |group: GroupId| host.status(group).map_or(u64::MAX, |status| status.applied);
        let forgets = self.planted.is(Bug::UnheardForgotten);
        for (group, _) in self.unheard.extract_if(.., |group, last| applied(*group) >= *last) {
            if !forgets {
                self.caller_liveness.begin_search(group);
            }
        }
    }

    /// Releases the pending callers of a group that this node leads and where nothing can be written: no wait ends
    /// then, not even by its own deadline. The callers are told so, and ask again. As after a change of leaders, waits
    /// that no caller has come back for are found once there is room.
    pub(super) fn out_of_room(&mut self, group: GroupId, host: &Host, answers: &mut Vec<(C, Answer<R>)>) {
        if self.planted.is(Bug::ParkedWithoutRoom) {
            return;
        }
        self.note_unheard(group, host);
        self.caller_liveness.leave(group);
        let error = ProposeError::NoRoomMidway { group };
        let released = self.pending.leave(group).into_iter();
        answers.extend(released.map(|caller| (caller, Answer::NotDone(error.clone()))));
    }

    /// Handles a caller that left a wait: if it was the last one, the time begins after which the wait ends.
    pub(super) fn left(&mut self, wait: WaitKey, attended: Option<Name>) {
        if let Some(name) = attended.filter(|_| !self.pending.any_on(wait)) {
            self.caller_liveness.left(wait, name);
        }
    }

    /// Ends waits that are due, and searches for unattended waits in groups that this node has come to lead.
    pub(super) fn mind_waits(&mut self, host: &mut Host) {
        self.caller_liveness.pass(host.now());
        for (group, from) in self.caller_liveness.searches() {
            // Without room no caller can come back, so that time counts against none.
            if !host.brief(group).is_some_and(|brief| brief.serves && !brief.stuck) {
                continue;
            }
            let Some(state) = host.state(group) else { continue };
            let (found, next) = state.attended_waits(from, SEARCHED_PER_TURN);
            let forgets = self.planted.is(Bug::UnattendedForgotten);
            for wait in found.into_iter().filter(|_| !forgets) {
                self.left((group, wait.create_revision), Some(wait.name));
            }
            self.caller_liveness.searched(group, next);
        }
        let due = self.caller_liveness.take_due(host.config().unattended_ms, ENDS_PER_TURN_MAX);
        for (wait, name) in std::mem::take(&mut self.abandoned).into_iter().chain(due) {
            if !self.end_wait(wait, name, host) {
                self.hung_up.extend(self.leaving.remove(&wait).unwrap_or_default());
            }
        }
    }

    /// Handles the result of an attempt to end a wait: the wait is over, or it was asked for in the meantime, or it
    /// could not be ended. In the last two cases the wait is on the list again unless a caller is pending.
    pub(super) fn end_answered(
        &mut self,
        result: Result<ProposalOutcome, ProposeError>,
        wait: WaitKey,
        name: Name,
        host: &Host,
        answers: &mut Vec<(C, Answer<R>)>,
    ) {
        let (group, _) = wait;
        let reply = result.ok().and_then(|outcome| match outcome {
            ProposalOutcome::Applied(applied) => Some(applied.reply),
            ProposalOutcome::Members(_) => None,
        });
        let wanted = reply == Some(Reply::Done);
        if reply.is_some() && !wanted {
            // The wait is over: an entry has the outcome for the callers that are not answered yet.
            return;
        }
        let leads = host.leads(group);
        if leads {
            self.left(wait, Some(name));
        }
        // Callers whose wait could not be ended learn how it ends, as long as this node leads.
        if wanted || !leads {
            for caller in self.leaving.remove(&wait).unwrap_or_default() {
                answers.push((caller, if wanted { Answer::Left } else { ask_again(host, group) }));
            }
        }
    }

    /// Proposes to end a wait, if only single callers asked for it and none is pending. Returns true if it was
    /// proposed.
    fn end_wait(&mut self, wait: WaitKey, name: Name, host: &mut Host) -> bool {
        let (group, create_revision) = wait;
        if self.pending.any_on(wait) && !self.planted.is(Bug::HangUpEndsSharedWait) {
            return false;
        }
        let state = host.state(group).filter(|_| host.leads(group));
        let seen = state.and_then(|state| state.wait(&name, create_revision));
        let Some(seen) = seen.filter(|seen| seen.attended) else { return false };
        let target = CancelTarget::Wait { name: name.clone(), create_revision };
        let asks_max = (!self.planted.is(Bug::HangUpEndsSharedWait)).then_some(seen.asks);
        let (release_if_granted, acked) = (false, SeqRanges::default());
        let cancel = CancelWait { lease: seen.lease, target, release_if_granted, asks_max, acked };
        let id = ProposalId(self.proposed.begin(Proposed::End(wait, name)));
        host.propose(group, id, Command::CancelWait(cancel));
        true
    }
}
