//! Raw leases, for tools: granted, renewed and revoked one call at a time.
//!
//! Nothing here keeps a lease alive by itself or believes in a lease. Programs want a session (`session`).

use crate::client::Client;
use crate::consistency::Consistency;
use crate::convert;
use crate::error::{Error, ErrorKind};
use crate::lease_info::{LeaseDetail, LeaseGranted, LeaseInfo, LeasesPage};
use crate::random;
use crate::reads::{bounded, lock_service};
use crate::unary::Repeat;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{LeaseId, Name, SLOTS, Slot};

/// Raw leases, which are kept alive only by explicit calls. Made by [`Client::leases`].
#[derive(Debug, Clone)]
pub struct Leases {
    client: Client,
}

impl Client {
    /// Returns the interface for raw leases, for tools.
    ///
    /// ```no_run
    /// # async fn example(client: tollgate_client::Client) -> Result<(), tollgate_client::Error> {
    /// use std::time::Duration;
    ///
    /// let granted = client.leases().grant(Duration::from_secs(60)).await?;
    /// client.leases().keep_alive(granted.id).await?;
    /// client.leases().revoke(granted.id).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn leases(&self) -> Leases {
        Leases { client: self.clone() }
    }
}

impl Leases {
    /// Grants a lease that lives for `ttl` from its last keepalive.
    pub fn grant(&self, ttl: Duration) -> GrantLease {
        GrantLease {
            client: self.client.clone(),
            id: None,
            near: None,
            request: v1::LeaseGrantRequest {
                ttl_ms: convert::millis(ttl),
                client_id: self.client.client_id().to_owned(),
                ..Default::default()
            },
        }
    }

    /// Ends a lease, and all locks and registers that depend on it. `NOT_FOUND` if the lease has ended.
    pub async fn revoke(&self, id: LeaseId) -> Result<(), Error> {
        match self.client.call(Op::LeaseRevoke(v1::LeaseRevokeRequest { id: id.get() })).await? {
            OpResult::LeaseRevoke(_) => Ok(()),
            _ => Err(Error::unexpected("LeaseRevoke")),
        }
    }

    /// Renews a lease once. Returns its time to live, counted from the moment when this was *called*. `NOT_FOUND` if
    /// the lease has ended.
    pub async fn keep_alive(&self, id: LeaseId) -> Result<Duration, Error> {
        let request = v1::LeaseKeepAliveRequest { id: id.get(), ..Default::default() };
        let OpResult::LeaseKeepAlive(response) = self.client.call(Op::LeaseKeepAlive(request)).await? else {
            return Err(Error::unexpected("LeaseKeepAlive"));
        };
        match u64::try_from(response.ttl_ms) {
            Ok(ms) if ms > 0 => Ok(Duration::from_millis(ms)),
            _ => {
                let says = format!("lease {id} has ended or never was: grant a new one");
                Err(Error::new(ErrorKind::NotFound, says, false))
            }
        }
    }

    /// Returns the state of a lease, and its locks. `NOT_FOUND` if the lease has ended.
    pub async fn time_to_live(&self, id: LeaseId) -> Result<LeaseDetail, Error> {
        let request = v1::LeaseTimeToLiveRequest { id: id.get(), keys: true };
        let asked = self.client.call(Op::LeaseTimeToLive(request)).await?;
        let OpResult::LeaseTimeToLive(response) = asked else {
            return Err(Error::unexpected("LeaseTimeToLive"));
        };
        Ok(LeaseDetail {
            lease: convert::lease_info(response.lease.unwrap_or_default(), &response.missing)?,
            claims: response.keys.into_iter().map(convert::lease_claim).collect::<Result<_, _>>()?,
        })
    }

    /// Lists the live leases.
    pub fn list(&self) -> ListLeases {
        ListLeases { client: self.client.clone(), request: v1::LeaseListRequest::default() }
    }
}

/// Request for a lease: set options, then `.await` it.
#[derive(Debug, Clone)]
#[must_use = "nothing is granted until it is awaited"]
pub struct GrantLease {
    client: Client,
    id: Option<LeaseId>,
    near: Option<String>,
    request: v1::LeaseGrantRequest,
}

impl GrantLease {
    /// Sets the lease's id. Granting a living id again under the same client id renews the lease; under another client
    /// id, or an empty one, it is refused.
    pub fn id(mut self, id: LeaseId) -> GrantLease {
        self.id = Some(id);
        self
    }

    /// Sets the name of a lock near which the lease lives, so that locking it involves only one group.
    pub fn near(mut self, name: &str) -> GrantLease {
        self.near = Some(name.to_owned());
        self
    }

    /// Sets the name of the lease's client in listings; by default the name of this client. With an empty name, a
    /// repeat after an unanswered attempt can't be told from another client's request, and may be refused.
    pub fn client_id(mut self, client_id: &str) -> GrantLease {
        client_id.clone_into(&mut self.request.client_id);
        self
    }

    /// Sets whether the server ends the lease when the last connection that kept it alive closes.
    pub fn revoke_on_disconnect(mut self, revoke: bool) -> GrantLease {
        self.request.revoke_on_disconnect = revoke;
        self
    }

    async fn grant(mut self) -> Result<LeaseGranted, Error> {
        // The client chooses the id, not the cluster, so that a repeat grants the same lease and not a second one.
        let id = match (self.id, &self.near) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid(
                    "near",
                    "an id is given, which says where the lease lives: leave one out",
                ));
            }
            (Some(id), None) => id,
            (None, Some(near)) => {
                let near = Name::new(near).map_err(|invalid| Error::invalid("near", invalid))?;
                LeaseId::assigned(near.slot(), random::number())
            }
            (None, None) => LeaseId::assigned(any_slot(), random::number()),
        };
        self.request.id = id.get();
        match self.client.call(Op::LeaseGrant(self.request)).await? {
            OpResult::LeaseGrant(response) => convert::lease_granted(&response),
            _ => Err(Error::unexpected("LeaseGrant")),
        }
    }
}

fn any_slot() -> Slot {
    let number = u16::try_from(random::number() % u64::from(SLOTS)).expect("below SLOTS");
    Slot::new(number).expect("below SLOTS")
}

impl IntoFuture for GrantLease {
    type Output = Result<LeaseGranted, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.grant())
    }
}

/// List of leases, in pages.
#[derive(Debug, Clone)]
#[must_use = "a list is read by `page` or `all`"]
pub struct ListLeases {
    client: Client,
    request: v1::LeaseListRequest,
}

impl ListLeases {
    /// Sets the maximum number of leases in a page; the server's default is 1,000.
    pub fn limit(mut self, leases: u32) -> ListLeases {
        self.request.limit = leases;
        self
    }

    /// Sets the consistency of each page.
    pub fn consistency(mut self, consistency: Consistency) -> ListLeases {
        self.request.consistency = convert::consistency(consistency);
        self
    }

    /// Reads one page: the first, or the one after [`LeasesPage::next`].
    pub async fn page(&self, after: Option<&str>) -> Result<LeasesPage, Error> {
        let request = v1::LeaseListRequest { cursor: after.unwrap_or("").to_owned(), ..self.request };
        let ask = |channel| {
            let request = request.clone();
            async move { lock_service(channel).lease_list(request).await }
        };
        let response = self.client.unary(Repeat::Harmless, ask).await?;
        let (leases, missing) = (response.leases.into_iter(), response.missing);
        let leases = leases.map(|lease| convert::lease_info(lease, &missing)).collect::<Result<_, _>>()?;
        Ok(LeasesPage { leases, next: convert::cursor(response.cursor) })
    }

    /// Reads all leases, page by page. An error of kind [`ErrorKind::Limit`] beyond 100,000: read single pages then.
    pub async fn all(&self) -> Result<Vec<LeaseInfo>, Error> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.page(after.as_deref()).await?;
            all.extend(page.leases);
            after = page.next;
            if after.is_none() {
                return Ok(all);
            }
            bounded(all.len())?;
        }
    }
}
