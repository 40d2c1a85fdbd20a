//! What a thread has while it holds a lock.

use super::engine::Engine;
use crate::acquire_error::AcquireError;
use crate::error::Error;
use crate::lost::Lost;
use std::sync::Arc;
use std::time::Duration;
use tollgate_types::{LeaseId, Lineage, Mode, Token};

/// A lock that is held: see [`crate::Guard`].
///
/// A thread that computes should ask [`Guard::token`] or [`Guard::is_lost`] before each step that others could see:
/// both look at the clock, and neither waits.
#[derive(Debug)]
pub struct Guard {
    // Before the engine, which waits for what this leaves behind.
    inner: crate::Guard,
    engine: Arc<Engine>,
}

impl Guard {
    pub(super) fn new(inner: crate::Guard, engine: Arc<Engine>) -> Guard {
        Guard { inner, engine }
    }

    /// The fencing token: higher than that of every holder before. Checked against the clock at every call.
    pub fn token(&self) -> Result<Token, Lost> {
        self.inner.token()
    }

    /// The fencing token of each name, in order.
    pub fn tokens(&self) -> Result<Vec<(String, Token)>, Lost> {
        self.inner.tokens()
    }

    /// The history of grants that its token belongs to.
    pub fn lineage(&self) -> Option<Lineage> {
        self.inner.lineage()
    }

    /// The lock's name; of several, the first in order.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.inner.mode()
    }

    /// The lease that it hangs on.
    pub fn lease_id(&self) -> LeaseId {
        self.inner.lease_id()
    }

    /// The owner that holds it.
    pub fn owner(&self) -> &str {
        self.inner.owner()
    }

    /// How long it waited in line.
    pub fn waited(&self) -> Duration {
        self.inner.waited()
    }

    /// How long it can be relied on if no more keepalives are answered; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether it is lost; checked against the clock at every call.
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// Waits until the lock is lost, and says why.
    pub fn lost(&self) -> Lost {
        self.engine.wait(self.inner.lost())
    }

    /// Waits for at most so long until the lock is lost; none if it is not.
    pub fn lost_within(&self, wait: Duration) -> Option<Lost> {
        self.engine.wait(async { tokio::time::timeout(wait, self.inner.lost()).await.ok() })
    }

    /// Changes how it is held, waiting if others are in the way: see [`crate::Guard::convert`].
    pub fn convert(&mut self, mode: Mode) -> Result<(), AcquireError> {
        self.engine.wait(self.inner.convert(mode))
    }

    /// Holds it alone from now on, with a new token.
    pub fn upgrade(&mut self) -> Result<(), AcquireError> {
        self.engine.wait(self.inner.upgrade())
    }

    /// Lets other readers in.
    pub fn downgrade(&mut self) -> Result<(), AcquireError> {
        self.engine.wait(self.inner.downgrade())
    }

    /// Gives the lock back, and waits until the cluster has taken it. Dropping it does so in the background.
    pub fn release(self) -> Result<(), Error> {
        self.engine.wait(self.inner.release())
    }
}
