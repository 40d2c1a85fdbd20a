//! A lock service as the load generator sees it: an interface so small that every lock service can implement it.
//!
//! Invariant: all services are driven by the same loops, and differ only in the implementation of these methods.

use crate::failure::Failure;
use std::future::Future;

/// Mode in which a lock is acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Exclusive.
    Exclusive,
    /// Shared with other readers.
    Shared,
    /// One permit of a semaphore.
    Permit {
        /// Total number of permits.
        of: u32,
    },
}

/// A lock service.
pub trait Peer: Send + Sync + 'static {
    /// A client of the service.
    type Caller: Caller;

    /// Creates a caller with a lease or session of its own. `near` is a name that the caller will lock.
    fn caller(&self, number: usize, near: &str)
    -> impl Future<Output = Result<Self::Caller, Failure>> + Send;
}

/// A client of a lock service that makes one request at a time.
pub trait Caller: Send + 'static {
    /// A held lock.
    type Held: Send;
    /// A lease besides the caller's own.
    type Lease: Send;

    /// Acquires a lock, without a limit on the wait.
    fn lock(&mut self, name: &str, how: How) -> impl Future<Output = Result<Self::Held, Failure>> + Send;

    /// Releases a lock, and waits until it is released.
    fn unlock(&mut self, held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Grants a new lease, which nobody keeps alive.
    fn grant(&mut self) -> impl Future<Output = Result<Self::Lease, Failure>> + Send;

    /// Renews a lease.
    fn keep_alive(&mut self, lease: &mut Self::Lease) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Ends a lease.
    fn revoke(&mut self, lease: Self::Lease) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Ends the caller's own lease or session.
    fn close(self) -> impl Future<Output = ()> + Send;
}
