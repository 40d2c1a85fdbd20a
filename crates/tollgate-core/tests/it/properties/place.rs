//! The place of a sequence's state: alone in its cluster, or one of two groups, so that some commands belong to the
//! other group.

use super::texts;
use crate::oracle::Oracle;
use std::sync::Arc;
use tollgate_core::{APPLY_VERSION_SUPPORTED, Command, Entry, State};
use tollgate_types::{GroupId, GroupMap, Key, LeaseId, Limits, LogTime, Name, SLOTS, Slot};

/// A group, and the group map that says which slots are its own.
#[derive(Clone)]
pub(super) struct Place {
    group: GroupId,
    map: Arc<GroupMap>,
    /// Apply version that the group begins with.
    version: u32,
}

impl Place {
    /// The place of a cluster's only group.
    pub(super) fn alone() -> Place {
        Place { group: GroupId::MAP, map: Arc::new(GroupMap::single()), version: APPLY_VERSION_SUPPORTED }
    }

    /// True if a seed's group begins at an old version, as every group does, and is raised some time later.
    pub(super) fn is_old(seed: u64) -> bool {
        seed % 11 == 5
    }

    /// The place for a seed. Alone in most sequences, so that the sequences of those seeds stay as they were.
    pub(super) fn of_seed(seed: u64) -> Place {
        let version = match seed / 11 % 2 {
            _ if !Place::is_old(seed) => APPLY_VERSION_SUPPORTED,
            0 => 1,
            _ => 2,
        };
        if seed % 7 != 3 {
            return Place { version, ..Place::alone() };
        }
        let group = GroupId::new(u32::from(seed / 7 % 2 == 1));
        Place { group, map: Arc::new(GroupMap::even(2).expect("two are allowed")), version }
    }

    pub(super) fn is_alone(&self) -> bool {
        self.map.is_single()
    }

    pub(super) fn state(&self, limits: &Limits) -> State {
        let mut state = State::of_group(limits.clone(), self.group, Arc::clone(&self.map));
        state.apply(Entry::new(LogTime::ZERO, Command::RaiseApplyVersion(self.version)));
        state
    }

    pub(super) fn oracle(&self, limits: &Limits) -> Oracle {
        let mut oracle = Oracle::of_group(limits.clone(), self.group, Arc::clone(&self.map));
        oracle.apply(&Entry::new(LogTime::ZERO, Command::RaiseApplyVersion(self.version)));
        oracle
    }

    /// The usual names and one more. In one of two groups the usual ones get an ending if they need one to be served
    /// there, and the extra one is not served.
    pub(super) fn names(&self) -> Vec<Name> {
        let texts = texts::names();
        if self.is_alone() {
            return texts;
        }
        let ended = |name: &Name, served| {
            let candidates = endings(name.as_bytes()).map(|bytes| Name::new(bytes).expect("a good name"));
            self.first(candidates, Name::slot, served)
        };
        texts.iter().map(|name| ended(name, true)).chain([ended(&texts[0], false)]).collect()
    }

    /// The usual keys, adapted like the names.
    pub(super) fn keys(&self) -> Vec<Key> {
        let texts = texts::keys();
        if self.is_alone() {
            return texts;
        }
        let ended = |key: &Key, served| {
            let candidates = endings(key.as_bytes()).map(|bytes| Key::new(bytes).expect("a good key"));
            self.first(candidates, Key::slot, served)
        };
        texts.iter().map(|key| ended(key, true)).chain([ended(&texts[0], false)]).collect()
    }

    /// The usual lease ids, adapted like the names.
    pub(super) fn lease_ids(&self) -> Vec<LeaseId> {
        let texts = texts::lease_ids();
        if self.is_alone() {
            return texts;
        }
        let [own, other] = self.ends();
        let served = texts.iter().map(|lease| LeaseId::assigned(own, lease.get()));
        served.chain([LeaseId::assigned(other, 1)]).collect()
    }

    /// Slots in which leases are granted.
    pub(super) fn lease_slots(&self) -> Vec<Slot> {
        if self.is_alone() {
            return vec![Slot::new(5).expect("a good slot")];
        }
        let [own, other] = self.ends();
        vec![own, own, other]
    }

    /// The first and the last slot, the one that this group serves first.
    fn ends(&self) -> [Slot; 2] {
        let [first, last] = [0, SLOTS - 1].map(|number| Slot::new(number).expect("below SLOTS"));
        if self.serves(first) { [first, last] } else { [last, first] }
    }

    fn serves(&self, slot: Slot) -> bool {
        self.map.group_of(slot) == self.group
    }

    fn first<T>(&self, mut candidates: impl Iterator<Item = T>, slot: fn(&T) -> Slot, served: bool) -> T {
        candidates.find(|it| self.serves(slot(it)) == served).expect("about every second is")
    }
}

/// The text, and the text with each number after it.
fn endings(text: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let numbered = (1_u32..).map(move |number| [text, number.to_string().as_bytes()].concat());
    std::iter::once(text.to_vec()).chain(numbered)
}
