//! A seeded world that drives real replicas through faults, and has the history judged.
//!
//! The nodes are real: each runs a `tollgate_replica::Host`, driven as a server drives it. Everything around the nodes
//! is simulated: network, disks, clocks and clients. One thread moves everything, and all randomness comes from one
//! seed. So a run can be repeated to the last bit, hundreds of simulated hours pass in a real one, and a seed that
//! fails once fails again, with its events in words and with fewer faults.
//!
//! A run: a [`Scenario`] is drawn from a seed, a [`World`] runs it, and the [`Outcome`] has the report of
//! `tollgate-check` on the history. [`reduce`] finds the faults that a failure needs.
//!
//! Not here: the rules of right and wrong (`tollgate-check`), and sockets, threads and real time (`tollgate-node`).

mod client;
mod clock;
mod disk;
mod disk_queue;
mod fault;
mod fenced;
mod front;
mod network;
mod node;
mod outcome;
mod panics;
mod planting;
mod reduce;
mod regressions;
mod rng;
mod scenario;
mod schedule;
mod stats;
mod trace;
mod types;
mod world;

pub use client::{Client, ClientContext, ClientSettings, ClientStats};
pub use disk_queue::DiskSpeed;
pub use fault::{Fault, FaultKind, Target};
pub use fenced::{FencedStores, FencedWrite, STORES};
pub use front::{Answer, Ask, Front, Request, Response};
pub use network::{Latency, Links, Weather};
pub use outcome::Outcome;
pub use planting::Planted;
pub use reduce::{Reduced, reduce};
pub use regressions::REGRESSIONS;
pub use rng::Rng;
pub use scenario::Scenario;
pub use stats::{Stats, seconds};
pub use types::{At, ClientNo, group_of};
pub use world::World;
