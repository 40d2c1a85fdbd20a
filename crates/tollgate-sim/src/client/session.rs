//! A client's lease, from the choice of its id to the moment at which the client no longer believes in it.
//!
//! Invariant (P7): past its belief a client never renews the lease again. It revokes the lease and begins another
//! session with another id. Not here: the length of the belief (`belief`), and the work under the lease (`work`).

use super::belief::Belief;
use super::call::{Again, NewCall, Why};
use super::{Client, ClientContext};
use crate::front::Ask;
use crate::types::{At, group_of};
use std::collections::BTreeMap;
use tollgate_check::{Event, Op, Outcome};
use tollgate_core::{AddStub, Command, GrantLease, LeaseChoice, Renewal, Request, RevokeLease, Scope};
use tollgate_types::{
    Address, ClientId, DurationMs, GroupId, LeaseId, Revision, SLOTS, Seq, SeqRanges, Slot,
};

/// A lease and what its client knows of it.
#[derive(Debug)]
pub(super) struct Session {
    choice: LeaseChoice,
    home: GroupId,
    /// The lease and its incarnation, once granted.
    lease: Option<(LeaseId, Revision)>,
    belief: Belief,
    /// End of the belief according to the history, in true time.
    told_until: At,
    /// Local time at which to send the next grant or keepalive.
    next_renewal: u64,
    /// Local time at which another id is tried, if the lease is not granted by then.
    give_up_at: u64,
    /// Grants and keepalives sent since the last answer.
    unanswered: u32,
    next_seq: u64,
    /// Seqs whose answers the client has but has not acknowledged to the servers.
    answered: Vec<Seq>,
    acked: SeqRanges,
    stubs: BTreeMap<GroupId, Stub>,
}

/// Knowledge of a client about its lease's stub in another group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stub {
    Asked,
    /// The stub exists, or never will; the answer to the next request tells.
    Answered,
}

impl Session {
    /// Returns the lease, if the client believes in it now.
    pub(super) fn believed(&self, now: u64) -> Option<LeaseId> {
        self.lease.filter(|_| self.belief.holds(now)).map(|(lease, _)| lease)
    }

    /// Returns the identity of the lease's next request. The acks are filled in when the request is sent.
    pub(super) fn next_request(&mut self) -> Request {
        self.next_seq += 1;
        let seq = Seq::new(self.next_seq).expect("fewer than 2^53 requests");
        Request { seq, acked: SeqRanges::default(), scope: Scope::Whole }
    }

    /// Notes that the client has the answer to this request.
    pub(super) fn has_answer(&mut self, seq: Seq) {
        self.answered.push(seq);
    }

    /// Returns the seqs to acknowledge to the servers; `fresh` includes all answers received by now.
    pub(super) fn acked(&mut self, fresh: bool) -> &SeqRanges {
        if fresh {
            for seq in self.answered.drain(..) {
                self.acked.insert(seq);
            }
        }
        &self.acked
    }

    pub(super) fn next_wake(&self) -> u64 {
        if self.lease.is_some() { self.next_renewal.min(self.belief.until()) } else { self.next_renewal }
    }
}

impl Client {
    /// Begins a session, renews its lease, or ends it once the client no longer believes in the lease.
    pub(super) fn mind_lease(&mut self, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        self.lapse(now, at, ctx);
        if self.session.is_none() && !self.healing && now >= self.session_from {
            self.begin_session(now, ctx);
        }
        let Some(session) = &mut self.session else { return };
        if now < session.next_renewal {
            return;
        }
        if session.lease.is_some() && session.belief.until() <= now + 2_000 {
            // Too late for an answer, and in the history too close to the end to tell which came first.
            session.next_renewal = u64::MAX;
            return;
        }
        let (group, epoch) = (session.home, self.epoch);
        if session.unanswered > 0 {
            self.leaders.remove(&group);
        }
        session.unanswered += 1;
        let ttl_ms = self.settings.ttl_ms;
        let Some((lease, _)) = session.lease else {
            if self.healing || now >= session.give_up_at {
                self.end_session(now, now);
                return;
            }
            session.next_renewal = now + 150_000 + self.rng.below(150_000);
            let (lease, ask) = (chosen(session.choice), self.grant_ask());
            let op = Some(Op::GrantLease { lease, ttl_ms });
            let (why, again, seq) = (Why::Grant, Again::Never, None);
            self.calls.make(NewCall { group, ask, op, seq, why, again, epoch }, now);
            return;
        };
        // An unanswered keepalive is repeated sooner than an answered one would be renewed.
        session.next_renewal = now + (ttl_ms * 1_000 / 8).min(300_000);
        let ask = Ask::KeepAlive(Renewal { lease, address: None, acked: SeqRanges::default() });
        let op = Some(Op::KeepAlive { lease });
        let (why, again, seq) = (Why::KeepAlive, Again::Never, None);
        self.calls.make(NewCall { group, ask, op, seq, why, again, epoch }, now);
    }

    fn begin_session(&mut self, now: u64, ctx: &ClientContext<'_>) {
        self.epoch += 1;
        let slot = u16::try_from(self.rng.below(u64::from(SLOTS))).expect("below SLOTS");
        let slot = Slot::new(slot).expect("below SLOTS");
        let choice = if self.rng.percent(self.settings.assigned_percent) {
            LeaseChoice::Assigned(slot)
        } else {
            // Never the same id twice, in any client: it has high bits that no assigned id has.
            let number = (1 << 48) | (u64::from(self.no.0) << 20) | u64::from(self.epoch);
            LeaseChoice::Chosen(LeaseId::assigned(slot, number))
        };
        self.session = Some(Session {
            choice,
            home: group_of(slot, ctx.groups),
            lease: None,
            belief: Belief::default(),
            told_until: 0,
            next_renewal: now,
            give_up_at: now + self.settings.ttl_ms * 1_000,
            unanswered: 0,
            next_seq: 0,
            answered: Vec::new(),
            acked: SeqRanges::default(),
            stubs: BTreeMap::new(),
        });
    }

    fn grant_ask(&self) -> Ask {
        let session = self.session.as_ref().expect("the caller has one");
        Ask::Command(Box::new(Command::GrantLease(GrantLease {
            id: session.choice,
            ttl: DurationMs::from_ms(self.settings.ttl_ms),
            client_id: self.client_id(),
            address: Address::NONE,
            revoke_on_disconnect: false,
        })))
    }

    fn client_id(&self) -> ClientId {
        ClientId::new(self.no.to_string()).expect("a short text is a client id")
    }

    /// Ends the session if the client no longer believes in its lease.
    pub(super) fn lapse(&mut self, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        let Some(session) = &self.session else { return };
        let Some((lease, _)) = session.lease else { return };
        if session.belief.holds(now) {
            return;
        }
        ctx.stats.lapsed += 1;
        self.disbelieve(lease, at, ctx);
        self.revoke(lease, now);
        self.lose_grants(now);
        let from = now + self.rng.below(500_000);
        self.end_session(now, from);
    }

    fn disbelieve(&self, lease: LeaseId, at: At, ctx: &mut ClientContext<'_>) {
        let at = tollgate_check::At::from_us(at);
        ctx.history.record(at, Event::Believes { client: self.no.0, lease, until: at });
    }

    /// Forgets the session; the next one begins at `from`.
    fn end_session(&mut self, now: u64, from: u64) {
        self.calls.orphan(self.epoch);
        self.session = None;
        self.session_from = from;
        for task in &mut self.tasks {
            task.restart(now);
        }
    }

    /// Revokes a lease, however long that takes.
    pub(super) fn revoke(&mut self, lease: LeaseId, now: u64) {
        let group = self.home_of(lease);
        let ask = Ask::Command(Box::new(Command::RevokeLease(RevokeLease { lease, disconnected: None })));
        let op = Some(Op::RevokeLease { lease });
        let (why, again, seq, epoch) = (Why::Revoke, Again::NewCall, None, self.epoch);
        self.calls.make(NewCall { group, ask, op, seq, why, again, epoch }, now);
    }

    /// Handles the answer to a grant, maybe of an earlier session.
    pub(super) fn granted(
        &mut self,
        (epoch, sent): (u32, u64),
        outcome: &Outcome,
        now: u64,
        at: At,
        ctx: &mut ClientContext<'_>,
    ) {
        let Outcome::LeaseGranted { lease, incarnation, ttl_ms, .. } = *outcome else {
            if epoch == self.epoch && self.session.as_ref().is_some_and(|session| session.lease.is_none()) {
                self.end_session(now, now);
            }
            return;
        };
        ctx.stats.leases += 1;
        let current = self.session.as_mut().filter(|session| {
            epoch == self.epoch && session.lease.is_none_or(|known| known == (lease, incarnation))
        });
        let Some(session) = current else {
            // Too late, or one too many. The id of the living session is not revoked: the answer is to an old grant.
            if self.session.as_ref().and_then(|session| session.lease).is_none_or(|(known, _)| known != lease)
            {
                self.revoke(lease, now);
            }
            return;
        };
        let first = session.lease.is_none();
        session.lease = Some((lease, incarnation));
        session.belief.acknowledged(sent, ttl_ms, self.settings.rho_ppm);
        if first {
            session.next_renewal = sent + ttl_ms * 1_000 / 3;
        }
        session.unanswered = 0;
        self.record_belief(now, at, ctx);
    }

    /// Handles the answer to a keepalive.
    pub(super) fn renewed(
        &mut self,
        (epoch, sent): (u32, u64),
        outcome: &Outcome,
        now: u64,
        at: At,
        ctx: &mut ClientContext<'_>,
    ) {
        if epoch != self.epoch {
            return;
        }
        let Some(session) = &mut self.session else { return };
        let Some((lease, _)) = session.lease else { return };
        match *outcome {
            Outcome::Renewed { ttl_ms } => {
                ctx.stats.renewals += 1;
                session.unanswered = 0;
                if session.belief.acknowledged(sent, ttl_ms, self.settings.rho_ppm) {
                    session.next_renewal = sent + ttl_ms * 1_000 / 3;
                    self.record_belief(now, at, ctx);
                }
            }
            Outcome::LeaseNotFound => {
                ctx.stats.expired += 1;
                self.disbelieve(lease, at, ctx);
                self.lose_grants(now);
                let from = now + self.rng.below(200_000);
                self.end_session(now, from);
            }
            _ => {}
        }
    }

    /// Records until when the client believes, if that has changed or the client's clock turns out to run at another
    /// rate.
    pub(super) fn record_belief(&mut self, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        let (true_time, rho_ppm, client) = (self.true_time, self.settings.rho_ppm, self.no.0);
        let Some(session) = &mut self.session else { return };
        let Some((lease, _)) = session.lease.filter(|_| session.belief.holds(now)) else { return };
        let until = true_time.of(session.belief.until(), rho_ppm);
        if until.abs_diff(session.told_until) > 500 {
            session.told_until = until;
            let until = tollgate_check::At::from_us(until);
            ctx.history.record(tollgate_check::At::from_us(at), Event::Believes { client, lease, until });
        }
    }

    /// Asks for a renewal at once, because something says that the lease may be gone.
    pub(super) fn doubt_lease(&mut self, now: u64) {
        if let Some(session) = self.session.as_mut().filter(|session| session.lease.is_some()) {
            session.next_renewal = session.next_renewal.min(now);
        }
    }

    /// Asks for a renewal soon, because the leader of the lease's home is elsewhere, or too busy.
    pub(super) fn renew_soon(&mut self, epoch: u32, now: u64) {
        let pause_us = 10_000 + self.rng.below(40_000);
        if let Some(session) = self.session.as_mut().filter(|_| epoch == self.epoch) {
            session.unanswered = 0;
            session.next_renewal = session.next_renewal.min(now + pause_us);
        }
    }

    /// Returns true if requests under the lease may be sent to the group. A group that is not the lease's home must
    /// have a stub of the lease first; the client adds the stub, and the groups' leaders see to the rest.
    pub(super) fn is_ready_in(&mut self, group: GroupId, now: u64) -> bool {
        let client_id = self.client_id();
        let Some(session) = &mut self.session else { return true };
        let Some((lease, incarnation)) = session.lease else { return true };
        let home = session.home;
        if group == home {
            return true;
        }
        if let Some(stub) = session.stubs.get(&group) {
            return *stub == Stub::Answered;
        }
        session.stubs.insert(group, Stub::Asked);
        let ask = Ask::Command(Box::new(Command::AddStub(AddStub { lease, incarnation, client_id, home })));
        let (why, again, seq, epoch) = (Why::Stub, Again::Same, None, self.epoch);
        self.calls.make(NewCall { group, ask, op: None, seq, why, again, epoch }, now);
        false
    }

    /// Handles a group's answer about its stub.
    pub(super) fn stub_answered(&mut self, epoch: u32, group: GroupId, ctx: &mut ClientContext<'_>) {
        ctx.stats.stubs += 1;
        if let Some(session) = self.session.as_mut().filter(|_| epoch == self.epoch) {
            session.stubs.insert(group, Stub::Answered);
        }
    }

    /// Returns the home group of the lease with this id.
    fn home_of(&self, lease: LeaseId) -> GroupId {
        group_of(lease.slot(), self.groups)
    }

    /// Leaves at the very end: revokes the lease, if there is one, and begins no other session.
    pub(super) fn leave(&mut self, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        let lease = self.session.as_ref().and_then(|session| session.lease);
        if let Some((lease, _)) = lease {
            self.disbelieve(lease, at, ctx);
            self.revoke(lease, now);
        }
        self.end_session(now, u64::MAX);
    }
}

fn chosen(choice: LeaseChoice) -> Option<LeaseId> {
    match choice {
        LeaseChoice::Chosen(lease) => Some(lease),
        LeaseChoice::Assigned(_) => None,
    }
}
