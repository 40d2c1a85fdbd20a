//! The wire format between clients and servers: the `.proto` files, the code generated from them, and the conversions
//! between messages and the types of `tollgate-types`.
//!
//! Invariant: nothing past this crate sees a number that was not checked. A server reads each field with [`convert`],
//! and an invalid field becomes a [`BadField`] that names it. Not here: what a request does (`tollgate-core`),
//! transport (the crates that connect or listen), JSON (the server), and the protocol between nodes, which is not gRPC.
//!
//! ```
//! use tollgate_proto::{convert, v1};
//!
//! let request = v1::LockRequest { name: "db/migrate".into(), timeout_ms: -5, ..Default::default() };
//! let names = convert::read_names(&request.name, &request.names)?;
//! assert_eq!(names.as_slice()[0].to_string(), "db/migrate");
//!
//! let wrong = convert::read_wait("timeout_ms", request.timeout_ms).unwrap_err();
//! assert_eq!(wrong.field, "timeout_ms");
//! assert_eq!(tonic::Status::from(wrong).code(), tonic::Code::InvalidArgument);
//! # Ok::<(), tollgate_proto::BadField>(())
//! ```

mod bad_field;
mod claim_key;
pub mod convert;
mod error;
mod operation_frame;
mod status;
pub mod v1;

pub use bad_field::{BadField, SizeLimit};
pub use claim_key::claim_key;
pub use error::Retry;
pub use operation_frame::OperationFrame;
pub use status::error_of_status;

/// Maximum time that a node works on a change of members, in all groups together, before it answers that the change is
/// not done. A caller waits longer, so as to receive that answer.
pub const MEMBER_CHANGE_PATIENCE: std::time::Duration = std::time::Duration::from_mins(1);

/// Descriptors of all files of the package, comments included, for server reflection: an encoded
/// `google.protobuf.FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tollgate_descriptors.bin"));
