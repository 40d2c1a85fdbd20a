//! Statistics of the sequences: proof that the generator leaves nothing out.

use super::compare::Step;
use crate::oracle::Oracle;
use std::collections::BTreeMap;
use tollgate_core::{
    Applied, Change, ClaimState, Command, EndReason, Event, LockChange, LockView, Rejection, RejectionCode,
    Reply,
};
use tollgate_types::{Limit, Revision};

/// Number of times that each thing was seen.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    seen: BTreeMap<String, u64>,
}

const REPLIES: [&str; 16] = [
    "Done",
    "LeaseGranted",
    "LeasesRenewed",
    "LeaseRevoked",
    "Acquired",
    "Queued",
    "Busy",
    "Released",
    "Cancelled",
    "Ended",
    "TxnDone",
    "Proclaimed",
    "Stub",
    "StubRegistered",
    "LeaseUnknown",
    "Rejected",
];

/// Possible answers to a repeat.
const REPEATS: [&str; 8] =
    ["Acquired", "Queued", "Busy", "Released", "Ended", "TxnDone", "Proclaimed", "Rejected"];

const SPECIALS: [&str; 15] = [
    "grant of several names at once",
    "grant of several names later",
    "upgrade granted at once",
    "upgrade granted later",
    "upgrade ended without a grant",
    "upgrade ended with a name",
    "downgrade",
    "value said with a grant",
    "value proclaimed",
    "name given back while others stay",
    "lease granted again",
    "lock closed",
    "stub ended with claims",
    "end owed to several groups",
    "end owed and its id granted again",
];

impl Stats {
    pub(super) fn note(&mut self, step: &Step, applied: &Applied, oracle: &Oracle) {
        let reply = reply_name(&applied.reply);
        self.count(format!("reply {reply}"));
        if step.repeat {
            self.count(format!("repeat answered {reply}"));
        }
        match &applied.reply {
            Reply::Rejected(Rejection::RejectedBefore { .. }) => {
                self.count("rejection RejectedBefore".to_owned());
            }
            Reply::Rejected(rejection) => {
                self.count(format!("rejection {:?}", rejection.code()));
                if let Rejection::LimitExceeded { limit, .. } = rejection {
                    self.count(format!("limit {limit}"));
                }
            }
            Reply::LeaseGranted { renewed: true, .. } => self.count("lease granted again".to_owned()),
            _ => {}
        }
        if let Some(from) = applied.events_from {
            self.note_events(oracle.events(), from);
            self.note_given_back(oracle.events(), from, oracle);
        }
        self.note_homes(step, applied, oracle);
        if oracle
            .lock_names()
            .iter()
            .any(|name| oracle.lock(name).is_some_and(|it| it.closed_until.is_some()))
        {
            self.count("lock closed".to_owned());
        }
    }

    fn note_homes(&mut self, step: &Step, applied: &Applied, oracle: &Oracle) {
        if matches!(step.entry.command, Command::EndStub(_)) && applied.events_from.is_some() {
            self.count("stub ended with claims".to_owned());
        }
        let ends = oracle.unacked_ends();
        if ends.windows(2).any(|pair| pair[0].lease == pair[1].lease) {
            self.count("end owed to several groups".to_owned());
        }
        if ends.iter().any(|end| oracle.lease(end.lease).is_some()) {
            self.count("end owed and its id granted again".to_owned());
        }
    }

    fn note_events(&mut self, events: &[Event], from: Revision) {
        let start = events.partition_point(|event| event.revision < from);
        for (i, event) in events.iter().enumerate().skip(start) {
            let Change::Lock(change) = &event.change else { continue };
            if let Some(end) = change.end {
                self.count(format!("end {end:?}"));
            }
            let together = events.get(i + 1).is_some_and(|next| next.revision == event.revision);
            if let Some(special) = special(change, together) {
                self.count(special.to_owned());
            }
            if change.value.is_some() {
                let proclaimed = change.prev.is_some_and(|prev| {
                    change.now.is_some_and(|now| (now.token, now.mode) == (prev.token, prev.mode))
                });
                let what = if proclaimed { "value proclaimed" } else { "value said with a grant" };
                self.count(what.to_owned());
            }
        }
    }

    /// Counts a claim that lost a name in these events and still holds another.
    fn note_given_back(&mut self, events: &[Event], from: Revision, oracle: &Oracle) {
        let start = events.partition_point(|event| event.revision < from);
        let locks: Vec<LockView> = oracle.lock_names().iter().filter_map(|name| oracle.lock(name)).collect();
        for event in &events[start..] {
            let Change::Lock(LockChange { now: None, create_revision: id, .. }) = &event.change else {
                continue;
            };
            let holds = |lock: &LockView| lock.holders.iter().any(|holder| holder.create_revision == *id);
            if locks.iter().any(holds) {
                self.count("name given back while others stay".to_owned());
            }
        }
    }

    fn count(&mut self, what: String) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Stats) {
        for (what, count) in &other.seen {
            *self.seen.entry(what.clone()).or_default() += count;
        }
    }

    /// The things that should have been seen and were not.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut wanted: Vec<String> = SPECIALS.iter().map(|special| (*special).to_owned()).collect();
        wanted.extend(REPLIES.iter().map(|reply| format!("reply {reply}")));
        wanted.extend(REPEATS.iter().map(|reply| format!("repeat answered {reply}")));
        wanted.extend(CODES.iter().map(|code| format!("rejection {code:?}")));
        wanted.push("rejection RejectedBefore".to_owned());
        wanted.extend(ENDS.iter().map(|end| format!("end {end:?}")));
        wanted.extend(LIMITS.iter().map(|limit| format!("limit {limit}")));
        wanted.retain(|what| !self.seen.contains_key(what));
        wanted
    }
}

const CODES: [RejectionCode; 23] = [
    RejectionCode::LeaseNotFound,
    RejectionCode::LeaseTaken,
    RejectionCode::TtlOutOfRange,
    RejectionCode::NotHeld,
    RejectionCode::StaleToken,
    RejectionCode::NotWaiting,
    RejectionCode::OtherKind,
    RejectionCode::PermitsFixed,
    RejectionCode::AlreadyWaiting,
    RejectionCode::Overlap,
    RejectionCode::Deadlock,
    RejectionCode::LimitExceeded,
    RejectionCode::SeqAcked,
    RejectionCode::KeyTwice,
    RejectionCode::InvalidLimits,
    RejectionCode::ApplyVersionNotRaised,
    RejectionCode::StubPending,
    RejectionCode::NotHome,
    RejectionCode::HomeHere,
    RejectionCode::OtherIncarnation,
    RejectionCode::StubNotFound,
    RejectionCode::WrongGroup,
    RejectionCode::SeqReused,
];

const ENDS: [EndReason; 9] = [
    EndReason::Released,
    EndReason::LeaseExpired,
    EndReason::LeaseRevoked,
    EndReason::Disconnected,
    EndReason::Forced,
    EndReason::MaxHold,
    EndReason::TimedOut,
    EndReason::Cancelled,
    EndReason::Deadlock,
];

/// The limits that a request can exceed; the others bound time and the ring.
const LIMITS: [Limit; 17] = [
    Limit::NameBytes,
    Limit::MetadataBytes,
    Limit::Locks,
    Limit::Leases,
    Limit::ClaimsPerLease,
    Limit::HoldersPerLock,
    Limit::WaitersPerLock,
    Limit::NamesPerRequest,
    Limit::OpsInFlightPerLease,
    Limit::WaitsPerLease,
    Limit::ClaimValues,
    Limit::LockDelay,
    Limit::RenewalsPerEntry,
    Limit::Registers,
    Limit::ValueBytes,
    Limit::TxnOps,
    Limit::Range,
];

fn reply_name(reply: &Reply) -> &'static str {
    match reply {
        Reply::Done => "Done",
        Reply::LeaseGranted { .. } => "LeaseGranted",
        Reply::LeasesRenewed(_) => "LeasesRenewed",
        Reply::LeaseRevoked => "LeaseRevoked",
        Reply::Acquired { .. } => "Acquired",
        Reply::Queued { .. } => "Queued",
        Reply::Busy { .. } => "Busy",
        Reply::Released { .. } => "Released",
        Reply::Cancelled => "Cancelled",
        Reply::Ended { .. } => "Ended",
        Reply::TxnDone { .. } => "TxnDone",
        Reply::Proclaimed { .. } => "Proclaimed",
        Reply::Stub(_) => "Stub",
        Reply::StubRegistered => "StubRegistered",
        Reply::LeaseUnknown => "LeaseUnknown",
        Reply::Rejected(_) => "Rejected",
    }
}

/// Name of the special case that an event shows, if it leaves its claim in place and is one.
fn special(change: &LockChange, together: bool) -> Option<&'static str> {
    let now: ClaimState = change.now?;
    match change.prev {
        None if together && now.token.is_some() => Some("grant of several names at once"),
        Some(prev) if prev.token.is_none() && together => Some("grant of several names later"),
        Some(prev) if prev.token.is_some() && prev.token != now.token && prev.wants.is_none() => {
            Some("upgrade granted at once")
        }
        Some(prev) if prev.token.is_some() && prev.token != now.token => Some("upgrade granted later"),
        Some(prev) if prev.wants.is_some() && now.wants.is_none() => match change.end {
            Some(EndReason::Released | EndReason::Forced) => Some("upgrade ended with a name"),
            _ => Some("upgrade ended without a grant"),
        },
        Some(prev) if prev.mode != now.mode => Some("downgrade"),
        _ => None,
    }
}
