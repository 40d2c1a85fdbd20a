//! Request identity: a request repeated with its seq has one effect and one answer (P10).

use super::State;
use crate::claim::Claim;
use crate::command::{Request, Scope};
use crate::fingerprint::{Asks, Fingerprint, Subject};
use crate::format::{Writer, write_subject};
use crate::lease::{Lease, Residence};
use crate::planted::Bug;
use crate::reply::{Rejection, Reply};
use crate::requests::{Kept, KeptFor, Outcome, Part};
use crate::slab::Id;
use tollgate_types::{LeaseId, Limit, Names, REVISION_END, Seq, SeqRanges};

/// The highest possible seq.
pub(super) const SEQ_MAX: u64 = REVISION_END - 1;

/// A request for which a command runs.
pub(super) struct Asked<'a> {
    pub(super) lease: Id<Lease>,
    /// None if the caller does not number its requests.
    pub(super) request: Option<&'a Request>,
    /// The names whose holders a busy answer lists.
    names: Option<&'a Names>,
    /// True if the caller stands by while it waits.
    attended: bool,
    subject: Subject,
}

/// Result of a command.
pub(super) enum Answer {
    /// A claim that the command made, which carries the request's seq already.
    Made(Id<Claim>),
    /// A claim that the command found held, or made weaker: the reply is the claim's state, until it ends.
    Has(Id<Claim>),
    /// A claim that the command changed, or now waits for too: the reply is the claim's state.
    Claim(Id<Claim>, Part),
    /// Anything else.
    Reply(Reply),
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer::Reply(reply)
    }
}

impl State {
    /// The lease with this id, unless it has ended.
    pub(super) fn find_lease(&self, id: LeaseId) -> Option<Id<Lease>> {
        self.find_living(id).map(|(found, _)| found)
    }

    #[inline]
    fn find_living(&self, id: LeaseId) -> Option<(Id<Lease>, &Lease)> {
        let hash = crate::index::hash_number(id.get());
        let found = self.lease_ids.find(hash, |lease| self.leases.get(lease).id == id)?;
        let lease = self.leases.get(found);
        (!self.is_past(lease.deadline)).then_some((found, lease))
    }

    /// The lease, if a command may attach claims or registers to it: it has not ended and, if it lives in another
    /// group, that group has registered this one.
    #[inline]
    pub(super) fn living_lease(&self, lease: LeaseId) -> Result<Id<Lease>, Rejection> {
        let (id, record) = self.find_living(lease).ok_or(Rejection::LeaseNotFound { lease })?;
        match record.residence {
            Residence::Elsewhere(stub) if stub.pending && !self.planted(Bug::PendingStubUsed) => {
                Err(Rejection::StubPending { lease, home: stub.home })
            }
            _ => Ok(id),
        }
    }

    /// Takes in acknowledgements, then answers a repeat or lets a new request run.
    pub(super) fn begin<'a>(
        &mut self,
        lease: Id<Lease>,
        request: Option<&'a Request>,
        asks: &'a Asks<'a>,
        attended: bool,
    ) -> Result<Asked<'a>, Reply> {
        let names = asks.names();
        let Some(request) = request else {
            return Ok(Asked { lease, request: None, names, attended, subject: Subject::UNKNOWN });
        };
        let subject = self.subject(request, asks);
        let asked = Asked { lease, request: Some(request), names, attended, subject };
        self.let_run(&asked, request)?;
        Ok(asked)
    }

    /// The content of a request, by the rules in force.
    fn subject(&mut self, request: &Request, asks: &Asks<'_>) -> Subject {
        let names = match &request.scope {
            _ if !self.knows_requests() => return Subject::UNKNOWN,
            Scope::Unsaid => return Subject::UNKNOWN,
            Scope::PartOf(names) if !self.planted(Bug::PartsFingerprintedApart) => Some(&**names),
            Scope::PartOf(_) | Scope::Whole => asks.names(),
        };
        let names = names.filter(|_| !self.planted(Bug::FingerprintForgetsNames));
        let bytes = &mut self.scratch.subject;
        bytes.clear();
        write_subject(&mut Writer::new(bytes), asks, names);
        Subject { fingerprint: Some(Fingerprint::of(bytes)), slots: asks.slots() }
    }

    fn let_run(&mut self, asked: &Asked<'_>, request: &Request) -> Result<(), Reply> {
        let Asked { lease, names, attended, .. } = *asked;
        self.acknowledge(lease, &request.acked).map_err(Reply::Rejected)?;
        let kept = self.leases.get(lease).requests.subject(request.seq);
        if kept.is_some_and(|kept| kept.is_another(asked.subject.fingerprint))
            && !self.planted(Bug::SeqAnswersAnyRequest)
        {
            return Err(Reply::Rejected(Rejection::SeqReused { seq: request.seq }));
        }
        if let Some(Kept::Claim { claim, .. }) = self.leases.get(lease).requests.get(request.seq) {
            // A repeat that names other locks must not be answered with a claim that is dead.
            let names = self.claims.get(claim).names.clone();
            self.settle_names(names.as_slice());
        }
        if let Some(reply) = self.repeat(lease, request.seq, names) {
            self.count_repeat(lease, request.seq, attended);
            return Err(reply);
        }
        self.room_for_one(lease).map_err(Reply::Rejected)
    }

    /// The first seq of a lease that no request has used, in any group. Only the lease's home knows: other groups have
    /// seen only the requests that came to them.
    pub(super) fn next_seq(&self, lease: Id<Lease>) -> Seq {
        let lease = self.leases.get(lease);
        let used = u64::from(!self.planted(Bug::NextSeqIsUsed));
        let next = (lease.requests.highest() + used).max(lease.seqs_from).max(1);
        Seq::new(next.min(SEQ_MAX)).expect("within the range of seqs")
    }

    pub(super) fn acknowledge(&mut self, lease: Id<Lease>, acked: &SeqRanges) -> Result<(), Rejection> {
        if acked.is_empty() {
            return Ok(());
        }
        let (max, open_max) = (self.limits.ops_in_flight_per_lease_max, self.open_max());
        let requests = &mut self.leases.get_mut(lease).requests;
        if let Some(ranges) = requests.too_scattered(acked, open_max) {
            return Err(over(Limit::OpsInFlightPerLease, max, ranges));
        }
        let claims = &mut self.claims;
        requests.acknowledge(acked, |claim, seq| claims.get_mut(claim).forget_seq(seq));
        Ok(())
    }

    /// The reply to a request that was seen before.
    fn repeat(&self, lease: Id<Lease>, seq: Seq, names: Option<&Names>) -> Option<Reply> {
        let requests = &self.leases.get(lease).requests;
        if !requests.is_seen(seq) || self.planted(Bug::RepeatRunsAgain) {
            return None;
        }
        match requests.get(seq) {
            Some(Kept::Claim { claim, part }) => {
                Some(self.claim_reply(claim, self.seq_waits(claim, part, seq)))
            }
            Some(Kept::Outcome(outcome)) => Some(self.outcome_reply(seq, outcome, names)),
            None if self.planted(Bug::AckedSeqRunsAgain) => None,
            None => Some(Reply::Rejected(Rejection::SeqAcked { seq })),
        }
    }

    /// Counts a repeat on the claim that answers it.
    fn count_repeat(&mut self, lease: Id<Lease>, seq: Seq, attended: bool) {
        if let Some(Kept::Claim { claim, part }) = self.leases.get(lease).requests.get(seq) {
            let waits = self.seq_waits(claim, part, seq);
            self.claims.get_mut(claim).asked(attended, waits);
        }
    }

    /// True if a request is certainly new and would be let through by `begin`.
    pub(super) fn would_run(&self, lease: Id<Lease>, request: &Request) -> bool {
        let (requests, acked) = (&self.leases.get(lease).requests, &request.acked);
        let seen = requests.is_seen(request.seq) || acked.contains(request.seq);
        !seen && requests.too_scattered(acked, self.open_max()).is_none() && self.room_for_one(lease).is_ok()
    }

    /// Most requests of a lease that can be open at once: those in flight, and those that wait.
    fn open_max(&self) -> u64 {
        self.limits.ops_in_flight_per_lease_max + self.limits.waits_per_lease_max
    }

    pub(super) fn room_for_one(&self, lease: Id<Lease>) -> Result<(), Rejection> {
        let requests = &self.leases.get(lease).requests;
        let jams = self.planted(Bug::WaitsJamTheirLease);
        let in_flight = if jams { requests.kept().len() as u64 } else { requests.in_flight() };
        self.check(Limit::OpsInFlightPerLease, in_flight + 1)
    }

    /// Refuses one more waiting request if the lease has no room. A request without a seq is not counted: nothing of it
    /// is kept.
    pub(super) fn room_to_wait(&self, lease: Id<Lease>, request: Option<&Request>) -> Result<(), Rejection> {
        let waits = self.leases.get(lease).requests.waits();
        request.map_or(Ok(()), |_| self.check(Limit::WaitsPerLease, waits + 1))
    }

    /// Keeps the answer for repeats, and returns it.
    pub(super) fn finish(&mut self, asked: Asked<'_>, result: Result<Answer, Rejection>) -> Reply {
        let Asked { lease, request, attended, subject, .. } = asked;
        let seq = request.map(|request| request.seq);
        let reply = match result {
            Ok(Answer::Made(claim)) => {
                let waits = !self.claims.get(claim).holds();
                if let Some(seq) = seq {
                    self.keep_claim(claim, seq, Part::Acquire, subject, waits);
                }
                return self.claim_reply(claim, waits);
            }
            Ok(Answer::Has(claim)) => {
                self.claims.get_mut(claim).asked(attended, false);
                if let Some(seq) = seq {
                    // Kept like a Convert that was granted: it never waits, and a cancel of it releases nothing.
                    self.claims.get_mut(claim).seqs.push((seq, Part::Convert));
                    self.keep_claim(claim, seq, Part::Convert, subject, false);
                }
                return self.claim_reply(claim, false);
            }
            Ok(Answer::Claim(claim, part)) => {
                self.attach(claim, part, seq);
                let record = self.claims.get_mut(claim);
                let waits = !record.holds() || (record.upgrade.is_some() && part == Part::Convert);
                record.asked(attended, waits);
                if let Some(seq) = seq {
                    self.keep_claim(claim, seq, part, subject, waits);
                }
                return self.claim_reply(claim, waits);
            }
            Ok(Answer::Reply(reply)) => reply,
            Err(rejection) => Reply::Rejected(rejection),
        };
        if let Some(seq) = seq {
            let kept = Kept::Outcome(outcome_of(&reply));
            self.leases.get_mut(lease).requests.keep_for(KeptFor { seq, kept, subject, waited: false });
        }
        reply
    }

    /// Records in the claim's lease that the claim answers a seq.
    fn keep_claim(&mut self, claim: Id<Claim>, seq: Seq, part: Part, subject: Subject, waited: bool) {
        let kept = KeptFor { seq, kept: Kept::Claim { claim, part }, subject, waited };
        let lease = self.claims.get(claim).lease;
        self.leases.get_mut(lease).requests.keep_for(kept);
    }

    /// Records on the claim that a request asked for it.
    fn attach(&mut self, id: Id<Claim>, part: Part, seq: Option<Seq>) {
        let claim = self.claims.get_mut(id);
        match (&mut claim.upgrade, part, seq) {
            (Some(upgrade), Part::Convert, Some(seq)) => upgrade.seqs.push(seq),
            (Some(upgrade), Part::Convert, None) => upgrade.anonymous = true,
            (_, part, Some(seq)) => claim.seqs.push((seq, part)),
            (_, _, None) => claim.anonymous = true,
        }
    }

    /// True while the wait that a request began goes on. A Convert that was granted has no wait, though another Convert
    /// of the claim may.
    pub(super) fn seq_waits(&self, id: Id<Claim>, part: Part, seq: Seq) -> bool {
        let claim = self.claims.get(id);
        match part {
            Part::Acquire => !claim.holds(),
            Part::Convert => claim.upgrade.as_ref().is_some_and(|upgrade| upgrade.seqs.contains(&seq)),
        }
    }

    /// The state of a claim as the reply to a request: `Queued` if the request waits for it, else `Acquired`.
    pub(super) fn claim_reply(&self, id: Id<Claim>, waits: bool) -> Reply {
        let claim = self.claims.get(id);
        if waits {
            let (create_revision, position) = (claim.wait_revision(), self.position(claim));
            return Reply::Queued { create_revision, position };
        }
        let token = claim.token.expect("who does not wait holds");
        Reply::Acquired { token, create_revision: claim.create_revision, mode: claim.mode }
    }

    /// The reply for a kept outcome. `names` are the names whose holders a busy reply lists.
    pub(super) fn outcome_reply(&self, seq: Seq, outcome: Outcome, names: Option<&Names>) -> Reply {
        match outcome {
            Outcome::Acquired { token, create_revision, mode } => {
                Reply::Acquired { token, create_revision, mode }
            }
            Outcome::Busy => {
                names.map_or(Reply::Busy { holders: Vec::new(), closed: None }, |names| self.busy(names))
            }
            Outcome::Released { revision } => Reply::Released { revision },
            Outcome::Ended { token, reason } => Reply::Ended { token, reason },
            Outcome::TxnDone { succeeded, revision } => {
                Reply::TxnDone { succeeded, revision, results: Vec::new() }
            }
            Outcome::Proclaimed { revision } => Reply::Proclaimed { revision },
            Outcome::Rejected(code) => Reply::Rejected(Rejection::RejectedBefore { seq, code }),
        }
    }
}

/// The rejection of a request that exceeds a limit.
pub(super) fn over(limit: Limit, max: u64, got: u64) -> Rejection {
    Rejection::LimitExceeded { limit, max, got }
}

fn outcome_of(reply: &Reply) -> Outcome {
    match reply {
        Reply::Acquired { token, create_revision, mode } => {
            Outcome::Acquired { token: *token, create_revision: *create_revision, mode: *mode }
        }
        Reply::Busy { .. } => Outcome::Busy,
        Reply::Released { revision } => Outcome::Released { revision: *revision },
        Reply::Ended { token, reason } => Outcome::Ended { token: *token, reason: *reason },
        Reply::TxnDone { succeeded, revision, .. } => {
            Outcome::TxnDone { succeeded: *succeeded, revision: *revision }
        }
        Reply::Proclaimed { revision } => Outcome::Proclaimed { revision: *revision },
        Reply::Rejected(rejection) => Outcome::Rejected(rejection.code()),
        Reply::Done
        | Reply::LeaseGranted { .. }
        | Reply::LeasesRenewed(_)
        | Reply::LeaseRevoked
        | Reply::Queued { .. }
        | Reply::Cancelled
        | Reply::Stub(_)
        | Reply::StubRegistered
        | Reply::LeaseUnknown => unreachable!("no command with a seq answers so: {reply:?}"),
    }
}
