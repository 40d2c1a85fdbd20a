//! Choice of a new lease's id, from the fields `id` and `near`.

use crate::bad_field::BadField;
use crate::convert::number::read_lease_id;
use crate::convert::text::read_name;
use tollgate_types::{LeaseId, Name};

/// Origin of a lease's id, which determines the lease's home group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseChoice {
    /// The client chose the id.
    Chosen(LeaseId),
    /// The cluster chooses an id in the slot of this lock.
    Near(Name),
    /// The cluster chooses any id.
    Anywhere,
}

/// Reads the choice of a lease's id. At most one of the two fields may be set.
pub fn read_lease_choice(id: u64, near: &str) -> Result<LeaseChoice, BadField> {
    match (id, near.is_empty()) {
        (0, true) => Ok(LeaseChoice::Anywhere),
        (0, false) => read_name("near", near).map(LeaseChoice::Near),
        (_, true) => read_lease_id("id", id).map(LeaseChoice::Chosen),
        (_, false) => {
            Err(BadField::new("near", "id is set, and says where the lease lives: set one of them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_chosen_or_assigned() {
        assert_eq!(read_lease_choice(0, ""), Ok(LeaseChoice::Anywhere));
        assert_eq!(read_lease_choice(0, "jobs"), Ok(LeaseChoice::Near(Name::new("jobs").unwrap())));
        assert_eq!(read_lease_choice(7, ""), Ok(LeaseChoice::Chosen(LeaseId::new(7).unwrap())));
    }

    #[test]
    fn a_chosen_id_can_not_be_near_a_lock_too() {
        assert_eq!(read_lease_choice(7, "jobs").unwrap_err().field, "near");
        assert_eq!(read_lease_choice(0, "a\0").unwrap_err().field, "near");
        assert_eq!(read_lease_choice(u64::MAX, "").unwrap_err().field, "id");
    }
}
