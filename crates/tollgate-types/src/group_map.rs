//! Group map: the assignment of slots to groups.
//!
//! Invariant: every slot is served by exactly one group (P14), by construction: a map is a list of the first slots of
//! the ranges, and the first range starts at slot 0. Not here: which node leads a group.

use crate::group::GroupId;
use crate::invalid::{Invalid, in_range};
use crate::slot::{SLOTS, Slot};
use std::collections::BTreeSet;

/// The most groups that a cluster can have.
pub const GROUPS_MAX: u32 = 1_024;

/// The assignment of every slot to a group. A newer map has a higher epoch.
///
/// ```
/// use tollgate_types::{GroupId, GroupMap, Slot};
///
/// let map = GroupMap::even(4)?;
/// assert_eq!(map.group_of(Slot::new(0)?), GroupId::MAP);
/// assert_eq!(map.group_of(Slot::new(16_383)?), GroupId::new(3));
/// # Ok::<(), tollgate_types::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMap {
    epoch: u64,
    /// First slot and group of each range; a range ends where the next one begins.
    ranges: Vec<(Slot, GroupId)>,
}

/// A range of slots, both ends included, and the group that serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRange {
    /// First slot of the range.
    pub first: Slot,
    /// Last slot of the range, included.
    pub last: Slot,
    /// Group that serves the range.
    pub group: GroupId,
}

impl GroupMap {
    /// The map of a new cluster: epoch 1, groups from 0 on with equal ranges.
    pub fn even(groups: u32) -> Result<GroupMap, Invalid> {
        in_range("groups", u64::from(groups), 1, u64::from(GROUPS_MAX))?;
        let (slots, count) = (u64::from(SLOTS), u64::from(groups));
        let first = |group: u64| (group * slots).div_ceil(count);
        let ranges = (0..groups).map(|group| {
            let first = u16::try_from(first(u64::from(group))).expect("below SLOTS");
            (Slot::new(first).expect("below SLOTS"), GroupId::new(group))
        });
        Ok(GroupMap { epoch: 1, ranges: ranges.collect() })
    }

    /// The map of a cluster with one group.
    pub fn single() -> GroupMap {
        GroupMap::even(1).expect("one is allowed")
    }

    /// A map from the first slot and the group of each range. The ranges must be in order, start at slot 0, and
    /// neighbours must belong to different groups.
    pub fn new(epoch: u64, ranges: Vec<(Slot, GroupId)>) -> Result<GroupMap, Invalid> {
        let rule = |holds: bool, says: &'static str| {
            if holds { Ok(()) } else { Err(Invalid::GroupMap { says }) }
        };
        rule(epoch > 0, "its epoch must be at least 1")?;
        rule(ranges.first().is_some_and(|(first, _)| first.number() == 0), "it must begin at slot 0")?;
        rule(ranges.is_sorted_by(|a, b| a.0 < b.0), "its ranges must be in order")?;
        rule(ranges.windows(2).all(|pair| pair[0].1 != pair[1].1), "neighbours must be of different groups")?;
        Ok(GroupMap { epoch, ranges })
    }

    /// Version of the map.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The group that serves a slot.
    pub fn group_of(&self, slot: Slot) -> GroupId {
        let after = self.ranges.partition_point(|(first, _)| *first <= slot);
        self.ranges[after - 1].1
    }

    /// True if one group serves all slots.
    pub fn is_single(&self) -> bool {
        self.ranges.len() == 1
    }

    /// All groups that serve at least one slot, in order.
    pub fn groups(&self) -> Vec<GroupId> {
        let groups: BTreeSet<GroupId> = self.ranges.iter().map(|(_, group)| *group).collect();
        groups.into_iter().collect()
    }

    /// The ranges, in order of slots.
    pub fn ranges(&self) -> impl Iterator<Item = SlotRange> + '_ {
        let ends = self.ranges.iter().skip(1).map(|(first, _)| first.number() - 1).chain([SLOTS - 1]);
        self.ranges.iter().zip(ends).map(|((first, group), last)| SlotRange {
            first: *first,
            last: Slot::new(last).expect("before the next range, or the last of all"),
            group: *group,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(number: u16) -> Slot {
        Slot::new(number).unwrap()
    }

    #[test]
    fn p14_every_slot_is_served_by_exactly_one_group_in_equal_ranges() {
        for groups in [1, 2, 3, 5, 16, 1_024] {
            let map = GroupMap::even(groups).unwrap();
            let mut counts = vec![0_u32; groups as usize];
            for number in 0..SLOTS {
                counts[map.group_of(slot(number)).number() as usize] += 1;
            }
            let even = u32::from(SLOTS) / groups;
            assert!(counts.iter().all(|count| (even..=even + 1).contains(count)), "{groups}: {counts:?}");
            let listed: u32 =
                map.ranges().map(|range| u32::from(range.last.number() - range.first.number()) + 1).sum();
            assert_eq!(listed, u32::from(SLOTS));
            assert_eq!(map.groups().len(), groups as usize);
        }
    }

    #[test]
    fn a_number_of_groups_that_no_cluster_has_is_refused() {
        assert!(GroupMap::even(0).is_err() && GroupMap::even(1_025).is_err());
    }

    #[test]
    fn a_map_with_a_hole_or_out_of_order_is_refused() {
        let group = GroupId::new;
        let good = vec![(slot(0), group(0)), (slot(9), group(2)), (slot(10), group(0))];
        let map = GroupMap::new(7, good).unwrap();
        assert_eq!((map.epoch(), map.group_of(slot(9)), map.group_of(slot(10))), (7, group(2), group(0)));
        assert_eq!(map.groups(), [group(0), group(2)]);
        let bad = [
            (1, vec![]),
            (1, vec![(slot(1), group(0))]),
            (1, vec![(slot(0), group(0)), (slot(5), group(1)), (slot(5), group(2))]),
            (1, vec![(slot(0), group(0)), (slot(5), group(0))]),
            (0, vec![(slot(0), group(0))]),
        ];
        for (epoch, ranges) in bad {
            assert!(GroupMap::new(epoch, ranges.clone()).is_err(), "{ranges:?}");
        }
    }
}
