//! The client: its endpoints, its streams to the cluster, and the path of every operation.

mod builder;

pub use builder::ClientBuilder;

use crate::call::{self, Answered, Call};
use crate::clock::Clock;
use crate::connections::Connections;
use crate::error::Error;
use crate::fallback_keepalives::FallbackKeepalives;
use crate::multiplexer::Urgency;
use crate::revocation_watcher::RevocationWatcher;
use crate::session::SessionBuilder;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tollgate_proto::v1::{operation::Op, operation_result::Result as OpResult};
use tonic::transport::Channel;

/// Connection to a cluster. Cheap to clone; all clones share the connection.
///
/// ```no_run
/// # async fn example() -> Result<(), tollgate_client::Error> {
/// use tollgate_client::Client;
///
/// let client = Client::connect(["http://127.0.0.1:7400"]).await?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    connections: Arc<Connections>,
    revocation_watcher: RevocationWatcher,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    fallback_keepalives: FallbackKeepalives,
    client_id: String,
    call_timeout: Duration,
}

impl Client {
    /// Connects to a cluster by the addresses of some of its nodes; the other addresses are learned from these nodes.
    ///
    /// An address is `http://host:port` or `host:port`. The first node that answers is used, then the leader.
    pub async fn connect<I, S>(endpoints: I) -> Result<Client, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        Client::builder().endpoints(endpoints).connect().await
    }

    /// Returns a builder for a client with other settings than the defaults.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Returns a builder for a session: a lease of its own, kept alive as long as the session lives.
    pub fn session(&self) -> SessionBuilder {
        SessionBuilder::new(self.clone())
    }

    /// Returns the addresses of the known nodes, given ones first.
    pub fn endpoints(&self) -> Vec<String> {
        self.inner.connections.endpoints().all().iter().map(ToString::to_string).collect()
    }

    /// Returns the name of the client in listings.
    pub fn client_id(&self) -> &str {
        &self.inner.client_id
    }

    /// Carries out an operation, with the client's call timeout.
    pub(crate) async fn call(&self, mut op: Op) -> Result<OpResult, Error> {
        let until = Some(Instant::now() + self.inner.call_timeout);
        let call = Call { op: &mut op, until, urgency: Urgency::Ordinary, seqs: None, begun: None };
        Ok(self.carry_out(call).await?.result)
    }

    /// Carries out a call.
    pub(crate) async fn carry_out(&self, call: Call<'_>) -> Result<Answered, Error> {
        call::call(&self.inner.connections, &*self.inner.clock, call).await
    }

    /// Returns a connection to the node that the session stream goes to, for calls that can't be sent over that stream.
    pub(crate) async fn channel(&self) -> Result<Channel, Error> {
        match tokio::time::timeout(self.inner.call_timeout, self.inner.connections.stream()).await {
            Ok(stream) => Ok(stream.channel()),
            Err(_) => Err(self.inner.connections.endpoints().unreachable(false)),
        }
    }

    pub(crate) fn call_timeout(&self) -> Duration {
        self.inner.call_timeout
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// Returns the runtime for background work, also for values that are dropped outside a runtime.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    pub(crate) fn revocation_watcher(&self) -> &RevocationWatcher {
        &self.inner.revocation_watcher
    }

    pub(crate) fn fallback_keepalives(&self) -> &FallbackKeepalives {
        &self.inner.fallback_keepalives
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.inner.connections
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoints", &self.endpoints()).finish_non_exhaustive()
    }
}
