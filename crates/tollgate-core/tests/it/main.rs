//! The tests of the state machine from outside: one binary, so that it links once.

mod codec;
mod fuzz;
mod mutants;
mod oracle;
mod properties;
mod scripts;
