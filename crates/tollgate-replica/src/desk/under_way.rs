//! What is under way, by numbers that are given out one after the other.
//!
//! Most of it ends in the order in which it began, so it lies in a row, and finding something is a subtraction.
//! Invariant: the row begins with something that is under way, or is empty.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct UnderWay<T> {
    /// The number of the first place.
    first: u64,
    places: VecDeque<Option<T>>,
}

impl<T> UnderWay<T> {
    /// The numbers begin behind `before`.
    pub(super) fn new(before: u64) -> UnderWay<T> {
        UnderWay { first: before + 1, places: VecDeque::new() }
    }

    /// The number that was given out last.
    pub(super) fn last(&self) -> u64 {
        self.first + self.places.len() as u64 - 1
    }

    /// Begins something, and numbers it.
    pub(super) fn begin(&mut self, what: T) -> u64 {
        self.places.push_back(Some(what));
        self.last()
    }

    /// What has this number and is under way: it is over now.
    pub(super) fn end(&mut self, number: u64) -> Option<T> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let ended = self.places.get_mut(at)?.take();
        while self.places.front().is_some_and(Option::is_none) {
            self.places.pop_front();
            self.first += 1;
        }
        ended
    }

    /// The number of what began first of all that is under way.
    pub(super) fn oldest(&self) -> Option<u64> {
        (!self.places.is_empty()).then_some(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_end_in_any_order_and_once() {
        let mut under_way = UnderWay::new(7);
        assert_eq!((under_way.last(), under_way.oldest()), (7, None));
        assert_eq!(["a", "b", "c"].map(|what| under_way.begin(what)), [8, 9, 10]);
        assert_eq!(under_way.end(9), Some("b"));
        assert_eq!((under_way.end(9), under_way.end(7), under_way.end(11)), (None, None, None));
        assert_eq!(under_way.oldest(), Some(8));
        assert_eq!(under_way.end(8), Some("a"));
        assert_eq!((under_way.oldest(), under_way.places.len()), (Some(10), 1), "no room for what is over");
        assert_eq!(under_way.end(10), Some("c"));
        assert_eq!((under_way.last(), under_way.oldest()), (10, None));
        assert_eq!(under_way.begin("d"), 11, "no number is given out twice");
    }
}
