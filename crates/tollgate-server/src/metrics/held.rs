//! Since when grants are held, as far as this server gave them.
//!
//! Bounded, and told of no end but a release through this server: a grant whose lease expired is forgotten when enough
//! others have come. Invariant: never more than its limit, in two generations; when the young one is full, the old one
//! goes. So a grant is remembered for at least half the limit's number of later ones. Not here: who holds what (the
//! state does); this is a measurement, and may forget.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

/// A group and a token of it.
type Grant = (u32, u64);

#[derive(Debug)]
pub(super) struct Held {
    generations: Mutex<Generations>,
    generation_max: usize,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Grant, Instant>,
    old: HashMap<Grant, Instant>,
}

impl Held {
    pub(super) fn new(grants_max: usize) -> Held {
        Held { generations: Mutex::default(), generation_max: (grants_max / 2).max(1) }
    }

    /// Notes a grant; false if it is known already.
    pub(super) fn begin(&self, group: u32, token: u64, now: Instant) -> bool {
        let mut known = self.generations.lock().expect("nobody panics with it");
        if known.young.contains_key(&(group, token)) || known.old.contains_key(&(group, token)) {
            return false;
        }
        if known.young.len() >= self.generation_max {
            known.old = std::mem::take(&mut known.young);
        }
        known.young.insert((group, token), now);
        true
    }

    /// Since when the grant was held that ends now, if that is known.
    pub(super) fn end(&self, group: u32, token: u64) -> Option<Instant> {
        let mut known = self.generations.lock().expect("nobody panics with it");
        let young = known.young.remove(&(group, token));
        young.or_else(|| known.old.remove(&(group, token)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_told_once_and_its_begin_is_known_until_its_end() {
        let (held, now) = (Held::new(10), Instant::now());
        assert!(held.begin(0, 5, now));
        assert!(!held.begin(0, 5, now));
        assert!(held.begin(1, 5, now), "another group counts for itself");
        assert_eq!(held.end(0, 5), Some(now));
        assert_eq!(held.end(0, 5), None);
    }

    #[test]
    fn p16_grants_that_never_end_are_forgotten_and_young_ones_are_not() {
        let (held, now) = (Held::new(10), Instant::now());
        for token in 0..1_000 {
            held.begin(0, token, now);
        }
        let known = held.generations.lock().unwrap();
        assert!(known.young.len() + known.old.len() <= 10);
        drop(known);
        for token in 996..1_000 {
            assert!(held.end(0, token).is_some(), "{token}");
        }
        assert_eq!(held.end(0, 0), None);
    }
}
