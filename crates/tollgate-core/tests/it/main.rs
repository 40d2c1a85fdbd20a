//! The tests of the state machine from outside: one binary, so that it links once.

mod codec;
mod commands;
mod fuzz;
mod mutants;
mod oracle;
mod properties;
mod scripts;
mod snapshots;
