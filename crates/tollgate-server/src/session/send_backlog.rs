//! Accounts of the unread bytes of all streams on a node, and the choice of the stream to end if it is too much.
//!
//! Each stream (a session, a watch, an observed election) has a limit of its own, past which nothing more is taken from
//! its client. Many streams together would still be too much: past a limit for all, the stream with the most unread
//! ends, and the others don't notice. Streams that claim to come from other nodes have a separate limit, so that
//! neither side can take the other's room. Invariant: the unread bytes of the streams that go on are within the limit
//! whenever something was charged. Not here: the data that is unread.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Unread bytes of all streams of one kind.
#[derive(Debug)]
pub(crate) struct SendBacklog {
    bytes_max: usize,
    total: AtomicUsize,
    accounts: Mutex<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    next: u64,
    open: BTreeMap<u64, Arc<Account>>,
}

/// Unread bytes of one stream.
#[derive(Debug)]
pub(crate) struct Account {
    unread: Arc<SendBacklog>,
    bytes: AtomicUsize,
    is_cut: AtomicBool,
    cut: Notify,
}

/// An account that takes part in the limit until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenAccount {
    number: u64,
    account: Arc<Account>,
}

/// Bytes charged to an account, until this is dropped. The default is charged to no account.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    account: Option<Arc<Account>>,
    bytes: usize,
}

impl SendBacklog {
    pub(crate) fn new(bytes_max: usize) -> Arc<SendBacklog> {
        Arc::new(SendBacklog { bytes_max, total: AtomicUsize::new(0), accounts: Mutex::default() })
    }

    /// Opens an account for a new stream.
    pub(crate) fn open(self: &Arc<SendBacklog>) -> OpenAccount {
        let account = Arc::new(Account {
            unread: Arc::clone(self),
            bytes: AtomicUsize::new(0),
            is_cut: AtomicBool::new(false),
            cut: Notify::new(),
        });
        let mut accounts = self.lock();
        let number = accounts.next;
        accounts.next += 1;
        accounts.open.insert(number, Arc::clone(&account));
        OpenAccount { number, account }
    }

    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock()
    }

    /// Cuts the largest account, again and again, until the rest is within the limit. A stream that is cut releases its
    /// bytes when it notices.
    fn make_room(&self) {
        let accounts = self.lock();
        loop {
            let attended_call = accounts.open.values().filter(|account| !account.is_cut());
            let (mut sum, mut largest) = (0, None);
            for (bytes, account) in attended_call.map(|account| (account.bytes(), account)) {
                sum += bytes;
                if largest.as_ref().is_none_or(|(most, _)| bytes > *most) {
                    largest = Some((bytes, account));
                }
            }
            match largest {
                Some((_, account)) if sum > self.bytes_max => {
                    account.is_cut.store(true, Ordering::Relaxed);
                    account.cut.notify_one();
                }
                _ => return,
            }
        }
    }
}

impl Account {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Charges bytes to the account. This may cut the account, or another.
    pub(crate) fn charge(self: &Arc<Account>, bytes: usize) -> Charge {
        let mut charge = Charge { account: Some(Arc::clone(self)), bytes: 0 };
        charge.add(bytes);
        charge
    }
}

impl OpenAccount {
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Returns the limit for all streams together.
    pub(crate) fn bytes_max(&self) -> usize {
        self.account.unread.bytes_max
    }

    pub(crate) async fn until_cut(&self) {
        while !self.account.is_cut() {
            self.account.cut.notified().await;
        }
    }
}

impl Drop for OpenAccount {
    fn drop(&mut self) {
        self.account.unread.lock().open.remove(&self.number);
    }
}

impl Charge {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds bytes to the charge.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        let Some(account) = &self.account else { return };
        account.bytes.fetch_add(bytes, Ordering::Relaxed);
        let total = account.unread.total.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if total > account.unread.bytes_max {
            account.unread.make_room();
        }
    }

    /// Splits off part of the charge, at most all of it.
    pub(crate) fn split(&mut self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Charge { account: self.account.clone(), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Some(account) = &self.account else { return };
        account.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        account.unread.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p16_past_the_limit_the_one_with_the_most_unread_goes_and_only_that() {
        let unread = SendBacklog::new(1_000);
        let [small, large, middle] = [unread.open(), unread.open(), unread.open()];
        let mut charges = [(&small, 10), (&large, 600), (&middle, 390)]
            .map(|(opened, bytes)| opened.account().charge(bytes));
        let cut = || [&small, &large, &middle].map(|opened| opened.account().is_cut());
        assert_eq!(cut(), [false; 3]);
        charges[0].add(1);
        assert_eq!(cut(), [false, true, false]);
        // Bytes of a stream that is cut, but not released yet, are not counted against the others.
        charges[2].add(500);
        assert_eq!(cut(), [false, true, false]);
        charges[0].add(100);
        assert_eq!(cut(), [false, true, true]);
        drop(charges);
        assert_eq!(unread.total.load(Ordering::Relaxed), 0);
        drop([small, large, middle]);
        assert!(unread.lock().open.is_empty());
    }

    #[test]
    fn a_charge_can_be_given_back_in_parts() {
        let unread = SendBacklog::new(1_000);
        let opened = unread.open();
        let mut charge = opened.account().charge(100);
        drop(charge.split(30));
        assert_eq!((charge.bytes(), opened.account().bytes()), (70, 70));
        drop(charge.split(1_000));
        assert_eq!((charge.bytes(), opened.account().bytes()), (0, 0));
    }
}
