//! The client library against real clusters.
//!
//! A cluster costs a second or two, so tests that disturb nobody share one: a test of several claims says so, and its
//! claims use names of their own.

mod blocking;
mod calls;
mod cancels;
mod examples;
mod faults;
pub(crate) mod history;
mod locks;
mod registers;
pub(crate) mod watches;
