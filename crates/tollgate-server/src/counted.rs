//! How many have an interest in something: the last one that goes sees to its end.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};

/// Counts by what they are interested in. What nobody is interested in takes no room.
#[derive(Debug)]
pub(crate) struct Counted<K>(Mutex<HashMap<K, u32>>);

impl<K> Default for Counted<K> {
    fn default() -> Counted<K> {
        Counted(Mutex::default())
    }
}

impl<K: Eq + Hash> Counted<K> {
    /// One more.
    pub(crate) fn add(&self, key: K) {
        *self.lock().entry(key).or_default() += 1;
    }

    /// One less. Whether it was the last one.
    pub(crate) fn remove(&self, key: &K) -> bool {
        let mut counts = self.lock();
        let Some(count) = counts.get_mut(key) else { return true };
        *count -= 1;
        let last = *count == 0;
        if last {
            counts.remove(key);
        }
        last
    }

    /// Whether there is anybody.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.lock().contains_key(key)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, u32>> {
        self.0.lock().expect("nobody panics with it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_one_is_told_so() {
        let counted = Counted::default();
        counted.add(7);
        counted.add(7);
        assert!(!counted.remove(&7) && counted.contains(&7));
        assert!(counted.remove(&7) && !counted.contains(&7));
        assert!(counted.lock().is_empty());
    }
}
