//! What a request is about, so that another one under the same seq is told from a repeat of it.
//!
//! A fingerprint is part of the state that replicas agree on: it is made from the command alone, of bytes that never
//! change (`format::fingerprint`), and never taken from a client's word. Not here: who keeps it (`requests`), and what
//! is made of a difference (`state::identity`).

use crate::command::{AcquireLock, ConvertLock, Proclaim, Txn};
use std::num::NonZeroU64;
use std::sync::Arc;
use tollgate_types::{Names, Owner, Slot, Token};
use xxhash_rust::xxh3::xxh3_64;

/// Which request it is, whatever a repeat adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(NonZeroU64);

impl Fingerprint {
    /// Of the bytes that say what a request is about.
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

/// What a request was about, in little room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// None if nobody knows: then it may be any request.
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) slots: Slots,
}

/// It is kept with every request that is not acknowledged.
const _: () = assert!(size_of::<Subject>() <= 24, "what a request was about takes little room");

impl Subject {
    pub(crate) const UNKNOWN: Subject = Subject { fingerprint: None, slots: Slots::None };

    /// Whether a request with this fingerprint is certainly another one.
    pub(crate) fn is_another(&self, fingerprint: Option<Fingerprint>) -> bool {
        self.fingerprint.is_some_and(|own| fingerprint.is_some_and(|other| other != own))
    }
}

/// The slots of what a request names: sorted, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slots {
    None,
    One(Slot),
    /// Two or more. Behind one pointer, so that few pay for it.
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

/// A command with a seq, by what it is about.
pub(crate) enum Asks<'a> {
    Acquire(&'a AcquireLock),
    Release { names: &'a Names, owner: &'a Owner, token: Option<Token> },
    Convert(&'a ConvertLock),
    Proclaim(&'a Proclaim),
    Txn(&'a Txn),
}

impl Asks<'_> {
    /// The names that it has in this group, if it is about locks.
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
