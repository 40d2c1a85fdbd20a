//! What waits for the driver's next turn.
//!
//! Many put in, one takes out, everything at once. Invariant: what comes from outside has a limit (P16); what the
//! node's own threads have to say (disk, peers' connections) always goes in, and is bounded by what they are doing.

use crate::planted::{Bug, planted};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Nothing was put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// There is too much already.
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
    /// Whether the driver sleeps, and must be woken.
    asleep: bool,
    /// Nobody takes anything out any more.
    closed: bool,
}

impl<T> Inbox<T> {
    pub(crate) fn new(limit: usize) -> Inbox<T> {
        let waiting = Waiting { items: Vec::new(), asleep: false, closed: false };
        Inbox { waiting: Mutex::new(waiting), filled: Condvar::new(), limit }
    }

    /// Puts something in, unless there is too much already; then it is not even asked for.
    pub(crate) fn offer<I: IntoIterator<Item = T>>(&self, items: impl FnOnce() -> I) -> Result<(), NotTaken> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(NotTaken::Stopped);
        }
        if waiting.items.len() >= self.limit && !planted(Bug::InboxUnbounded) {
            return Err(NotTaken::Full);
        }
        waiting.items.extend(items());
        self.wake(waiting);
        Ok(())
    }

    /// Puts something in, whatever there is.
    pub(crate) fn put(&self, item: T) {
        let mut waiting = self.lock();
        if !waiting.closed {
            waiting.items.push(item);
            self.wake(waiting);
        }
    }

    /// Nobody takes anything out any more: what is in it is dropped, and so is what comes. Whoever waits for an answer
    /// learns by that that there will be none.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
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

    /// Takes everything out, waiting for something for at most `patience`. `into` must be empty.
    pub(crate) fn take(&self, into: &mut Vec<T>, patience: Duration) {
        assert!(into.is_empty(), "what was taken before is dealt with");
        let mut waiting = self.lock();
        if waiting.items.is_empty() && !patience.is_zero() {
            waiting.asleep = true;
            let woken = self.filled.wait_timeout_while(waiting, patience, |waiting| waiting.items.is_empty());
            waiting = woken.expect("nobody panics with it").0;
            waiting.asleep = false;
        }
        std::mem::swap(into, &mut waiting.items);
    }

    /// Whether nobody takes anything out any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().items.len()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().expect("nobody panics with it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn p16_what_comes_from_outside_has_a_limit_and_the_rest_goes_in() {
        let inbox = Inbox::new(2);
        assert_eq!((inbox.offer(|| [1]), inbox.offer(|| [2])), (Ok(()), Ok(())));
        assert_eq!(inbox.offer(|| [3]), Err(NotTaken::Full));
        inbox.put(4);
        let mut taken = Vec::new();
        inbox.take(&mut taken, Duration::ZERO);
        assert_eq!(taken, [1, 2, 4]);
        assert_eq!(inbox.len(), 0);
    }

    #[test]
    fn what_comes_after_the_end_is_dropped() {
        let (inbox, kept) = (Inbox::new(2), Arc::new(()));
        inbox.put(Arc::clone(&kept));
        inbox.close();
        inbox.put(Arc::clone(&kept));
        assert_eq!(inbox.offer(|| [Arc::clone(&kept)]), Err(NotTaken::Stopped));
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
