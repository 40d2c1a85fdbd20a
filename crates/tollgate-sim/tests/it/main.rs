//! Runs of whole worlds. One binary for all tests, because each further binary would be linked anew.

mod mutants;
mod seeds;
