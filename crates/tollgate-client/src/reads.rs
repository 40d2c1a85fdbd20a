//! Reads of locks, and operations of tools on locks without a session.
//!
//! Invariant: nothing here needs or makes a lease. Not here: acquiring locks (`acquire`), following them (`watch`).

use crate::client::Client;
use crate::consistency::Consistency;
use crate::convert;
use crate::error::{Error, ErrorKind};
use crate::lock_info::{Explanation, LockInfo, LocksPage};
use crate::unary::{ANSWER_BYTES_MAX, Repeat};
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{LeaseId, Token};
use tonic::transport::Channel;

/// Maximum number of entries that are gathered for a list of everything.
pub(crate) const ALL_MAX: usize = 100_000;

/// Returns a client of the lock service, with a limit on the size of answers that this crate sets itself.
pub(crate) fn lock_service(channel: Channel) -> LockServiceClient<Channel> {
    LockServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

impl Client {
    /// Returns the state of one lock: holders, waiters and their reasons. A lock without holders and waiters is free,
    /// not missing.
    ///
    /// ```no_run
    /// # async fn example(client: tollgate_client::Client) -> Result<(), tollgate_client::Error> {
    /// let lock = client.get_lock("db/migrate").await?;
    /// for holder in &lock.holders {
    ///     println!("held by {} with token {}: {}", holder.client_id, holder.token, holder.why);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_lock(&self, name: &str) -> Result<LockInfo, Error> {
        self.get_lock_with(name, Consistency::Linearizable).await
    }

    /// Returns the state of one lock, read with the given consistency.
    pub async fn get_lock_with(&self, name: &str, consistency: Consistency) -> Result<LockInfo, Error> {
        let consistency = convert::consistency(consistency);
        let asked = self.call(Op::GetLock(v1::GetLockRequest { name: name.to_owned(), consistency })).await?;
        let OpResult::GetLock(response) = asked else { return Err(Error::unexpected("GetLock")) };
        let at = convert::header_revision(response.header.as_ref())?;
        convert::lock_info(response.lock.unwrap_or_default(), &response.missing, at)
    }

    /// Lists the locks that have holders or waiters and whose name begins with `prefix`; empty for all.
    ///
    /// ```no_run
    /// # async fn example(client: tollgate_client::Client) -> Result<(), tollgate_client::Error> {
    /// for lock in client.list_locks("db/").all().await? {
    ///     println!("{}: {} hold it, {} wait", lock.name, lock.holder_count, lock.waiter_count);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_locks(&self, prefix: &str) -> ListLocks {
        let request = v1::ListLocksRequest { prefix: prefix.to_owned(), ..Default::default() };
        ListLocks { client: self.clone(), request }
    }

    /// Explains why a lock is busy, in sentences: who holds it and why, who waits for whom, what will happen next.
    pub async fn explain(&self, name: &str) -> Result<Explanation, Error> {
        let request = v1::ExplainRequest { name: name.to_owned() };
        let ask = |channel| {
            let request = request.clone();
            async move { lock_service(channel).explain(request).await }
        };
        convert::explanation(self.unary(Repeat::Harmless, ask).await?)
    }

    /// Takes a lock away from the holder of `token`, whoever that is: for operators.
    ///
    /// The holder may not notice before its next call: only a store that checks tokens keeps the former holder from
    /// writing then. `reason` is for the holder and for the audit log, and must not be empty.
    ///
    /// The request has no number, so an error may say that it [may have happened](Error::may_have_happened). Repeating
    /// it with the same token is safe: it frees that grant or nothing.
    pub async fn force_release(&self, name: &str, token: Token, reason: &str) -> Result<(), Error> {
        let request = v1::ForceReleaseRequest {
            name: name.to_owned(),
            fencing_token: token.get(),
            reason: reason.to_owned(),
        };
        match self.call(Op::ForceRelease(request)).await? {
            OpResult::ForceRelease(_) => Ok(()),
            _ => Err(Error::unexpected("ForceRelease")),
        }
    }

    /// Releases a lock that a lease and owner hold, for tools that are not the holder's program. If a token is given,
    /// the lock is released only if the grant has that token.
    ///
    /// The request has no number: repeated after an unknown outcome, it may fail with `NOT_HELD` because the first
    /// attempt released the lock.
    pub async fn unlock(
        &self,
        name: &str,
        lease: LeaseId,
        owner: &str,
        token: Option<Token>,
    ) -> Result<(), Error> {
        let request = v1::UnlockRequest {
            name: name.to_owned(),
            lease_id: lease.get(),
            owner: owner.to_owned(),
            fencing_token: token.map_or(0, Token::get),
            ..Default::default()
        };
        self.unlock_as(request).await
    }

    /// Releases a lock that is held with this token, whoever holds it. Otherwise as [`Client::unlock`].
    pub async fn unlock_by_token(&self, name: &str, token: Token) -> Result<(), Error> {
        let (name, fencing_token) = (name.to_owned(), token.get());
        self.unlock_as(v1::UnlockRequest { name, fencing_token, ..Default::default() }).await
    }

    async fn unlock_as(&self, request: v1::UnlockRequest) -> Result<(), Error> {
        match self.call(Op::Unlock(request)).await? {
            OpResult::Unlock(_) => Ok(()),
            _ => Err(Error::unexpected("Unlock")),
        }
    }
}

/// List of locks, in pages.
#[derive(Debug, Clone)]
#[must_use = "a list is read by `page` or `all`"]
pub struct ListLocks {
    client: Client,
    request: v1::ListLocksRequest,
}

impl ListLocks {
    /// Sets the maximum number of locks in a page; the server's default is 1,000.
    pub fn limit(mut self, locks: u32) -> ListLocks {
        self.request.limit = locks;
        self
    }

    /// Sets the consistency of each page.
    pub fn consistency(mut self, consistency: Consistency) -> ListLocks {
        self.request.consistency = convert::consistency(consistency);
        self
    }

    /// Reads one page: the first, or the one after [`LocksPage::next`].
    ///
    /// Each page is read at its own moment: a lock that comes or goes between two pages may be missed.
    pub async fn page(&self, after: Option<&str>) -> Result<LocksPage, Error> {
        let request = v1::ListLocksRequest { cursor: after.unwrap_or("").to_owned(), ..self.request.clone() };
        let ask = |channel| {
            let request = request.clone();
            async move { lock_service(channel).list_locks(request).await }
        };
        let response = self.client.unary(Repeat::Harmless, ask).await?;
        let at = convert::header_revision(response.header.as_ref())?;
        let (locks, missing) = (response.locks.into_iter(), response.missing);
        let locks = locks.map(|lock| convert::lock_info(lock, &missing, at)).collect::<Result<_, _>>()?;
        Ok(LocksPage { locks, next: convert::cursor(response.cursor) })
    }

    /// Reads all locks, page by page. An error of kind [`ErrorKind::Limit`] beyond 100,000: read single pages then.
    pub async fn all(&self) -> Result<Vec<LockInfo>, Error> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.page(after.as_deref()).await?;
            all.extend(page.locks);
            after = page.next;
            if after.is_none() {
                return Ok(all);
            }
            bounded(all.len())?;
        }
    }
}

/// Refuses to gather more than a client should hold in memory.
pub(crate) fn bounded(gathered: usize) -> Result<(), Error> {
    if gathered < ALL_MAX {
        return Ok(());
    }
    let says = format!("there are more than {ALL_MAX}: narrow the prefix, or read them page by page");
    Err(Error::new(ErrorKind::Limit, says, false))
}
