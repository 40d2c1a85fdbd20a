//! The server's public parts, used as the binary uses them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod answers;
mod config;
mod http;
mod many_groups;
mod operators;
mod sessions;
mod stopping;
mod watches;
