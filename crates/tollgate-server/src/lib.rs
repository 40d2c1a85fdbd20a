//! The server around a node: what it is told (`config`), what it listens on (`server`), how it answers.
//!
//! Every door (session streams, unary gRPC, JSON over HTTP) turns what it hears into operations (`operation`) and hands
//! them to the router (`router`), which has them carried out here or at the leader. Not here: what a node does
//! (`tollgate-node`), the command line (`tollgate`).

#![allow(clippy::result_large_err, reason = "an error is an answer, worded in full, and off the fast path")]

pub mod config;
mod connections;
mod deadlocks;
mod grpc;
pub mod http;
mod introduction;
mod keepers;
mod link;
pub mod lists;
pub mod metrics;
pub mod open_files;
pub mod operation;
mod router;
mod server;
mod session;
mod standing;

pub use router::Router;
pub use server::{Addresses, Listeners, ServeError, Server};
pub use tollgate_node::NodeStatus;
#[doc(hidden)]
pub use tollgate_node::planted;
