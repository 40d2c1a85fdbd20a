//! The line that an entry prints: its events by revision, then the parts of its answer that the events don't show.
//!
//! A grant's event shows its token, and so the answer `Acquired` with that token need not be repeated; any other answer
//! is written out. The same goes for waits: each end must have been reported to its waiter, once and in order.

use super::print::{self, Place, who};
use super::words::time;
use tollgate_core::{
    Applied, CancelTarget, Change, Command, EndReason, Event, LockChange, OpResult, Renewed, Reply,
    Resolution, WaitOutcome,
};
use tollgate_types::{LeaseId, LogTime, Mode, Revision, Token};

/// The result of an entry.
pub(super) struct Outcome<'a> {
    pub(super) applied: &'a Applied,
    pub(super) events: &'a [Event],
    /// Log time of the entry.
    pub(super) at: LogTime,
    /// Revision before the entry.
    pub(super) before: Revision,
    /// True if a request with this seq was sent before.
    pub(super) again: bool,
    /// True if the group picked the lease's id.
    pub(super) assigned: bool,
}

impl Outcome<'_> {
    /// The line, with lease ids that are not replaced by aliases yet.
    pub(super) fn print(&self, command: &Command) -> String {
        let mut parts = print::events(self.events, self.place());
        if let Some((made, text)) = self.new_lease() {
            // The only revision without an event, put in its place among the others.
            let revisions = self.events.chunk_by(|a, b| a.revision == b.revision);
            let before = revisions.filter(|together| together[0].revision < made).count();
            parts.insert(before, format!("r{made} {text}"));
        }
        parts.extend(self.wrong_resolutions());
        let answer = self.answer(command);
        if self.again {
            parts.push(format!("again: {answer}"));
        } else if !self.told_by_events(command) {
            parts.push(answer);
        }
        parts.extend(self.wrong_deadline());
        if parts.is_empty() { "done".into() } else { parts.join("; ") }
    }

    /// The lease or stub that the entry made, and its revision.
    fn new_lease(&self) -> Option<(Revision, String)> {
        match &self.applied.reply {
            Reply::LeaseGranted { lease, incarnation, renewed: false, .. } => {
                // Without its leading zeros, so that it is not replaced by the alias.
                let id = if self.assigned { format!(" id={:x}", lease.get()) } else { String::new() };
                Some((*incarnation, format!("lease {lease}{id}")))
            }
            Reply::Stub(stub) if stub.added > self.before => Some((stub.added, print::stub(stub))),
            _ => None,
        }
    }

    fn place(&self) -> Option<Place> {
        match self.applied.reply {
            Reply::Queued { create_revision, position } => Some((create_revision, position)),
            _ => None,
        }
    }

    fn lock_changes(&self) -> impl Iterator<Item = (Revision, &LockChange)> {
        self.events.iter().filter_map(|event| match &event.change {
            Change::Lock(change) => Some((event.revision, change)),
            Change::Register(_) => None,
        })
    }

    /// True if the events of this entry show all of the answer.
    fn told_by_events(&self, command: &Command) -> bool {
        let ended_at = |reasons: &[EndReason]| {
            let ended = self
                .lock_changes()
                .filter(|(_, change)| change.end.is_some_and(|end| reasons.contains(&end)));
            ended.map(|(revision, _)| revision).last()
        };
        match &self.applied.reply {
            Reply::Done => true,
            Reply::LeaseGranted { .. } | Reply::Stub(_) => self.new_lease().is_some(),
            // Printed, because it shows that a cancel came too late.
            Reply::Acquired { .. } if matches!(command, Command::CancelWait(_)) => false,
            Reply::Acquired { token, create_revision, mode } => self.lock_changes().any(|(_, change)| {
                holds(change, *token, *mode) && change.create_revision == *create_revision
            }),
            Reply::Queued { create_revision, .. } => self
                .lock_changes()
                .any(|(revision, change)| revision == *create_revision && change.now.is_some()),
            Reply::Released { revision } => {
                ended_at(&[EndReason::Released, EndReason::Forced]) == Some(*revision)
            }
            Reply::Cancelled => ended_at(&[EndReason::Cancelled]).is_some(),
            Reply::Proclaimed { revision } => {
                self.lock_changes().any(|(at, change)| at == *revision && change.value.is_some())
            }
            Reply::TxnDone { succeeded, revision, results } => {
                let only_puts = results.iter().all(|result| *result == OpResult::Put);
                *succeeded && only_puts && self.events.iter().any(|event| event.revision == *revision)
            }
            _ => false,
        }
    }

    fn answer(&self, command: &Command) -> String {
        let names = names_of(command);
        match &self.applied.reply {
            Reply::Done => "done".into(),
            Reply::LeaseGranted { lease, deadline, next_seq, .. } => {
                let until = time(deadline.ms());
                format!("{lease} lives already: renewed until {until}, seqs from {next_seq}")
            }
            Reply::LeasesRenewed(renewed) => renewals(renewed),
            Reply::LeaseRevoked => "lease revoked".into(),
            Reply::Acquired { token, create_revision, mode } => {
                format!("holds{names}{} token={token} since r{create_revision}", print::mode(*mode))
            }
            Reply::Queued { create_revision, position } => {
                format!("waits{names} since r{create_revision} position={position}")
            }
            Reply::Busy { holders, closed } => print::busy(holders, *closed),
            Reply::Released { revision } => format!("released at r{revision}"),
            Reply::Cancelled => "cancelled".into(),
            Reply::Ended { token, reason } => {
                let token = token.map(|token| format!(" token={token}")).unwrap_or_default();
                format!("ended {}{token}", print::reason(*reason))
            }
            Reply::Proclaimed { revision } => format!("proclaimed at r{revision}"),
            Reply::TxnDone { succeeded, revision, results } => txn(*succeeded, *revision, results),
            Reply::Stub(stub) => format!("{} added=r{}", print::stub(stub), stub.added),
            Reply::StubRegistered => "registered".into(),
            Reply::LeaseUnknown => "unknown".into(),
            Reply::Rejected(why) => format!("rejected: {why}"),
        }
    }

    /// Compares the waits that the events ended with those that the entry reported. Empty if they agree.
    fn wrong_resolutions(&self) -> Vec<String> {
        let mut expected: Vec<Resolution> =
            self.lock_changes().filter_map(|(_, change)| resolution_of(change)).collect();
        expected.dedup();
        let unforeseen = |told: &&Resolution| !expected.contains(told);
        let mut texts: Vec<String> = self.applied.resolved.iter().filter(unforeseen).map(wait_end).collect();
        let told: Vec<&Resolution> =
            self.applied.resolved.iter().filter(|told| expected.contains(told)).collect();
        if told != expected.iter().collect::<Vec<_>>() {
            texts.push(format!("WRONG: told {:?}, but the events say {expected:?}", self.applied.resolved));
        }
        texts
    }

    fn wrong_deadline(&self) -> Option<String> {
        match self.applied.reply {
            Reply::LeaseGranted { ttl, deadline, .. } if deadline != self.at.after(ttl) => {
                Some(format!("WRONG: ttl is {ttl} but it ends at {deadline:?}"))
            }
            _ => None,
        }
    }
}

fn holds(change: &LockChange, token: Token, mode: Mode) -> bool {
    change.now.is_some_and(|now| now.token == Some(token) && now.mode == mode)
}

/// The resolution that a waiter must get because of an event. None also for the end of a holder that waits for an
/// upgrade: the event does not show that a wait ends with it, so the resolution is written out.
fn resolution_of(change: &LockChange) -> Option<Resolution> {
    let prev = change.prev?;
    let (create_revision, outcome) = match change.now {
        Some(now) if prev.token.is_none() => (change.create_revision, granted(now.token?, now.mode)),
        Some(_) if change.end.is_some() => (prev.mod_revision, WaitOutcome::Ended(change.end?)),
        Some(now) if prev.wants.is_some() && now.wants.is_none() => {
            (prev.mod_revision, granted(now.token?, now.mode))
        }
        None if prev.token.is_none() => (change.create_revision, WaitOutcome::Ended(change.end?)),
        _ => return None,
    };
    Some(Resolution { create_revision, lease: change.lease, owner: change.owner.clone(), outcome })
}

fn granted(token: Token, mode: Mode) -> WaitOutcome {
    WaitOutcome::Granted { token, mode }
}

fn wait_end(resolution: &Resolution) -> String {
    let waiter = who(resolution.lease, &resolution.owner);
    let since = resolution.create_revision;
    match resolution.outcome {
        WaitOutcome::Granted { token, .. } => {
            format!("{waiter}'s wait since r{since} granted: token={token}")
        }
        WaitOutcome::Ended(reason) => {
            format!("{waiter}'s wait since r{since} ended: {}", print::reason(reason))
        }
    }
}

fn renewals(renewed: &[Renewed]) -> String {
    let one = |renewed: &Renewed| {
        let lease: LeaseId = renewed.lease;
        match (renewed.result, renewed.home) {
            (Some((_, deadline)), None) => format!("{lease} until {}", time(deadline.ms())),
            (None, Some(home)) => format!("{lease} lives in group {home}"),
            (None, None) => format!("{lease} not found"),
            (Some(_), Some(_)) => format!("WRONG: {renewed:?}"),
        }
    };
    format!("renewed {}", renewed.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn txn(succeeded: bool, revision: Revision, results: &[OpResult]) -> String {
    let one = |result: &OpResult| match result {
        OpResult::Put => "put".into(),
        OpResult::Got { registers, count } => print::registers(registers, *count),
        OpResult::Deleted(count) => format!("deleted {count}"),
    };
    let branch = if succeeded { "then" } else { "else" };
    let results: Vec<String> = results.iter().map(one).collect();
    let results = if results.is_empty() { String::new() } else { format!(": {}", results.join(", ")) };
    format!("{branch} at r{revision}{results}")
}

/// The names in the command.
fn names_of(command: &Command) -> String {
    let names = match command {
        Command::AcquireLock(acquire) => acquire.names.as_slice(),
        Command::ConvertLock(convert) => convert.names.as_slice(),
        Command::CancelWait(cancel) => match &cancel.target {
            CancelTarget::Waiter { name, .. }
            | CancelTarget::Wait { name, .. }
            | CancelTarget::SeqOn { name, .. } => std::slice::from_ref(name),
            CancelTarget::Seq(_) => &[],
        },
        _ => &[],
    };
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    if names.is_empty() { String::new() } else { format!(" {}", names.join(",")) }
}
