//! The byte formats of what lasts: the log's entries and the snapshots.
//!
//! Both begin with a version: the leader writes the newest version that all members of a group can read
//! (`entry_format`), and every binary reads the version before as well. Both are canonical: a value has one encoding,
//! and decoded bytes encode to the same bytes again. So replicas may compare checksums instead of values, and a decoder
//! that would read two byte strings as one entry is a bug that a fuzzer can see. Decoding trusts nothing: it goes
//! through the constructors of the types, and reserves no more memory than the input could fill.
//!
//! Not here: checksums and framing (the log does both), and the check that a command makes sense (`State::apply`).

pub(crate) mod command;
mod deadlocks;
mod events;
mod fingerprint;
mod record;
pub(crate) mod snapshot;
mod stubs;
mod values;
mod wire;

/// The first format of entries and snapshots.
pub(crate) const FORMAT_1: u8 = 1;

/// The last format whose metadata is text without control characters.
pub(crate) const FORMAT_2: u8 = 2;

pub use command::{
    ENTRY_FORMAT_VERSION, RENEWALS_MAX, TXN_STEPS_MAX, decode_entry, encode_command, encode_entry,
};
pub(crate) use events::{
    LockChanged, Watched, read_event, watched, write_lock_changed, write_register_change,
};
pub(crate) use fingerprint::write_subject;
pub(crate) use record::{KeptOutcome, SeqOnClaim};
pub use wire::{DecodeError, Reader, Writer};
