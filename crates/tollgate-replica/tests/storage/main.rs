//! The storage on disk against real files: written data is read back, whatever happens in between, or refused.
//!
//! A kill is a copy of the directory while the storage is open; a power failure is such a copy with bytes missing at
//! the end. Not here: the use of a storage by hosts (`tests/it`).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod backup;
mod corruption;
mod data_dir;
mod full;
mod histories;
mod kill;
mod round_trips;
mod salvage;
mod snapshots;
mod world;
