//! The binary, driven as people run it: real processes, real sockets, real disks, and signals that kill.
//!
//! Every test starts its own cluster on free ports. Tests that put load on it record all requests and answers of every
//! client, and have `tollgate-check` judge them: a broken promise is named, with the events that show it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what a failed test has to say")]
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod backup;
mod bench;
mod chaos;
mod cli;
mod client;
mod cluster;
mod connection;
mod connections;
mod crashes;
mod demo;
mod disk_faults;
mod disk_full;
mod doors;
mod elections;
mod failover;
mod gateways;
mod input;
mod lease_watches;
mod load;
mod membership;
mod observing;
mod pace;
mod partitions;
mod pauses;
mod ports;
mod proxy;
mod raw_http2;
mod record;
mod refounding;
mod repeats;
mod restarts;
mod rng;
mod salvage;
mod session;
mod startup;
mod strace;
mod unread;
mod upgrades;
mod verdict;
mod waits;
mod watch_starts;
mod watching;
mod work;
