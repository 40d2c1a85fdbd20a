//! Settings of a client.

use super::{Client, Inner};
use crate::clock::{BootClock, Clock};
use crate::connections::Connections;
use crate::endpoint::Endpoint;
use crate::endpoints::Endpoints;
use crate::error::Error;
use crate::fallback_keepalives::FallbackKeepalives;
use crate::revocation_watcher::RevocationWatcher;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tollgate_types::ClientId;

/// Maximum time that [`ClientBuilder::connect`] tries, by default.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time to try an operation that has no deadline of its own, by default: longer than a change of leaders takes.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Builder for a [`Client`].
///
/// ```no_run
/// # async fn example() -> Result<(), tollgate_client::Error> {
/// use std::time::Duration;
/// use tollgate_client::Client;
///
/// let client = Client::builder()
///     .endpoints(["10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"])
///     .client_id("billing-7")
///     .connect_timeout(Duration::from_secs(2))
///     .connect()
///     .await?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
pub struct ClientBuilder {
    endpoints: Vec<String>,
    client_id: Option<String>,
    connect_timeout: Duration,
    call_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl ClientBuilder {
    pub(super) fn new() -> ClientBuilder {
        ClientBuilder {
            endpoints: Vec::new(),
            client_id: None,
            connect_timeout: CONNECT_TIMEOUT,
            call_timeout: CALL_TIMEOUT,
            clock: Arc::new(BootClock),
        }
    }

    /// Adds nodes to connect to: `http://host:port` or `host:port`.
    #[must_use]
    pub fn endpoints<I, S>(mut self, endpoints: I) -> ClientBuilder
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        self.endpoints.extend(endpoints.into_iter().map(|endpoint| endpoint.as_ref().to_owned()));
        self
    }

    /// Sets the name of the client in listings: at most 128 bytes. The default is host name and process id.
    #[must_use]
    pub fn client_id(mut self, client_id: impl Into<String>) -> ClientBuilder {
        self.client_id = Some(client_id.into());
        self
    }

    /// Sets the maximum time until some node answers; 5 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the maximum time to try an operation that has no deadline of its own; 15 s by default. Keep it above the
    /// two seconds that electing a leader may take.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.call_timeout = timeout;
        self
    }

    /// Sets the clock of the client; [`BootClock`] by default.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> ClientBuilder {
        self.clock = Arc::new(clock);
        self
    }

    /// Connects. Must be called within a tokio runtime, which then runs the client's background tasks.
    pub async fn connect(self) -> Result<Client, Error> {
        let endpoints: Result<Vec<Endpoint>, Error> =
            self.endpoints.iter().map(|endpoint| Endpoint::parse(endpoint)).collect();
        let client_id = self.client_id.unwrap_or_else(default_client_id);
        if let Err(invalid) = ClientId::new(&client_id) {
            return Err(Error::invalid("client_id", invalid));
        }
        let connections = Arc::new(Connections::start(Endpoints::new(endpoints?)?));
        if tokio::time::timeout(self.connect_timeout, connections.stream()).await.is_err() {
            return Err(connections.endpoints().unreachable(false));
        }
        let (clock, call_timeout) = (self.clock, self.call_timeout);
        let (runtime, fallback_keepalives) = (Handle::current(), FallbackKeepalives::default());
        let revocation_watcher = RevocationWatcher::start(Arc::clone(&connections), Arc::clone(&clock));
        let inner = Inner {
            connections,
            revocation_watcher,
            clock,
            runtime,
            fallback_keepalives,
            client_id,
            call_timeout,
        };
        Ok(Client { inner: Arc::new(inner) })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

/// Returns the default client id, which tells people where a lock's holder runs.
fn default_client_id() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|letter| !letter.is_control()).take(64).collect();
    let host = if host.is_empty() { "client".to_owned() } else { host };
    format!("{host}:{}", std::process::id())
}
