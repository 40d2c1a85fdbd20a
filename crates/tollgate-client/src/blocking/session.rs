//! Sessions of a blocking client.

use super::acquire::{Acquire, Semaphore};
use super::engine::Engine;
use super::leadership::Campaign;
use crate::error::Error;
use crate::lost::Lost;
use std::sync::Arc;
use std::time::Duration;
use tollgate_types::{LeaseId, Lineage};

/// Builder for a session.
#[derive(Debug)]
#[must_use = "nothing is opened until `open` or `join` is called"]
pub struct SessionBuilder {
    inner: crate::SessionBuilder,
    engine: Arc<Engine>,
}

impl SessionBuilder {
    pub(super) fn new(inner: crate::SessionBuilder, engine: Arc<Engine>) -> SessionBuilder {
        SessionBuilder { inner, engine }
    }

    fn map(self, change: impl FnOnce(crate::SessionBuilder) -> crate::SessionBuilder) -> SessionBuilder {
        SessionBuilder { inner: change(self.inner), engine: self.engine }
    }

    /// Sets the time that the lease lives after its last keepalive: see [`crate::SessionBuilder::ttl`].
    pub fn ttl(self, ttl: Duration) -> SessionBuilder {
        self.map(|inner| inner.ttl(ttl))
    }

    /// Sets the name of the session in listings: see [`crate::SessionBuilder::client_id`].
    pub fn client_id(self, client_id: impl Into<String>) -> SessionBuilder {
        self.map(|inner| inner.client_id(client_id))
    }

    /// Sets whether the lease ends with the connection: see [`crate::SessionBuilder::revoke_on_disconnect`].
    pub fn revoke_on_disconnect(self, revoke: bool) -> SessionBuilder {
        self.map(|inner| inner.revoke_on_disconnect(revoke))
    }

    /// Sets the lease's id: see [`crate::SessionBuilder::lease_id`].
    pub fn lease_id(self, lease_id: LeaseId) -> SessionBuilder {
        self.map(|inner| inner.lease_id(lease_id))
    }

    /// Sets the name of a lock near which the lease lives: see [`crate::SessionBuilder::near`].
    pub fn near(self, name: impl Into<String>) -> SessionBuilder {
        self.map(|inner| inner.near(name))
    }

    /// Sets the time between two keepalives: see [`crate::SessionBuilder::keepalive_interval`].
    pub fn keepalive_interval(self, interval: Duration) -> SessionBuilder {
        self.map(|inner| inner.keepalive_interval(interval))
    }

    /// Opens the session: see [`crate::SessionBuilder::open`].
    pub fn open(self) -> Result<Session, Error> {
        let inner = self.engine.wait(self.inner.open())?;
        Ok(Session { inner, engine: self.engine })
    }

    /// Joins a lease that another program granted: see [`crate::SessionBuilder::join`].
    pub fn join(self, lease: LeaseId) -> Result<Session, Error> {
        let inner = self.engine.wait(self.inner.join(lease))?;
        Ok(Session { inner, engine: self.engine })
    }
}

/// Session: a lease that is kept alive, and the locks under it. See [`crate::Session`]. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Session {
    // Declared before the engine, so that it is dropped first: the engine waits for the releases that this starts.
    inner: crate::Session,
    engine: Arc<Engine>,
}

impl Session {
    /// Returns the async session behind this one.
    pub fn inner(&self) -> &crate::Session {
        &self.inner
    }

    /// Returns the lease's id.
    pub fn lease_id(&self) -> LeaseId {
        self.inner.lease_id()
    }

    /// Returns the time that the lease lives after its last keepalive.
    pub fn ttl(&self) -> Duration {
        self.inner.ttl()
    }

    /// Returns the lineage, the history of grants that the cluster continues ([`crate::Session::lineage`]).
    pub fn lineage(&self) -> Option<Lineage> {
        self.inner.lineage()
    }

    /// Returns the time for which the client believes in the lease if no more keepalives are answered; zero once the
    /// lease is lost.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Returns a request for a lock; two acquires of one session exclude each other: see [`crate::Session::lock`].
    pub fn lock(&self, name: impl Into<String>) -> Acquire {
        self.acquire(self.inner.lock(name))
    }

    /// Returns a request for several locks, all together or none: see [`crate::Session::locks`].
    pub fn locks<I, S>(&self, names: I) -> Acquire
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        self.acquire(self.inner.locks(names))
    }

    /// Returns an owner, a thread of control inside the session: see [`crate::Session::owner`].
    pub fn owner(&self, name: impl Into<String>) -> OwnerHandle {
        OwnerHandle { inner: self.inner.owner(name), engine: Arc::clone(&self.engine) }
    }

    /// Returns a semaphore with `of` permits: see [`crate::Session::semaphore`].
    pub fn semaphore(&self, name: impl Into<String>, of: u32) -> Semaphore {
        Semaphore::new(self.inner.semaphore(name, of), Arc::clone(&self.engine))
    }

    /// Returns a candidacy in an election: see [`crate::Session::campaign`].
    pub fn campaign(&self, election: impl Into<String>) -> Campaign {
        Campaign::new(self.inner.campaign(election), Arc::clone(&self.engine))
    }

    /// Returns an error if the lease is lost; checked against the clock at every call.
    pub fn check(&self) -> Result<(), Lost> {
        self.inner.check()
    }

    /// Waits until the lease is lost, and returns the reason.
    pub fn lost(&self) -> Lost {
        self.engine.wait(self.inner.lost())
    }

    /// Ends the lease, with all locks and registers that depend on it, and waits until the cluster has done so.
    pub fn close(self) -> Result<(), Error> {
        self.engine.wait(self.inner.close())
    }

    fn acquire(&self, inner: crate::Acquire) -> Acquire {
        Acquire::new(inner, Arc::clone(&self.engine))
    }
}

/// Owner, a thread of control inside a session: see [`crate::OwnerHandle`]. Cheap to clone.
#[derive(Debug, Clone)]
pub struct OwnerHandle {
    inner: crate::OwnerHandle,
    engine: Arc<Engine>,
}

impl OwnerHandle {
    /// Returns the owner's name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Returns a request for a lock; acquiring a lock that the owner holds already is counted.
    pub fn lock(&self, name: impl Into<String>) -> Acquire {
        Acquire::new(self.inner.lock(name), Arc::clone(&self.engine))
    }

    /// Returns a request for several locks, all together or none.
    pub fn locks<I, S>(&self, names: I) -> Acquire
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Acquire::new(self.inner.locks(names), Arc::clone(&self.engine))
    }
}
