//! The checks: one property per file, each with the tests which show that the check can fail.
//!
//! The checks share the evidence and nothing else. Two of them judge exclusion independently of each other, so that a
//! mistake in one is not a hole.

mod belief;
mod durability;
mod exclusion;
mod expiry;
mod fairness;
mod fencing;
mod hashes;
mod registers;
mod retries;
mod revisions;
#[cfg(test)]
mod scenario;
mod search;
mod tokens;
mod waiters;
mod watches;

use crate::at::At;
use crate::event::Event;
use crate::evidence::Evidence;
use crate::report::Report;
use crate::settings::Settings;

pub(crate) fn judge(settings: &Settings, events: &[(At, Event)]) -> Report {
    let mut report = Report::default();
    report.stats.events = events.len() as u64;
    let evidence = Evidence::read(settings, events, &mut report);
    report.stats.leases = evidence.leases.all.len() as u64;
    exclusion::check(&evidence, &mut report);
    search::check(&evidence, &mut report);
    revisions::check(&evidence, &mut report);
    tokens::check(&evidence, &mut report);
    fencing::check(events, &mut report);
    durability::check(&evidence, &mut report);
    registers::check(&evidence, &mut report);
    expiry::check(&evidence, &mut report);
    belief::check(&evidence, &mut report);
    waiters::check(&evidence, &mut report);
    fairness::check(&evidence, &mut report);
    retries::check(&evidence, &mut report);
    watches::check(&evidence, &mut report);
    hashes::check(events, &mut report);
    report
}
