//! The client of Tollgate: sessions that keep themselves alive, and guards that know when their lock is lost.
//!
//! A [`Client`] is a connection to a cluster. It finds the leader, follows it when it changes, and repeats operations
//! in progress, so that callers notice a pause at most.
//!
//! Not here: the guarantees of locks (`docs/semantics.md`), and the wire types, which never appear in this crate's
//! interface.

mod acquire;
mod acquire_error;
mod admin;
mod backup;
mod belief;
pub mod blocking;
mod call;
mod campaign;
mod claim;
mod client;
mod clock;
mod cluster_info;
mod connections;
mod consistency;
mod convert;
mod election;
mod endpoint;
mod endpoints;
mod error;
mod event;
mod failure;
mod fallback_keepalives;
mod grant;
mod guard;
mod in_flight;
mod leader;
mod lease_info;
mod leases;
mod lock_info;
mod lost;
mod missing;
mod multiplexer;
mod owner;
#[cfg(test)]
mod peer;
mod random;
mod reads;
mod register;
mod registers;
mod revocation_watcher;
mod routing_table;
mod semaphore;
mod seqs;
mod session;
mod session_stream;
mod unary;
mod watch;

pub use acquire::Acquire;
pub use acquire_error::{AcquireError, Closed};
pub use admin::Admin;
pub use backup::{Backup, BackupPiece};
pub use campaign::{Campaign, Leadership};
pub use client::{Client, ClientBuilder};
pub use clock::{BootClock, Clock};
pub use cluster_info::{
    AddedMember, ClockComparison, DeadlockFound, DeadlockStep, Deadlocks, EndpointStatus, Group, Groups,
    LimitInfo, Member, MemberKind, MemberProgress, NewMember, NodeStatus, ReplicaStatus, Role, Setting,
    SettingOrigin, SnapshotTaken,
};
pub use consistency::Consistency;
pub use election::{Election, Observe};
pub use error::{Error, ErrorKind};
pub use event::{Change, Claim, EndReason, Event};
pub use guard::Guard;
pub use leader::Leader;
pub use lease_info::{LeaseClaim, LeaseDetail, LeaseGranted, LeaseInfo, LeasesPage};
pub use leases::{GrantLease, Leases, ListLeases};
pub use lock_info::{Explanation, Holder, LockInfo, LocksPage, Waiter};
pub use lost::{Lost, LostReason};
pub use missing::{Missing, Silent};
pub use owner::OwnerHandle;
pub use reads::ListLocks;
pub use register::Register;
pub use registers::{
    Compare, CompareWith, Found, Put, Range, Registers, Relation, Sort, Txn, TxnOp, TxnOutcome, TxnResult,
};
pub use semaphore::Semaphore;
pub use session::{Session, SessionBuilder};
pub use tollgate_types::{ClusterId, GroupId, LeaseId, Lineage, Mode, NodeId, Revision, Seq, Slot, Token};
pub use watch::{Watch, WatchBuilder, WatchItem};

/// The guide, whose code is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/client.md")]
struct Guide;

/// The README, whose code is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
