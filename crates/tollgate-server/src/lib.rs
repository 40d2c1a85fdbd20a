//! The server around a node: its configuration (`config`), its ports (`server`), its APIs.
//!
//! Every API (session streams, unary gRPC, JSON over HTTP) turns requests into operations and hands them to the router,
//! which has them executed here or at the leader. Not here: routing (`tollgate-gateway`), the node (`tollgate-node`),
//! the command line (`tollgate`).

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
