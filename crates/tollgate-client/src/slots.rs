//! Who waits for the answer to which operation of a stream, by number.
//!
//! Numbers are places in a list and are used again once answered, so finding who waits costs an index.

use tokio::sync::oneshot;

/// Operations of one stream that have no final answer yet.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    places: Vec<Option<oneshot::Sender<T>>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// A number for one that waits, from 1.
    pub(crate) fn add(&mut self, waiting: oneshot::Sender<T>) -> u64 {
        let place = if let Some(place) = self.free.pop() {
            self.places[place] = Some(waiting);
            place
        } else {
            self.places.push(Some(waiting));
            self.places.len() - 1
        };
        place as u64 + 1
    }

    /// Who waits under this number, which is free from now on.
    pub(crate) fn take(&mut self, number: u64) -> Option<oneshot::Sender<T>> {
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        let waiting = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        Some(waiting)
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All who wait; nobody does from now on.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = oneshot::Sender<T>> {
        self.free.clear();
        std::mem::take(&mut self.places).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_once_it_is_answered_and_not_before() {
        let mut slots = Slots::default();
        let (one, _one) = oneshot::channel();
        let (two, mut waits) = oneshot::channel();
        assert_eq!((slots.add(one), slots.add(two)), (1, 2));
        assert!(slots.take(1).is_some());
        assert!(slots.take(1).is_none());
        let (three, _three) = oneshot::channel();
        assert_eq!(slots.add(three), 1);
        slots.take(2).unwrap().send("two").unwrap();
        assert_eq!(waits.try_recv().unwrap(), "two");
        assert_eq!((slots.len(), slots.drain().count(), slots.len()), (1, 1, 0));
        assert!(slots.take(0).is_none() && slots.take(9).is_none());
    }
}
