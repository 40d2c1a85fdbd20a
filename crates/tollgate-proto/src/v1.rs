//! Generated from `proto/tollgate/v1` by the build script: messages, clients and servers. Never edited by hand.
//!
//! Clients and servers are generated without a transport: make a client with `new(channel)`. Not here: any checks; a
//! number in a message is whatever the other side sent, and [`crate::convert`] decides whether it is valid.

#![allow(
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    clippy::all,
    reason = "generated: the .proto files are what people read and lint"
)]

tonic::include_proto!("tollgate.v1");
