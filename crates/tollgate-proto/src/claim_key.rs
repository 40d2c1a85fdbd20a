//! External key of a claim (a holder or waiter): name "/" lease in hex ["/" owner].
//!
//! Invariant: the key is for people and for watches; nothing parses it, because a name may contain slashes of its own.

use std::fmt::Write;
use tollgate_types::{LeaseId, Name, Owner};

/// Returns the key of a claim on `name`.
///
/// ```
/// use tollgate_proto::claim_key;
/// use tollgate_types::{LeaseId, Name, Owner};
///
/// let (name, lease) = (Name::new("db/migrate")?, LeaseId::new(0x2a)?);
/// assert_eq!(claim_key(&name, lease, &Owner::LEASE), "db/migrate/000000000000002a");
/// assert_eq!(claim_key(&name, lease, &Owner::new("t1")?), "db/migrate/000000000000002a/t1");
/// # Ok::<(), tollgate_types::Invalid>(())
/// ```
pub fn claim_key(name: &Name, lease: LeaseId, owner: &Owner) -> String {
    let mut key = String::with_capacity(name.len() + owner.len() + 18);
    write!(key, "{name}/{lease:016x}").expect("a string takes all text");
    if !owner.is_empty() {
        write!(key, "/{owner}").expect("a string takes all text");
    }
    key
}
