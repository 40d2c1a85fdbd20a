//! Finds the watches that see an event without checking each of them.
//!
//! An exact watch, and one on a lease, costs an event one lookup. Prefix watches cost it one lookup per *distinct
//! length* of prefix in use, however many watches have that length. The index agrees with [`Watch::matches`] and has no
//! rules of its own.

use crate::event::{Change, Event};
use crate::watch::Watch;
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use tollgate_types::LeaseId;

/// Index of watches by the events that they see. `T` is the caller's id of a watch.
///
/// ```
/// use tollgate_core::{Change, Event, RegisterChange, Watch, WatchIndex};
/// use tollgate_types::{Key, Revision};
///
/// let mut index = WatchIndex::new();
/// index.insert(&Watch::RegisterPrefix(b"config/".to_vec()), 7);
/// index.insert(&Watch::Register(Key::new("config/size")?), 3);
/// index.insert(&Watch::LockPrefix(b"config/".to_vec()), 5);
///
/// let change = RegisterChange { key: Key::new("config/size")?, now: None, prev: None };
/// let event = Event { revision: Revision::new(9)?, change: Change::Register(change) };
/// let mut ids = Vec::new();
/// index.matching(&event, &mut ids);
/// assert_eq!(ids, [3, 7]);
/// # Ok::<(), tollgate_types::Invalid>(())
/// ```
#[derive(Debug, Clone)]
pub struct WatchIndex<T> {
    all: BTreeSet<T>,
    locks: Space<T>,
    /// No set is empty.
    leases: BTreeMap<LeaseId, BTreeSet<T>>,
    registers: Space<T>,
    len: usize,
}

/// The watches on locks, or those on registers.
#[derive(Debug, Clone)]
struct Space<T> {
    exact: ByBytes<T>,
    prefixes: ByBytes<T>,
    /// Number of distinct prefixes of each length. No entry is 0.
    prefix_lengths: BTreeMap<usize, usize>,
}

/// No set is empty.
type ByBytes<T> = BTreeMap<Vec<u8>, BTreeSet<T>>;

impl<T: Copy + Ord> WatchIndex<T> {
    /// Makes an empty index.
    pub fn new() -> WatchIndex<T> {
        let (all, leases) = (BTreeSet::new(), BTreeMap::new());
        WatchIndex { all, locks: Space::new(), leases, registers: Space::new(), len: 0 }
    }

    /// Adds a watch. One id may have several watches; the same watch added twice under an id is there once.
    pub fn insert(&mut self, watch: &Watch, id: T) {
        let added = match watch {
            Watch::All => self.all.insert(id),
            Watch::Lock(name) => self.locks.insert_exact(name.as_bytes(), id),
            Watch::LockPrefix(prefix) => self.locks.insert_prefix(prefix, id),
            Watch::Lease(lease) => self.leases.entry(*lease).or_default().insert(id),
            Watch::Register(key) => self.registers.insert_exact(key.as_bytes(), id),
            Watch::RegisterPrefix(prefix) => self.registers.insert_prefix(prefix, id),
        };
        self.len += usize::from(added);
    }

    /// Removes a watch, given as it was inserted. Returns false if it was not there.
    pub fn remove(&mut self, watch: &Watch, id: T) -> bool {
        let removed = match watch {
            Watch::All => self.all.remove(&id),
            Watch::Lock(name) => self.locks.remove_exact(name.as_bytes(), id),
            Watch::LockPrefix(prefix) => self.locks.remove_prefix(prefix, id),
            Watch::Lease(lease) => remove_id(&mut self.leases, lease, id).is_some(),
            Watch::Register(key) => self.registers.remove_exact(key.as_bytes(), id),
            Watch::RegisterPrefix(prefix) => self.registers.remove_prefix(prefix, id),
        };
        self.len -= usize::from(removed);
        removed
    }

    /// Appends the ids of the watches that see `event`, sorted and each once. The ids that are in `out` already stay.
    pub fn matching(&self, event: &Event, out: &mut Vec<T>) {
        let start = out.len();
        out.extend(&self.all);
        match &event.change {
            Change::Lock(lock) => {
                self.locks.matching(lock.name.as_bytes(), out);
                out.extend(self.leases.get(&lock.lease).into_iter().flatten());
            }
            Change::Register(register) => self.registers.matching(register.key.as_bytes(), out),
        }
        out[start..].sort_unstable();
        dedup_from(out, start);
    }

    /// Returns the number of watches.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no watch.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Copy + Ord> Default for WatchIndex<T> {
    fn default() -> Self {
        WatchIndex::new()
    }
}

impl<T: Copy + Ord> Space<T> {
    fn new() -> Space<T> {
        Space { exact: BTreeMap::new(), prefixes: BTreeMap::new(), prefix_lengths: BTreeMap::new() }
    }

    fn insert_exact(&mut self, bytes: &[u8], id: T) -> bool {
        self.exact.entry(bytes.to_vec()).or_default().insert(id)
    }

    fn insert_prefix(&mut self, prefix: &[u8], id: T) -> bool {
        let ids = self.prefixes.entry(prefix.to_vec()).or_default();
        if ids.is_empty() {
            *self.prefix_lengths.entry(prefix.len()).or_default() += 1;
        }
        ids.insert(id)
    }

    fn remove_exact(&mut self, bytes: &[u8], id: T) -> bool {
        remove_id(&mut self.exact, bytes, id).is_some()
    }

    fn remove_prefix(&mut self, prefix: &[u8], id: T) -> bool {
        let removed = remove_id(&mut self.prefixes, prefix, id);
        if removed == Some(Removed::Last) {
            let count = self.prefix_lengths.get_mut(&prefix.len()).expect("the prefix was counted");
            *count -= 1;
            if *count == 0 {
                self.prefix_lengths.remove(&prefix.len());
            }
        }
        removed.is_some()
    }

    fn matching(&self, bytes: &[u8], out: &mut Vec<T>) {
        if let Some(ids) = self.exact.get(bytes) {
            out.extend(ids);
        }
        for (&length, _) in self.prefix_lengths.range(..=bytes.len()) {
            if let Some(ids) = self.prefixes.get(&bytes[..length]) {
                out.extend(ids);
            }
        }
    }
}

/// Result of removing an id: others are left under the key, or it was the last.
#[derive(PartialEq, Eq)]
enum Removed {
    OneOfSeveral,
    Last,
}

fn remove_id<K, Q, T>(map: &mut BTreeMap<K, BTreeSet<T>>, key: &Q, id: T) -> Option<Removed>
where
    K: Ord + Borrow<Q>,
    Q: Ord + ?Sized,
    T: Copy + Ord,
{
    let ids = map.get_mut(key)?;
    if !ids.remove(&id) {
        return None;
    }
    if !ids.is_empty() {
        return Some(Removed::OneOfSeveral);
    }
    map.remove(key);
    Some(Removed::Last)
}

/// Like `Vec::dedup`, for the sorted elements from `start` on.
fn dedup_from<T: Copy + Eq>(out: &mut Vec<T>, start: usize) {
    let mut kept = start;
    for i in start..out.len() {
        if kept == start || out[i] != out[kept - 1] {
            out[kept] = out[i];
            kept += 1;
        }
    }
    out.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{LockChange, RegisterChange};
    use tollgate_types::{Key, Metadata, Name, Owner, Reason, Revision};

    /// splitmix64.
    struct Rng(u64);

    impl Rng {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }

        fn below(&mut self, end: u64) -> u64 {
            self.next() % end
        }

        /// Random text of so few letters that strings are often equal, and often begin alike.
        fn text(&mut self, len_min: u64) -> String {
            (0..len_min + self.below(6)).map(|_| if self.below(2) == 0 { 'a' } else { 'b' }).collect()
        }
    }

    fn watch(rng: &mut Rng) -> Watch {
        match rng.below(11) {
            0 => Watch::All,
            1 | 2 => Watch::Lock(Name::new(rng.text(1)).unwrap()),
            3 | 4 => Watch::LockPrefix(rng.text(0).into_bytes()),
            5 | 6 => Watch::Register(Key::new(rng.text(1)).unwrap()),
            7 | 8 => Watch::Lease(lease(1 + rng.below(4))),
            _ => Watch::RegisterPrefix(rng.text(0).into_bytes()),
        }
    }

    fn lease(id: u64) -> LeaseId {
        LeaseId::new(id).unwrap()
    }

    fn lock_event(name: &str) -> Event {
        lock_event_of(name, 1)
    }

    fn lock_event_of(name: &str, id: u64) -> Event {
        let change = LockChange {
            name: Name::new(name).unwrap(),
            lease: lease(id),
            owner: Owner::LEASE,
            metadata: Metadata::NONE,
            create_revision: Revision::ZERO,
            now: None,
            prev: None,
            end: None,
            note: Reason::NONE,
            value: None,
            vacant: true,
        };
        Event { revision: Revision::ZERO, change: Change::Lock(change) }
    }

    fn register_event(key: &str) -> Event {
        let change = RegisterChange { key: Key::new(key).unwrap(), now: None, prev: None };
        Event { revision: Revision::ZERO, change: Change::Register(change) }
    }

    fn event(rng: &mut Rng) -> Event {
        let text = rng.text(1);
        if rng.below(2) == 0 { lock_event_of(&text, 1 + rng.below(4)) } else { register_event(&text) }
    }

    #[test]
    fn the_index_finds_what_a_scan_of_all_watches_finds() {
        let mut rng = Rng(1);
        let mut index = WatchIndex::new();
        let mut scan: BTreeSet<(Watch, u64)> = BTreeSet::new();
        for _ in 0..20_000 {
            let (watch, id) = (watch(&mut rng), rng.below(30));
            // More watches come than go until there are about 100; then the other way round, down to none.
            if rng.below(200) < scan.len() as u64 + 20 {
                assert_eq!(index.remove(&watch, id), scan.remove(&(watch, id)));
                if let Some((watch, id)) = scan.pop_first() {
                    assert!(index.remove(&watch, id));
                }
            } else {
                index.insert(&watch, id);
                scan.insert((watch, id));
            }
            assert_eq!(index.len(), scan.len());
            let event = event(&mut rng);
            let expected: BTreeSet<u64> =
                scan.iter().filter(|(w, _)| w.matches(&event)).map(|(_, id)| *id).collect();
            let mut found = vec![99, 99];
            index.matching(&event, &mut found);
            assert_eq!(found[..2], [99, 99], "what was there before stays");
            assert_eq!(found[2..], Vec::from_iter(expected), "{event:?}");
        }
        for (watch, id) in scan {
            assert!(index.remove(&watch, id));
        }
        assert!(index.is_empty() && index.leases.is_empty());
        for space in [&index.locks, &index.registers] {
            assert!(space.exact.is_empty() && space.prefixes.is_empty() && space.prefix_lengths.is_empty());
        }
    }

    #[test]
    fn a_lock_is_watched_by_its_name_and_not_by_the_keys_of_its_holders() {
        let jobs = Watch::Lock(Name::new("jobs").unwrap());
        assert!(jobs.matches(&lock_event("jobs")));
        assert!(!jobs.matches(&lock_event("jobs/0000000000000001")));
        assert!(!jobs.matches(&register_event("jobs")));
        let holders = Watch::LockPrefix(b"jobs/".to_vec());
        assert!(!holders.matches(&lock_event("jobs")));
        assert!(holders.matches(&lock_event("jobs/7")));
    }

    #[test]
    fn a_watch_on_a_lease_is_told_nothing_of_other_leases_and_nothing_of_registers() {
        let watch = Watch::Lease(lease(7));
        assert!(watch.matches(&lock_event_of("jobs", 7)) && watch.matches(&lock_event_of("db", 7)));
        for other in [lock_event_of("jobs", 8), lock_event_of("7", 1), register_event("jobs")] {
            assert!(!watch.matches(&other), "{other:?}");
        }
        let state = crate::event::RegisterState {
            value: tollgate_types::Value::EMPTY,
            lease: Some(lease(7)),
            create_revision: Revision::ZERO,
            mod_revision: Revision::ZERO,
            version: 1,
        };
        let change = RegisterChange { key: Key::new("k").unwrap(), now: Some(state), prev: None };
        let bound = Event { revision: Revision::ZERO, change: Change::Register(change) };
        assert!(!watch.matches(&bound), "a register on the lease is no claim");
    }

    #[test]
    fn an_empty_prefix_sees_its_whole_space() {
        let (locks, registers) = (Watch::LockPrefix(vec![]), Watch::RegisterPrefix(vec![]));
        assert!(locks.matches(&lock_event("x")) && !locks.matches(&register_event("x")));
        assert!(registers.matches(&register_event("x")) && !registers.matches(&lock_event("x")));
    }
}
