//! Request identity: the requests that a lease has seen, and the answers to repeats.

use super::{Oracle, Place};
use tollgate_core::{EndReason, Rejection, RejectionCode, Reply, Request, Scope};
use tollgate_types::{LeaseId, Limit, Names, Revision, Seq, SeqRanges};

/// Ranges that `seen` and `acked` may have beyond one per request in flight.
const SPARE_RANGES: u64 = 65;

/// Record kept for a seq that is seen and not acked.
pub(super) enum Kept {
    /// The request made this claim, or joined its wait.
    Acquire(Revision),
    /// The request upgraded this claim: at once, or through the upgrade queued at this revision. Reading: that applies
    /// to an Acquire that became a conversion, too.
    Convert { claim: Revision, queued_at: Option<Revision> },
    /// The answer to the request.
    Outcome(Outcome),
}

/// Content of a request as text: requests with the same text are the same request. None if it is unknown.
pub(super) type About = String;

/// The text of a command with a request; `names` are the command's own names.
pub(super) fn about(
    names: Option<&Names>,
    request: Option<&Request>,
    rest: &dyn std::fmt::Debug,
) -> Option<About> {
    match &request?.scope {
        Scope::Unsaid => None,
        Scope::Whole => Some(format!("{names:?} {rest:?}")),
        Scope::PartOf(whole) => Some(format!("{:?} {rest:?}", Some(&**whole))),
    }
}

/// An answer that does not change any more, except for the holders in the way.
#[derive(Clone)]
pub(super) enum Outcome {
    /// Busy, with the present holders of the names that the repeat gives.
    Busy,
    Rejected(RejectionCode),
    Reply(Reply),
}

impl Outcome {
    /// Outcome of a wait that was cancelled, or that may never begin.
    pub(super) fn cancelled() -> Outcome {
        Outcome::Reply(Reply::Ended { token: None, reason: EndReason::Cancelled })
    }
}

/// Answer to a command, and the record to keep for its seq.
pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) kept: Kept,
}

impl Answer {
    /// An answer that is kept as it is.
    pub(super) fn outcome(reply: Reply) -> Answer {
        let kept = match reply.clone() {
            Reply::TxnDone { succeeded, revision, .. } => {
                Reply::TxnDone { succeeded, revision, results: Vec::new() }
            }
            other => other,
        };
        Answer { reply, kept: Kept::Outcome(Outcome::Reply(kept)) }
    }
}

impl Oracle {
    /// The living lease with this id, or the stub if it may be used.
    pub(super) fn living(&self, id: LeaseId) -> Result<Revision, Rejection> {
        let found = self.found(id)?;
        match self.lease_of(found).stub {
            Some(stub) if stub.pending => Err(Rejection::StubPending { lease: id, home: stub.home }),
            _ => Ok(found),
        }
    }

    /// The living lease or stub with this id.
    pub(super) fn found(&self, id: LeaseId) -> Result<Revision, Rejection> {
        let mut living = self.leases.iter().filter(|lease| lease.id == id && lease.deadline > self.now);
        let found = living.next().ok_or(Rejection::LeaseNotFound { lease: id })?;
        assert!(living.next().is_none(), "one living lease per id");
        Ok(found.incarnation)
    }

    /// Finds the lease, follows rules 1 to 5, and runs the command in between unless it is a repeat.
    pub(super) fn identified(
        &mut self,
        lease: LeaseId,
        request: Option<&Request>,
        (names, about): (Option<&Names>, Option<About>),
        attended: bool,
        run: impl FnOnce(&mut Oracle, Revision) -> Result<Answer, Rejection>,
    ) -> Reply {
        let incarnation = match self.living(lease) {
            Ok(incarnation) => incarnation,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let about = about.filter(|_| self.version >= 2);
        if let Some(request) = request {
            if let Err(rejection) = self.take_acks(incarnation, &request.acked) {
                return Reply::Rejected(rejection);
            }
            let known = self.lease_of(incarnation).about.get(&request.seq.get());
            if known.is_some_and(|known| about.as_ref().is_some_and(|about| about != known)) {
                return Reply::Rejected(Rejection::SeqReused { seq: request.seq });
            }
            if let Some(reply) = self.answer_without_running(incarnation, request, names, attended) {
                return reply;
            }
        }
        let answer = run(self, incarnation).unwrap_or_else(|rejection| Answer {
            kept: Kept::Outcome(Outcome::Rejected(rejection.code())),
            reply: Reply::Rejected(rejection),
        });
        if let Kept::Acquire(claim) | Kept::Convert { claim, .. } = &answer.kept {
            self.asked(*claim, attended, &answer.reply);
        }
        if let Some(request) = request {
            self.keep(incarnation, request.seq, answer.kept);
            if let Some(about) = about {
                self.lease_of_mut(incarnation).about.insert(request.seq.get(), about);
            }
            if matches!(answer.reply, Reply::Queued { .. }) {
                self.lease_of_mut(incarnation).waited.insert(request.seq.get());
            }
        }
        answer.reply
    }

    /// Counts a request for a claim, with its answer. After a request that waits and whose caller does not stand by,
    /// the wait goes on without any caller.
    fn asked(&mut self, claim: Revision, attended: bool, reply: &Reply) {
        let claim = self.claim_mut(claim);
        claim.asks += 1;
        if let (Reply::Queued { .. }, false) = (reply, attended) {
            *claim.upgrade.as_mut().map_or(&mut claim.attended, |upgrade| &mut upgrade.attended) = false;
        }
    }

    pub(super) fn next_seq(&self, incarnation: Revision) -> Seq {
        let lease = self.lease_of(incarnation);
        let highest = lease.seen.ranges().iter().map(|(_, last)| *last).max().unwrap_or(0);
        Seq::new((highest + 1).max(lease.seqs_from).min((1 << 53) - 1)).expect("a seq")
    }

    /// Rules 3 and 4 of the page.
    fn answer_without_running(
        &mut self,
        incarnation: Revision,
        request: &Request,
        names: Option<&Names>,
        attended: bool,
    ) -> Option<Reply> {
        let kept = self.lease_of(incarnation).kept.get(&request.seq.get());
        if let Some(Kept::Acquire(claim) | Kept::Convert { claim, .. }) = kept {
            let of_claim = self.claim(*claim).names.clone();
            self.settle_all(of_claim.as_slice());
        }
        if self.lease_of(incarnation).seen.contains(request.seq) {
            let reply = self.answer_repeat(incarnation, request.seq, names);
            let kept = self.lease_of(incarnation).kept.get(&request.seq.get());
            if let Some(Kept::Acquire(claim) | Kept::Convert { claim, .. }) = kept {
                self.asked(*claim, attended, &reply);
            }
            return Some(reply);
        }
        self.check_room(incarnation).err().map(Reply::Rejected)
    }

    /// Rules 1 and 2 of the page.
    pub(super) fn take_acks(&mut self, incarnation: Revision, acked: &SeqRanges) -> Result<(), Rejection> {
        let max = self.limits.ops_in_flight_per_lease_max;
        let open = max + self.limits.waits_per_lease_max;
        let lease = self.lease_of_mut(incarnation);
        let mut merged = lease.seen.clone();
        merged.merge(acked);
        let (before, after) = (lease.seen.ranges().len(), merged.ranges().len());
        if after > before && after as u64 > open + SPARE_RANGES {
            return Err(too_many_in_flight(max, after - 1));
        }
        lease.kept.retain(|seq, _| !acked.contains(Seq::new(*seq).expect("it was a seq")));
        lease.waited.retain(|seq| lease.kept.contains_key(seq));
        lease.about.retain(|seq, _| lease.kept.contains_key(seq));
        lease.seen.merge(acked);
        Ok(())
    }

    /// Rule 4 of the page.
    pub(super) fn check_room(&self, incarnation: Revision) -> Result<(), Rejection> {
        let max = self.limits.ops_in_flight_per_lease_max;
        let lease = self.lease_of(incarnation);
        let kept = lease.kept.keys().filter(|seq| !lease.waited.contains(seq)).count();
        if kept as u64 >= max { Err(too_many_in_flight(max, kept)) } else { Ok(()) }
    }

    /// Refuses one more waiting request of the lease if there are too many; only one with a seq counts.
    pub(super) fn check_waits(&self, incarnation: Revision, has_seq: bool) -> Result<(), Rejection> {
        if !has_seq {
            return Ok(());
        }
        self.check_limit(Limit::WaitsPerLease, self.lease_of(incarnation).waited.len() as u64 + 1)
    }

    pub(super) fn keep(&mut self, incarnation: Revision, seq: Seq, kept: Kept) {
        let lease = self.lease_of_mut(incarnation);
        lease.seen.insert(seq);
        lease.kept.insert(seq.get(), kept);
    }

    /// Rule 3 of the page, for a seq that is seen.
    pub(super) fn answer_repeat(&self, incarnation: Revision, seq: Seq, names: Option<&Names>) -> Reply {
        match self.lease_of(incarnation).kept.get(&seq.get()) {
            None => Reply::Rejected(Rejection::SeqAcked { seq }),
            Some(Kept::Acquire(claim)) => match self.claim(*claim).token {
                None => self.queued(Place { claim: *claim, upgrade: false }),
                Some(_) => self.acquired(*claim),
            },
            Some(Kept::Convert { claim, queued_at }) => match &self.claim(*claim).upgrade {
                Some(upgrade) if Some(upgrade.queued_at) == *queued_at => {
                    self.queued(Place { claim: *claim, upgrade: true })
                }
                _ => self.acquired(*claim),
            },
            Some(Kept::Outcome(Outcome::Busy)) => {
                names.map_or(Reply::Busy { holders: Vec::new(), closed: None }, |names| self.busy(names))
            }
            Some(Kept::Outcome(Outcome::Rejected(code))) => {
                Reply::Rejected(Rejection::RejectedBefore { seq, code: *code })
            }
            Some(Kept::Outcome(Outcome::Reply(reply))) => reply.clone(),
        }
    }

    /// Replaces every kept record that `which` picks by an outcome.
    pub(super) fn replace_kept(
        &mut self,
        incarnation: Revision,
        outcome: &Outcome,
        which: impl Fn(&Kept) -> bool,
    ) {
        for kept in self.lease_of_mut(incarnation).kept.values_mut().filter(|kept| which(kept)) {
            *kept = Kept::Outcome(outcome.clone());
        }
    }

    /// The answer for a place in a queue.
    pub(super) fn queued(&self, place: Place) -> Reply {
        let claim = self.claim(place.claim);
        let create_revision = claim.upgrade.as_ref().map_or(place.claim, |upgrade| upgrade.queued_at);
        Reply::Queued { create_revision, position: self.position(place) }
    }

    /// The answer for a claim that holds.
    pub(super) fn acquired(&self, id: Revision) -> Reply {
        let claim = self.claim(id);
        let token = claim.token.expect("it holds");
        Reply::Acquired { token, create_revision: id, mode: claim.mode }
    }
}

fn too_many_in_flight(max: u64, kept: usize) -> Rejection {
    Rejection::LimitExceeded { limit: Limit::OpsInFlightPerLease, max, got: kept as u64 + 1 }
}
