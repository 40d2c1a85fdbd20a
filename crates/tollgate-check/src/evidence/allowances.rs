//! Delays that P6 allows besides the slack: time without a leader, elections, pauses, and between two groups time in
//! which their leaders are cut off from each other.
//!
//! A leader that can't commit for a while and then goes on in the same term was not elected: that is a gap and no more.

use super::Timeline;
use crate::event::Event;
use std::collections::BTreeMap;
use tollgate_types::GroupId;

/// Periods in which a group could not commit, in microseconds of true time.
#[derive(Default)]
struct Gaps {
    leaderless: Vec<(u64, u64)>,
    paused: Vec<(u64, u64)>,
    /// Elections: from the moment at which the last leader could no longer commit until the next leader could; until
    /// `u64::MAX` if none has yet.
    elections: Vec<(u64, u64)>,
    /// Node and term of the last leader: the same pair again is not an election.
    last: Option<(u32, u64)>,
}

/// The gaps of every group, and the cuts between their leaders.
pub(crate) struct Allowances {
    groups: BTreeMap<u32, Gaps>,
    /// Periods in which one group's leader could not reach another's, by sender and receiver.
    cuts: BTreeMap<(u32, u32), Vec<(u64, u64)>>,
}

impl Allowances {
    pub(super) fn read(timeline: Timeline<'_>) -> Allowances {
        let mut groups: BTreeMap<u32, Gaps> = BTreeMap::new();
        let mut cuts: BTreeMap<(u32, u32), Vec<(u64, u64)>> = BTreeMap::new();
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
                Event::LeadersCut { from, to } => {
                    open(cuts.entry((from.number(), to.number())).or_default(), now);
                }
                Event::LeadersLinked { from, to } => {
                    close(cuts.entry((from.number(), to.number())).or_default(), now);
                }
                _ => {}
            }
        }
        for gaps in groups.values_mut() {
            let open = gaps.leaderless.last().filter(|gap| gap.1 == u64::MAX);
            gaps.elections.extend(open.copied());
        }
        Allowances { groups, cuts }
    }

    /// Returns by how many microseconds something in `group` that began at `from` and ended at `to` may take longer
    /// than in steady state. An election still under way counts.
    pub(crate) fn us(&self, group: GroupId, from: u64, to: u64, slack_us: u64) -> u64 {
        let Some(gaps) = self.groups.get(&group.number()) else { return 0 };
        let elections = gaps.elections.iter().filter(|(begun, over)| *begun <= to && *over >= from);
        let elections = elections.count() as u64;
        gaps.us_between(from, to) + elections * slack_us
    }

    /// Microseconds between `from` and `to` in which the leaders of two groups could not reach each other in one
    /// direction at least, although both could commit. Other time counts as gaps of the groups. One direction is
    /// enough: a node that hears nothing from a group does not know its leader, and has nobody to send to.
    pub(crate) fn cut_us(&self, groups: (GroupId, GroupId), from: u64, to: u64) -> u64 {
        let (one, other) = (groups.0.number(), groups.1.number());
        let cuts = [(one, other), (other, one)].map(|pair| self.cuts.get(&pair));
        let cuts = cuts.into_iter().flatten().flatten().copied();
        let gaps = [one, other].map(|group| self.groups.get(&group));
        let gaps: Vec<(u64, u64)> = gaps.into_iter().flatten().flat_map(Gaps::all).collect();
        covered_us(cuts.chain(gaps.iter().copied()).collect(), from, to) - covered_us(gaps, from, to)
    }
}

impl Gaps {
    /// Returns the time without a leader or with a paused leader between `from` and `to`; overlaps count once.
    fn us_between(&self, from: u64, to: u64) -> u64 {
        covered_us(self.all().collect(), from, to)
    }

    fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        self.leaderless.iter().chain(&self.paused).copied()
    }
}

/// Returns how much of the time between `from` and `to` lies in any of the spans; overlaps count once.
fn covered_us(mut spans: Vec<(u64, u64)>, from: u64, to: u64) -> u64 {
    spans.sort_unstable();
    let (mut sum, mut counted_to) = (0, from);
    for (begun, over) in spans {
        let (begun, over) = (begun.max(counted_to), over.min(to));
        sum += over.saturating_sub(begun);
        counted_to = counted_to.max(over);
    }
    sum
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
    fn a_cut_between_leaders_counts_both_ways_and_only_while_both_can_commit() {
        let (from, to) = (GroupId::new(3), GroupId::new(4));
        let at = At::from_us;
        let events = [
            (at(10), Event::LeadersCut { from, to }),
            (at(20), Event::LeaderPaused { group: from }),
            (at(30), Event::Leaderless { group: to }),
            (at(40), Event::LeaderResumed { group: from }),
            (at(50), Event::Led { group: to, node: 1, term: 1 }),
            (at(90), Event::LeadersLinked { from, to }),
        ];
        let allowances = Allowances::read(Timeline(&events));
        assert_eq!(allowances.cut_us((from, to), 0, 100), 10 + 40);
        assert_eq!(allowances.cut_us((from, to), 15, 60), 5 + 10);
        assert_eq!(allowances.cut_us((from, to), 90, 100), 0);
        assert_eq!(allowances.cut_us((to, from), 0, 100), 10 + 40);
        assert_eq!(allowances.cut_us((to, GroupId::new(5)), 0, 100), 0);
        assert_eq!(allowances.us(to, 0, 100, 0), 20, "it is no gap of one group");
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
