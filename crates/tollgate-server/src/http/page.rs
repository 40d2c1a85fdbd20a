//! The pages beside the JSON API: health, metrics, and the description of all routes.
//!
//! Not here: the definition of ready (`ready`), the measurements (`metrics`).

use super::error::{answer, response};
use super::query::pairs;
use super::ready::{self, ReadyAs};
use super::{HttpState, openapi};
use crate::metrics::Exposition;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

/// A page that is read with GET.
pub(super) struct Page {
    pub(super) path: &'static str,
    what: What,
    /// Text in the description of the routes.
    pub(super) says: &'static str,
    /// Content types that the page can have.
    pub(super) kinds: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Live,
    Ready,
    Metrics,
    OpenApi,
}

const JSON: &str = "application/json";

/// All pages.
pub(super) static PAGES: [Page; 4] = [
    Page {
        path: "/livez",
        what: What::Live,
        says: "Whether the process runs. 200 if it answers at all.",
        kinds: &[JSON],
    },
    Page {
        path: "/readyz",
        what: What::Ready,
        says: "Whether the node can serve: every group has a leader that a quorum confirms within a second, the node \
               is not stopping, its disk is not full, and it is no witness. Else 503, and the body says which group \
               and why. With `?verbose` it tells of all groups; with `?member` a witness that can vote is ready, too.",
        kinds: &[JSON],
    },
    Page {
        path: "/metrics",
        what: What::Metrics,
        says: "What the node measures, for Prometheus: in its text format 0.0.4, or as OpenMetrics if `Accept` asks \
               for that.",
        kinds: &[Exposition::Text.content_type(), Exposition::OpenMetrics.content_type()],
    },
    Page { path: "/openapi.json", what: What::OpenApi, says: "This description.", kinds: &[JSON] },
];

impl Page {
    /// True for pages that probes and collectors read, under whatever host name they reach the node: such a page
    /// changes nothing, and names no lock and no client.
    pub(super) fn is_for_probes(&self) -> bool {
        matches!(self.what, What::Live | What::Ready | What::Metrics)
    }

    pub(super) async fn serve(&self, state: &HttpState, query: &str, headers: &HeaderMap) -> Response {
        match self.what {
            What::Live => answer(StatusCode::OK, &json!({ "live": true })),
            What::Ready => match pairs(query) {
                Ok(pairs) => {
                    let set = |flag: &str| {
                        pairs
                            .iter()
                            .any(|(name, text)| name == flag && !matches!(text.as_str(), "0" | "false"))
                    };
                    let ready_as = if set("member") { ReadyAs::Member } else { ReadyAs::Server };
                    ready::check(&state.router, ready_as).await.response(set("verbose"))
                }
                Err(error) => response(&error),
            },
            What::Metrics => {
                let exposition = asked_exposition(headers);
                let mut page = text(exposition.content_type(), state.metrics.render(exposition));
                page.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
                page
            }
            What::OpenApi => text(JSON, openapi::TEXT.as_str()),
        }
    }
}

fn text(kind: &'static str, text: impl IntoResponse) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
}

/// Returns `OpenMetrics` if a header asks for it and prefers no other format; otherwise the text format, which every
/// reader of metrics knows.
fn asked_exposition(headers: &HeaderMap) -> Exposition {
    let headers = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<(&str, f32)> = headers.flat_map(|value| value.split(',')).map(range).collect();
    let quality = |kinds: &[&str]| {
        let of_kind = ranges.iter().filter(|(kind, _)| kinds.iter().any(|it| it.eq_ignore_ascii_case(kind)));
        of_kind.map(|(_, quality)| *quality).fold(0.0, f32::max)
    };
    let (open, text) =
        (quality(&["application/openmetrics-text"]), quality(&["text/plain", "text/*", "*/*"]));
    if open > 0.0 && open >= text { Exposition::OpenMetrics } else { Exposition::Text }
}

/// Parses one content type of an `Accept` header, with its quality.
fn range(text: &str) -> (&str, f32) {
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let quality = parts.find_map(|part| part.strip_prefix("q=")).map(|text| text.parse().unwrap_or(0.0));
    (kind, quality.unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_ask_for_it() {
        let asked = |accept: &[&'static str]| {
            let mut headers = HeaderMap::new();
            headers.extend(accept.iter().map(|accept| (ACCEPT, HeaderValue::from_static(accept))));
            asked_exposition(&headers)
        };
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for accept in [
            &["application/openmetrics-text"][..],
            &[prometheus],
            &["text/html", "Application/OpenMetrics-Text"],
        ] {
            assert_eq!(asked(accept), Exposition::OpenMetrics, "{accept:?}");
        }
        let text_first = "text/plain;version=0.0.4;q=0.9,application/openmetrics-text;q=0.3";
        for accept in [
            &[][..],
            &["*/*"],
            &["text/plain"],
            &["text/html,*/*;q=0.8"],
            &[text_first],
            &["application/openmetrics-text;q=0"],
        ] {
            assert_eq!(asked(accept), Exposition::Text, "{accept:?}");
        }
    }
}
