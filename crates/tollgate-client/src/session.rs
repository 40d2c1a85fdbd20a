//! Sessions: a lease, the task that keeps it alive, and everything that hangs on it.
//!
//! Invariant: a session that is dropped or closed ends its lease, unless it only joined it. Not here: what can be done
//! under a lease (`acquire`, `campaign`), connections (`client`).

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

/// A lease that is kept alive, and under which locks are taken. Cheap to clone.
///
/// When the last clone and the last guard are dropped, the lease is revoked in the background;
/// [`close`](Session::close) does it and waits. A program that ends right after dropping a session may end before the
/// cluster has heard of it, and then others wait for the TTL.
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

/// Ends the session when it is dropped.
struct Owned {
    core: Arc<Core>,
    /// None once somebody has seen it end.
    keeper: Mutex<Option<JoinHandle<Result<(), Error>>>>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Its keeper notices, and revokes the lease.
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

    /// The lease's id.
    pub fn lease_id(&self) -> LeaseId {
        self.core().lease
    }

    /// How long the lease lives after its last keepalive.
    pub fn ttl(&self) -> Duration {
        self.core().ttl
    }

    /// The revision at which the lease was granted: tells it from an earlier one with the same id.
    pub fn incarnation(&self) -> Revision {
        self.core().incarnation
    }

    /// The history of grants that the cluster goes on: kept by clusters that are restored from its backups, and another
    /// in a cluster that is founded anew. Tokens of one lineage can be compared. None while the cluster has not told
    /// one.
    pub fn lineage(&self) -> Option<Lineage> {
        self.core().lineage()
    }

    /// How long the client believes in the lease if no more keepalives are answered; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.core().remaining()
    }

    /// Takes a lock. Each call is an owner of its own: two tasks of one session exclude each other. For a task that
    /// takes a lock twice, or several of which each may wait for another, use [`Session::owner`].
    pub fn lock(&self, name: impl Into<String>) -> Acquire {
        Acquire::new(self.clone(), vec![name.into()], None)
    }

    /// Takes several locks, all or none: those of one group together, with one place in each queue; groups one after
    /// another, always in the same order. Requests that hold nothing while they wait never deadlock with each other,
    /// whatever the order of names.
    pub fn locks<I, S>(&self, names: I) -> Acquire
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Acquire::new(self.clone(), names.into_iter().map(Into::into).collect(), None)
    }

    /// A thread of control inside the session: what it holds it may take again, and where it would wait for itself or
    /// in a circle with others, it is told. Its name is at most 64 bytes.
    pub fn owner(&self, name: impl Into<String>) -> OwnerHandle {
        OwnerHandle::new(self.clone(), name.into())
    }

    /// A semaphore with so many permits; the number must be the same for all who use it.
    pub fn semaphore(&self, name: impl Into<String>, of: u32) -> Semaphore {
        Semaphore::new(self.clone(), name.into(), of)
    }

    /// Stands for election.
    pub fn campaign(&self, election: impl Into<String>) -> Campaign {
        Campaign::new(self.clone(), election.into())
    }

    /// Completes when the lease is lost, and says why.
    pub async fn lost(&self) -> Lost {
        self.core().until_lost().await
    }

    /// That the lease is lost, if it is; checked against the clock at every call.
    pub fn check(&self) -> Result<(), Lost> {
        self.core().check()
    }

    /// Ends the lease and all that hangs on it, and waits until the cluster has done so. Guards of the session are lost
    /// from now on. A session that joined a lease leaves it alone, and gives back what it holds under it.
    pub async fn close(self) -> Result<(), Error> {
        self.core().lose(LostReason::SessionClosed);
        // Kept while it is waited for: a second one that closes waits as well.
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
