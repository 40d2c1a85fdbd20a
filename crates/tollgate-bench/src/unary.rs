//! A Tollgate cluster by single calls, one gRPC request for each operation: the difference shows the session stream's
//! gain.
//!
//! The calls are as plain as those of a program without our client, sequence numbers for safe repeats included. Nothing
//! is retried here, and nobody keeps leases alive, so a run must be shorter than a lease. Not here: the client
//! (`tollgate`).

use crate::failure::Failure;
use crate::peer::{Caller, How, Peer};
use crate::plan::UNARY_TTL;
use crate::tollgate::{Tollgate, client_id};
use tollgate_client::Role;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, LockRequest, Mode, Request, SeqRange,
    UnlockRequest,
};
use tonic::transport::{Channel, Endpoint};

/// Timeout of a lock request that waits until its lease ends.
const FOR_EVER: i64 = -1;

/// A cluster, over connections to its leader.
#[derive(Debug, Clone)]
pub struct Unary {
    channels: Vec<Channel>,
    ttl_ms: i64,
    why: String,
}

impl Unary {
    /// Opens as many connections as `cluster` has, straight to the leader, because other nodes would forward the calls.
    pub async fn connect(cluster: &Tollgate) -> Result<Unary, Failure> {
        let client = cluster.connections().first().ok_or_else(|| Failure::says("there is no connection"))?;
        let status = client.admin().status().await;
        let leads = status.iter().find(|node| {
            let replica = node.status.as_ref().ok().and_then(|status| status.replicas.first());
            replica.is_some_and(|replica| replica.role == Role::Leader)
        });
        let leader = leads.ok_or_else(|| Failure::says("no node says that it leads: try again"))?;
        let mut channels = Vec::new();
        for _ in cluster.connections() {
            let endpoint = Endpoint::from_shared(leader.endpoint.clone())
                .map_err(|error| Failure::says(error.to_string()))?
                .tcp_nodelay(true);
            let channel = endpoint.connect().await;
            channels.push(channel.map_err(|error| Failure::says(format!("{}: {error}", leader.endpoint)))?);
        }
        let ttl_ms = i64::try_from(cluster.ttl().as_millis()).unwrap_or(i64::MAX);
        Ok(Unary { channels, ttl_ms, why: cluster.why().to_owned() })
    }
}

impl Peer for Unary {
    type Caller = Single;

    async fn caller(&self, number: usize, near: &str) -> Result<Single, Failure> {
        let mut service = LockServiceClient::new(self.channels[number % self.channels.len()].clone());
        let ttl_ms = i64::try_from(UNARY_TTL.as_millis()).unwrap_or(i64::MAX);
        let grant =
            LeaseGrantRequest { ttl_ms, client_id: client_id(), near: near.to_owned(), ..Default::default() };
        let lease_id = service.lease_grant(grant).await?.into_inner().id;
        Ok(Single { service, lease_id, seq: 0, ttl_ms: self.ttl_ms, why: self.why.clone() })
    }
}

/// A caller that makes single calls, under a lease of its own.
#[derive(Debug)]
pub struct Single {
    service: LockServiceClient<Channel>,
    lease_id: u64,
    seq: u64,
    ttl_ms: i64,
    why: String,
}

impl Single {
    /// Returns the next request header, which acknowledges the answers to all requests before it.
    fn request(&mut self) -> Request {
        let acked = if self.seq > 0 { vec![SeqRange { first: 1, last: self.seq }] } else { Vec::new() };
        self.seq += 1;
        Request { seq: self.seq, acked, ..Request::default() }
    }
}

impl Caller for Single {
    type Held = (String, u64);
    type Lease = u64;

    async fn lock(&mut self, name: &str, how: How) -> Result<(String, u64), Failure> {
        let (mode, of) = match how {
            How::Exclusive => (Mode::Exclusive, 0),
            How::Shared => (Mode::Shared, 0),
            How::Permit { of } => (Mode::Permit, of),
        };
        let lock = LockRequest {
            name: name.to_owned(),
            lease_id: self.lease_id,
            metadata: self.why.clone(),
            timeout_ms: FOR_EVER,
            mode: mode.into(),
            of,
            permits: u32::from(of > 0),
            request: Some(self.request()),
            ..LockRequest::default()
        };
        let answer = self.service.lock(lock).await?.into_inner();
        if !answer.acquired {
            return Err(Failure::says(format!("{name} was not acquired: {:?}", answer.end_reason())));
        }
        Ok((name.to_owned(), answer.fencing_token))
    }

    async fn unlock(&mut self, (name, fencing_token): (String, u64)) -> Result<(), Failure> {
        let (lease_id, request) = (self.lease_id, Some(self.request()));
        let unlock = UnlockRequest { name, lease_id, fencing_token, request, ..UnlockRequest::default() };
        self.service.unlock(unlock).await?;
        Ok(())
    }

    async fn grant(&mut self) -> Result<u64, Failure> {
        let grant = LeaseGrantRequest { ttl_ms: self.ttl_ms, client_id: client_id(), ..Default::default() };
        Ok(self.service.lease_grant(grant).await?.into_inner().id)
    }

    async fn keep_alive(&mut self, lease: &mut u64) -> Result<(), Failure> {
        let request = LeaseKeepAliveRequest { id: *lease, ..Default::default() };
        let mut answers = self.service.lease_keep_alive(tokio_stream::once(request)).await?.into_inner();
        match answers.message().await? {
            Some(answer) if answer.ttl_ms > 0 => Ok(()),
            _ => Err(Failure::says(format!("lease {lease} has ended"))),
        }
    }

    async fn revoke(&mut self, lease: u64) -> Result<(), Failure> {
        self.service.lease_revoke(LeaseRevokeRequest { id: lease }).await?;
        Ok(())
    }

    async fn close(mut self) {
        // A lease that can't be revoked expires by itself.
        let _ = self.service.lease_revoke(LeaseRevokeRequest { id: self.lease_id }).await;
    }
}
