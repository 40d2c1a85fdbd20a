//! Fingerprints of requests, which tell a repeat of a request from another request under the same seq.
//!
//! A fingerprint is part of the state that replicas agree on: it is made from the command alone, of bytes that never
//! change (`format::fingerprint`), and never taken from a client's word. Not here: the records that keep fingerprints
//! (`requests`), and the consequences of a difference (`state::identity`).

use crate::command::{AcquireLock, ConvertLock, Proclaim, Txn};
use std::num::NonZeroU64;
use std::sync::Arc;
use tollgate_types::{Names, Owner, Slot, Token};
use xxhash_rust::xxh3::xxh3_64;

/// Hash of a request's content, the same for every repeat of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(NonZeroU64);

impl Fingerprint {
    /// Hashes the bytes that say what a request is about.
    pub(crate) fn of(bytes: &[u8]) -> Fingerprint {
        Fingerprint(NonZeroU64::new(xxh3_64(bytes)).unwrap_or(NonZeroU64::MIN))
    }

    pub(crate) fn from_number(number: u64) -> Option<Fingerprint> {
        NonZeroU64::new(number).map(Fingerprint)
    }

    pub(crate) fn number(self) -> u64 {
        self.0.get()
    }
}

/// Content of a request, in little memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// None if the content is unknown: then any request may be the same one.
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) slots: Slots,
}

/// A subject is kept with every request that is not acknowledged.
const _: () = assert!(size_of::<Subject>() <= 24, "what a request was about takes little room");

impl Subject {
    pub(crate) const UNKNOWN: Subject = Subject { fingerprint: None, slots: Slots::None };

    /// True if a request with this fingerprint is certainly another request.
    pub(crate) fn is_another(&self, fingerprint: Option<Fingerprint>) -> bool {
        self.fingerprint.is_some_and(|own| fingerprint.is_some_and(|other| other != own))
    }
}

/// Slots of the names or keys in a request: sorted, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slots {
    None,
    One(Slot),
    /// Two or more slots. Behind one pointer, so that the other requests don't pay for it.
    Many(Arc<Vec<Slot>>),
}

impl Slots {
    pub(crate) fn of_names(names: &Names) -> Slots {
        match names {
            Names::One(name) => Slots::One(name.slot()),
            Names::Many(names) => Slots::new(names.iter().map(tollgate_types::Name::slot).collect()),
        }
    }

    pub(crate) fn new(mut slots: Vec<Slot>) -> Slots {
        slots.sort_unstable();
        slots.dedup();
        match slots[..] {
            [] => Slots::None,
            [one] => Slots::One(one),
            _ => Slots::Many(Arc::new(slots)),
        }
    }

    pub(crate) fn as_slice(&self) -> &[Slot] {
        match self {
            Slots::None => &[],
            Slots::One(one) => std::slice::from_ref(one),
            Slots::Many(many) => many,
        }
    }
}

/// A command with a seq, with the fields that a fingerprint covers.
pub(crate) enum Asks<'a> {
    Acquire(&'a AcquireLock),
    Release { names: &'a Names, owner: &'a Owner, token: Option<Token> },
    Convert(&'a ConvertLock),
    Proclaim(&'a Proclaim),
    Txn(&'a Txn),
}

impl Asks<'_> {
    /// The command's names in this group; none for a Proclaim, which has one name, and for a transaction.
    pub(crate) fn names(&self) -> Option<&Names> {
        match self {
            Asks::Acquire(acquire) => Some(&acquire.names),
            Asks::Release { names, .. } => Some(names),
            Asks::Convert(convert) => Some(&convert.names),
            Asks::Proclaim(_) | Asks::Txn(_) => None,
        }
    }

    pub(crate) fn slots(&self) -> Slots {
        match self {
            Asks::Proclaim(proclaim) => Slots::One(proclaim.name.slot()),
            Asks::Txn(txn) => Slots::new(txn.single_keys().map(tollgate_types::Key::slot).collect()),
            _ => self.names().map_or(Slots::None, Slots::of_names),
        }
    }
}
