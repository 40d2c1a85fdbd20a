//! The server's public parts, used as the binary uses them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod config;
mod http;
mod sessions;
