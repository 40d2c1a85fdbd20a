//! The wire between clients and servers: the `.proto` files, the code made from them, and the way from there to the
//! types of the house and back.
//!
//! Nothing past this crate sees a number that was not checked: a server reads each field with [`convert`], and what is
//! wrong becomes a [`BadField`] that names it. Not here: what a request does (`tollgate-core`), transport (whoever
//! connects or listens), JSON (the server), and what nodes say to each other, which is no gRPC.
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
pub use operation_frame::OperationFrame;
pub use status::error_of_status;

/// How long a node works on a change of members, in all groups together, before it says that it is not done. Whoever
/// asks for one waits longer, so as to hear what became of it.
pub const MEMBER_CHANGE_PATIENCE: std::time::Duration = std::time::Duration::from_mins(1);

/// The descriptors of all files of the package, comments included, for server reflection: an encoded
/// `google.protobuf.FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tollgate_descriptors.bin"));
