//! What P6 allows besides the slack: time without a leader, elections, pauses.
//!
//! A leader that can't commit for a while and then goes on in its term was not elected: that is a gap and no more.

use super::Timeline;
use crate::event::Event;
use std::collections::BTreeMap;
use tollgate_types::GroupId;

/// When a group could not commit.
#[derive(Default)]
struct Gaps {
    leaderless: Vec<(u64, u64)>,
    paused: Vec<(u64, u64)>,
    /// From when the last leader could not commit until when another could; to the end of time if none could yet.
    elections: Vec<(u64, u64)>,
    /// Who led last, and in which term: the same again is no election.
    last: Option<(u32, u64)>,
}

/// The gaps of every group.
pub(crate) struct Allowances(BTreeMap<u32, Gaps>);

impl Allowances {
    pub(super) fn read(timeline: Timeline<'_>) -> Allowances {
        let mut groups: BTreeMap<u32, Gaps> = BTreeMap::new();
        for (place, event) in timeline.iter() {
            let now = timeline.at(place).us();
            match event {
                Event::Leaderless { group } => {
                    open(&mut groups.entry(group.number()).or_default().leaderless, now);
                }
                Event::Led { group, node, term } => {
                    let gaps = groups.entry(group.number()).or_default();
                    let begun =
                        gaps.leaderless.last().filter(|gap| gap.1 == u64::MAX).map_or(now, |gap| gap.0);
                    close(&mut gaps.leaderless, now);
                    if gaps.last.replace((*node, *term)) != Some((*node, *term)) {
                        gaps.elections.push((begun, now));
                    }
                }
                Event::LeaderPaused { group } => {
                    open(&mut groups.entry(group.number()).or_default().paused, now);
                }
                Event::LeaderResumed { group } => {
                    close(&mut groups.entry(group.number()).or_default().paused, now);
                }
                _ => {}
            }
        }
        for gaps in groups.values_mut() {
            let open = gaps.leaderless.last().filter(|gap| gap.1 == u64::MAX);
            gaps.elections.extend(open.copied());
        }
        Allowances(groups)
    }

    /// How much longer than in steady state something may take in `group` that began at `from` and is over at `to`, in
    /// microseconds. An election still under way counts.
    pub(crate) fn us(&self, group: GroupId, from: u64, to: u64, slack_us: u64) -> u64 {
        let Some(gaps) = self.0.get(&group.number()) else { return 0 };
        let elections = gaps.elections.iter().filter(|(begun, over)| *begun <= to && *over >= from);
        let elections = elections.count() as u64;
        gaps.us_between(from, to) + elections * slack_us
    }
}

impl Gaps {
    /// How much of a time was without a leader, or with one that stood still; what was both counts once.
    fn us_between(&self, from: u64, to: u64) -> u64 {
        let mut all: Vec<(u64, u64)> = self.leaderless.iter().chain(&self.paused).copied().collect();
        all.sort_unstable();
        let (mut sum, mut counted_to) = (0, from);
        for (begun, over) in all {
            let (begun, over) = (begun.max(counted_to), over.min(to));
            sum += over.saturating_sub(begun);
            counted_to = counted_to.max(over);
        }
        sum
    }
}

fn open(gaps: &mut Vec<(u64, u64)>, now: u64) {
    if gaps.last().is_none_or(|gap| gap.1 != u64::MAX) {
        gaps.push((now, u64::MAX));
    }
}

fn close(gaps: &mut [(u64, u64)], now: u64) {
    if let Some(gap) = gaps.last_mut().filter(|gap| gap.1 == u64::MAX) {
        gap.1 = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::at::At;

    #[test]
    fn gaps_count_only_where_they_overlap() {
        let group = GroupId::new(3);
        let at = At::from_us;
        let events = [
            (at(10), Event::Leaderless { group }),
            (at(30), Event::Led { group, node: 1, term: 1 }),
            (at(50), Event::LeaderPaused { group }),
            (at(60), Event::LeaderResumed { group }),
            (at(90), Event::Leaderless { group }),
        ];
        let allowances = Allowances::read(Timeline(&events));
        assert_eq!(allowances.us(group, 0, 80, 1_000), 20 + 10 + 1_000);
        assert_eq!(allowances.us(group, 20, 55, 1_000), 10 + 5 + 1_000);
        assert_eq!(allowances.us(group, 70, 80, 1_000), 0);
        assert_eq!(allowances.us(group, 70, 95, 1_000), 5 + 1_000);
        assert_eq!(allowances.us(GroupId::new(4), 0, 100, 1_000), 0);
    }

    #[test]
    fn the_same_leader_in_the_same_term_is_no_election() {
        let group = GroupId::new(3);
        let at = At::from_us;
        let led = |node, term| Event::Led { group, node, term };
        let events = [
            (at(0), led(1, 7)),
            (at(10), Event::Leaderless { group }),
            (at(20), led(1, 7)),
            (at(30), Event::Leaderless { group }),
            (at(40), led(1, 8)),
            (at(50), Event::Leaderless { group }),
            (at(60), led(2, 8)),
        ];
        let allowances = Allowances::read(Timeline(&events));
        assert_eq!(allowances.us(group, 5, 25, 1_000), 10);
        assert_eq!(allowances.us(group, 5, 15, 1_000), 5);
        assert_eq!(allowances.us(group, 5, 35, 1_000), 10 + 5 + 1_000);
        assert_eq!(allowances.us(group, 5, 70, 1_000), 30 + 2_000);
    }

    #[test]
    fn what_is_both_leaderless_and_paused_counts_once() {
        let group = GroupId::new(3);
        let at = At::from_us;
        let events = [
            (at(0), Event::Led { group, node: 1, term: 1 }),
            (at(10), Event::LeaderPaused { group }),
            (at(20), Event::Leaderless { group }),
            (at(30), Event::LeaderResumed { group }),
            (at(40), Event::Led { group, node: 1, term: 1 }),
        ];
        let allowances = Allowances::read(Timeline(&events));
        assert_eq!(allowances.us(group, 5, 50, 1_000), 30);
        assert_eq!(allowances.us(group, 15, 25, 1_000), 10);
    }
}
