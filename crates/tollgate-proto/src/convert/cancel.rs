//! Target of a `CancelWait`, from the fields `seq`, `name` and `owner`.

use crate::bad_field::BadField;
use crate::convert::number::read_seq;
use crate::convert::text::{read_name, read_owner};
use tollgate_types::{Name, Owner, Seq};

/// Wait that a cancel ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelTarget {
    /// Wait of the request with this seq, even if the request has not arrived yet; and one of its locks, if given.
    Seq(Seq, Option<Name>),
    /// Wait of an owner in a lock's queue.
    Waiter {
        /// Name of the lock.
        name: Name,
        /// Owner of the waiter.
        owner: Owner,
    },
}

/// Reads the target of a cancel. At least one of `seq` and `name` must be set.
pub fn read_cancel_target(seq: u64, name: &str, owner: &str) -> Result<CancelTarget, BadField> {
    match (seq, name.is_empty()) {
        (0, true) => Err(BadField::new("seq", "nothing says which wait to end: set seq, or name and owner")),
        (0, false) => {
            Ok(CancelTarget::Waiter { name: read_name("name", name)?, owner: read_owner("owner", owner)? })
        }
        _ if !owner.is_empty() => {
            Err(BadField::new("owner", "seq says which wait: leave it empty, or set name instead of seq"))
        }
        (_, no_name) => {
            let seq = read_seq("seq", seq)?;
            let name = if no_name { None } else { Some(read_name("name", name)?) };
            Ok(CancelTarget::Seq(seq, name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_named_by_seq_or_by_lock_and_owner() {
        let (seq, name) = (Seq::new(3).unwrap(), Name::new("jobs").unwrap());
        assert_eq!(read_cancel_target(3, "", ""), Ok(CancelTarget::Seq(seq, None)));
        assert_eq!(read_cancel_target(3, "jobs", ""), Ok(CancelTarget::Seq(seq, Some(name.clone()))));
        assert_eq!(
            read_cancel_target(0, "jobs", ""),
            Ok(CancelTarget::Waiter { name: name.clone(), owner: Owner::LEASE })
        );
        let owner = Owner::new("t1").unwrap();
        assert_eq!(read_cancel_target(0, "jobs", "t1"), Ok(CancelTarget::Waiter { name, owner }));
    }

    #[test]
    fn a_wait_that_is_named_badly_or_not_at_all_is_refused() {
        assert_eq!(read_cancel_target(0, "", "").unwrap_err().field, "seq");
        assert_eq!(read_cancel_target(3, "a\nb", "").unwrap_err().field, "name");
        assert_eq!(read_cancel_target(3, "jobs", "t1").unwrap_err().field, "owner");
        assert_eq!(read_cancel_target(3, "", "t1").unwrap_err().field, "owner");
        assert_eq!(read_cancel_target(u64::MAX, "", "").unwrap_err().field, "seq");
        assert_eq!(read_cancel_target(0, "a\nb", "").unwrap_err().field, "name");
    }
}
