//! Counts gRPC calls, under the names and labels of the gRPC libraries' own Prometheus middleware.
//!
//! A call is over when its status is known: from the headers of an answer that has nothing else, or from the trailers
//! behind its messages; a call whose caller hangs up first counts as canceled. So streams count when they end.
//! Invariant: only methods in the compiled descriptors have labels of their own; all others are `unknown`. Not here:
//! the duration of operations inside a session ([`super::Metrics::operation`]).

use super::add;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use prost_reflect::{DescriptorPool, MethodDescriptor};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio::sync::Notify;
use tollgate_proto::FILE_DESCRIPTOR_SET;
use tower_layer::Layer;
use tower_service::Service;

/// Names of the status codes, by number, as those libraries spell them.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

const UNARY: &str = "unary";

const OK: usize = 0;
const CANCELED: usize = 1;
const UNKNOWN: usize = 2;

/// Buckets of the duration of calls: the default of those libraries.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[allow(clippy::struct_field_names, reason = "the names of the labels are given")]
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    grpc_type: &'static str,
    grpc_service: String,
    grpc_method: String,
}

#[allow(clippy::struct_field_names, reason = "the names of the labels are given")]
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandledLabels {
    grpc_type: &'static str,
    grpc_service: String,
    grpc_method: String,
    grpc_code: &'static str,
}

type Handled = Family<HandledLabels, Counter>;

/// Metrics of all methods.
#[derive(Debug)]
pub(super) struct Calls {
    /// Methods by the path of the request.
    methods: HashMap<String, Arc<Method>>,
    unknown: Arc<Method>,
    under_way: Arc<UnderWay>,
}

/// Number of unary calls under way. Streams are left out, because they have no end of their own, and so are unknown
/// methods, which may be streams.
#[derive(Debug, Default)]
struct UnderWay {
    calls: AtomicUsize,
    none: Notify,
}

/// Metrics of one method.
#[derive(Debug)]
struct Method {
    labels: MethodLabels,
    started: Counter,
    seconds: Histogram,
    handled: Handled,
    /// Counters by code. A failure code that never occurred has no series.
    by_code: [OnceLock<Counter>; CODES.len()],
}

impl Calls {
    pub(super) fn register(registry: &mut Registry) -> Arc<Calls> {
        let started: Family<MethodLabels, Counter> =
            add(registry, "grpc_server_started", "Calls that began on this server", Family::default());
        let handled: Handled =
            add(registry, "grpc_server_handled", "Calls that ended on this server", Family::default());
        let seconds: Family<MethodLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let says = "How long calls took on this server; a stream, from its begin to its end";
        let seconds = add(registry, "grpc_server_handling_seconds", says, seconds);
        let method = |labels: MethodLabels| {
            let method = Method {
                started: started.get_or_create_owned(&labels),
                seconds: seconds.get_or_create_owned(&labels),
                handled: handled.clone(),
                by_code: Default::default(),
                labels,
            };
            // The series exists before it counts, like all others.
            method.handled(OK);
            Arc::new(method)
        };
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the compiler made it");
        let described: Vec<MethodDescriptor> =
            pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()).collect();
        let methods = described.iter().map(|it| (path_of(it), method(labels_of(it)))).collect();
        let nameless = || "unknown".to_owned();
        let unknown = MethodLabels { grpc_type: UNARY, grpc_service: nameless(), grpc_method: nameless() };
        Arc::new(Calls { methods, unknown: method(unknown), under_way: Arc::default() })
    }

    fn begin(&self, path: &str) -> Call {
        let known = self.methods.get(path);
        let is_unary = known.is_some_and(|method| method.labels.grpc_type == UNARY);
        let under_way = is_unary.then(|| Counted::begin(&self.under_way));
        let method = known.unwrap_or(&self.unknown);
        method.started.inc();
        Call { method: Arc::clone(method), began: Instant::now(), over: false, _under_way: under_way }
    }

    /// Waits until no unary call is under way.
    pub(super) async fn until_none(&self) {
        loop {
            // Created before the check, so that it notices a change after the check.
            let none = self.under_way.none.notified();
            if self.under_way.calls.load(Ordering::Acquire) == 0 {
                return;
            }
            none.await;
        }
    }
}

fn path_of(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}

fn labels_of(method: &MethodDescriptor) -> MethodLabels {
    let grpc_type = match (method.is_client_streaming(), method.is_server_streaming()) {
        (false, false) => UNARY,
        (true, false) => "client_stream",
        (false, true) => "server_stream",
        (true, true) => "bidi_stream",
    };
    let grpc_service = method.parent_service().full_name().to_owned();
    MethodLabels { grpc_type, grpc_service, grpc_method: method.name().to_owned() }
}

impl Method {
    fn handled(&self, code: usize) -> &Counter {
        self.by_code[code].get_or_init(|| {
            let MethodLabels { grpc_type, grpc_service, grpc_method } = self.labels.clone();
            let labels = HandledLabels { grpc_type, grpc_service, grpc_method, grpc_code: CODES[code] };
            self.handled.get_or_create_owned(&labels)
        })
    }
}

/// A unary call that is counted as under way until it is dropped.
#[derive(Debug)]
struct Counted(Arc<UnderWay>);

impl Counted {
    fn begin(under_way: &Arc<UnderWay>) -> Counted {
        under_way.calls.fetch_add(1, Ordering::AcqRel);
        Counted(Arc::clone(under_way))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

/// A call under way; counted as canceled if it is dropped before it is over.
#[derive(Debug)]
struct Call {
    method: Arc<Method>,
    began: Instant,
    over: bool,
    /// Counts a unary call as under way until its answer was taken.
    _under_way: Option<Counted>,
}

impl Call {
    fn end(&mut self, code: usize) {
        if !std::mem::replace(&mut self.over, true) {
            self.method.handled(code).inc();
            self.method.seconds.observe(self.began.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(CANCELED);
    }
}

/// Returns the status code in headers or trailers, if there is one.
fn code_in(headers: &HeaderMap) -> Option<usize> {
    let text = headers.get("grpc-status")?.to_str().ok()?;
    Some(text.parse().ok().filter(|code| *code < CODES.len()).unwrap_or(UNKNOWN))
}

/// Layer that measures the calls of gRPC services.
#[derive(Debug, Clone)]
pub struct GrpcMetricsLayer {
    calls: Arc<Calls>,
}

impl GrpcMetricsLayer {
    pub(super) fn new(calls: Arc<Calls>) -> GrpcMetricsLayer {
        GrpcMetricsLayer { calls }
    }
}

impl<S> Layer<S> for GrpcMetricsLayer {
    type Service = GrpcMetricsService<S>;

    fn layer(&self, inner: S) -> GrpcMetricsService<S> {
        GrpcMetricsService { inner, calls: Arc::clone(&self.calls) }
    }
}

/// A service whose calls are measured.
#[derive(Debug, Clone)]
pub struct GrpcMetricsService<S> {
    inner: S,
    calls: Arc<Calls>,
}

impl<S, Asks, Answers> Service<Request<Asks>> for GrpcMetricsService<S>
where
    S: Service<Request<Asks>, Response = Response<Answers>>,
{
    type Response = Response<MeasuredBody<Answers>>;
    type Error = S::Error;
    type Future = MeasuredAnswer<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Asks>) -> Self::Future {
        let call = Some(self.calls.begin(request.uri().path()));
        MeasuredAnswer { inner: self.inner.call(request), call }
    }
}

pin_project! {
    /// Future of an answer whose call is measured.
    #[derive(Debug)]
    pub struct MeasuredAnswer<F> {
        #[pin]
        inner: F,
        call: Option<Call>,
    }
}

impl<F, Answers, Error> Future for MeasuredAnswer<F>
where
    F: Future<Output = Result<Response<Answers>, Error>>,
{
    type Output = Result<Response<MeasuredBody<Answers>>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(context));
        let mut call = this.call.take().expect("not polled again when it was ready");
        Poll::Ready(match result {
            Ok(response) => {
                if let Some(code) = code_in(response.headers()) {
                    call.end(code);
                }
                Ok(response.map(|inner| MeasuredBody { inner, call }))
            }
            Err(error) => {
                call.end(UNKNOWN);
                Err(error)
            }
        })
    }
}

pin_project! {
    /// Messages of an answer, and the trailers behind them that end its call.
    #[derive(Debug)]
    pub struct MeasuredBody<B> {
        #[pin]
        inner: B,
        call: Call,
    }
}

impl<B: Body> Body for MeasuredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.inner.poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    this.call.end(code_in(trailers).unwrap_or(UNKNOWN));
                }
            }
            // The stream ended without a status, by itself or by a failure.
            Some(Err(_)) | None => this.call.end(UNKNOWN),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use prometheus_client::encoding::text::encode;
    use std::collections::VecDeque;
    use std::future::{Ready, ready as at_once};

    /// A body that sends these frames, then ends.
    #[derive(Debug)]
    struct Frames(VecDeque<Frame<Bytes>>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    /// A service that answers every call in the same way: a code in the headers, or messages and a code in the
    /// trailers.
    #[derive(Clone, Copy)]
    struct Answering {
        header: Option<&'static str>,
        trailer: Option<&'static str>,
    }

    impl Service<Request<()>> for Answering {
        type Response = Response<Frames>;
        type Error = std::io::Error;
        type Future = Ready<Result<Response<Frames>, std::io::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            let map = |code: &'static str| {
                HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.parse().unwrap())])
            };
            let mut frames = VecDeque::from([Frame::data(Bytes::from_static(b"message"))]);
            frames.extend(self.trailer.map(|code| Frame::trailers(map(code))));
            let mut response = Response::new(Frames(frames));
            response.headers_mut().extend(self.header.map(map).unwrap_or_default());
            at_once(Ok(response))
        }
    }

    async fn call(calls: &Arc<Calls>, path: &str, answering: Answering, read: bool) {
        let mut service = GrpcMetricsLayer::new(Arc::clone(calls)).layer(answering);
        let response = service.call(Request::builder().uri(path).body(()).unwrap()).await.unwrap();
        let mut body = Box::pin(response.into_body());
        while read && std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await.is_some() {}
    }

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    const LOCK: &str = "/tollgate.v1.LockService/Lock";
    const WATCH: &str = "/tollgate.v1.LockService/Watch";

    #[tokio::test]
    async fn a_call_counts_under_the_code_of_its_headers_or_trailers() {
        let mut registry = Registry::default();
        let calls = Calls::register(&mut registry);
        call(&calls, LOCK, Answering { header: Some("5"), trailer: None }, false).await;
        call(&calls, LOCK, Answering { header: None, trailer: Some("0") }, true).await;
        call(&calls, WATCH, Answering { header: None, trailer: None }, true).await;
        call(&calls, WATCH, Answering { header: None, trailer: Some("99") }, true).await;
        let text = text(&registry);
        let lock = r#"grpc_type="unary",grpc_service="tollgate.v1.LockService",grpc_method="Lock""#;
        let watch = r#"grpc_type="bidi_stream",grpc_service="tollgate.v1.LockService",grpc_method="Watch""#;
        for line in [
            format!("grpc_server_started_total{{{lock}}} 2"),
            format!("grpc_server_handled_total{{{lock},grpc_code=\"NotFound\"}} 1"),
            format!("grpc_server_handled_total{{{lock},grpc_code=\"OK\"}} 1"),
            format!("grpc_server_handled_total{{{watch},grpc_code=\"Unknown\"}} 2"),
            format!("grpc_server_handling_seconds_count{{{lock}}} 2"),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }

    #[tokio::test]
    async fn a_caller_that_hangs_up_counts_as_canceled() {
        let mut registry = Registry::default();
        let calls = Calls::register(&mut registry);
        call(&calls, WATCH, Answering { header: None, trailer: Some("0") }, false).await;
        assert!(text(&registry).contains(r#"grpc_method="Watch",grpc_code="Canceled"} 1"#));
    }

    #[tokio::test]
    async fn p16_methods_that_nobody_knows_share_one_label() {
        let mut registry = Registry::default();
        let calls = Calls::register(&mut registry);
        call(&calls, "/", Answering { header: Some("12"), trailer: None }, false).await;
        let before = text(&registry).lines().count();
        for number in 1..100 {
            let path = format!("/made.up/Method{number}");
            call(&calls, &path, Answering { header: Some("12"), trailer: None }, false).await;
        }
        let text = text(&registry);
        assert!(
            text.contains(r#"grpc_service="unknown",grpc_method="unknown",grpc_code="Unimplemented"} 100"#)
        );
        assert_eq!(text.lines().count(), before);
    }
}
