//! Puts load on a lock service, and measures it: how much, how fast, at what cost in processor time.
//!
//! A run is a closed loop of concurrent callers, each of which sends a request, waits for the answer and sends the next
//! one ([`run`]). A [`Workload`] decides the requests. A [`Peer`] is the service that answers: a cluster of Tollgate
//! over its client ([`Tollgate`]), the same cluster by single calls ([`Unary`]), or, in another crate, a different lock
//! service, so that one loop measures all of them.
//!
//! Invariant: every counted operation ended within the measured window, warm-up excluded; failures are reported and
//! counted apart. Not here: starting clusters, printing (`tollgate bench`), other services (`tollgate-bench-compare`).

mod board;
mod chart;
mod cpu;
mod failover;
mod failure;
mod fan_out;
mod latency;
mod listener;
mod peer;
mod plan;
mod report;
mod run;
mod tollgate;
mod unary;
mod window;
mod work;
mod workload;

pub use chart::{Chart, Line, Scale, latency_chart, throughput_chart};
pub use cpu::{CpuError, Processes, Spent};
pub use failover::{Blow, Patient, failover};
pub use failure::Failure;
pub use fan_out::fan_out;
pub use latency::Latency;
pub use listener::pids_of_listeners;
pub use peer::{Caller, How, Peer};
pub use plan::{Plan, WrongPlan};
pub use report::{Report, Series};
pub use run::{Progress, run};
pub use tollgate::Tollgate;
pub use unary::Unary;
pub use workload::Workload;
