//! A lock service as the load generator sees it: little enough that any of them can be one.
//!
//! Invariant: all services are driven by the same loops, and differ only in what is behind these methods.

use crate::failure::Failure;
use std::future::Future;

/// How a lock is to be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Alone.
    Exclusive,
    /// With other readers.
    Shared,
    /// One of so many permits.
    Permit {
        /// How many there are.
        of: u32,
    },
}

/// A lock service.
pub trait Peer: Send + Sync + 'static {
    /// One that asks it.
    type Caller: Caller;

    /// A new caller, with a lease or session of its own. `near` is a name that it will lock.
    fn caller(&self, number: usize, near: &str)
    -> impl Future<Output = Result<Self::Caller, Failure>> + Send;
}

/// One that asks a lock service, one thing at a time.
pub trait Caller: Send + 'static {
    /// A lock that is held.
    type Held: Send;
    /// A lease beside the caller's own.
    type Lease: Send;

    /// Takes a lock, waiting for it as long as it takes.
    fn lock(&mut self, name: &str, how: How) -> impl Future<Output = Result<Self::Held, Failure>> + Send;

    /// Gives it back, and waits until it is.
    fn unlock(&mut self, held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;

    /// A new lease, which nobody keeps alive.
    fn grant(&mut self) -> impl Future<Output = Result<Self::Lease, Failure>> + Send;

    /// Renews a lease.
    fn keep_alive(&mut self, lease: &mut Self::Lease) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Ends a lease.
    fn revoke(&mut self, lease: Self::Lease) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Ends what the caller has of its own.
    fn close(self) -> impl Future<Output = ()> + Send;
}
