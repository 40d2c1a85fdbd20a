//! Integration tests of the server's public API, used as the binary uses it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod answers;
mod backups;
mod clocks;
mod config;
mod http;
mod many_groups;
mod membership;
mod metadata;
mod operators;
mod over_groups;
mod sessions;
mod stopping;
mod undelivered;
mod watches;
mod whole_answers;
