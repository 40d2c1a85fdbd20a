//! The server of one node: opens its ports, starts the node, wires the services together, and stops all of it in order.
//!
//! Invariant: a server that stops is first no longer ready, then hands leadership on, then accepts nothing new and has
//! the calls under way answered, by other nodes if need be, and only then stops its node. Not here: the services
//! (`grpc`, `http`), the decisions (`tollgate_node`).

use crate::config::{Config, ListenConfig, Origin, ServerConfig, Settings};
use crate::connections::{self, Door};
use crate::grpc::{Admin, Election, Following, Locks, Registers, Sessions, UndeliveredLayer, Watchers};
use crate::http::{self, HttpState};
use crate::join::JoinError;
use crate::metrics::{GRPC_DOOR, HTTP_DOOR, Metrics};
use crate::open_files;
use crate::session::SendBacklog;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate_gateway::{Router, detect_deadlocks};
use tollgate_node::{Bootstrap, Fault, Join, Node, NodeClock, NodeSettings, NodeStatus, StartError};
use tollgate_proto::FILE_DESCRIPTOR_SET;
use tollgate_proto::v1::admin_service_server::{AdminService, AdminServiceServer};
use tollgate_proto::v1::election_service_server::ElectionServiceServer;
use tollgate_proto::v1::lock_service_server::LockServiceServer;
use tollgate_proto::v1::register_service_server::RegisterServiceServer;
use tollgate_proto::v1::session_service_server::SessionServiceServer;
use tollgate_types::GroupMap;

/// Time for connections and streams to end once the node has stopped.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Maximum number of bytes by which a client's message grows when another node forwards it.
const FORWARDING_BYTES_MAX: usize = 1_024;

/// Bytes that every HTTP/2 client sends first. Afterwards pings detect a client that is gone.
const PREFACE_BYTES: usize = 24;

/// Maximum number of bytes that a client may send on one stream, and on one connection, before a call has read them.
const STREAM_WINDOW_BYTES: u32 = 512 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// Maximum size of all headers of one call.
const HEADER_BYTES_MAX: u32 = 16 << 10;

/// Maximum number of streams that a client resets before they are handled, or that break the protocol; past it the
/// connection is closed.
const RESETS_MAX: usize = 64;

/// Reason why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A port could not be opened.
    #[error("{0}; is another process using it? choose another in [listen], or stop that one")]
    Listen(io::Error),
    /// The cluster would not let the node join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The node did not start.
    #[error(transparent)]
    Node(#[from] StartError),
    /// The number of groups can't be changed.
    #[error(
        "cluster.groups is {asked}, and the cluster has {found}: the number of groups is chosen when a cluster is \
         founded; set it to {found}, or leave it out"
    )]
    Groups {
        /// Number of groups in the configuration.
        asked: u32,
        /// Number of groups of the cluster.
        found: u32,
    },
    /// A service could not be set up.
    #[error("the services could not be set up: {0}")]
    Services(String),
}

/// Open ports of a server.
#[derive(Debug)]
pub struct Listeners {
    client: TcpListener,
    peer: TcpListener,
    http: TcpListener,
}

/// Addresses that a server listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// gRPC, for clients.
    pub client: SocketAddr,
    /// For the other nodes.
    pub peer: SocketAddr,
    /// HTTP: health, metrics, JSON.
    pub http: SocketAddr,
}

impl Listeners {
    /// Opens the ports; port 0 takes any free one.
    pub fn bind(listen: &ListenConfig) -> Result<Listeners, ServeError> {
        let bind = |address| connections::bind(address).map_err(ServeError::Listen);
        Ok(Listeners { client: bind(listen.client)?, peer: bind(listen.peer)?, http: bind(listen.http)? })
    }

    /// Returns the addresses of the open ports.
    pub fn addresses(&self) -> Result<Addresses, ServeError> {
        let of = |listener: &TcpListener| listener.local_addr().map_err(ServeError::Listen);
        Ok(Addresses { client: of(&self.client)?, peer: of(&self.peer)?, http: of(&self.http)? })
    }
}

/// A running server.
pub struct Server {
    node: Node,
    router: Router,
    addresses: Addresses,
    metrics: Arc<Metrics>,
    closing: watch::Sender<bool>,
    http: JoinHandle<()>,
    grpc: JoinHandle<()>,
    samples: JoinHandle<()>,
    detect: JoinHandle<()>,
    grace: Duration,
}

impl Server {
    /// Starts a server. It is ready once its groups have leaders: see `/readyz`.
    ///
    /// Must be called on a runtime, which then serves its sockets.
    pub fn start(config: &Config, settings: Settings, listeners: Listeners) -> Result<Server, ServeError> {
        Server::start_joining(config, settings, listeners, None)
    }

    /// Like [`Server::start`], with the result of [`crate::join`] if there is no data yet and a cluster is to be
    /// joined.
    pub fn start_joining(
        config: &Config,
        settings: Settings,
        listeners: Listeners,
        join: Option<Join>,
    ) -> Result<Server, ServeError> {
        Server::start_by_clock(config, settings, listeners, join, NodeClock::system())
    }

    /// Like [`Server::start_joining`], with a clock other than the operating system's.
    pub fn start_by_clock(
        config: &Config,
        settings: Settings,
        listeners: Listeners,
        join: Option<Join>,
        clock: NodeClock,
    ) -> Result<Server, ServeError> {
        let addresses = listeners.addresses()?;
        let Listeners { client, peer, http } = listeners;
        let metrics = Arc::new(Metrics::new());
        let runtime = tokio::runtime::Handle::current();
        let node =
            Node::start(&node_settings(config, join, clock), peer, Arc::clone(&metrics) as _, &runtime)?;
        let clients = config.cluster.members.iter().map(|member| (member.id, member.client.to_string()));
        let groups = u32::try_from(node.handle().status().borrow().groups.len()).unwrap_or(u32::MAX);
        let asked = config.cluster.groups;
        if asked != groups && settings.get("cluster.groups").is_some_and(|it| it.origin != Origin::Default) {
            return Err(ServeError::Groups { asked, found: groups });
        }
        let map = GroupMap::even(groups).map_err(|error| ServeError::Services(error.to_string()))?;
        let router = Router::beside(node.handle().clone(), map, clients.collect(), Arc::clone(&metrics) as _)
            .admitting(config.server.operations_admitted_max);
        let (closing, closed) = watch::channel(false);
        let admin = Arc::new(Admin::new(router.clone(), node.handle().clone(), config, settings));
        let hosts = config.cluster.members.iter().flat_map(|member| [&member.client.host, &member.peer.host]);
        let hosts = hosts.chain(&config.node.hosts);
        let state = HttpState::new(router.clone(), Arc::clone(&metrics))
            .with_admin(Arc::clone(&admin) as _)
            .with_hosts(hosts.cloned());
        let doors = open_files::doors(config.server.connections_max);
        let http = serve_http(http, doors.http, &config.server, &metrics, state, closed.clone())?;
        let following = Following::Here(node.handle().clone());
        let served = Served { admin, router: router.clone(), following, metrics: Arc::clone(&metrics) };
        let grpc = serve_grpc(client, doors.client, &config.server, &served, closed)?;
        let detect = tokio::spawn(detect_deadlocks(router.clone()));
        let samples = metrics.sample(node.handle().clone());
        tracing::info!(node = %config.node.id, client = %addresses.client, http = %addresses.http, "serving");
        let grace = Duration::from_millis(config.server.shutdown_grace_ms);
        Ok(Server { node, router, addresses, metrics, closing, http, grpc, samples, detect, grace })
    }

    /// Returns the addresses that the server listens on.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Returns the router, which has operations executed.
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Waits until the node can't go on, and returns the reason.
    pub async fn failed(&self) -> Fault {
        self.node.failed().await
    }

    /// Stops the server: no longer ready, leadership handed on, ports closed, calls under way answered.
    pub async fn stop(mut self) {
        self.samples.abort();
        self.detect.abort();
        let until = Instant::now() + self.grace;
        let handed_on = self.node.retire(self.grace).await;
        self.closing.send_replace(true);
        if handed_on {
            // Calls that need the leader are forwarded to it. Only unary calls and HTTP are waited for, because streams
            // have no end of their own; HTTP has none.
            let calls = async { tokio::join!(self.metrics.until_no_calls(), &mut self.http) };
            if tokio::time::timeout_at(until.into(), calls).await.is_err() {
                tracing::info!("calls were not finished in time");
            }
            // No other node hands this one a group any more, but an election meanwhile may have.
            let left = until.saturating_duration_since(Instant::now());
            self.node.retire(left.max(LAST_WORDS)).await;
        }
        self.node.halt().await;
        for mut task in [self.http, self.grpc] {
            if !task.is_finished() && tokio::time::timeout(LAST_WORDS, &mut task).await.is_err() {
                task.abort();
            }
        }
    }
}

/// Creates the data directory of an initial member, without starting the node. Returns true if there was none; a
/// repeated call, or the start of a server, does not create it again.
pub fn found(config: &Config) -> Result<bool, ServeError> {
    Ok(tollgate_node::found(&node_settings(config, None, NodeClock::system()))?)
}

fn node_settings(config: &Config, join: Option<Join>, clock: NodeClock) -> NodeSettings {
    let members = &config.cluster.members;
    let first = || Bootstrap {
        map: Arc::new(config.group_map()),
        members: config.first_members(),
        limits: config.limits.clone(),
    };
    NodeSettings {
        host: config.raft.clone(),
        engine: config.storage.clone(),
        data_dir: config.node.data_dir.clone(),
        peers: members.iter().map(|member| (member.id, member.peer.to_string())).collect(),
        bootstrap: config.cluster.bootstrap.then(first),
        join,
        operations_waiting_max: config.server.operations_in_flight_max,
        clock,
    }
}

pub(crate) fn serve_http(
    listener: TcpListener,
    connections_max: usize,
    server: &ServerConfig,
    metrics: &Arc<Metrics>,
    state: HttpState,
    closed: watch::Receiver<bool>,
) -> Result<JoinHandle<()>, ServeError> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(ServeError::Listen)?;
    let door = Door { name: HTTP_DOOR, connections_max, first_words: None, metrics: Arc::clone(metrics) };
    let patience = Duration::from_millis(server.handshake_timeout_ms);
    Ok(tokio::spawn(http::serve(listener, door, patience, http::routes(state), closed)))
}

/// Dependencies of the gRPC services.
pub(crate) struct Served<A> {
    pub(crate) admin: Arc<A>,
    pub(crate) router: Router,
    pub(crate) following: Following,
    pub(crate) metrics: Arc<Metrics>,
}

pub(crate) fn serve_grpc<A: AdminService>(
    listener: TcpListener,
    connections_max: usize,
    server: &ServerConfig,
    Served { admin, router, following, metrics }: &Served<A>,
    closed: watch::Receiver<bool>,
) -> Result<JoinHandle<()>, ServeError> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(ServeError::Listen)?;
    let bytes_max = server.frame_bytes_max;
    tell_limits(metrics, server, connections_max);
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let failed = |error: tonic_reflection::server::Error| ServeError::Services(error.to_string());
    let reflection = described().build_v1().map_err(failed)?;
    // Many tools know nothing newer.
    let reflection_alpha = described().build_v1alpha().map_err(failed)?;
    let (reporter, health) = tonic_health::server::health_reporter();
    tokio::spawn(report_health(reporter, router.status().clone()));
    let watchers = Watchers::new(server.watchers_max);
    let unread = SendBacklog::new(server.unread_bytes_max);
    let forwarded_backlog = SendBacklog::new(server.unread_bytes_max);
    let locks = Locks {
        router: router.clone(),
        following: following.clone(),
        watchers: watchers.clone(),
        unread: Arc::clone(&unread),
        bytes_max,
    };
    let election = Election {
        router: router.clone(),
        following: following.clone(),
        watchers,
        unread: Arc::clone(&unread),
    };
    let services = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_millis(server.keepalive_interval_ms)))
        .http2_keepalive_timeout(Some(Duration::from_millis(server.keepalive_timeout_ms)))
        .max_concurrent_streams(server.streams_per_connection_max)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_max_pending_accept_reset_streams(Some(RESETS_MAX))
        .http2_max_local_error_reset_streams(Some(RESETS_MAX))
        .layer(metrics.grpc_layer())
        .layer(UndeliveredLayer::new(server))
        .add_service(LockServiceServer::new(locks).max_decoding_message_size(bytes_max))
        .add_service(
            RegisterServiceServer::new(Registers { router: router.clone() })
                .max_decoding_message_size(bytes_max),
        )
        .add_service(ElectionServiceServer::new(election).max_decoding_message_size(bytes_max))
        .add_service(AdminServiceServer::from_arc(Arc::clone(admin)).max_decoding_message_size(bytes_max))
        .add_service(
            SessionServiceServer::new(Sessions {
                router: router.clone(),
                metrics: Arc::clone(metrics),
                unread,
                forwarded_backlog,
                bytes_max,
            })
            .max_decoding_message_size(bytes_max + FORWARDING_BYTES_MAX),
        )
        .add_service(health)
        .add_service(reflection)
        .add_service(reflection_alpha);
    let first_words = Some((PREFACE_BYTES, Duration::from_millis(server.handshake_timeout_ms)));
    let door = Door { name: GRPC_DOOR, connections_max, first_words, metrics: Arc::clone(metrics) };
    let incoming = connections::accept(listener, door);
    Ok(tokio::spawn(async move {
        if let Err(error) = services.serve_with_incoming_shutdown(incoming, until(closed)).await {
            tracing::error!(%error, "gRPC is no longer served");
        }
    }))
}

/// Exports the limits as metrics, for operators who watch how near they are.
fn tell_limits(metrics: &Metrics, server: &ServerConfig, connections_max: usize) {
    metrics.limit("connections_max", connections_max);
    metrics.limit("operations_admitted_max", server.operations_admitted_max);
    metrics.limit("watchers_max", server.watchers_max);
    metrics.limit("unread_bytes_max", server.unread_bytes_max);
    metrics.limit("frame_bytes_max", server.frame_bytes_max);
}

/// Keeps `grpc.health.v1` in step with the node's status.
async fn report_health(
    reporter: tonic_health::server::HealthReporter,
    mut status: watch::Receiver<NodeStatus>,
) {
    use tonic_health::ServingStatus::{NotServing, Serving};
    loop {
        let (ready, witness) = {
            let status = status.borrow_and_update();
            let led = !status.groups.is_empty() && status.groups.values().all(|group| group.leader.is_some());
            (led && !status.stopping && !status.disk_full && !status.removed, status.witness)
        };
        for service in ["", "tollgate.v1.LockService", "tollgate.v1.SessionService"] {
            // A witness takes part in the cluster, but serves no clients.
            let serves = ready && (!witness || service.is_empty());
            reporter.set_service_status(service, if serves { Serving } else { NotServing }).await;
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

async fn until(mut closed: watch::Receiver<bool>) {
    let _ = closed.wait_for(|closed| *closed).await;
}
