//! Requests under way, by consecutive numbers.
//!
//! Most requests end in the order in which they began, so they are kept in a row, and a lookup is a subtraction.
//! Requests that don't end while many others do are put aside. Invariant: the row begins with a request that is under
//! way, or is empty; it is never longer than its limit, so ended requests take no more room than that (P16).

use std::collections::{BTreeMap, VecDeque};

/// The most places in the row.
const ROW_MAX: usize = 16_384;

#[derive(Debug)]
pub(super) struct UnderWay<T> {
    /// Number of the first place in the row.
    first: u64,
    row: VecDeque<Option<T>>,
    /// Requests that began before the first place in the row.
    aside: BTreeMap<u64, T>,
}

impl<T> UnderWay<T> {
    /// Makes an empty collection whose numbers begin after `before`.
    pub(super) fn new(before: u64) -> UnderWay<T> {
        UnderWay { first: before + 1, row: VecDeque::new(), aside: BTreeMap::new() }
    }

    /// The number that was given out last.
    pub(super) fn last(&self) -> u64 {
        self.first + self.row.len() as u64 - 1
    }

    /// Begins a request, and returns its number.
    pub(super) fn begin(&mut self, what: T) -> u64 {
        if self.row.len() >= ROW_MAX
            && let Some(late) = self.row.pop_front()
        {
            self.aside.extend(late.map(|late| (self.first, late)));
            self.first += 1;
            self.drop_ended();
        }
        self.row.push_back(Some(what));
        self.last()
    }

    /// Ends the request with this number and returns it, if it is under way.
    pub(super) fn end(&mut self, number: u64) -> Option<T> {
        let Some(at) = number.checked_sub(self.first) else { return self.aside.remove(&number) };
        let ended = self.row.get_mut(usize::try_from(at).ok()?)?.take();
        self.drop_ended();
        ended
    }

    fn drop_ended(&mut self) {
        while self.row.front().is_some_and(Option::is_none) {
            self.row.pop_front();
            self.first += 1;
        }
    }

    /// Number of the oldest request under way.
    pub(super) fn oldest(&self) -> Option<u64> {
        let aside = self.aside.first_key_value().map(|(number, _)| *number);
        aside.or((!self.row.is_empty()).then_some(self.first))
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
        assert_eq!((under_way.oldest(), under_way.row.len()), (Some(10), 1), "no room for what is over");
        assert_eq!(under_way.end(10), Some("c"));
        assert_eq!((under_way.last(), under_way.oldest()), (10, None));
        assert_eq!(under_way.begin("d"), 11, "no number is given out twice");
    }

    #[test]
    fn p16_what_does_not_end_keeps_no_room_for_all_that_does() {
        let mut under_way = UnderWay::new(0);
        let late = [under_way.begin(0), under_way.begin(0)];
        for number in 3..10 * ROW_MAX as u64 {
            assert_eq!(under_way.begin(number), number);
            assert_eq!(under_way.end(number), Some(number));
            assert!(under_way.row.len() <= ROW_MAX);
        }
        assert_eq!(under_way.oldest(), Some(late[0]));
        assert_eq!(late.map(|number| under_way.end(number)), [Some(0), Some(0)]);
        assert_eq!((under_way.oldest(), under_way.row.len()), (None, 0));
    }
}
