//! The client of Tollgate: sessions that keep themselves alive, and guards that know when their lock is lost.
//!
//! A [`Client`] is a connection to a cluster. It finds the leader, follows it when it changes, and repeats what was
//! under way, so that callers notice a pause at most.
//!
//! Not here: what locks promise (`docs/semantics.md`), and the wire types, which never appear in this crate's
//! interface.

#![allow(dead_code, reason = "sessions and reads use it, and come next")]

mod belief;
mod call;
mod client;
mod clock;
mod endpoint;
mod endpoints;
mod error;
mod line;
mod lost;
mod pilot;
mod random;
mod seqs;
mod slots;

pub use client::{Client, ClientBuilder};
pub use clock::{BootClock, Clock};
pub use error::{Error, ErrorKind};
pub use lost::{Lost, LostReason};
pub use tollgate_types::{LeaseId, Mode, Revision, Token};
