//! Checks that unattended waits end: those that no caller stands by any more.
//!
//! Each node's front knows, independently of its dispatcher, which callers stand by there; the state knows which waits
//! last only as long as their callers do. A leader that has been able to commit for long enough may have none of those
//! waits left that nobody has stood by at its front. Not here: that no wait is ended whose caller does stand by, which
//! clients check themselves.

use super::World;
use crate::scenario::Scenario;
use crate::types::At;
use std::collections::BTreeMap;
use tollgate_types::{GroupId, Revision};

/// Time since which each wait has been unattended, at the leader of one term on one start of its node.
#[derive(Default)]
pub(super) struct CallerLiveness {
    since: BTreeMap<Seen, At>,
    told: bool,
}

/// A wait as one leader sees it: group, boot of the leader's node, term, and create revision.
type Seen = (GroupId, u64, u64, Revision);

/// Returns the longest time that a wait may stand unattended. An end that is refused, because there is too much to do,
/// is tried again when as much time has passed once more.
pub(super) fn unattended_us_max(scenario: &Scenario) -> At {
    let us = scenario.config.unattended_ms * 1_000;
    3 * (us + us * u64::from(scenario.rho_ppm) / 1_000_000) + 2_000_000
}

impl World {
    /// Looks at all waits of all leaders, and reports one that was unattended for too long.
    pub(super) fn look_at_waits(&mut self) {
        let mut since = BTreeMap::new();
        for group in self.groups() {
            let Some((leader, status)) = self.leader_of(group) else { continue };
            if !self.leadership.is_led_in_time(group.number()) {
                continue;
            }
            let Some(process) = &self.nodes[&leader].process else { continue };
            let Some(state) = process.host.state(group) else { continue };
            let (waits, rest) = state.attended_waits(0, usize::MAX >> 1);
            assert!(rest.is_none(), "all of them at once");
            for wait in waits {
                if !process.front.stands_by(group, &wait) {
                    let seen = (group, process.boot, status.term, wait.create_revision);
                    since.insert(seen, self.caller_liveness.since.get(&seen).copied().unwrap_or(self.now));
                }
            }
        }
        self.caller_liveness.since = since;
        self.stats.waits_unattended += self.caller_liveness.since.len() as u64;
        let longest = unattended_us_max(&self.scenario);
        let forgotten = self.caller_liveness.since.iter().find(|(_, since)| self.now > **since + longest);
        if let Some(((group, _, _, wait), since)) = forgotten.filter(|_| !self.caller_liveness.told) {
            let says = format!(
                "the wait {wait:?} of group {group} stands in line {} ms after its last caller went",
                (self.now - since) / 1_000
            );
            self.caller_liveness.told = true;
            self.violation(says);
        }
    }
}
