//! The server of a gateway: the same ports as a node's, in front of a cluster elsewhere.
//!
//! A gateway keeps no state: any number of gateways serve one cluster, and each can go at any time. Invariant: a
//! gateway that stops is first no longer ready and accepts nothing new; then it answers the calls under way, within its
//! grace period, and ends its streams, whose clients go on elsewhere. Leases stay, because their clients live. Not
//! here: the services (`grpc`, `http`), finding the leaders (`tollgate_gateway::Discovery`).

use crate::config::{GatewayConfig, Settings};
use crate::connections;
use crate::grpc::{AdminRelay, Following};
use crate::http::HttpState;
use crate::metrics::Metrics;
use crate::open_files;
use crate::server::{ServeError, Served, serve_grpc, serve_http};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate_gateway::{Discovery, Router};

/// Open ports of a gateway.
#[derive(Debug)]
pub struct GatewayListeners {
    client: TcpListener,
    http: TcpListener,
}

/// Addresses that a gateway listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatewayAddresses {
    /// gRPC, for clients.
    pub client: SocketAddr,
    /// HTTP: health, metrics, JSON.
    pub http: SocketAddr,
}

impl GatewayListeners {
    /// Opens the ports; port 0 takes any free one.
    pub fn bind(config: &GatewayConfig) -> Result<GatewayListeners, ServeError> {
        let bind = |address| connections::bind(address).map_err(ServeError::Listen);
        Ok(GatewayListeners { client: bind(config.client)?, http: bind(config.http)? })
    }

    /// Returns the addresses of the open ports.
    pub fn addresses(&self) -> Result<GatewayAddresses, ServeError> {
        let of = |listener: &TcpListener| listener.local_addr().map_err(ServeError::Listen);
        Ok(GatewayAddresses { client: of(&self.client)?, http: of(&self.http)? })
    }
}

/// A running gateway.
pub struct GatewayServer {
    discovery: Discovery,
    closing: watch::Sender<bool>,
    http: JoinHandle<()>,
    grpc: JoinHandle<()>,
    grace: Duration,
}

impl GatewayServer {
    /// Starts a gateway. It is ready once it knows the leader of each group: see `/readyz`.
    ///
    /// Must be called on a runtime, which then serves its sockets.
    pub fn start(
        config: &GatewayConfig,
        settings: Settings,
        listeners: GatewayListeners,
    ) -> Result<GatewayServer, ServeError> {
        let addresses = listeners.addresses()?;
        let metrics = Arc::new(Metrics::new());
        let discovery = Discovery::start(config.nodes.clone(), config.cluster);
        let router = Router::alone(&discovery, Arc::clone(&metrics) as _)
            .admitting(config.server.operations_admitted_max);
        let relay = router.relay().expect("it has no node").clone();
        let admin = Arc::new(AdminRelay::new(router.clone(), relay.clone(), settings));
        let state = HttpState::new(router.clone(), Arc::clone(&metrics))
            .with_admin(Arc::clone(&admin) as _)
            .with_hosts(config.hosts.iter().cloned());
        let (closing, closed) = watch::channel(false);
        let doors = open_files::doors(config.server.connections_max);
        let limits = &config.server;
        let http = serve_http(listeners.http, doors.http, limits, &metrics, state, closed.clone())?;
        let served = Served { admin, router, following: Following::Relayed(relay), metrics };
        let grpc = serve_grpc(listeners.client, doors.client, limits, &served, closed)?;
        tracing::info!(client = %addresses.client, http = %addresses.http, "serving as a gateway");
        let grace = Duration::from_millis(limits.shutdown_grace_ms);
        Ok(GatewayServer { discovery, closing, http, grpc, grace })
    }

    /// Stops the gateway: closes its ports, reports it as not ready, answers the calls under way, ends the streams.
    pub async fn stop(self) {
        self.closing.send_replace(true);
        self.discovery.say_stopping();
        let GatewayServer { mut http, mut grpc, grace, .. } = self;
        let ended = async { tokio::join!(&mut http, &mut grpc) };
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::info!("calls were not finished in time");
            http.abort();
            grpc.abort();
        }
    }
}
