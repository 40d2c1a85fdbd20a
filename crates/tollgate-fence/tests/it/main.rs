//! The fences under random writes, beside a model that forgets nothing.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod histories;
#[cfg(feature = "planted-bugs")]
mod mutants;
mod rejections;
mod rng;
