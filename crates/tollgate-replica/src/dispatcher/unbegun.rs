//! Watches without a start revision that have not begun: those that still need a read index, and those that wait for
//! one.
//!
//! Invariant: a watch is begun only by a read that was requested after the watch was opened. All watches of a group
//! that were opened in one turn share a read. Not here: the reads themselves, which Raft's leader confirms (`reads`),
//! and the events of a watch that has begun (`watchers`).

use super::WatchNumber;
use crate::output::ReadId;
use std::collections::{BTreeMap, BTreeSet};
use tollgate_types::GroupId;

/// The watches of a node that have not begun.
#[derive(Debug, Default)]
pub(super) struct Unbegun {
    watches: BTreeMap<WatchNumber, Waits>,
    /// Watches opened in this turn, by group.
    opened: BTreeMap<GroupId, BTreeSet<WatchNumber>>,
    /// Watches by the read under way that each waits for. A set is empty if all of its watches have ended in the
    /// meantime.
    asked: BTreeMap<ReadId, BTreeSet<WatchNumber>>,
}

/// Step that a watch waits for.
#[derive(Debug, Clone, Copy)]
enum Waits {
    /// A read to be requested in this group.
    ToAsk(GroupId),
    /// The answer to this read.
    For(ReadId),
}

impl Unbegun {
    pub(super) fn add(&mut self, number: WatchNumber, group: GroupId) {
        self.remove(number);
        self.watches.insert(number, Waits::ToAsk(group));
        self.opened.entry(group).or_default().insert(number);
    }

    pub(super) fn contains(&self, number: WatchNumber) -> bool {
        self.watches.contains_key(&number)
    }

    pub(super) fn remove(&mut self, number: WatchNumber) {
        match self.watches.remove(&number) {
            Some(Waits::ToAsk(group)) => {
                if let Some(opened) = self.opened.get_mut(&group) {
                    opened.remove(&number);
                    if opened.is_empty() {
                        self.opened.remove(&group);
                    }
                }
            }
            Some(Waits::For(read)) => {
                if let Some(asked) = self.asked.get_mut(&read) {
                    asked.remove(&number);
                }
            }
            None => {}
        }
    }

    /// A group with watches for which a read must be requested.
    pub(super) fn to_ask(&self) -> Option<GroupId> {
        self.opened.first_key_value().map(|(group, _)| *group)
    }

    /// Assigns a requested read to all watches of the group that were opened so far.
    pub(super) fn ask(&mut self, group: GroupId, read: ReadId) {
        let opened = self.opened.remove(&group).unwrap_or_default();
        for number in &opened {
            self.watches.insert(*number, Waits::For(read));
        }
        self.asked.insert(read, opened);
    }

    /// Takes the watches that waited for an answered read. None if no watch ever waited for it.
    pub(super) fn answered(&mut self, read: ReadId) -> Option<BTreeSet<WatchNumber>> {
        let asked = self.asked.remove(&read)?;
        for number in &asked {
            self.watches.remove(number);
        }
        Some(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId::new(0);
    const OTHER: GroupId = GroupId::new(1);

    fn answered(unbegun: &mut Unbegun, read: u64) -> Option<Vec<WatchNumber>> {
        unbegun.answered(ReadId(read)).map(|numbers| numbers.into_iter().collect())
    }

    #[test]
    fn watches_of_a_group_share_the_read_that_follows_on_them() {
        let mut unbegun = Unbegun::default();
        (1..=3).for_each(|number| unbegun.add(number, GROUP));
        unbegun.add(4, OTHER);
        assert_eq!(unbegun.to_ask(), Some(GROUP));
        unbegun.ask(GROUP, ReadId(1));
        assert_eq!(unbegun.to_ask(), Some(OTHER));
        unbegun.ask(OTHER, ReadId(2));
        assert_eq!(unbegun.to_ask(), None);
        // A watch that is opened after a read was requested is not begun by that read.
        unbegun.add(5, GROUP);
        assert_eq!(answered(&mut unbegun, 1), Some(vec![1, 2, 3]));
        assert!(!unbegun.contains(1) && unbegun.contains(4) && unbegun.contains(5));
        assert_eq!(answered(&mut unbegun, 1), None, "it is answered once");
        assert_eq!(answered(&mut unbegun, 2), Some(vec![4]));
    }

    #[test]
    fn a_watch_that_ends_while_it_waits_is_begun_by_no_read() {
        let mut unbegun = Unbegun::default();
        unbegun.add(1, GROUP);
        unbegun.remove(1);
        assert_eq!(unbegun.to_ask(), None);
        unbegun.add(1, GROUP);
        unbegun.ask(GROUP, ReadId(1));
        unbegun.remove(1);
        // A later watch under the same number waits for a read of its own.
        unbegun.add(1, GROUP);
        assert_eq!(answered(&mut unbegun, 1), Some(vec![]));
        assert!(unbegun.contains(1));
        assert_eq!(unbegun.to_ask(), Some(GROUP));
    }
}
