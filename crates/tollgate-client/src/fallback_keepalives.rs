//! Keepalives that bypass a silent session stream: each is a short call to some other node.
//!
//! Not sent over a session stream, because a node ends leases with `revoke_on_disconnect` when the stream closes that
//! kept them alive there, and the connection of a fallback is not meant to stay.

use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_stream::StreamExt;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use tollgate_types::LeaseId;
use tonic::transport::Channel;

/// Maximum time to open a connection.
const DIAL_PATIENCE: Duration = Duration::from_secs(1);

/// Connections to other nodes, kept for the next fallback.
#[derive(Debug, Default)]
pub(crate) struct FallbackKeepalives {
    channels: Mutex<BTreeMap<Endpoint, Channel>>,
}

impl FallbackKeepalives {
    /// Keeps a lease alive by way of this node.
    pub(crate) async fn keep_alive(
        &self,
        endpoint: &Endpoint,
        lease: LeaseId,
    ) -> Result<LeaseKeepAliveResponse, Error> {
        let channel = self.channel(endpoint).await?;
        let kept = ask(channel, lease).await;
        if kept.is_err() {
            self.channels.lock().remove(endpoint);
        }
        kept
    }

    async fn channel(&self, endpoint: &Endpoint) -> Result<Channel, Error> {
        let kept = self.channels.lock().get(endpoint).cloned();
        if let Some(channel) = kept {
            return Ok(channel);
        }
        let channel = endpoint.dial(DIAL_PATIENCE).await?;
        self.channels.lock().insert(endpoint.clone(), channel.clone());
        Ok(channel)
    }
}

async fn ask(channel: Channel, lease: LeaseId) -> Result<LeaseKeepAliveResponse, Error> {
    let keepalive = LeaseKeepAliveRequest { id: lease.get(), ..LeaseKeepAliveRequest::default() };
    let asked = LockServiceClient::new(channel).lease_keep_alive(tokio_stream::once(keepalive)).await;
    let mut answers = asked.map_err(|status| Error::of_status(&status))?.into_inner();
    match answers.next().await {
        Some(Ok(kept)) => Ok(kept),
        Some(Err(status)) => Err(Error::of_status(&status)),
        None => Err(Error::new(ErrorKind::Unreachable, "the node closed the stream", true)),
    }
}
