//! What is served over HTTP: health, metrics, and locks and leases as JSON.
//!
//! Invariant: every route stands in one of two tables, from which the description at `/openapi.json` is made as well;
//! whatever is sent gets an answer in JSON that says what to do. A lock request that waits keeps its request open, and
//! one who hangs up leaves the queue. Not here: what an operation means (`operation`), who accepts connections
//! (`server`), a web page.

mod endpoint;
mod error;
mod json;
mod openapi;
mod page;
mod ready;

use crate::metrics::Metrics;
use crate::router::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{MethodFilter, get, on};
use endpoint::{ENDPOINTS, Verb};
use http::{StatusCode, Uri};
use page::PAGES;
use std::sync::Arc;
use tollgate_proto::v1::admin_service_server::AdminService;
use tonic::Code;

/// What the routes need.
#[derive(Clone)]
pub struct HttpState {
    router: Router,
    metrics: Arc<Metrics>,
    admin: Option<Arc<dyn AdminService>>,
}

impl HttpState {
    /// For everything but `/v1/status`.
    pub fn new(router: Router, metrics: Arc<Metrics>) -> HttpState {
        HttpState { router, metrics, admin: None }
    }

    /// Has `/v1/status` answered by the same service that answers it over gRPC.
    #[must_use]
    pub fn with_admin(self, admin: Arc<dyn AdminService>) -> HttpState {
        HttpState { admin: Some(admin), ..self }
    }
}

/// All routes. Serve them with `into_make_service_with_connect_info::<SocketAddr>()`: otherwise nobody knows where the
/// clients of leases are.
pub fn routes(state: HttpState) -> axum::Router {
    let mut routes = axum::Router::new();
    for page in &PAGES {
        let serve = async move |State(state): State<HttpState>, uri: Uri| {
            page.serve(&state, uri.query().unwrap_or_default()).await
        };
        routes = routes.route(page.path, get(serve));
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
    routes.fallback(no_such_path).method_not_allowed_fallback(no_such_method).with_state(state)
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
