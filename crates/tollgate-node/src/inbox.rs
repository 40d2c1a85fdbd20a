//! Inputs that wait for the driver's next turn.
//!
//! Many threads put in, one takes out, everything at once. Invariant: inputs from outside have a limit (P16), a higher
//! one for duties, without which locks are lost or stay held; inputs from the node's own threads (disk, peers'
//! connections) are always taken, and are bounded by the work of those threads.

use crate::planted::{Bug, planted};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Divides the limit to give the extra room that only duties may use.
const DUTIES_PART: usize = 4;

/// Reason for not taking an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// There are too many inputs already.
    #[error("the node has too much to do: wait a little and try again")]
    Full,
    /// The node has stopped.
    #[error("the node has stopped: ask another")]
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Inbox<T> {
    waiting: Mutex<Waiting<T>>,
    filled: Condvar,
    limit: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    items: Vec<T>,
    /// Number of things that were put in: an item may be several things.
    count: usize,
    /// True while the driver sleeps, and must be woken.
    asleep: bool,
    /// True once nothing is taken out any more.
    closed: bool,
}

impl<T> Inbox<T> {
    pub(crate) fn new(limit: usize) -> Inbox<T> {
        let waiting = Waiting { items: Vec::new(), count: 0, asleep: false, closed: false };
        Inbox { waiting: Mutex::new(waiting), filled: Condvar::new(), limit }
    }

    /// Puts things in together and gives back those for which there is no room. Duties have room of their own above the
    /// limit. `together` makes an item of the things taken.
    pub(crate) fn offer<E>(
        &self,
        things: Vec<E>,
        is_duty: impl Fn(&E) -> bool,
        together: impl FnOnce(Vec<E>) -> T,
    ) -> Result<(), (NotTaken, Vec<E>)> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err((NotTaken::Stopped, things));
        }
        let (taken, refused) = if waiting.count < self.limit || planted(Bug::InboxUnbounded) {
            (things, Vec::new())
        } else {
            let room = self.limit.saturating_add(self.limit.div_ceil(DUTIES_PART));
            let mut room = room.saturating_sub(waiting.count);
            things.into_iter().partition(|thing| {
                let fits = room > 0 && is_duty(thing);
                room -= usize::from(fits);
                fits
            })
        };
        if !taken.is_empty() {
            waiting.count += taken.len();
            waiting.items.push(together(taken));
            self.wake(waiting);
        }
        if refused.is_empty() { Ok(()) } else { Err((NotTaken::Full, refused)) }
    }

    /// Puts an item in, regardless of the limit.
    pub(crate) fn put(&self, item: T) {
        let mut waiting = self.lock();
        if !waiting.closed {
            waiting.count += 1;
            waiting.items.push(item);
            self.wake(waiting);
        }
    }

    /// Closes the inbox: nothing is taken out any more, and items in it and later ones are dropped. From the drop,
    /// waiting callers learn that there will be no answer.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.count = 0;
        let dropped = std::mem::take(&mut waiting.items);
        drop(waiting);
        drop(dropped);
    }

    fn wake(&self, mut waiting: MutexGuard<'_, Waiting<T>>) {
        if std::mem::take(&mut waiting.asleep) {
            drop(waiting);
            self.filled.notify_one();
        }
    }

    /// Takes all items out, waiting for one for at most `patience`; returns the number of things put in. `into` must be
    /// empty.
    pub(crate) fn take(&self, into: &mut Vec<T>, patience: Duration) -> usize {
        assert!(into.is_empty(), "what was taken before is dealt with");
        let mut waiting = self.lock();
        if waiting.items.is_empty() && !patience.is_zero() {
            waiting.asleep = true;
            self.filled.wait_while_for(&mut waiting, |waiting| waiting.items.is_empty(), patience);
            waiting.asleep = false;
        }
        std::mem::swap(into, &mut waiting.items);
        std::mem::take(&mut waiting.count)
    }

    /// Returns true if the inbox is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().count
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn p16_what_comes_from_outside_has_a_limit_and_the_rest_goes_in() {
        let inbox = Inbox::new(2);
        let offer = |item| inbox.offer(vec![item], |_| false, |items: Vec<i32>| items[0]);
        assert_eq!((offer(1), offer(2)), (Ok(()), Ok(())));
        assert_eq!(offer(3), Err((NotTaken::Full, vec![3])));
        inbox.put(4);
        let mut taken = Vec::new();
        inbox.take(&mut taken, Duration::ZERO);
        assert_eq!(taken, [1, 2, 4]);
        assert_eq!(inbox.len(), 0);
    }

    #[test]
    fn p16_there_is_room_for_duties_when_there_is_none_for_the_rest() {
        let inbox = Inbox::new(8);
        let offer = |items: &[i32]| inbox.offer(items.to_vec(), |item| *item < 0, |items| items);
        assert_eq!(offer(&[1, 2, 3, 4, 5, 6, 7, 8]), Ok(()));
        assert_eq!(offer(&[9, -1, 10]), Err((NotTaken::Full, vec![9, 10])));
        assert_eq!(offer(&[-2, -3]), Err((NotTaken::Full, vec![-3])), "there is an end to everything");
        assert_eq!(offer(&[11]), Err((NotTaken::Full, vec![11])));
        assert_eq!(inbox.len(), 10);
        let mut taken = Vec::new();
        assert_eq!(inbox.take(&mut taken, Duration::ZERO), 10);
        assert_eq!(taken, [vec![1, 2, 3, 4, 5, 6, 7, 8], vec![-1], vec![-2]]);
        assert_eq!(inbox.len(), 0);
    }

    #[test]
    fn what_comes_after_the_end_is_dropped() {
        let (inbox, kept) = (Inbox::new(2), Arc::new(()));
        inbox.put(Arc::clone(&kept));
        inbox.close();
        inbox.put(Arc::clone(&kept));
        assert!(matches!(
            inbox.offer(vec![Arc::clone(&kept)], |_| true, |kept| kept[0].clone()),
            Err((NotTaken::Stopped, _))
        ));
        assert_eq!((inbox.len(), Arc::strong_count(&kept)), (0, 1));
    }

    #[test]
    fn one_who_sleeps_is_woken() {
        let inbox = Arc::new(Inbox::new(2));
        let other = Arc::clone(&inbox);
        let taker = std::thread::spawn(move || {
            let mut taken = Vec::new();
            other.take(&mut taken, Duration::from_mins(1));
            taken
        });
        while !inbox.lock().asleep {
            std::thread::yield_now();
        }
        inbox.put(7);
        assert_eq!(taker.join().unwrap(), [7]);
    }
}
