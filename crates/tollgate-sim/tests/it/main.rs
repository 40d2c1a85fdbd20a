//! Runs of whole worlds. One binary for all, because each more is linked anew.

mod mutants;
mod seeds;
