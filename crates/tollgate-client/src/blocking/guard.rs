//! Guard of a held lock in a blocking client.

use super::engine::Engine;
use crate::acquire_error::AcquireError;
use crate::error::Error;
use crate::lost::Lost;
use std::sync::Arc;
use std::time::Duration;
use tollgate_types::{LeaseId, Lineage, Mode, Token};

/// Held lock: see [`crate::Guard`].
///
/// A thread that computes should call [`Guard::token`] or [`Guard::is_lost`] before each step that others could see:
/// both check the clock, and neither blocks.
#[derive(Debug)]
pub struct Guard {
    // Declared before the engine, so that it is dropped first: the engine waits for the release that this starts.
    inner: crate::Guard,
    engine: Arc<Engine>,
}

impl Guard {
    pub(super) fn new(inner: crate::Guard, engine: Arc<Engine>) -> Guard {
        Guard { inner, engine }
    }

    /// Returns the fencing token, which is higher than the token of every holder before. Checked against the clock at
    /// every call.
    pub fn token(&self) -> Result<Token, Lost> {
        self.inner.token()
    }

    /// Returns the fencing token of each name, in order.
    pub fn tokens(&self) -> Result<Vec<(String, Token)>, Lost> {
        self.inner.tokens()
    }

    /// Returns the lineage, the history of grants that the token belongs to.
    pub fn lineage(&self) -> Option<Lineage> {
        self.inner.lineage()
    }

    /// Returns the lock's name; of several, the first in order.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Returns the mode in which the lock is held.
    pub fn mode(&self) -> Mode {
        self.inner.mode()
    }

    /// Returns the lease that holds the lock.
    pub fn lease_id(&self) -> LeaseId {
        self.inner.lease_id()
    }

    /// Returns the owner that holds the lock.
    pub fn owner(&self) -> &str {
        self.inner.owner()
    }

    /// Returns the time that the acquire waited in line.
    pub fn waited(&self) -> Duration {
        self.inner.waited()
    }

    /// Returns the time for which the lock can be relied on if no more keepalives are answered; zero once the lock is
    /// lost.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// True once the lock is lost; checked against the clock at every call.
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// Waits until the lock is lost, and returns the reason.
    pub fn lost(&self) -> Lost {
        self.engine.wait(self.inner.lost())
    }

    /// Waits until the lock is lost, but no longer than `wait`; none if it is not lost by then.
    pub fn lost_within(&self, wait: Duration) -> Option<Lost> {
        self.engine.wait(async { tokio::time::timeout(wait, self.inner.lost()).await.ok() })
    }

    /// Changes the mode of the lock, waiting if others are in the way: see [`crate::Guard::convert`].
    pub fn convert(&mut self, mode: Mode) -> Result<(), AcquireError> {
        self.engine.wait(self.inner.convert(mode))
    }

    /// Changes to exclusive mode, with a new token.
    pub fn upgrade(&mut self) -> Result<(), AcquireError> {
        self.engine.wait(self.inner.upgrade())
    }

    /// Changes to shared mode, which lets other readers in.
    pub fn downgrade(&mut self) -> Result<(), AcquireError> {
        self.engine.wait(self.inner.downgrade())
    }

    /// Releases the lock, and waits until the cluster has done so. Dropping the guard releases the lock in the
    /// background.
    pub fn release(self) -> Result<(), Error> {
        self.engine.wait(self.inner.release())
    }
}
