//! The client for programs that use threads and no async runtime.
//!
//! It has the same sessions, locks and guards; every call blocks the calling thread until it is done. A thread of the
//! client's own keeps leases alive and notices losses, so a program that computes for an hour keeps its locks.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tollgate_client::blocking::Client;
//!
//! let client = Client::connect(["http://127.0.0.1:7400"])?;
//! let session = client.session().ttl(Duration::from_secs(30)).open()?;
//! let guard = session.lock("db/migrate").wait(Duration::from_secs(30)).why("schema v42").acquire()?;
//! println!("token {}", guard.token()?); // hand it to whatever you write to
//! guard.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! Everything here may be shared between threads. Nothing here may be called from async code, where blocking would
//! stall the runtime: it panics there. To use a feature of the async client that has no method here, pass its future to
//! [`Client::wait`].
//!
//! Dropping the last handle of a client waits up to 2 s until locks and leases that were dropped before have been
//! released. Not here: the work of the calls (the async client does all of it).

mod acquire;
mod engine;
mod guard;
mod leadership;
mod session;
mod watch;

pub use acquire::{Acquire, Semaphore};
pub use guard::Guard;
pub use leadership::{Campaign, Leadership};
pub use session::{OwnerHandle, Session, SessionBuilder};
pub use watch::Watch;

use crate::client::ClientBuilder;
use crate::error::Error;
use crate::lock_info::{Explanation, LockInfo};
use crate::watch::WatchBuilder;
use engine::Engine;
use std::future::IntoFuture;
use std::sync::Arc;
use tollgate_types::{LeaseId, Token};

/// Connection to a cluster. Cheap to clone; all clones share the connection.
#[derive(Debug, Clone)]
pub struct Client {
    // Declared before the engine, so that it is dropped first: the engine waits for the releases that this starts.
    inner: crate::Client,
    engine: Arc<Engine>,
}

impl Client {
    /// Connects to a cluster by the addresses of some of its nodes: see [`crate::Client::connect`].
    pub fn connect<I, S>(endpoints: I) -> Result<Client, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        Client::connect_with(crate::Client::builder().endpoints(endpoints))
    }

    /// Connects with settings made by [`crate::Client::builder`].
    pub fn connect_with(builder: ClientBuilder) -> Result<Client, Error> {
        let engine = Engine::start()?;
        let inner = engine.wait(builder.connect())?;
        Ok(Client { inner, engine })
    }

    /// Returns the async client behind this one.
    pub fn inner(&self) -> &crate::Client {
        &self.inner
    }

    /// Waits for a future, such as any call of the async client.
    ///
    /// ```no_run
    /// # fn example(client: tollgate_client::blocking::Client) -> Result<(), tollgate_client::Error> {
    /// let members = client.wait(client.inner().admin().members())?;
    /// client.wait(client.inner().registers().put("config/colour", "green"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait<F: IntoFuture>(&self, future: F) -> F::Output {
        self.engine.wait(future.into_future())
    }

    /// Returns a builder for a session, which keeps a lease alive.
    pub fn session(&self) -> SessionBuilder {
        SessionBuilder::new(self.inner.session(), Arc::clone(&self.engine))
    }

    /// Returns the state of one lock: see [`crate::Client::get_lock`].
    pub fn get_lock(&self, name: &str) -> Result<LockInfo, Error> {
        self.engine.wait(self.inner.get_lock(name))
    }

    /// Returns all locks whose name begins with `prefix`: see [`crate::Client::list_locks`].
    pub fn list_locks(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let list = self.inner.list_locks(prefix);
        self.engine.wait(list.all())
    }

    /// Explains why a lock is busy: see [`crate::Client::explain`].
    pub fn explain(&self, name: &str) -> Result<Explanation, Error> {
        self.engine.wait(self.inner.explain(name))
    }

    /// Takes a lock away from the holder of `token`: see [`crate::Client::force_release`].
    pub fn force_release(&self, name: &str, token: Token, reason: &str) -> Result<(), Error> {
        self.engine.wait(self.inner.force_release(name, token, reason))
    }

    /// Releases a lock that a lease and owner hold: see [`crate::Client::unlock`].
    pub fn unlock(&self, name: &str, lease: LeaseId, owner: &str, token: Option<Token>) -> Result<(), Error> {
        self.engine.wait(self.inner.unlock(name, lease, owner, token))
    }

    /// Opens a watch that was made by [`crate::Client::watch`] of [`Client::inner`]. The watch is an iterator that
    /// waits for each item.
    pub fn watch(&self, watch: WatchBuilder) -> Result<Watch, Error> {
        let opened = self.engine.wait(watch.open())?;
        Ok(Watch::new(opened, Arc::clone(&self.engine)))
    }
}
