//! Histories of generated runs: whatever a correct server does passes, and what it can't do does not.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod mutation;
mod random;
mod world;
