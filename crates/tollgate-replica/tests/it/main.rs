//! Tests with several hosts, whose time, wires and disks the test controls.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod cluster;
mod comparison;
mod disk;
mod duties;
mod elections;
mod frames;
mod leases;
mod log_time;
mod membership;
mod memory;
mod mutants;
mod order;
mod reads;
mod snapshots;
mod upgrades;
mod waiters;
mod watches;
mod witness;
