//! Start times of grants, as far as this server gave them.
//!
//! The table is bounded, and learns only of releases through this server: a grant whose lease expired is forgotten when
//! another takes its place. Invariant: a table of fixed size, in which consecutive tokens have consecutive places, so a
//! grant of a single group is remembered for as many revisions as there are places. Not here: the holders of locks (in
//! the state); this table is for a measurement, and may forget.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Held {
    /// Times in the table count from here.
    epoch: Instant,
    /// Places of the table; their number is a power of two.
    places: Mutex<Box<[Place]>>,
}

/// A grant, or an empty place: no token is 0.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    token: u64,
    group: u32,
    since_us: u64,
}

impl Held {
    /// Creates a table for this many grants, rounded up to a power of two.
    pub(super) fn new(grants_max: usize) -> Held {
        let places = vec![Place::default(); grants_max.next_power_of_two()].into_boxed_slice();
        Held { epoch: Instant::now(), places: Mutex::new(places) }
    }

    /// Records a grant; false if it is known already.
    pub(super) fn begin(&self, group: u32, token: u64, now: Instant) -> bool {
        let since_us = self.count_us(now);
        let mut places = self.places.lock();
        let place = find(&mut places, group, token);
        if (place.group, place.token) == (group, token) {
            return false;
        }
        *place = Place { token, group, since_us };
        true
    }

    /// Ends a grant and returns how long it was held, if its start is known.
    pub(super) fn end(&self, group: u32, token: u64, now: Instant) -> Option<Duration> {
        let now_us = self.count_us(now);
        let mut places = self.places.lock();
        let place = find(&mut places, group, token);
        let known = token != 0 && (place.group, place.token) == (group, token);
        let held = known.then(|| Duration::from_micros(now_us.saturating_sub(place.since_us)));
        if known {
            *place = Place::default();
        }
        held
    }

    fn count_us(&self, now: Instant) -> u64 {
        let us = now.saturating_duration_since(self.epoch).as_micros();
        u64::try_from(us).expect("half a million years")
    }
}

/// Returns the place of a grant in the table. Groups begin at different places.
fn find(places: &mut [Place], group: u32, token: u64) -> &mut Place {
    let spread = u64::from(group).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let at = token.wrapping_add(spread) & (places.len() as u64 - 1);
    &mut places[usize::try_from(at).expect("less than there are places")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_told_once_and_its_begin_is_known_until_its_end() {
        let (held, now) = (Held::new(16), Instant::now());
        let later = now + Duration::from_millis(1_500);
        assert!(held.begin(0, 5, now));
        assert!(!held.begin(0, 5, later));
        assert!(held.begin(1, 5, now), "another group counts for itself");
        let about = held.end(0, 5, later).unwrap();
        assert!(about.abs_diff(later - now) <= Duration::from_micros(1), "{about:?}");
        assert_eq!(held.end(0, 5, later), None);
        assert_eq!(held.end(0, 0, later), None, "a release that names no token");
    }

    #[test]
    fn p16_grants_that_never_end_are_forgotten_and_young_ones_are_not() {
        let (held, now) = (Held::new(10), Instant::now());
        for token in 1..=1_000 {
            assert!(held.begin(0, token, now));
        }
        assert_eq!(held.places.lock().len(), 16);
        for token in 985..=1_000 {
            assert!(held.end(0, token, now).is_some(), "{token}");
        }
        assert_eq!(held.end(0, 984, now), None);
    }
}
