//! The server around a node: what it is told (`config`), what it listens on (`server`), how it answers.
//!
//! Every door (session streams, unary gRPC, JSON over HTTP) turns what it hears into operations and hands them to the
//! router, which has them carried out here or at the leader. Not here: routing (`tollgate-gateway`), what a node does
//! (`tollgate-node`), the command line (`tollgate`).

#![allow(clippy::result_large_err, reason = "an error is an answer, worded in full, and off the fast path")]

pub mod config;
mod connections;
mod gateway_server;
mod grpc;
pub mod http;
mod join;
pub mod lists;
pub mod metrics;
pub mod open_files;
mod server;
mod session;

pub use gateway_server::{GatewayAddresses, GatewayListeners, GatewayServer};
pub use join::{JoinError, join};
pub use server::{Addresses, Listeners, ServeError, Server, found};
pub use tollgate_gateway::{Router, operation};
#[doc(hidden)]
pub use tollgate_node::planted;
pub use tollgate_node::{Clock, ClockSampling, NodeClock, NodeStatus};
