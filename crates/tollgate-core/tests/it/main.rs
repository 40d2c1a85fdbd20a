//! Tests of the state machine from outside: one binary, so that it links once.

mod attended;
mod backlog;
mod busy;
mod codec;
mod commands;
mod deadlocks;
mod faults;
mod fuzz;
mod mutants;
mod notes;
mod oracle;
mod promises;
mod properties;
mod scripts;
mod snapshots;
