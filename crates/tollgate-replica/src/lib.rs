//! A member of Raft groups: turns the pure core into replicated state machines.
//!
//! A [`Host`] holds this node's replicas of all groups. It is synchronous and does no IO: it takes inputs, and after
//! each turn returns the frames to send, the data to write, the jobs to perform and the answers. Time comes in as
//! [`MonotonicTime`], randomness through [`Randomness`]; so the simulator drives the same code that a server runs. This
//! is the only crate that names raft-rs and raft-engine.
//!
//! # The caller's duties, in order
//!
//! At the start: open the [`Storage`], [`bootstrap`] the groups if the cluster is new (or [`join`] them), load the
//! storage, and make the host with [`Host::open`]. Then, turn after turn, in one thread:
//!
//! 1. [`Host::begin_turn`] with the time: no later than [`Host::next_turn`] requires, sooner if there is input.
//! 2. All input that has arrived: [`Host::receive`] for frames, [`Host::propose`], [`Host::read`],
//!    [`Host::persisted`], [`Host::job_done`], ... in any order.
//! 3. [`Host::end_turn`], once.
//! 4. Send the output's frames, in order per peer. They may be lost; they must not wait for the disk, and they never
//!    promise more than the disk has: messages that need durable data first are held back inside.
//! 5. Pass the output's write and its jobs to the storage. Writes become durable in the order of their numbers, and
//!    only then is [`Host::persisted`] called. A write that failed for lack of space is repeated, before any later one,
//!    until it succeeds; tell the host with [`Host::disk_full`]. A job that failed for lack of space is dropped; tell
//!    the host with [`Host::job_dropped`]. Any other failure stops the process.
//! 6. Answer callers with the output's replies and reads, and then with the applied entries: a waiter may have been
//!    queued and granted in one turn. All answers may be sent at once. A [`Dispatcher`] does this.
//!
//! After a crash only the storage remains; a proposal without an answer may or may not have happened.
//!
//! Assertions check these duties where possible, in release builds too. A broken invariant stops the process: a replica
//! with a wrong state must not vote.

pub mod backup;
mod balance;
mod config;
mod data_dir;
mod dispatcher;
mod engine;
mod frame;
mod group_message;
mod host;
mod log;
mod log_entry;
mod log_time;
mod members;
mod monotonic_time;
mod node_addresses;
mod output;
mod peer_disks;
mod planted;
mod proposals;
mod randomness;
mod reads;
mod replica;
pub mod restore;
pub mod salvage;
mod seed_members;
pub mod snapshot_file;
mod storage;
mod transfer;
mod turn;

pub use config::{HostConfig, InvalidConfig};
pub use data_dir::{DATA_FORMAT, DataDir, DataDirError, Founding, Identity};
pub use dispatcher::{Answer, Caller, CallerKey, Dispatcher, DispatcherCounts, WatchNumber};
pub use engine::{Engine, EngineConfig, SnapshotJobs};
pub use frame::{Acknowledgement, FrameError, acknowledgements, sender};
pub use host::{Host, bootstrap, bootstrap_from, join};
pub use log_entry::{COMMAND_BYTES_MAX, EntryKind, LogEntry};
pub use members::{MEMBERS_MAX, MemberChange, MemberRefusal, Members};
pub use monotonic_time::MonotonicTime;
pub use node_addresses::NodeAddresses;
pub use output::{
    AppliedCommand, AppliedEntry, HostEvent, Output, ProposalId, ProposalOutcome, ProposalReply,
    ProposeError, ReadError, ReadId, ReadReply,
};
pub use peer_disks::{Meeting, PeerDisks};
#[cfg(feature = "planted-bugs")]
pub use planted::Bug;
pub use randomness::Randomness;
pub use replica::{Brief, MemberProgress, Role, Status};
pub use seed_members::SeedMembers;
pub use storage::{
    Completion, Done, GroupWrite, Job, LoadedGroup, ReplicaKind, SnapshotFile, SnapshotMark, SnapshotMeta,
    Storage, StorageError, TransferId, Vote, Write, WriteNumber,
};
