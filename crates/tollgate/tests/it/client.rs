//! The client library against real clusters.
//!
//! A cluster costs a second or two, so tests that disturb nobody share one: such a test calls several checks, each with
//! names of its own.

mod blocking;
mod calls;
mod cancels;
mod examples;
mod faults;
pub(crate) mod history;
mod locks;
mod registers;
pub(crate) mod watches;
