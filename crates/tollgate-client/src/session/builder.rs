//! Opens sessions: with a lease of their own, or with a lease that another process granted.

use super::core::{Core, Granted};
use super::{Session, keeper};
use crate::belief::Belief;
use crate::call::{Answered, Call};
use crate::client::Client;
use crate::convert;
use crate::error::{Error, ErrorKind};
use crate::multiplexer::Urgency;
use crate::random;
use std::time::Duration;
use tokio::time::Instant;
use tollgate_proto::v1::{self, ErrorReason, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{ClientId, LeaseId, Name};

/// Default time to live of a lease.
const TTL: Duration = Duration::from_secs(30);

/// Shortest keepalive interval that can be set.
const KEEPALIVE_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Maximum number of attempts to find a lease id that is not taken.
const IDS_MAX: u32 = 4;

/// Builder for a session.
///
/// ```no_run
/// # async fn example(client: tollgate_client::Client) -> Result<(), tollgate_client::Error> {
/// use std::time::Duration;
///
/// let session = client.session().ttl(Duration::from_secs(10)).open().await?;
/// session.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is opened"]
pub struct SessionBuilder {
    client: Client,
    ttl: Duration,
    client_id: Option<String>,
    revoke_on_disconnect: bool,
    lease_id: Option<LeaseId>,
    near: Option<String>,
    keepalive_interval: Option<Duration>,
}

impl SessionBuilder {
    pub(crate) fn new(client: Client) -> SessionBuilder {
        SessionBuilder {
            client,
            ttl: TTL,
            client_id: None,
            revoke_on_disconnect: false,
            lease_id: None,
            near: None,
            keepalive_interval: None,
        }
    }

    /// Sets the time that the lease lives after the last keepalive; 30 s by default. This is how long others wait for
    /// the locks of this program if it dies, and how long this program can be cut off from the cluster without losing
    /// anything.
    pub fn ttl(mut self, ttl: Duration) -> SessionBuilder {
        self.ttl = ttl;
        self
    }

    /// Sets the name of the session in listings, at most 128 bytes; by default the name of its client.
    pub fn client_id(mut self, client_id: impl Into<String>) -> SessionBuilder {
        self.client_id = Some(client_id.into());
        self
    }

    /// Sets whether the cluster ends the lease as soon as the connection closes that kept it alive, instead of waiting
    /// for the TTL. A short break of the network then ends the session, as [`crate::LostReason::Disconnected`].
    pub fn revoke_on_disconnect(mut self, revoke: bool) -> SessionBuilder {
        self.revoke_on_disconnect = revoke;
        self
    }

    /// Sets the lease's id; by default a random one. The id must not belong to another client.
    pub fn lease_id(mut self, lease_id: LeaseId) -> SessionBuilder {
        self.lease_id = Some(lease_id);
        self
    }

    /// Sets the name of a lock near which the lease lives, so that locking it involves only one group.
    pub fn near(mut self, name: impl Into<String>) -> SessionBuilder {
        self.near = Some(name.into());
        self
    }

    /// Sets the time between two keepalives; a third of the TTL by default. With a shorter interval a lost keepalive
    /// matters less; with a longer one the cluster has less to do. From 50 ms to half of the TTL, so that two
    /// keepalives are due before the client stops believing in the lease, and one of them may be lost.
    pub fn keepalive_interval(mut self, interval: Duration) -> SessionBuilder {
        self.keepalive_interval = Some(interval);
        self
    }

    /// Returns the time between two keepalives of a lease with this TTL.
    fn interval_for(&self, ttl: Duration) -> Result<Duration, Error> {
        let Some(interval) = self.keepalive_interval else { return Ok(ttl / 3) };
        if (KEEPALIVE_INTERVAL_MIN..=ttl / 2).contains(&interval) {
            return Ok(interval);
        }
        let says = format!("{interval:?} does not fit a TTL of {ttl:?}: choose from 50ms to half of the TTL");
        Err(Error::invalid("keepalive_interval", says))
    }

    /// Grants the lease, and keeps it alive from now on.
    pub async fn open(self) -> Result<Session, Error> {
        let client_id = self.client_id.clone().unwrap_or_else(|| self.client.client_id().to_owned());
        ClientId::new(&client_id).map_err(|invalid| Error::invalid("client_id", invalid))?;
        self.interval_for(self.ttl)?;
        let until = Instant::now() + self.client.call_timeout();
        for _ in 0..IDS_MAX {
            let lease = self.draw_id()?;
            match self.grant(lease, &client_id, until).await {
                Err(error) if error.cause() == Some(ErrorReason::LeaseTaken) && self.lease_id.is_none() => {}
                granted => return Ok(self.start(&granted?)),
            }
        }
        Err(Error::new(ErrorKind::Conflict, "every lease id that was tried is taken: try again", false))
    }

    /// Joins a lease that another process granted and will end, for example the parent process, and helps to keep it
    /// alive. The session never revokes it.
    pub async fn join(self, lease: LeaseId) -> Result<Session, Error> {
        let known = v1::LeaseTimeToLiveRequest { id: lease.get(), keys: false };
        let OpResult::LeaseTimeToLive(known) = self.client.call(Op::LeaseTimeToLive(known)).await? else {
            return Err(Error::unexpected("a look at a lease"));
        };
        let known = known.lease.unwrap_or_default();
        let (incarnation, revoke_on_disconnect) =
            (convert::revision(known.incarnation)?, known.revoke_on_disconnect);
        let keepalive = v1::LeaseKeepAliveRequest { id: lease.get(), ..Default::default() };
        let until = Instant::now() + self.client.call_timeout();
        let answered = self.ask(Op::LeaseKeepAlive(keepalive), until).await?;
        let OpResult::LeaseKeepAlive(kept) = answered.result else {
            return Err(Error::unexpected("a keepalive"));
        };
        let ttl = ttl_of(kept.ttl_ms).ok_or_else(|| {
            let says = format!("lease {lease} has ended: start again with a new one");
            Error::new(ErrorKind::NotFound, says, false)
        })?;
        let (sent, first_seq) = (answered.last_sent, seq_base());
        Ok(self.start(&Granted {
            lease,
            ttl,
            keepalive_interval: self.interval_for(ttl)?,
            incarnation,
            sent,
            joined: true,
            revoke_on_disconnect,
            id_given: false,
            lineage: convert::lineage(kept.header.as_ref()),
            first_seq,
        }))
    }

    fn start(&self, granted: &Granted) -> Session {
        if granted.revoke_on_disconnect {
            self.client.connections().keep_streams();
        }
        let core = Core::new(self.client.clone(), granted);
        let keeper = self.client.runtime().spawn(keeper::keep(core.clone()));
        Session::new(core, keeper)
    }

    /// Returns an id that nobody else has; in the slot of `near`, if that is given.
    fn draw_id(&self) -> Result<LeaseId, Error> {
        if let Some(lease) = self.lease_id {
            return Ok(lease);
        }
        match &self.near {
            None => Ok(LeaseId::new((random::number() >> 1).max(1)).expect("from 1 to 2^63 - 1")),
            Some(near) => {
                let near = Name::new(near).map_err(|invalid| Error::invalid("near", invalid))?;
                Ok(LeaseId::assigned(near.slot(), random::number()))
            }
        }
    }

    async fn grant(&self, lease: LeaseId, client_id: &str, until: Instant) -> Result<Granted, Error> {
        let op = Op::LeaseGrant(v1::LeaseGrantRequest {
            id: lease.get(),
            ttl_ms: i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX),
            client_id: client_id.to_owned(),
            revoke_on_disconnect: self.revoke_on_disconnect,
            ..v1::LeaseGrantRequest::default()
        });
        loop {
            let answered = self.ask(op.clone(), until).await?;
            let OpResult::LeaseGrant(granted) = answered.result else {
                return Err(Error::unexpected("a grant of a lease"));
            };
            let ttl = ttl_of(granted.ttl_ms).ok_or_else(|| Error::unexpected("a grant of a lease"))?;
            let sent = answered.last_sent;
            if !Belief::new(sent, ttl).holds(self.client.clock().now()) {
                // The answer took so long that the lease may have ended: the same request again renews it.
                continue;
            }
            // A lease that already existed may have numbers in use, and requests of an earlier lease may still be in
            // flight.
            let id_given = self.lease_id.is_some();
            let first_seq = if granted.renewed || id_given { seq_base() } else { 1 };
            return Ok(Granted {
                lease,
                ttl,
                keepalive_interval: self.interval_for(ttl)?,
                incarnation: convert::revision(granted.incarnation)?,
                sent,
                joined: false,
                revoke_on_disconnect: self.revoke_on_disconnect,
                id_given,
                lineage: convert::lineage(granted.header.as_ref()),
                first_seq,
            });
        }
    }

    async fn ask(&self, mut op: Op, until: Instant) -> Result<Answered, Error> {
        let call =
            Call { op: &mut op, until: Some(until), urgency: Urgency::Urgent, seqs: None, begun: None };
        self.client.carry_out(call).await
    }
}

fn ttl_of(ttl_ms: i64) -> Option<Duration> {
    u64::try_from(ttl_ms).ok().filter(|ttl_ms| *ttl_ms > 0).map(Duration::from_millis)
}

/// Returns a first request number for a lease that other sessions use as well: random, and so far from their numbers.
/// Not the lease's next seq (`next_seq` of the grant), because other processes that joined the lease continue from
/// there.
fn seq_base() -> u64 {
    ((random::number() >> 33) + 1) << 21
}
