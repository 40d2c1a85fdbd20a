//! Takes notes of events in the life of locks and leases, for people to read.
//!
//! Invariant: without [`Noting::All`] nothing but losses is copied, so that noting costs nothing where locks change
//! hands as they should. Not here: the notes themselves (`note`).

use super::State;
use crate::claim::Claim;
use crate::lease::Lease;
use crate::note::{Note, Noted, Noting};
use crate::reply::{EndReason, Rejection, Reply};
use crate::slab::Id;
use tollgate_types::{ClientId, DurationMs, LogTime, Mode, Name, Owner, Reason};

/// The notes of a state.
#[derive(Debug, Default)]
pub(super) struct Notes {
    noting: Noting,
    taken: Vec<Note>,
}

impl State {
    /// Selects the notes to take from here on. The selection is not part of the state: each replica may have its own.
    pub fn take_notes_of(&mut self, noting: Noting) {
        self.notes.noting = noting;
    }

    /// Returns the notes since the last call, in the order of the events. If called after every entry, it returns no
    /// more than one entry makes.
    pub fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes.taken)
    }

    /// Notes that a claim was made: it holds, or waits.
    pub(super) fn note_made(&mut self, id: Id<Claim>) {
        if self.notes.noting == Noting::All {
            let claim = self.claims.get(id);
            let (what, waited) =
                if claim.holds() { (Noted::Granted, Some(DurationMs::ZERO)) } else { (Noted::Waits, None) };
            let note = Note { waited, ..self.note_of(claim, what, claim.mode) };
            self.notes.taken.push(note);
        }
    }

    /// Notes that a waiter was granted, which had waited since `since`.
    pub(super) fn note_granted(&mut self, id: Id<Claim>, since: LogTime) {
        if self.notes.noting == Noting::All {
            let claim = self.claims.get(id);
            let waited = Some(since.until(self.now));
            let note = Note { waited, ..self.note_of(claim, Noted::Granted, claim.mode) };
            self.notes.taken.push(note);
        }
    }

    /// Notes that a holder has another mode, or waits for one.
    pub(super) fn note_mode(&mut self, id: Id<Claim>) {
        if self.notes.noting == Noting::All {
            let claim = self.claims.get(id);
            let what = if claim.upgrade.is_some() { Noted::Waits } else { Noted::Converted };
            let note = self.note_of(claim, what, claim.wanted());
            self.notes.taken.push(note);
        }
    }

    /// Notes that a claim is about to end.
    pub(super) fn note_end(&mut self, id: Id<Claim>, reason: EndReason, why: &Reason) {
        if self.notes.noting != Noting::Nothing {
            let claim = self.claims.get(id);
            if self.is_noted(claim, reason) {
                let what = if claim.holds() { Noted::Ended } else { Noted::Left };
                let note = self.end_note(claim, what, reason, why);
                self.notes.taken.push(note);
            }
        }
    }

    /// Notes that a holder is about to lose some of its names.
    pub(super) fn note_given_back(&mut self, id: Id<Claim>, names: &[Name], reason: EndReason, why: &Reason) {
        if self.notes.noting != Noting::Nothing {
            let claim = self.claims.get(id);
            if self.is_noted(claim, reason) {
                let note = self.end_note(claim, Noted::Ended, reason, why);
                self.notes.taken.push(Note { names: names.to_vec(), ..note });
            }
        }
    }

    /// Notes that a holder's wait for a stronger mode is about to end.
    pub(super) fn note_upgrade_end(&mut self, id: Id<Claim>, reason: EndReason) {
        if self.notes.noting == Noting::All || self.notes.noting != Noting::Nothing && is_deadlock(reason) {
            let claim = self.claims.get(id);
            let waited = claim.upgrade.as_ref().map(|upgrade| upgrade.since.until(self.now));
            let note = self.note_of(claim, Noted::Left, claim.wanted());
            self.notes.taken.push(Note { waited, reason: Some(reason), ..note });
        }
    }

    /// Notes that a command was refused, if it was for a deadlock.
    pub(super) fn note_refusal(&mut self, reply: &Reply) {
        if self.notes.noting == Noting::Nothing {
            return;
        }
        let Reply::Rejected(Rejection::Deadlock { cycle }) = reply else { return };
        let Some(first) = cycle.first() else { return };
        let lease = self.find_lease(first.waiter.0).map(|lease| self.leases.get(lease));
        let note = Note {
            what: Noted::Refused,
            names: vec![first.wants.clone()],
            lease: first.waiter.0,
            owner: first.waiter.1.clone(),
            client_id: lease.map_or(ClientId::NONE, |lease| lease.client_id.clone()),
            mode: Some(first.mode),
            token: None,
            waited: None,
            held: None,
            reason: Some(EndReason::Deadlock),
            note: Reason::NONE,
        };
        self.notes.taken.push(note);
    }

    /// Notes that an ended lease is about to be forgotten. The end of a stub is not noted: the lease's home notes it.
    pub(super) fn note_lease_end(&mut self, id: Id<Lease>) {
        let lease = self.leases.get(id);
        let noted = match self.notes.noting {
            Noting::Nothing => false,
            Noting::Losses => matches!(lease.end_reason, EndReason::LeaseExpired | EndReason::Disconnected),
            Noting::All => true,
        };
        if noted && lease.stub().is_none() {
            let note = Note {
                what: Noted::LeaseEnded,
                names: Vec::new(),
                lease: lease.id,
                owner: Owner::LEASE,
                client_id: lease.client_id.clone(),
                mode: None,
                token: None,
                waited: None,
                held: None,
                reason: Some(lease.end_reason),
                note: Reason::NONE,
            };
            self.notes.taken.push(note);
        }
    }

    /// True if the end of a claim is to be noted; always for losses and deadlocks.
    fn is_noted(&self, claim: &Claim, reason: EndReason) -> bool {
        let lost = claim.holds() && reason.is_involuntary();
        self.notes.noting == Noting::All || lost || is_deadlock(reason)
    }

    fn end_note(&self, claim: &Claim, what: Noted, reason: EndReason, why: &Reason) -> Note {
        let span = Some(claim.since.until(self.now));
        let (waited, held) = if claim.holds() { (None, span) } else { (span, None) };
        let note = self.note_of(claim, what, claim.mode);
        Note { waited, held, reason: Some(reason), note: why.clone(), ..note }
    }

    fn note_of(&self, claim: &Claim, what: Noted, mode: Mode) -> Note {
        Note {
            what,
            names: claim.names.as_slice().to_vec(),
            lease: claim.lease_id,
            owner: claim.owner.clone(),
            client_id: self.leases.get(claim.lease).client_id.clone(),
            mode: Some(mode),
            token: claim.token,
            waited: None,
            held: None,
            reason: None,
            note: Reason::NONE,
        }
    }
}

fn is_deadlock(reason: EndReason) -> bool {
    reason == EndReason::Deadlock
}
