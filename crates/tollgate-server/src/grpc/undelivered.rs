//! Messages that never reach a service because they are too long or can't be decoded.
//!
//! The transport refuses them with codes and texts of its own: `OUT_OF_RANGE`, and `INTERNAL`, which would mean a bug
//! of the server. Here they become the errors that all APIs return. Invariant: an error of a service itself, which has
//! details, is left as it is. Not here: mistakes inside a message that was read (`operation`).

use crate::config::ServerConfig;
use http::{HeaderMap, Request, Response};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tollgate_proto::v1::{Error, ErrorReason};
use tonic::{Code, Status};
use tower_layer::Layer;
use tower_service::Service;

/// Name of the limit on a client's message: `server.frame_bytes_max`.
pub(crate) const FRAME_LIMIT: &str = "frame_bytes_max";

/// Prefix of prost's error messages.
const UNDECODABLE: &str = "failed to decode Protobuf message: ";

/// Returns the error for a message that the transport did not deliver; none for any other failure. `bytes_max`: maximum
/// length of a message.
pub(crate) fn undelivered(status: &Status, bytes_max: usize) -> Option<Error> {
    if !status.details().is_empty() {
        return None;
    }
    match status.code() {
        Code::OutOfRange => {
            let says = format!(
                "the message is longer than {bytes_max} bytes (server.frame_bytes_max): send less at once"
            );
            Some(Error::limit_exceeded(FRAME_LIMIT, bytes_max, says))
        }
        Code::Internal => {
            let wrong = status.message().strip_prefix(UNDECODABLE).unwrap_or(status.message());
            let says = format!(
                "the message is not what this method takes, in protobuf: {wrong}; compare your .proto files with the \
                 server's"
            );
            Some(Error { field: field_of(wrong), ..Error::new(ErrorReason::BadField, says) })
        }
        _ => None,
    }
}

/// Returns the path of the field that could not be read, with dots: prost names the fields as `Message.field: `, from
/// the inside out.
fn field_of(wrong: &str) -> String {
    let named = wrong.split(": ").map_while(|part| part.split_once('.'));
    let fields = named.take_while(|(message, field)| is_word(message) && is_word(field));
    let mut fields: Vec<&str> = fields.map(|(_, field)| field).collect();
    fields.reverse();
    fields.join(".")
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Replaces the transport's errors for undelivered messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UndeliveredLayer {
    bytes_max: usize,
}

impl UndeliveredLayer {
    pub(crate) fn new(server: &ServerConfig) -> UndeliveredLayer {
        UndeliveredLayer { bytes_max: server.frame_bytes_max }
    }
}

impl<S> Layer<S> for UndeliveredLayer {
    type Service = UndeliveredService<S>;

    fn layer(&self, inner: S) -> UndeliveredService<S> {
        UndeliveredService { inner, bytes_max: self.bytes_max }
    }
}

/// A service whose errors for undelivered messages are replaced.
#[derive(Debug, Clone)]
pub(crate) struct UndeliveredService<S> {
    inner: S,
    bytes_max: usize,
}

impl<S, Asks, Answers> Service<Request<Asks>> for UndeliveredService<S>
where
    S: Service<Request<Asks>, Response = Response<Answers>>,
{
    type Response = Response<Answers>;
    type Error = S::Error;
    type Future = Answer<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Asks>) -> Self::Future {
        Answer { inner: self.inner.call(request), bytes_max: self.bytes_max }
    }
}

pin_project! {
    /// Future of an answer.
    #[derive(Debug)]
    pub(crate) struct Answer<F> {
        #[pin]
        inner: F,
        bytes_max: usize,
    }
}

impl<F, Answers, Error> Future for Answer<F>
where
    F: Future<Output = Result<Response<Answers>, Error>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let mut result = ready!(this.inner.poll(context));
        if let Ok(response) = &mut result {
            put_right(response.headers_mut(), *this.bytes_max);
        }
        Poll::Ready(result)
    }
}

/// Replaces the status in the headers; only an answer that is nothing but a failure has its status there.
fn put_right(headers: &mut HeaderMap, bytes_max: usize) {
    let Some(status) = Status::from_header_map(headers) else { return };
    if let Some(error) = undelivered(&status, bytes_max) {
        // Escaped, the error is text that fits a header.
        let _ = Status::from(error).add_header(headers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use tollgate_proto::{error_of_status, v1};

    #[test]
    fn a_field_that_can_not_be_decoded_is_named() {
        let wrong = |bytes: &[u8]| v1::SessionRequest::decode(bytes).unwrap_err().to_string();
        // Frame { operations: { op: lock { name: "\xff" } } }.
        let says = wrong(&[0x0a, 0x05, 0x12, 0x03, 0x0a, 0x01, 0xff]);
        let error = undelivered(&Status::internal(says), 9).unwrap();
        assert_eq!((error.reason(), error.code), (ErrorReason::BadField, Code::InvalidArgument as i32));
        assert!(!error.may_have_happened, "{error:?}");
        assert_eq!(error.field, "operations.op.name", "{}", error.message);
        let error = undelivered(&Status::internal(wrong(&[0xff])), 9).unwrap();
        assert_eq!(error.field, "", "{}", error.message);
    }

    #[test]
    fn what_a_service_says_itself_is_left_alone() {
        let said = Status::from(Error::new(ErrorReason::Internal, "a bug"));
        assert_eq!(undelivered(&said, 9), None);
        assert_eq!(undelivered(&Status::unavailable("gone"), 9), None);
        let mut headers = HeaderMap::new();
        said.add_header(&mut headers).unwrap();
        let before = headers.clone();
        put_right(&mut headers, 9);
        assert_eq!(headers, before);
        put_right(&mut HeaderMap::new(), 9);
    }

    #[test]
    fn a_message_that_is_too_long_names_the_limit() {
        let mut headers = HeaderMap::new();
        Status::out_of_range("too large").add_header(&mut headers).unwrap();
        put_right(&mut headers, 4_096);
        let status = Status::from_header_map(&headers).unwrap();
        let error = error_of_status(&status).unwrap();
        assert_eq!((status.code(), error.reason()), (Code::ResourceExhausted, ErrorReason::LimitExceeded));
        assert_eq!((error.limit.as_str(), error.limit_value), (FRAME_LIMIT, 4_096));
    }
}
