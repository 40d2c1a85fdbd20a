//! Operations of a stream that have no final answer yet, by number, and the wakers of their callers.
//!
//! Numbers are places in a list and are reused once answered, so finding a caller costs an index. Invariant: a number
//! that was given out is not given out again before it is answered and its caller has taken the answer or is gone.

use std::task::{Context, Poll, Waker};

#[derive(Debug)]
enum Slot<T> {
    Free,
    /// Not answered yet; holds the caller's waker.
    Waiting(Waker),
    /// Answered, and not yet taken by the caller.
    Answered(T),
    /// Not answered yet, and the caller is gone.
    Abandoned,
}

/// Operations of one stream that have no final answer yet.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    places: Vec<Slot<T>>,
    free: Vec<usize>,
}

impl<T> Default for InFlight<T> {
    fn default() -> InFlight<T> {
        InFlight { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> InFlight<T> {
    /// Adds an operation with the waker of its caller. Returns its number, from 1.
    pub(crate) fn add(&mut self, waker: Waker) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Slot::Free);
            self.places.len() - 1
        });
        self.places[place] = Slot::Waiting(waker);
        place as u64 + 1
    }

    /// Returns the answer to an operation that is not abandoned, once it is there. Its number is free from then on.
    pub(crate) fn poll(&mut self, number: u64, context: &Context<'_>) -> Poll<T> {
        let place = place_of(number);
        let slot = &mut self.places[place];
        if let Slot::Waiting(waker) = slot {
            waker.clone_from(context.waker());
            return Poll::Pending;
        }
        let Slot::Answered(answer) = std::mem::replace(slot, Slot::Free) else {
            unreachable!("the number of an operation is its own until it is answered")
        };
        self.free.push(place);
        Poll::Ready(answer)
    }

    /// Records an answer. Returns the waker of the caller, if it still waits.
    pub(crate) fn answer(&mut self, number: u64, answer: T) -> Option<Waker> {
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        match self.places.get_mut(place)? {
            // There is no operation with this number, or it was answered already.
            Slot::Free | Slot::Answered(_) => None,
            slot @ Slot::Abandoned => {
                *slot = Slot::Free;
                self.free.push(place);
                None
            }
            slot @ Slot::Waiting(_) => match std::mem::replace(slot, Slot::Answered(answer)) {
                Slot::Waiting(waker) => Some(waker),
                _ => unreachable!("looked at just now"),
            },
        }
    }

    /// Records that the caller is gone.
    pub(crate) fn abandon(&mut self, number: u64) {
        let place = place_of(number);
        let slot = &mut self.places[place];
        match slot {
            Slot::Waiting(_) => *slot = Slot::Abandoned,
            Slot::Answered(_) => {
                *slot = Slot::Free;
                self.free.push(place);
            }
            Slot::Free | Slot::Abandoned => unreachable!("one is gone once"),
        }
    }

    /// Frees the numbers if all their callers are gone, and returns true if so. The operations must never be answered
    /// then.
    pub(crate) fn forget_if_all_abandoned(&mut self, numbers: &[u64]) -> bool {
        let places = &self.places;
        if !numbers.iter().all(|number| matches!(places[place_of(*number)], Slot::Abandoned)) {
            return false;
        }
        for place in numbers.iter().map(|number| place_of(*number)) {
            self.places[place] = Slot::Free;
            self.free.push(place);
        }
        true
    }

    /// Returns the number of operations that are not answered, or whose answer was not taken.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Answers all unanswered operations; returns the wakers of their callers.
    pub(crate) fn answer_all(&mut self, answer: impl Fn(u64) -> T) -> Vec<Waker> {
        let numbers = 1..=self.places.len() as u64;
        numbers.filter_map(|number| self.answer(number, answer(number))).collect()
    }
}

fn place_of(number: u64) -> usize {
    usize::try_from(number - 1).expect("it was given out here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_once_its_answer_was_seen_or_came_for_nobody() {
        let (waker, context) = (Waker::noop(), Context::from_waker(Waker::noop()));
        let mut slots = InFlight::default();
        assert_eq!((slots.add(waker.clone()), slots.add(waker.clone())), (1, 2));
        assert_eq!(slots.poll(1, &context), Poll::Pending);
        assert!(slots.answer(1, "one").is_some());
        assert!(slots.answer(1, "again").is_none());
        assert_eq!(slots.add(waker.clone()), 3, "nobody has seen the answer to the first yet");
        assert_eq!(slots.poll(1, &context), Poll::Ready("one"));
        assert_eq!(slots.add(waker.clone()), 1);
        slots.abandon(2);
        assert_eq!((slots.add(waker.clone()), slots.len()), (4, 4), "the second is on its way still");
        assert!(slots.answer(2, "two").is_none());
        assert_eq!(slots.add(waker.clone()), 2);
        slots.answer(3, "three");
        slots.abandon(3);
        assert_eq!(slots.add(waker.clone()), 3);
        assert!(slots.answer(0, "none").is_none() && slots.answer(9, "none").is_none());
    }

    #[test]
    fn numbers_are_free_if_nobody_wants_any_of_their_answers() {
        let mut slots: InFlight<()> = InFlight::default();
        for _ in 0..3 {
            slots.add(Waker::noop().clone());
        }
        slots.abandon(1);
        assert!(!slots.forget_if_all_abandoned(&[1, 2]));
        slots.abandon(2);
        assert!(slots.forget_if_all_abandoned(&[1, 2]));
        assert_eq!(slots.len(), 1);
        assert_eq!((slots.add(Waker::noop().clone()), slots.add(Waker::noop().clone())), (2, 1));
    }

    #[test]
    fn everybody_is_told_at_the_end() {
        let mut slots = InFlight::default();
        for _ in 0..3 {
            slots.add(Waker::noop().clone());
        }
        slots.abandon(2);
        assert_eq!(slots.answer_all(|number| number).len(), 2);
        let context = Context::from_waker(Waker::noop());
        assert_eq!((slots.poll(1, &context), slots.poll(3, &context)), (Poll::Ready(1), Poll::Ready(3)));
        assert_eq!(slots.len(), 0);
    }
}
