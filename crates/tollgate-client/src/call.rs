//! One operation from its caller to its final answer, across broken streams and changes of leaders.
//!
//! Invariant: an operation that can be repeated without harm (it carries a seq, or a second execution changes nothing)
//! is repeated until it has a final answer or its time is up; any other is given up once it may have happened. An error
//! says whether any attempt may have happened. A call that is dropped stops; what it started goes on. Not here: undoing
//! what a dropped call started (`acquire`).

use crate::clock::Clock;
use crate::connections::{Connections, Pause};
use crate::error::{Error, ErrorKind};
use crate::multiplexer::{Broken, Urgency};
use crate::seqs::{Acks, Seqs};
use std::time::Duration;
use tokio::time::Instant;
use tollgate_proto::Retry;
use tollgate_proto::v1::{self, ErrorReason, operation::Op, operation_result::Result as OpResult};
use tollgate_types::GroupId;

/// Operation to be carried out.
pub(crate) struct Call<'a> {
    /// The operation; each attempt writes its number into it.
    pub(crate) op: &'a mut Op,
    /// Deadline of the caller; none waits for ever.
    pub(crate) until: Option<Instant>,
    pub(crate) urgency: Urgency,
    /// Seqs of the lease whose acknowledgements the call carries.
    pub(crate) seqs: Option<&'a Seqs>,
    /// Reading of the client's clock just before the call, if there is one. It is a little earlier than the sending of
    /// the first attempt and can replace that time, unless there is no stream yet to send it on.
    pub(crate) begun: Option<Duration>,
}

/// Final answer to an operation, never an error.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) result: OpResult,
    /// Time when the first attempt that may have had an effect was sent, by the client's clock.
    pub(crate) first_sent: Duration,
    /// Time when the answered attempt was sent, by the client's clock.
    pub(crate) last_sent: Duration,
}

/// Carries out a call over the client's session streams.
pub(crate) async fn call(
    connections: &Connections,
    clock: &dyn Clock,
    call: Call<'_>,
) -> Result<Answered, Error> {
    let until = call.until;
    let mut state =
        Calling { connections, clock, call, attempt: 0, unsure: false, refused: None, first_sent: None };
    // The future is made where it is awaited: if it were kept in a variable, it would be stored in the caller's future
    // twice.
    let Some(until) = until else { return state.run().await };
    match tokio::time::timeout_at(until, state.run()).await {
        Ok(answered) => answered,
        Err(_) => Err(state.too_late()),
    }
}

/// Call in progress.
struct Calling<'a> {
    connections: &'a Connections,
    clock: &'a dyn Clock,
    call: Call<'a>,
    attempt: u32,
    /// True if an unanswered attempt may have happened.
    unsure: bool,
    /// Error of the last attempt, while the next one is still to be made.
    refused: Option<v1::Error>,
    first_sent: Option<Duration>,
}

/// Meaning of an error for the next attempt.
enum Verdict {
    /// The error is the final answer.
    Final,
    /// Nothing happened: repeat the operation.
    Again,
    /// The operation may have happened.
    Unsure,
}

impl Calling<'_> {
    async fn run(&mut self) -> Result<Answered, Error> {
        let may_repeat = may_repeat(self.call.op);
        let mut pause = Pause::new();
        loop {
            let group = self.connections.group_of(self.call.op);
            let stream = if let Some(stream) = self.connections.stream_to_now(group) {
                stream
            } else {
                // Nothing is sent before a stream is found, however long that takes.
                self.call.begun = None;
                Box::pin(self.connections.stream_to(group)).await
            };
            let acks = self.call.seqs.map(|seqs| seqs.take(group));
            identify(self.call.op, self.attempt, acks.as_ref().map_or_else(Vec::new, Acks::ranges));
            let sent = self.call.begun.take().unwrap_or_else(|| self.clock.now());
            let first_sent = *self.first_sent.get_or_insert(sent);
            // If the caller gives up now, the operation may have happened.
            let unsure_before = std::mem::replace(&mut self.unsure, true);
            self.refused = None;
            let answer = stream.ask(self.call.op, self.call.urgency).await;
            self.attempt += 1;
            let error = match answer {
                Ok(OpResult::Error(error)) => error,
                Ok(result) => {
                    if let Some(acks) = acks {
                        acks.done();
                    }
                    return Ok(Answered { result, first_sent, last_sent: sent });
                }
                Err(Broken { sent }) => {
                    self.unsure = unsure_before || sent;
                    self.forget_if_nothing_happened();
                    if sent && !may_repeat {
                        return Err(broke());
                    }
                    continue;
                }
            };
            drop(acks);
            if let Some(seqs) = self.call.seqs.filter(|_| wants_acks(&error)) {
                seqs.tell_again();
            }
            let told_now = self.attempt == 1 && self.call.seqs.is_some() && error.limit == WAITS;
            match verdict(self.call.op, &error) {
                // The node did not know all acknowledgements that make room at this limit; the next attempt carries all
                // of them.
                Verdict::Final if told_now => self.unsure = unsure_before,
                Verdict::Final => {
                    return Err(Error::from(error.clone()).unsure(unsure_before && knows_little(&error)));
                }
                Verdict::Again => {
                    self.unsure = unsure_before;
                    self.forget_if_nothing_happened();
                }
                Verdict::Unsure if !may_repeat => return Err(Error::from(error)),
                Verdict::Unsure => {}
            }
            self.follow(&error);
            let hint = u64::try_from(error.retry_after_ms).unwrap_or(0);
            self.refused = Some(error);
            Box::pin(pause.wait(Duration::from_millis(hint))).await;
        }
    }

    /// Forgets the time of the first attempt if no attempt had any effect: nothing began with it.
    fn forget_if_nothing_happened(&mut self) {
        if !self.unsure {
            self.first_sent = None;
        }
    }

    /// Applies the hint in an error: another leader, or a search for one.
    fn follow(&self, error: &v1::Error) {
        // A node that stops names any other node, not the group's leader.
        let named = !error.leader_address.is_empty() && error.reason() != ErrorReason::ShuttingDown;
        match error.retry() {
            Retry::AtLeader | Retry::AsItIs if named => {
                self.connections.hint(GroupId::new(error.group_id), &error.leader_address);
            }
            Retry::AtLeader | Retry::AtItsGroup | Retry::AsItIs => self.connections.look_again(),
            _ => {}
        }
    }

    fn too_late(&mut self) -> Error {
        if self.connections.stream_now().is_none() {
            return self.connections.endpoints().unreachable(self.unsure);
        }
        if let Some(error) = self.refused.take() {
            return Error::from(error).unsure(self.unsure);
        }
        let says = "no answer in time: the cluster may have no leader, or too much to do";
        Error::new(ErrorKind::TimedOut, says, self.unsure)
    }
}

fn broke() -> Error {
    Error::new(ErrorKind::TimedOut, "the connection broke before the answer came", true)
}

fn verdict(op: &Op, error: &v1::Error) -> Verdict {
    match error.retry() {
        // The operation was in progress when the disks filled up, or waits in a queue.
        Retry::Later if error.may_have_happened => Verdict::Unsure,
        Retry::AtLeader | Retry::AtItsGroup | Retry::Later => Verdict::Again,
        Retry::AsItIs | Retry::IfStillWanted => Verdict::Unsure,
        // More requests of the lease are in progress than their acknowledgements could keep up with.
        Retry::No if error.limit == OPS_IN_FLIGHT && has_seq(op) => Verdict::Again,
        // Another node may have the group. But the answer says nothing of attempts before, and this node was named as
        // its leader.
        Retry::No | Retry::AtAnotherNode => Verdict::Final,
    }
}

/// Limits at which acknowledgements make room.
const OPS_IN_FLIGHT: &str = "ops_in_flight_per_lease_max";
const WAITS: &str = "waits_per_lease_max";

fn wants_acks(error: &v1::Error) -> bool {
    error.limit == OPS_IN_FLIGHT || error.limit == WAITS
}

/// True if an error says nothing about attempts before the one that it answers.
fn knows_little(error: &v1::Error) -> bool {
    matches!(error.reason(), ErrorReason::NoSuchGroup | ErrorReason::LeaseNotFound | ErrorReason::NotWaiting)
}

/// True if a second attempt after an unknown outcome does no harm.
fn may_repeat(op: &Op) -> bool {
    match op {
        Op::Unlock(_) | Op::Put(_) | Op::Delete(_) | Op::Txn(_) | Op::Resign(_) | Op::Proclaim(_) => {
            has_seq(op)
        }
        // A lease with an empty client id belongs to no client: the second attempt would find the first one's lease
        // taken.
        Op::LeaseGrant(grant) => grant.id != 0 && !grant.client_id.is_empty(),
        Op::CancelWait(cancel) => has_seq(op) || !cancel.release_if_granted,
        Op::ForceRelease(_) => false,
        Op::Lock(_)
        | Op::TryLock(_)
        | Op::Convert(_)
        | Op::Campaign(_)
        | Op::LeaseKeepAlive(_)
        | Op::LeaseRevoke(_)
        | Op::LeaseTimeToLive(_)
        | Op::GetLock(_)
        | Op::Get(_)
        | Op::Range(_)
        | Op::Leader(_) => true,
    }
}

fn has_seq(op: &Op) -> bool {
    let request = match op {
        Op::Lock(it) | Op::TryLock(it) => &it.request,
        Op::Unlock(it) => &it.request,
        Op::Convert(it) => &it.request,
        Op::Put(it) => &it.request,
        Op::Delete(it) => &it.request,
        Op::Txn(it) => &it.request,
        Op::Campaign(it) => &it.request,
        Op::Proclaim(it) => &it.request,
        Op::Resign(it) => &it.request,
        Op::CancelWait(it) => return it.seq != 0,
        _ => return false,
    };
    request.is_some()
}

/// Writes the number of the attempt and the acknowledged answers into an operation.
fn identify(op: &mut Op, attempt: u32, acked: Vec<v1::SeqRange>) {
    let request = match op {
        Op::Lock(it) | Op::TryLock(it) => &mut it.request,
        Op::Unlock(it) => &mut it.request,
        Op::Convert(it) => &mut it.request,
        Op::Put(it) => &mut it.request,
        Op::Delete(it) => &mut it.request,
        Op::Txn(it) => &mut it.request,
        Op::Campaign(it) => &mut it.request,
        Op::Proclaim(it) => &mut it.request,
        Op::Resign(it) => &mut it.request,
        Op::LeaseKeepAlive(it) => {
            it.acked = acked;
            return;
        }
        Op::CancelWait(it) => {
            it.acked = acked;
            return;
        }
        _ => return,
    };
    if let Some(request) = request {
        (request.acked, request.attempt) = (acked, attempt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(seq: u64) -> Op {
        let request = (seq != 0).then(|| v1::Request { seq, ..Default::default() });
        Op::Lock(v1::LockRequest { name: "jobs".into(), lease_id: 1, request, ..Default::default() })
    }

    #[test]
    fn p10_a_repeat_counts_its_attempts_and_keeps_its_seq() {
        let mut op = lock(7);
        identify(&mut op, 3, vec![v1::SeqRange { first: 1, last: 6 }]);
        let Op::Lock(lock) = op else { panic!() };
        let request = lock.request.unwrap();
        assert_eq!((request.seq, request.attempt, request.acked.len()), (7, 3, 1));
    }

    #[test]
    fn only_what_is_known_by_its_seq_or_changes_nothing_is_repeated() {
        assert!(may_repeat(&lock(1)));
        let put = |request| Op::Put(v1::PutRequest { request, ..Default::default() });
        assert!(!may_repeat(&put(None)));
        assert!(may_repeat(&put(Some(v1::Request::default()))));
        assert!(!may_repeat(&Op::ForceRelease(v1::ForceReleaseRequest::default())));
        assert!(!may_repeat(&Op::LeaseGrant(v1::LeaseGrantRequest::default())));
        let chosen = v1::LeaseGrantRequest { id: 9, ..Default::default() };
        assert!(!may_repeat(&Op::LeaseGrant(chosen.clone())), "nobody's lease is not granted again");
        assert!(may_repeat(&Op::LeaseGrant(v1::LeaseGrantRequest {
            client_id: "worker-1".into(),
            ..chosen
        })));
    }

    #[test]
    fn a_full_pipe_of_a_lease_is_waited_out_and_other_limits_are_told() {
        let error = |limit: &str| v1::Error {
            limit: limit.into(),
            ..v1::Error::new(ErrorReason::LimitExceeded, "too many")
        };
        assert!(matches!(verdict(&lock(1), &error("ops_in_flight_per_lease_max")), Verdict::Again));
        assert!(matches!(verdict(&lock(1), &error("locks_max")), Verdict::Final));
    }

    #[test]
    fn p8_a_release_or_a_cancel_is_not_given_up_for_what_passes() {
        let cancel = |seq| Op::CancelWait(v1::CancelWaitRequest { lease_id: 1, seq, ..Default::default() });
        let request = Some(v1::Request { seq: 3, ..Default::default() });
        let unlock = Op::Unlock(v1::UnlockRequest { request, ..Default::default() });
        let full = v1::Error {
            limit: "ops_in_flight_per_lease_max".into(),
            ..v1::Error::new(ErrorReason::LimitExceeded, "too many")
        };
        let disk = v1::Error::new(ErrorReason::DiskFull, "full");
        for op in [cancel(2), unlock] {
            assert!(matches!(verdict(&op, &full), Verdict::Again), "{op:?}");
            assert!(matches!(verdict(&op, &disk), Verdict::Again), "{op:?}");
        }
        assert!(matches!(verdict(&cancel(0), &full), Verdict::Final));
        let midway = v1::Error { may_have_happened: true, ..disk };
        assert!(matches!(verdict(&cancel(0), &midway), Verdict::Unsure));
    }
}
