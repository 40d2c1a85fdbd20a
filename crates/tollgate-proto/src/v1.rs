//! What the compiler made of `proto/tollgate/v1`: messages, clients and servers. Nobody edits it.
//!
//! Clients and servers are generated without a transport: make a client with `new(channel)`. Not here: any meaning;
//! a number in a message is whatever the other side sent. [`crate::convert`] says whether it is good.

#![allow(
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    clippy::all,
    reason = "generated: the .proto files are what people read and lint"
)]

tonic::include_proto!("tollgate.v1");
