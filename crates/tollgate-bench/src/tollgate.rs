//! A Tollgate cluster behind its Rust client, as programs use it.

use crate::failure::Failure;
use crate::peer::{Caller, How, Peer};
use std::time::Duration;
use tollgate_client::{Client, Guard, LeaseId, Session};

/// A cluster, over connections that all callers share.
#[derive(Debug, Clone)]
pub struct Tollgate {
    connections: Vec<Client>,
    ttl: Duration,
    why: String,
}

impl Tollgate {
    /// Opens `connections` connections. Each lock carries a `why` of `payload` bytes.
    pub async fn connect(
        endpoints: &[String],
        connections: usize,
        ttl: Duration,
        payload: usize,
    ) -> Result<Tollgate, Failure> {
        let mut clients = Vec::with_capacity(connections);
        for _ in 0..connections {
            clients.push(Client::builder().endpoints(endpoints).client_id(client_id()).connect().await?);
        }
        Ok(Tollgate { connections: clients, ttl, why: "w".repeat(payload) })
    }

    /// Returns the connections.
    pub fn connections(&self) -> &[Client] {
        &self.connections
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(crate) fn why(&self) -> &str {
        &self.why
    }
}

/// Returns the client id under which servers list this process.
pub(crate) fn client_id() -> String {
    format!("bench:{}", std::process::id())
}

impl Peer for Tollgate {
    type Caller = Holder;

    async fn caller(&self, number: usize, near: &str) -> Result<Holder, Failure> {
        let client = self.connections[number % self.connections.len()].clone();
        let session = client.session().ttl(self.ttl).near(near).open().await?;
        Ok(Holder { client, session, ttl: self.ttl, why: self.why.clone() })
    }
}

/// A caller: a session on one of the connections.
#[derive(Debug)]
pub struct Holder {
    client: Client,
    session: Session,
    ttl: Duration,
    why: String,
}

impl Caller for Holder {
    type Held = Guard;
    type Lease = LeaseId;

    async fn lock(&mut self, name: &str, how: How) -> Result<Guard, Failure> {
        let lock = self.session.lock(name);
        let lock = if self.why.is_empty() { lock } else { lock.why(self.why.as_str()) };
        let lock = match how {
            How::Exclusive => lock,
            How::Shared => lock.shared(),
            How::Permit { of } => lock.permits(1, of),
        };
        Ok(lock.acquire().await?)
    }

    async fn unlock(&mut self, held: Guard) -> Result<(), Failure> {
        Ok(held.release().await?)
    }

    async fn grant(&mut self) -> Result<LeaseId, Failure> {
        Ok(self.client.leases().grant(self.ttl).await?.id)
    }

    async fn keep_alive(&mut self, lease: &mut LeaseId) -> Result<(), Failure> {
        self.client.leases().keep_alive(*lease).await?;
        Ok(())
    }

    async fn revoke(&mut self, lease: LeaseId) -> Result<(), Failure> {
        Ok(self.client.leases().revoke(lease).await?)
    }

    async fn close(self) {
        // A lease that can't be revoked expires by itself.
        let _ = self.session.close().await;
    }
}
