//! Routing from a name to the node that decides about it: name, slot, group, leader.
//!
//! Every API turns its requests into operations (`operation`) and hands them to the router (`router`), which has them
//! carried out: by the local node if it leads the group, else by the leader, over a stream to that node (`link`). A
//! router without a node belongs to a gateway: a scout (`scout`) tells it the leaders, and calls that are not
//! operations are passed on to a node unchanged (`relay`). Not here: the listening sockets (`tollgate-server`), the
//! work of a node (`tollgate-node`).

#![allow(clippy::result_large_err, reason = "an error is an answer, worded in full, and off the fast path")]

mod admission;
mod asked;
mod chart;
mod deadlock_hunt;
mod deadlock_report;
mod deadlocks;
mod elsewhere;
mod introduction;
mod keepers;
mod line;
mod link;
pub mod operation;
mod other_node;
mod relay;
mod router;
mod scout;
mod several;
mod standing;

pub use admission::Place;
pub use asked::{Asked, KINDS, OperationMeter};
pub use deadlock_hunt::hunt_deadlocks;
pub use introduction::{INTRODUCTIONS_MAX, is_strange, unknown_lease};
pub use keepers::Keepers;
pub use line::OnQueue;
pub use link::{ANSWER_BYTES_MAX, Purpose};
pub use other_node::{is_passed_on, passing_on};
pub use relay::{MEMBER_CALL_PATIENCE, RELAYED_BYTES_MAX, Relay, Repeat, Serving, Whom};
pub use router::{Router, is_incomplete, revision_of};
pub use scout::Scout;
pub use several::is_over_groups;
