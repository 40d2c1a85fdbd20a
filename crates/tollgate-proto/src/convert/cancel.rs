//! Which wait a `CancelWait` ends: the fields `seq`, `name` and `owner`.

use crate::bad_field::BadField;
use crate::convert::number::read_seq;
use crate::convert::text::{read_name, read_owner};
use tollgate_types::{Name, Owner, Seq};

/// Which wait to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelTarget {
    /// That of a request, even of one that has not arrived yet.
    Seq(Seq),
    /// That of an owner in a lock's queue.
    Waiter {
        /// The lock.
        name: Name,
        /// The waiter's owner.
        owner: Owner,
    },
}

/// Exactly one of `seq` and `name` must be set.
pub fn read_cancel_target(seq: u64, name: &str, owner: &str) -> Result<CancelTarget, BadField> {
    match (seq, name.is_empty()) {
        (0, true) => Err(BadField::new("seq", "nothing says which wait to end: set seq, or name and owner")),
        (0, false) => {
            Ok(CancelTarget::Waiter { name: read_name("name", name)?, owner: read_owner("owner", owner)? })
        }
        (_, false) => Err(BadField::new("name", "seq is set as well: set one of them")),
        (_, true) if !owner.is_empty() => {
            Err(BadField::new("owner", "seq says which wait: leave it empty, or set name instead of seq"))
        }
        (_, true) => read_seq("seq", seq).map(CancelTarget::Seq),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_named_by_seq_or_by_lock_and_owner() {
        assert_eq!(read_cancel_target(3, "", ""), Ok(CancelTarget::Seq(Seq::new(3).unwrap())));
        let name = Name::new("jobs").unwrap();
        assert_eq!(
            read_cancel_target(0, "jobs", ""),
            Ok(CancelTarget::Waiter { name: name.clone(), owner: Owner::LEASE })
        );
        let owner = Owner::new("t1").unwrap();
        assert_eq!(read_cancel_target(0, "jobs", "t1"), Ok(CancelTarget::Waiter { name, owner }));
    }

    #[test]
    fn a_wait_that_is_named_twice_or_not_at_all_is_refused() {
        assert_eq!(read_cancel_target(0, "", "").unwrap_err().field, "seq");
        assert_eq!(read_cancel_target(3, "jobs", "").unwrap_err().field, "name");
        assert_eq!(read_cancel_target(3, "", "t1").unwrap_err().field, "owner");
        assert_eq!(read_cancel_target(u64::MAX, "", "").unwrap_err().field, "seq");
        assert_eq!(read_cancel_target(0, "a\nb", "").unwrap_err().field, "name");
    }
}
