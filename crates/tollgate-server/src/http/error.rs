//! Errors in HTTP: the status that grpc-gateway would give, and all details in the body.
//!
//! In two cases the status depends on more than the code. A request that is too large never succeeds, so its status
//! differs from that of a request that may be tried again later. A node that does not have the group has not looked for
//! the lease, so it does not answer "not found", which a client would take for the end of its lease.
//!
//! Not here: the causes (`tollgate_proto::v1::Error`).

use super::json;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};
use tollgate_gateway::operation::is_too_large;
use tollgate_proto::v1::{Error, ErrorReason};
use tonic::Code;

/// Names of the gRPC codes, by number.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Fields that every error has, even if their value is the default.
pub(super) const ALWAYS: [&str; 4] = ["code", "reason", "message", "may_have_happened"];

/// Creates an error that exists only in HTTP, without effect on any state.
pub(super) fn plain(code: Code, message: impl Into<String>) -> Error {
    let message = message.into();
    Error { code: code as i32, message, ..Error::default() }
}

/// Creates the error for a bad field, whatever its name.
pub(super) fn bad_field(field: &str, says: &str) -> Error {
    let message = format!("bad field {field}: {says}");
    Error { field: field.to_owned(), ..Error::new(ErrorReason::BadField, message) }
}

/// Returns the response for a request that failed.
pub(super) fn response(error: &Error) -> Response {
    let status = match error.cause() {
        _ if is_too_large(error) => StatusCode::PAYLOAD_TOO_LARGE,
        // An error that only HTTP knows, or a reason of a later version.
        ErrorReason::Unspecified => status_of(Code::from(error.code)),
        reason => StatusCode::from_u16(reason.http_status()).expect("the table has statuses"),
    };
    response_with(status, error)
}

/// Like [`response`], with a status that corresponds to no gRPC code.
pub(super) fn response_with(status: StatusCode, error: &Error) -> Response {
    let mut response = answer(status, &json!({ "error": body(error) }));
    if let Ok(ms @ 1..) = u64::try_from(error.retry_after_ms) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000)));
    }
    response
}

/// Returns a JSON response.
pub(super) fn answer(status: StatusCode, body: &Value) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(CONTENT_TYPE, kind)], body.to_string()).into_response()
}

fn body(error: &Error) -> Value {
    let mut body = json::write_message(json::message("Error"), error);
    if let Value::Object(fields) = &mut body {
        let code = usize::try_from(error.code).ok().and_then(|code| CODES.get(code));
        fields.insert("code".to_owned(), (*code.unwrap_or(&"UNKNOWN")).into());
        fields.entry("reason").or_insert_with(|| "UNSPECIFIED".into());
        fields.retain(|name, value| ALWAYS.contains(&name.as_str()) || says_something(value));
    }
    body
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty() && text != "0",
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(set) => *set,
        Value::Object(_) => true,
        Value::Null => false,
    }
}

/// Maps a gRPC code to an HTTP status as grpc-gateway does.
fn status_of(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        // A status of nginx: the client closed the request.
        Code::Cancelled => StatusCode::from_u16(499).expect("three digits"),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_reason_is_that_of_its_code_but_for_a_group_that_is_elsewhere() {
        for reason in ErrorReason::all() {
            let of_code = status_of(reason.code()).as_u16();
            let expected = if reason == ErrorReason::NoSuchGroup { 503 } else { of_code };
            assert_eq!(reason.http_status(), expected, "{reason:?}");
        }
    }

    #[test]
    fn an_error_says_its_code_and_reason_by_name_and_no_empty_details() {
        let error = Error::new(ErrorReason::LeaseNotFound, "grant a new one");
        let expected = json!({
            "code": "NOT_FOUND",
            "reason": "LEASE_NOT_FOUND",
            "message": "grant a new one",
            "may_have_happened": false,
        });
        assert_eq!(body(&error), expected);
        assert_eq!(response(&error).status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn details_are_in_the_body_and_the_time_to_wait_in_a_header() {
        let error = Error {
            retry_after_ms: 1_200,
            leader_id: u64::MAX,
            ..Error::new(ErrorReason::NotLeader, "ask another")
        };
        let response = response(&error);
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        assert_eq!(body(&error)["leader_id"], "18446744073709551615");
        assert_eq!(body(&error)["retry_after_ms"], 1_200);
    }

    #[test]
    fn what_is_too_large_is_told_from_what_may_fit_later() {
        let large = Error::limit_exceeded("name_bytes_max", 512, "send less");
        assert_eq!(response(&large).status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(
            (&body(&large)["limit"], &body(&large)["limit_value"]),
            (&json!("name_bytes_max"), &json!("512"))
        );
        let many = Error::limit_exceeded("locks_max", 512, "give some back");
        let repeated = Error::rejected_before(ErrorReason::LimitExceeded, "it was refused before");
        for many in [Error { retry_after_ms: 1_000, ..many.clone() }, many, repeated] {
            assert_eq!(response(&many).status(), StatusCode::TOO_MANY_REQUESTS, "{many:?}");
        }
        let answer = tollgate_gateway::operation::too_long(2, 1);
        assert_eq!(response(&answer).status(), StatusCode::PAYLOAD_TOO_LARGE);
        let elsewhere = Error::new(ErrorReason::NoSuchGroup, "ask a full member");
        assert_eq!(response(&elsewhere).status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response(&Error::new(ErrorReason::NotHeld, "")).status(), StatusCode::NOT_FOUND);
        assert_eq!(response(&Error::new(ErrorReason::StaleToken, "")).status(), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn an_error_of_http_itself_has_all_that_every_error_has() {
        let body = body(&plain(Code::NotFound, "nothing there"));
        assert_eq!(body.as_object().unwrap().len(), ALWAYS.len());
        assert_eq!(body["reason"], "UNSPECIFIED");
    }
}
