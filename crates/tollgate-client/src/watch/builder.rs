//! Options of a watch: target, start and filters.

use super::Watch;
use super::follower::Follower;
use crate::client::Client;
use crate::error::Error;
use tollgate_proto::v1::{self, WatchFilter, watch_request::Target};
use tollgate_types::{LeaseId, Revision};

/// Builder for a watch.
#[derive(Debug, Clone)]
#[must_use = "nothing is watched until it is opened"]
pub struct WatchBuilder {
    client: Client,
    kind: Kind,
    what: What,
    request: v1::WatchRequest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Locks; and registers as well, if no name or prefix is given.
    Any,
    Locks,
    Registers,
}

#[derive(Debug, Clone)]
enum What {
    All,
    One(Vec<u8>),
    Prefix(Vec<u8>),
    Lease(LeaseId),
}

impl Client {
    /// Returns a builder for a watch, which follows changes of locks and registers.
    ///
    /// ```no_run
    /// # async fn example(client: tollgate_client::Client) -> Result<(), tollgate_client::Error> {
    /// use tokio_stream::StreamExt;
    /// use tollgate_client::WatchItem;
    ///
    /// let mut watch = client.watch().prefix("db/").open().await?;
    /// while let Some(item) = watch.next().await {
    ///     match item? {
    ///         WatchItem::Event(event) => println!("{}: {:?}", event.revision, event.change),
    ///         WatchItem::Compacted { oldest } => println!("history before {oldest} is gone: read the locks again"),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch(&self) -> WatchBuilder {
        WatchBuilder {
            client: self.clone(),
            kind: Kind::Any,
            what: What::All,
            request: v1::WatchRequest { watch_id: 1, ..Default::default() },
        }
    }
}

impl WatchBuilder {
    /// Watches the lock with this name, or with [`WatchBuilder::registers`] the register with this key, and nothing
    /// else.
    pub fn name(mut self, name: impl Into<Vec<u8>>) -> WatchBuilder {
        self.what = What::One(name.into());
        self
    }

    /// Watches all locks or registers whose name or key begins with this prefix.
    pub fn prefix(mut self, prefix: impl Into<Vec<u8>>) -> WatchBuilder {
        self.what = What::Prefix(prefix.into());
        self
    }

    /// Watches all holders and waiters that have this lease, whatever the lock and its group; no registers.
    ///
    /// The watch reports, among other things, every end of a grant with its reason, which keepalives don't: opened
    /// before the lease's first lock, it misses none. Over several groups it begins now or at a cursor, not at a
    /// revision. The watch follows the id, and does not end with the lease.
    ///
    /// ```no_run
    /// # async fn example(client: tollgate_client::Client) -> Result<(), tollgate_client::Error> {
    /// # use std::time::Duration;
    /// use tokio_stream::StreamExt;
    /// use tollgate_client::{Change, WatchItem};
    ///
    /// let lease = client.leases().grant(Duration::from_secs(60)).await?.id;
    /// let mut ends = client.watch().lease(lease).without_waiters().open().await?;
    /// while let Some(item) = ends.next().await {
    ///     if let WatchItem::Event(event) = item?
    ///         && let Change::ClaimEnded { name, reason, .. } = event.change
    ///     {
    ///         println!("{name} is not held any more: {reason}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease(mut self, lease: LeaseId) -> WatchBuilder {
        self.what = What::Lease(lease);
        self
    }

    /// Watches locks only. Without this and [`WatchBuilder::registers`], names mean locks, and no name means
    /// everything.
    pub fn locks(mut self) -> WatchBuilder {
        self.kind = Kind::Locks;
        self
    }

    /// Watches registers only.
    pub fn registers(mut self) -> WatchBuilder {
        self.kind = Kind::Registers;
        self
    }

    /// Starts at this revision, which may lie in the past. By default the watch starts now, after everything that was
    /// acknowledged to anyone before it was opened.
    pub fn from_revision(mut self, revision: Revision) -> WatchBuilder {
        self.request.start_revision = revision.get();
        self
    }

    /// Continues where another watch stopped: see [`Watch::cursor`]. Overrides a revision.
    pub fn cursor(mut self, cursor: impl Into<String>) -> WatchBuilder {
        self.request.cursor = cursor.into();
        self
    }

    /// Sets whether events include the previous state.
    pub fn prev(mut self, prev: bool) -> WatchBuilder {
        self.request.prev_kv = prev;
        self
    }

    /// Leaves out claims that only wait: their joining a queue, and their leaving it without a grant.
    pub fn without_waiters(mut self) -> WatchBuilder {
        self.request.filters.push(WatchFilter::NoWaiters.into());
        self
    }

    /// Opens the watch. When this returns, everything that happens from now on will be reported.
    pub async fn open(mut self) -> Result<Watch, Error> {
        self.request.target = target(self.kind, self.what)?;
        Follower::start(self.client, self.request).await
    }
}

fn target(kind: Kind, what: What) -> Result<Option<Target>, Error> {
    let text = |field, bytes| {
        String::from_utf8(bytes).map_err(|_| {
            Error::invalid(field, "names of locks are UTF-8; registers are watched with registers()")
        })
    };
    Ok(Some(match (kind, what) {
        (Kind::Any, What::All) => return Ok(None),
        (Kind::Registers, What::Lease(_)) => {
            return Err(Error::invalid("lease", "a watch on a lease tells of locks: leave registers() out"));
        }
        (_, What::Lease(lease)) => Target::LeaseId(lease.get()),
        (Kind::Locks, What::All) => Target::Prefix(String::new()),
        (Kind::Registers, What::All) => Target::RegisterPrefix(Vec::new()),
        (Kind::Registers, What::One(key)) => Target::RegisterKey(key),
        (Kind::Registers, What::Prefix(prefix)) => Target::RegisterPrefix(prefix),
        (_, What::One(name)) => Target::Key(text("name", name)?),
        (_, What::Prefix(prefix)) => Target::Prefix(text("prefix", prefix)?),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_locks_unless_registers_are_asked_for() {
        let name = || What::One(b"a".to_vec());
        assert_eq!(target(Kind::Any, What::All).unwrap(), None);
        assert_eq!(target(Kind::Any, name()).unwrap(), Some(Target::Key("a".into())));
        assert_eq!(target(Kind::Registers, name()).unwrap(), Some(Target::RegisterKey(b"a".to_vec())));
        let all = What::Prefix(Vec::new());
        assert_eq!(target(Kind::Locks, all).unwrap(), Some(Target::Prefix(String::new())));
        let lease = || What::Lease(LeaseId::new(7).unwrap());
        assert_eq!(target(Kind::Locks, lease()).unwrap(), Some(Target::LeaseId(7)));
        assert_eq!(target(Kind::Registers, lease()).unwrap_err().field(), Some("lease"));
        let error = target(Kind::Any, What::One(vec![0xff])).unwrap_err();
        assert_eq!(error.field(), Some("name"));
    }
}
