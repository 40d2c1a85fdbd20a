//! Sessions: a lease, the task that keeps it alive, and everything that depends on it.
//!
//! Invariant: a session that is dropped or closed ends its lease, unless it only joined it. Not here: operations under
//! a lease (`acquire`, `campaign`), connections (`client`).

mod builder;
mod core;
mod keeper;

pub use builder::SessionBuilder;

pub(crate) use core::{Core, Failed, Returning};

use crate::acquire::Acquire;
use crate::campaign::Campaign;
use crate::error::{Error, ErrorKind};
use crate::lost::{Lost, LostReason};
use crate::owner::OwnerHandle;
use crate::semaphore::Semaphore;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tollgate_types::{LeaseId, Lineage, Revision};

/// Session: a lease that is kept alive, and the locks under it. Cheap to clone.
///
/// When the last clone and the last guard are dropped, the lease is revoked in the background;
/// [`close`](Session::close) revokes it and waits. A program that ends right after dropping a session may end before
/// the cluster has received the revoke, and then others wait for the TTL.
///
/// ```no_run
/// # async fn example(client: tollgate_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// let session = client.session().ttl(Duration::from_secs(30)).open().await?;
/// let guard = session.lock("db/migrate").wait(Duration::from_secs(30)).why("schema v42").acquire().await?;
/// let token = guard.token()?; // hand it to whatever you write to
/// # let _ = token;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    owned: Arc<Owned>,
}

/// Ends the session when dropped.
struct Owned {
    core: Arc<Core>,
    /// Task that keeps the lease alive; none once a caller has seen it end.
    keeper: Mutex<Option<JoinHandle<Result<(), Error>>>>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // The keeper notices, and revokes the lease.
        self.core.lose(LostReason::SessionClosed);
    }
}

impl Session {
    fn new(core: Arc<Core>, keeper: JoinHandle<Result<(), Error>>) -> Session {
        Session { owned: Arc::new(Owned { core, keeper: Mutex::new(Some(keeper)) }) }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.owned.core
    }

    /// Returns the lease's id.
    pub fn lease_id(&self) -> LeaseId {
        self.core().lease
    }

    /// Returns the time that the lease lives after its last keepalive.
    pub fn ttl(&self) -> Duration {
        self.core().ttl
    }

    /// Returns the revision of the lease's grant, which distinguishes it from an earlier lease with the same id.
    pub fn incarnation(&self) -> Revision {
        self.core().incarnation
    }

    /// Returns the lineage, the history of grants that the cluster continues: a cluster that is restored from a backup
    /// keeps it, a newly founded cluster has another. Tokens of one lineage can be compared. None while the cluster has
    /// not reported a lineage.
    pub fn lineage(&self) -> Option<Lineage> {
        self.core().lineage()
    }

    /// Returns the time for which the client believes in the lease if no more keepalives are answered; zero once the
    /// lease is lost.
    pub fn remaining(&self) -> Duration {
        self.core().remaining()
    }

    /// Returns a request for a lock. Each call is an owner of its own: two tasks of one session exclude each other. For
    /// a task that acquires a lock twice, or for tasks of which each may wait for another, use [`Session::owner`].
    pub fn lock(&self, name: impl Into<String>) -> Acquire {
        Acquire::new(self.clone(), vec![name.into()], None)
    }

    /// Returns a request for several locks, all or none. The locks of one group are acquired together, with one place
    /// in each queue; groups come one after another, always in the same order. Requests that hold nothing while they
    /// wait never deadlock with each other, whatever the order of names.
    pub fn locks<I, S>(&self, names: I) -> Acquire
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Acquire::new(self.clone(), names.into_iter().map(Into::into).collect(), None)
    }

    /// Returns an owner, a thread of control inside the session. An owner may acquire again what it holds, and an
    /// acquire that would wait for itself or in a cycle with others fails with a deadlock error. The name is at most 64
    /// bytes.
    pub fn owner(&self, name: impl Into<String>) -> OwnerHandle {
        OwnerHandle::new(self.clone(), name.into())
    }

    /// Returns a semaphore with `of` permits; the number must be the same for all who use the semaphore.
    pub fn semaphore(&self, name: impl Into<String>, of: u32) -> Semaphore {
        Semaphore::new(self.clone(), name.into(), of)
    }

    /// Returns a candidacy in an election.
    pub fn campaign(&self, election: impl Into<String>) -> Campaign {
        Campaign::new(self.clone(), election.into())
    }

    /// Completes when the lease is lost, and returns the reason.
    pub async fn lost(&self) -> Lost {
        self.core().until_lost().await
    }

    /// Returns an error if the lease is lost; checked against the clock at every call.
    pub fn check(&self) -> Result<(), Lost> {
        self.core().check()
    }

    /// Ends the lease, with all locks and registers that depend on it, and waits until the cluster has done so. All
    /// guards of the session are lost from now on. A session that joined a lease leaves the lease alone, and releases
    /// its own locks under it.
    pub async fn close(self) -> Result<(), Error> {
        self.core().lose(LostReason::SessionClosed);
        // Kept while it is awaited, so that a second caller of `close` waits as well.
        let mut keeper = self.owned.keeper.lock().await;
        let Some(ending) = keeper.as_mut() else { return Ok(()) };
        let ended = ending.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Internal, "the runtime ended before the lease did", true))
        });
        *keeper = None;
        ended
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("lease_id", &self.lease_id())
            .field("ttl", &self.ttl())
            .finish_non_exhaustive()
    }
}
