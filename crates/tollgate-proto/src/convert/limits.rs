//! Limits by name, so that a new one needs no new field.

use crate::bad_field::BadField;
use crate::v1;
use tollgate_types::{Limit, Limits};

/// `base` with the limits given changed. A name that is unknown or given twice is refused, and so is a set that no
/// group can have.
pub fn read_limits(field: &'static str, given: &[v1::Limit], base: &Limits) -> Result<Limits, BadField> {
    let mut limits = base.clone();
    let mut seen = [false; Limit::ALL.len()];
    for given in given {
        let Some(place) = Limit::ALL.iter().position(|limit| limit.name() == given.name) else {
            let says = format!("there is no limit {:?}: read the limits for their names", given.name);
            return Err(BadField::new(field, says));
        };
        if std::mem::replace(&mut seen[place], true) {
            return Err(BadField::new(field, format!("{} is given twice: give it once", given.name)));
        }
        limits.set(Limit::ALL[place], given.value);
    }
    limits.validate().map_err(BadField::invalid(field))?;
    Ok(limits)
}

/// All limits, with the range and default of each.
pub fn write_limits(limits: &Limits) -> Vec<v1::Limit> {
    let write = |limit: &Limit| {
        let (min, max) = limit.range();
        let default = Limits::DEFAULT.get(*limit);
        v1::Limit { name: limit.name().to_owned(), value: limits.get(*limit), min, max, default }
    };
    Limit::ALL.iter().map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(name: &str, value: u64) -> v1::Limit {
        v1::Limit { name: name.to_owned(), value, ..v1::Limit::default() }
    }

    fn refused(given: &[v1::Limit]) -> String {
        read_limits("limits", given, &Limits::DEFAULT).unwrap_err().to_string()
    }

    #[test]
    fn all_limits_survive_the_wire() {
        let limits = Limits { ttl_ms_max: 1_000, waiters_per_lock_max: 0, ..Limits::DEFAULT };
        assert_eq!(read_limits("limits", &write_limits(&limits), &Limits::DEFAULT), Ok(limits));
    }

    #[test]
    fn limits_that_are_not_given_stay() {
        let base = Limits { locks_max: 5, ..Limits::DEFAULT };
        let read = read_limits("limits", &[limit("leases_max", 9)], &base);
        assert_eq!(read, Ok(Limits { leases_max: 9, ..base.clone() }));
        assert_eq!(read_limits("limits", &[], &base), Ok(base));
    }

    #[test]
    fn an_unknown_repeated_or_impossible_limit_is_refused() {
        assert!(refused(&[limit("lock_max", 1)]).contains(r#"there is no limit "lock_max""#));
        assert!(
            refused(&[limit("locks_max", 1), limit("locks_max", 2)]).contains("locks_max is given twice")
        );
        assert_eq!(
            refused(&[limit("name_bytes_max", 4_000)]),
            "bad field limits: name_bytes_max is 4000: it must be from 16 to 512"
        );
        assert!(refused(&[limit("ttl_ms_max", 50)]).contains("ttl_ms_min"));
    }
}
