//! Routing from a name to the node that decides about it: name, slot, group, leader.
//!
//! Every API turns its requests into operations (`operation`) and hands them to the router (`router`), which has them
//! carried out: by the local node if it leads the group, else by the leader, over a stream to that node (`link`). A
//! router without a node belongs to a gateway: a discovery (`discovery`) tells it the leaders, and calls that are not
//! operations are passed on to a node unchanged (`relay`). Not here: the listening sockets (`tollgate-server`), the
//! work of a node (`tollgate-node`).

#![allow(clippy::result_large_err, reason = "an error is an answer, worded in full, and off the fast path")]

mod admission;
mod attended_call;
mod deadlock_detector;
mod deadlock_report;
mod deadlocks;
mod discovery;
mod elsewhere;
mod lease_sessions;
mod link;
pub mod operation;
mod other_node;
mod queue_notice;
mod relay;
mod request_info;
mod router;
mod routing_table;
mod several;
mod stub_registration;

pub use admission::AdmissionPermit;
pub use deadlock_detector::detect_deadlocks;
pub use discovery::Discovery;
pub use lease_sessions::LeaseSessions;
pub use link::{ANSWER_BYTES_MAX, Purpose};
pub use other_node::{is_passed_on, passing_on};
pub use queue_notice::OnQueue;
pub use relay::{MEMBER_CALL_PATIENCE, RELAYED_BYTES_MAX, Relay, Repeat, Serving, Whom};
pub use request_info::{KINDS, OperationMeter, RequestInfo};
pub use router::{Router, is_incomplete, revision_of};
pub use several::is_over_groups;
pub use stub_registration::{STUB_REGISTRATIONS_MAX, is_not_home, unknown_lease};
