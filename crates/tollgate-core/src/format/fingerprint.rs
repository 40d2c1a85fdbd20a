//! The bytes that a request's fingerprint is made of. They are as stable as the log: a group keeps fingerprints that
//! another binary has made.
//!
//! Invariant: a field that a command gets later is written only if it is given, so that requests without the field keep
//! their fingerprints.

use super::Writer;
use super::command::{ACQUIRE_LOCK, CONVERT_LOCK, PROCLAIM, RELEASE_LOCK, TXN};
use crate::fingerprint::Asks;
use tollgate_types::{DurationMs, Names};

/// Writes the content of a request. `names` are the names of the whole request, if it is about locks.
pub(crate) fn write_subject(writer: &mut Writer<'_>, asks: &Asks<'_>, names: Option<&Names>) {
    writer.u8(match asks {
        Asks::Acquire(_) => ACQUIRE_LOCK,
        Asks::Release { .. } => RELEASE_LOCK,
        Asks::Convert(_) => CONVERT_LOCK,
        Asks::Proclaim(_) => PROCLAIM,
        Asks::Txn(_) => TXN,
    });
    if let Some(names) = names {
        writer.names(names);
    }
    match asks {
        Asks::Acquire(acquire) => {
            writer.owner(&acquire.owner);
            writer.mode(acquire.mode);
            writer.duration(acquire.lock_delay);
            writer.duration(acquire.max_hold.unwrap_or(DurationMs::ZERO));
            writer.option(acquire.value.as_ref(), Writer::value);
        }
        Asks::Release { owner, token, .. } => {
            writer.owner(owner);
            writer.token_option(*token);
        }
        Asks::Convert(convert) => {
            writer.owner(&convert.owner);
            writer.mode(convert.mode);
        }
        Asks::Proclaim(proclaim) => {
            writer.name(&proclaim.name);
            writer.owner(&proclaim.owner);
            writer.token(proclaim.token);
            writer.value(&proclaim.value);
        }
        Asks::Txn(txn) => writer.txn_content(txn),
    }
}
