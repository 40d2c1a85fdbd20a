//! The bytes of what lasts: the log's entries and the snapshots.
//!
//! Both begin with a version: what is written is of the version that all members of a group can read (`entry_format`),
//! and what the version before wrote is read as well. Both are canonical: a value has one encoding, and what decodes
//! encodes to the same bytes again. So replicas may compare checksums instead of values, and a decoder that would read
//! two byte strings as one entry is a bug that a fuzzer can see. Decoding trusts nothing: it goes through the
//! constructors of the types, and reserves no more memory than the input could fill.
//!
//! Not here: checksums and framing (the log does both), and whether a command makes sense (`State::apply`).

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

/// The last format in which metadata is text without control characters.
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
