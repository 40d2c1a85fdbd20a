//! What is served beside the JSON API: health, metrics, and the description of it all.
//!
//! Not here: what healthy means (`ready`), what is measured (`metrics`).

use super::error::answer;
use super::{HttpState, openapi, ready};
use crate::metrics;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::json;

/// Something to look at with GET.
pub(super) struct Page {
    pub(super) path: &'static str,
    what: What,
    /// For the description.
    pub(super) says: &'static str,
    /// What kind of text it is.
    pub(super) kind: &'static str,
}

enum What {
    Live,
    Ready,
    Metrics,
    OpenApi,
}

const JSON: &str = "application/json";

/// All of them.
pub(super) static PAGES: [Page; 4] = [
    Page {
        path: "/livez",
        what: What::Live,
        says: "Whether the process runs. 200 if it answers at all.",
        kind: JSON,
    },
    Page {
        path: "/readyz",
        what: What::Ready,
        says: "Whether the node can serve: every group has a leader that a quorum confirms within a second, the node \
               is not stopping, and its disk is not full. Else 503, and the body says which group and why. With \
               `?verbose` it tells of all groups.",
        kind: JSON,
    },
    Page {
        path: "/metrics",
        what: What::Metrics,
        says: "What the node measures, for Prometheus.",
        kind: metrics::CONTENT_TYPE,
    },
    Page { path: "/openapi.json", what: What::OpenApi, says: "This description.", kind: JSON },
];

impl Page {
    pub(super) async fn serve(&self, state: &HttpState, query: &str) -> Response {
        match self.what {
            What::Live => answer(StatusCode::OK, &json!({ "live": true })),
            What::Ready => {
                let verbose = form_urlencoded::parse(query.as_bytes())
                    .any(|(name, value)| name == "verbose" && !matches!(value.as_ref(), "0" | "false"));
                ready::check(&state.router).await.response(verbose)
            }
            What::Metrics => self.text(state.metrics.render()),
            What::OpenApi => self.text(openapi::TEXT.as_str()),
        }
    }

    fn text(&self, text: impl IntoResponse) -> Response {
        ([(CONTENT_TYPE, HeaderValue::from_static(self.kind))], text).into_response()
    }
}
