//! The server around a node: what it is told (`config`), and in time what it listens on and how it is wired together.
//!
//! Not here: what a node does (`tollgate-node`), the command line (`tollgate`).

pub mod config;
