//! Enums that stand for one choice. If none is given, the reader returns the documented default.

use crate::bad_field::BadField;
use crate::v1::{Consistency, Relation, Sort};

/// Returns the enum value with this number, or an error: an older server must not guess what a newer client means.
pub(super) fn known<E: TryFrom<i32>>(field: &'static str, number: i32) -> Result<E, BadField> {
    E::try_from(number)
        .map_err(|_| BadField::new(field, format!("{number} is no value of it that this server knows")))
}

/// Reads the consistency of a read; linearizable if not given.
pub fn read_consistency(field: &'static str, number: i32) -> Result<Consistency, BadField> {
    Ok(match known(field, number)? {
        Consistency::Unspecified => Consistency::Linearizable,
        given => given,
    })
}

/// Reads the relation of a compare; equal if not given.
pub fn read_relation(field: &'static str, number: i32) -> Result<Relation, BadField> {
    Ok(match known(field, number)? {
        Relation::Unspecified => Relation::Equal,
        given => given,
    })
}

/// Reads the order of a range; by key if not given.
pub fn read_sort(field: &'static str, number: i32) -> Result<Sort, BadField> {
    Ok(match known(field, number)? {
        Sort::Unspecified => Sort::Key,
        given => given,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_is_the_documented_choice() {
        assert_eq!(read_consistency("consistency", 0), Ok(Consistency::Linearizable));
        assert_eq!(read_relation("relation", 0), Ok(Relation::Equal));
        assert_eq!(read_sort("sort", 0), Ok(Sort::Key));
    }

    #[test]
    fn what_is_given_is_taken() {
        assert_eq!(read_consistency("consistency", Consistency::Stale.into()), Ok(Consistency::Stale));
        assert_eq!(read_relation("relation", Relation::Less.into()), Ok(Relation::Less));
        assert_eq!(read_sort("sort", Sort::CreateDescending.into()), Ok(Sort::CreateDescending));
    }

    #[test]
    fn a_number_from_the_future_is_refused() {
        assert_eq!(read_consistency("consistency", 77).unwrap_err().field, "consistency");
        assert!(read_relation("compares.relation", -1).is_err());
        assert!(read_sort("sort", 5).is_err());
    }
}
