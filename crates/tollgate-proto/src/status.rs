//! Errors in the status of a unary call: code and message for every client, details for clients that understand them.
//!
//! Details travel in the way that gRPC libraries of all languages know: a `google.rpc.Status` whose details are
//! `google.protobuf.Any`. Both are defined here: they are five fields that never change.

use crate::bad_field::BadField;
use crate::v1::Error;
use prost::Message;
use tonic::{Code, Status};

/// Type of the message in the details.
const TYPE_URL: &str = "type.googleapis.com/tollgate.v1.Error";

/// The message `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// The message `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        let (code, message) = (Code::from(error.code), error.message.clone());
        let detail = Any { type_url: TYPE_URL.to_owned(), value: error.encode_to_vec() };
        let details = RpcStatus { code: error.code, message: message.clone(), details: vec![detail] };
        Status::with_details(code, message, details.encode_to_vec().into())
    }
}

impl From<BadField> for Status {
    fn from(bad: BadField) -> Status {
        Error::from(bad).into()
    }
}

/// Returns the error in the status of a failed call; none if the status comes from elsewhere, for example a proxy or
/// the transport. Then only the code is known, and the call may have happened.
pub fn error_of_status(status: &Status) -> Option<Error> {
    let details = RpcStatus::decode(status.details()).ok()?.details;
    let ours = details.into_iter().find(|any| any.type_url == TYPE_URL)?;
    Error::decode(ours.value.as_slice()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::ErrorReason;

    #[test]
    fn an_error_survives_its_way_through_a_status() {
        let error = Error {
            group_id: 3,
            leader_id: 2,
            leader_address: "http://10.0.0.2:7400".into(),
            ..Error::new(ErrorReason::NotLeader, "ask node 2")
        };
        let status = Status::from(error.clone());
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.message(), "ask node 2");
        assert_eq!(error_of_status(&status), Some(error));
    }

    #[test]
    fn a_status_from_elsewhere_has_no_error_of_ours() {
        assert_eq!(error_of_status(&Status::unavailable("connection refused")), None);
        let garbage = Status::with_details(Code::Internal, "?", vec![0xff; 9].into());
        assert_eq!(error_of_status(&garbage), None);
    }

    #[test]
    fn a_bad_field_is_named_in_code_message_and_details() {
        let status = Status::from(BadField::new("names", "give one"));
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), "bad field names: give one");
        let error = error_of_status(&status).unwrap();
        assert_eq!((error.field.as_str(), error.reason()), ("names", ErrorReason::BadField));
    }
}
