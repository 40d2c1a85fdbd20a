//! The HTTP server: health, metrics, and locks and leases as JSON.
//!
//! Invariant: every route is in one of two tables, from which the description at `/openapi.json` is made as well; every
//! request gets an answer in JSON that says what to do. A lock request that waits keeps its HTTP request open, and a
//! client that hangs up leaves the queue. Not here: the meaning of an operation (`operation`), accepting connections
//! (`crate::connections`), a web page.

mod connections;
mod endpoint;
mod error;
mod json;
mod openapi;
mod page;
mod query;
mod ready;

pub(crate) use connections::serve;

use crate::metrics::Metrics;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodFilter, get, on};
use endpoint::{ENDPOINTS, Verb};
use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri};
use page::PAGES;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use tollgate_gateway::Router;
use tollgate_proto::v1::admin_service_server::AdminService;
use tollgate_proto::v1::{Error, ErrorReason, StatusRequest, StatusResponse};
use tollgate_types::HostPort;
use tonic::{Code, Status};

/// Source of the answer to `/v1/status`. `AdminService` itself has streams, and can't be a trait object.
#[tonic::async_trait]
pub(crate) trait TellsStatus: Send + Sync {
    async fn tell_status(&self, request: StatusRequest) -> Result<StatusResponse, Status>;
}

#[tonic::async_trait]
impl<T: AdminService> TellsStatus for T {
    async fn tell_status(&self, request: StatusRequest) -> Result<StatusResponse, Status> {
        self.status(tonic::Request::new(request)).await.map(tonic::Response::into_inner)
    }
}

/// State that the routes need.
#[derive(Clone)]
pub struct HttpState {
    router: Router,
    metrics: Arc<Metrics>,
    admin: Option<Arc<dyn TellsStatus>>,
    hosts: Arc<BTreeSet<String>>,
}

impl HttpState {
    /// Creates the state for everything but `/v1/status`.
    pub fn new(router: Router, metrics: Arc<Metrics>) -> HttpState {
        HttpState { router, metrics, admin: None, hosts: Arc::default() }
    }

    /// Has `/v1/status` answered by the same service that answers it over gRPC.
    #[must_use]
    pub(crate) fn with_admin(self, admin: Arc<dyn TellsStatus>) -> HttpState {
        HttpState { admin: Some(admin), ..self }
    }

    /// Sets the host names of the cluster's nodes, in lower case, besides `localhost` and addresses.
    #[must_use]
    pub fn with_hosts(self, hosts: impl IntoIterator<Item = String>) -> HttpState {
        HttpState { hosts: Arc::new(hosts.into_iter().collect()), ..self }
    }
}

/// Returns all routes. Serve them with a `ConnectInfo<SocketAddr>` in each request: otherwise the addresses of the
/// leases' clients are unknown.
pub fn routes(state: HttpState) -> axum::Router {
    let (mut for_probes, mut routes) = (axum::Router::new(), axum::Router::new());
    for page in &PAGES {
        let serve = async move |State(state): State<HttpState>, uri: Uri, headers: HeaderMap| {
            page.serve(&state, uri.query().unwrap_or_default(), &headers).await
        };
        let to = if page.is_for_probes() { &mut for_probes } else { &mut routes };
        *to = std::mem::take(to).route(page.path, get(serve));
    }
    for endpoint in &ENDPOINTS {
        let filter = match endpoint.verb {
            Verb::Get => MethodFilter::GET,
            Verb::Post => MethodFilter::POST,
        };
        let serve = async move |State(state): State<HttpState>, request: Request| {
            endpoint.serve(&state, request).await
        };
        routes = routes.route(endpoint.path, on(filter, serve));
    }
    let routes = routes.fallback(no_such_path).method_not_allowed_fallback(no_such_method);
    let routes = routes.layer(from_fn_with_state(state.clone(), of_our_host));
    routes.merge(for_probes.method_not_allowed_fallback(no_such_method)).with_state(state)
}

/// Rejects requests whose `Host` is not a name of this cluster; the pages for probes are exempt. A web page could have
/// the name of its own site point to this node, and its readers' browsers would let the page see and do everything
/// here.
async fn of_our_host(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).map(|host| host.to_str().unwrap_or_default());
    // Only browsers matter, and all of them send this header.
    match host.or(request.uri().authority().map(Authority::as_str)) {
        Some(host) if !is_our_host(host, &state.hosts) && !is_our_host(host, &members_hosts(&state)) => {
            let says = "no member of the cluster has the name in Host: ask by an IP address or by a name that \
                        `tollgate member ls` shows, or name it in node.hosts (of a gateway, gateway.hosts)";
            error::response(&Error::new(ErrorReason::Denied, says))
        }
        _ => next.run(request).await,
    }
}

/// Returns the host names of nodes, those added while the cluster ran included.
fn members_hosts(state: &HttpState) -> BTreeSet<String> {
    let members = Arc::clone(&state.router.status().borrow().members);
    let found = members.node_addresses.values().flat_map(|found| [&found.client, &found.peer]);
    let host =
        |address: &HostPort| address.to_string().rsplit_once(':').map(|(host, _)| host.to_ascii_lowercase());
    found.filter_map(host).collect()
}

fn is_our_host(host: &str, hosts: &BTreeSet<String>) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let host = authority.host().trim_end_matches('.').to_ascii_lowercase();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    address.parse::<IpAddr>().is_ok() || host == "localhost" || hosts.contains(&host)
}

async fn no_such_path(request: Request) -> Response {
    let says = format!("there is nothing at {}: GET /openapi.json says what there is", request.uri().path());
    error::response(&error::plain(Code::NotFound, says))
}

async fn no_such_method(request: Request) -> Response {
    let says = format!("{} can't be asked with {}", request.uri().path(), request.method());
    let error = error::plain(Code::Unimplemented, format!("{says}: GET /openapi.json says with what it can"));
    error::response_with(StatusCode::METHOD_NOT_ALLOWED, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_localhost_and_members_are_asked() {
        let hosts = BTreeSet::from(["locks-1.example".to_owned()]);
        for host in ["127.0.0.1:7402", "[::1]:7402", "10.0.0.1", "localhost:1", "Locks-1.example:7402"] {
            assert!(is_our_host(host, &hosts), "{host}");
        }
        for host in ["evil.example:7402", "127.0.0.1.evil.example", "", "locks-1.example.evil.example"] {
            assert!(!is_our_host(host, &hosts), "{host}");
        }
    }
}
