//! Real nodes in one process: real sockets, real disks, real threads.

#![allow(clippy::unwrap_used, reason = "tests")]

mod clocks;
mod cluster;
mod membership;
mod peers;
mod service;
