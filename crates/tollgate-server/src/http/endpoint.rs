//! The JSON API: one path for each call; the message is in the body or in the query.
//!
//! Invariant: an endpoint is exactly the gRPC call that it names, with the same fields, checks and answers. An answer
//! that is not what was asked for (a lock that another holds, a lease that has ended) has a status that says so, for
//! clients that look at nothing else: their next step must not run unprotected. Not here: the JSON form of messages
//! (`json`), the effect of calls (`operation`, `lists`).

use super::query::pairs;
use super::{HttpState, error, json};
use crate::lists::{self, Asker};
use crate::metrics::is_missed;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, StatusCode, request::Parts};
use prost_reflect::{DynamicMessage, Kind, MethodDescriptor, ReflectMessage, Value};
use std::net::SocketAddr;
use std::time::Duration;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::{self, Error, ErrorReason, operation_result::Result as OpResult};
use tollgate_types::Address;
use tonic::Code;

/// Maximum size of a body, in bytes.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// Time limit for a body to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// HTTP method of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Reads; the message is in the query.
    Get,
    /// Changes; the message is in the body.
    Post,
}

/// One call and its path.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) verb: Verb,
    pub(super) path: &'static str,
    service: &'static str,
    rpc: &'static str,
    /// Status of an answer that is not what was asked for, if the call has such an answer.
    pub(super) missed: Option<StatusCode>,
}

/// Query parameter that gives such answers the status 200, as all other answers have.
pub(super) const MISSED: &str = "missed";
/// The only value of this parameter.
pub(super) const MISSED_AS: &str = "200";

const fn post(path: &'static str, rpc: &'static str) -> Endpoint {
    Endpoint { verb: Verb::Post, path, service: "LockService", rpc, missed: None }
}

const fn get(path: &'static str, service: &'static str, rpc: &'static str) -> Endpoint {
    Endpoint { verb: Verb::Get, path, service, rpc, missed: None }
}

/// All endpoints. Names are in the body or the query, never in the path, because they may contain slashes.
pub(super) static ENDPOINTS: [Endpoint; 14] = [
    post("/v1/lock", "Lock").missed_as(StatusCode::LOCKED),
    post("/v1/try-lock", "TryLock").missed_as(StatusCode::LOCKED),
    post("/v1/unlock", "Unlock"),
    post("/v1/convert", "Convert").missed_as(StatusCode::LOCKED),
    post("/v1/cancel-wait", "CancelWait"),
    post("/v1/force-release", "ForceRelease"),
    get("/v1/lock", "LockService", "GetLock"),
    get("/v1/locks", "LockService", "ListLocks"),
    post("/v1/lease/grant", "LeaseGrant"),
    post("/v1/lease/revoke", "LeaseRevoke"),
    post("/v1/lease/keep-alive", "LeaseKeepAlive").missed_as(StatusCode::NOT_FOUND),
    get("/v1/lease", "LockService", "LeaseTimeToLive"),
    get("/v1/leases", "LockService", "LeaseList"),
    get("/v1/status", "AdminService", "Status"),
];

/// Error of a refused request, with a status if no gRPC code corresponds to it.
type Refusal = (Option<StatusCode>, Error);

/// Content of a request.
struct RequestInfo {
    message: DynamicMessage,
    /// Status for an answer that is not what was asked for.
    missed: StatusCode,
}

impl Endpoint {
    const fn missed_as(self, status: StatusCode) -> Endpoint {
        Endpoint { missed: Some(status), ..self }
    }

    /// Returns the gRPC method of the endpoint.
    pub(super) fn method(&self) -> MethodDescriptor {
        let service = json::POOL.get_service_by_name(&format!("tollgate.v1.{}", self.service));
        let service = service.expect("a service of the proto files");
        let method = service.methods().find(|method| method.name() == self.rpc);
        method.expect("a call of the service")
    }

    /// Answers a request.
    pub(super) async fn serve(&self, state: &HttpState, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let asked = match self.read(&parts, body).await {
            Ok(asked) => asked,
            Err((Some(status), error)) => return error::response_with(status, &error),
            Err((None, error)) => return error::response(&error),
        };
        match self.call(state, &asked.message, &address_of(&parts)).await {
            Ok((answer, missed)) => {
                let status = if missed { asked.missed } else { StatusCode::OK };
                error::answer(status, &json::write(&answer))
            }
            Err(error) => error::response(&error),
        }
    }

    async fn read(&self, parts: &Parts, body: Body) -> Result<RequestInfo, Refusal> {
        let (kind, query) = (self.method().input(), parts.uri.query().unwrap_or_default());
        if self.verb == Verb::Get {
            let message = json::read_query(kind, query).map_err(|error| (None, error))?;
            return Ok(RequestInfo { message, missed: StatusCode::OK });
        }
        if is_foreign(&parts.headers) {
            let says = "a web page of another site may not do this: send the request without an Origin";
            return Err((None, Error::new(ErrorReason::Denied, says)));
        }
        let missed = self.read_missed(query).map_err(|error| (None, error))?;
        let message = json::read_body(kind, &read_bytes(body).await?).map_err(|error| (None, error))?;
        Ok(RequestInfo { message, missed })
    }

    /// Reads the parameter `missed` from the query of a request whose message is in its body.
    fn read_missed(&self, query: &str) -> Result<StatusCode, Error> {
        let mut status = self.missed.unwrap_or(StatusCode::OK);
        for (name, text) in pairs(query)? {
            if name != MISSED || self.missed.is_none() {
                return Err(error::bad_field(
                    &name,
                    "no such parameter: fields are sent in the body, as JSON",
                ));
            }
            if text != MISSED_AS {
                let says = format!("say {MISSED_AS}, and all answers have that status, or leave it out");
                return Err(error::bad_field(MISSED, &says));
            }
            status = StatusCode::OK;
        }
        Ok(status)
    }

    /// Returns the answer, and whether it is not what was asked for. Most calls are operations of the same name; the
    /// others are read in ways of their own.
    async fn call(
        &self,
        state: &HttpState,
        message: &DynamicMessage,
        from: &Address,
    ) -> Result<(DynamicMessage, bool), Error> {
        let router = &state.router;
        let read = match self.rpc {
            "ListLocks" => self.twin(&lists::locks(router, Asker::Client, json::typed(message)?).await?),
            "LeaseList" => self.twin(&lists::leases(router, Asker::Client, json::typed(message)?).await?),
            "Status" => self.twin(&status(state).await?),
            _ => return self.carry_out(state, message, from).await,
        };
        Ok((read?, false))
    }

    async fn carry_out(
        &self,
        state: &HttpState,
        message: &DynamicMessage,
        from: &Address,
    ) -> Result<(DynamicMessage, bool), Error> {
        let result = match state.router.execute(self.operation(message)?, from).await {
            OpResult::Error(error) => return Err(error),
            result => result,
        };
        let missed = is_missed(&result);
        let mut twin = DynamicMessage::new(json::message("OperationResult"));
        twin.transcode_from(&v1::OperationResult { id: 0, result: Some(result) }).map_err(|_| no_answer())?;
        let answer = twin.take_fields().find_map(|(_, value)| match value {
            Value::Message(answer) => Some(answer),
            _ => None,
        });
        Ok((answer.ok_or_else(no_answer)?, missed))
    }

    fn operation(&self, message: &DynamicMessage) -> Result<v1::operation::Op, Error> {
        let mut operation = DynamicMessage::new(json::message("Operation"));
        let field = operation.descriptor().get_field_by_name(&snake_case(self.rpc)).ok_or_else(no_answer)?;
        debug_assert_eq!(field.kind(), Kind::Message(message.descriptor()));
        operation.set_field(&field, Value::Message(message.clone()));
        json::typed::<v1::Operation>(&operation)?.op.ok_or_else(no_answer)
    }

    fn twin(&self, answer: &impl prost::Message) -> Result<DynamicMessage, Error> {
        let mut twin = DynamicMessage::new(self.method().output());
        twin.transcode_from(answer).map_err(|_| no_answer())?;
        Ok(twin)
    }
}

async fn status(state: &HttpState) -> Result<v1::StatusResponse, Error> {
    let Some(admin) = &state.admin else {
        return Err(Error::new(
            ErrorReason::NotSupported,
            "this node does not tell its status over HTTP: use gRPC",
        ));
    };
    let told = admin.tell_status(v1::StatusRequest::default()).await;
    told.map_err(|status| {
        error_of_status(&status).unwrap_or_else(|| error::plain(status.code(), status.message()))
    })
}

fn no_answer() -> Error {
    Error::new(ErrorReason::Internal, "a call had an answer of another kind: report it")
}

async fn read_bytes(body: Body) -> Result<bytes::Bytes, Refusal> {
    match tokio::time::timeout(BODY_PATIENCE, to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => {
            let says = format!("the body broke off, or is longer than {BODY_BYTES_MAX} bytes: send less");
            Err((None, Error::limit_exceeded("body_bytes_max", BODY_BYTES_MAX, says)))
        }
        Err(_) => {
            let says =
                format!("the body did not arrive within {} s: nothing was done", BODY_PATIENCE.as_secs());
            Err((Some(StatusCode::REQUEST_TIMEOUT), error::plain(Code::DeadlineExceeded, says)))
        }
    }
}

/// True if a browser sent the request for a page of another site. Without this check any web page that an operator
/// visits could release locks on that operator's machine.
fn is_foreign(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let authority =
        origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    authority.is_none() || authority != host
}

/// Returns the client's address, for people who look at leases.
fn address_of(parts: &Parts) -> Address {
    let from = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    from.and_then(|ConnectInfo(from)| Address::new(from.to_string()).ok()).unwrap_or(Address::NONE)
}

/// Converts a name such as `LeaseKeepAlive` to `lease_keep_alive`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_is_a_call_and_its_operation_if_it_is_one_takes_the_same_message() {
        for endpoint in &ENDPOINTS {
            let method = endpoint.method();
            if matches!(endpoint.rpc, "ListLocks" | "LeaseList" | "Status") {
                continue;
            }
            let op = endpoint.operation(&DynamicMessage::new(method.input()));
            assert!(op.is_ok(), "{endpoint:?}");
        }
    }

    #[test]
    fn only_what_may_miss_has_the_parameter_that_hides_it() {
        for endpoint in ENDPOINTS.iter().filter(|endpoint| endpoint.verb == Verb::Post) {
            let may_miss = matches!(endpoint.rpc, "Lock" | "TryLock" | "Convert" | "LeaseKeepAlive");
            assert_eq!(endpoint.missed.is_some(), may_miss, "{endpoint:?}");
            assert_eq!(endpoint.read_missed("").unwrap(), endpoint.missed.unwrap_or(StatusCode::OK));
            let plain = endpoint.read_missed("missed=200");
            assert_eq!(
                plain.map_err(|error| error.field),
                if may_miss { Ok(StatusCode::OK) } else { Err("missed".into()) }
            );
            for query in ["missed", "missed=409", "name=jobs", "missed=%ff"] {
                assert!(endpoint.read_missed(query).is_err(), "{query}");
            }
        }
    }

    #[test]
    fn only_pages_of_the_same_host_may_change_anything() {
        let headers = |origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "127.0.0.1:7402".parse().unwrap());
            headers.extend(origin.map(|origin| (ORIGIN, origin.parse().unwrap())));
            headers
        };
        assert!(!is_foreign(&headers(None)));
        assert!(!is_foreign(&headers(Some("http://127.0.0.1:7402"))));
        for origin in
            ["http://evil.example", "http://127.0.0.1:80", "null", "http://127.0.0.1:7402.evil.example"]
        {
            assert!(is_foreign(&headers(Some(origin))), "{origin}");
        }
    }
}
