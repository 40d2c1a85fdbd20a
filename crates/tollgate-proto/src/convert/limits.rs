//! Limits by name, so that a new limit needs no new field.

use crate::bad_field::BadField;
use crate::v1;
use tollgate_types::{GroupId, Limit, Limits};

/// Returns `base` with the given limits changed. Refuses names that are unknown or given twice, and a set of limits
/// that no group can have.
pub fn read_limits(field: &'static str, given: &[v1::Limit], base: &Limits) -> Result<Limits, BadField> {
    let mut limits = base.clone();
    let mut seen = [false; Limit::ALL.len()];
    for given in given {
        let Some(place) = Limit::ALL.iter().position(|limit| limit.name() == given.name) else {
            let names: Vec<&str> = Limit::ALL.iter().map(|limit| limit.name()).collect();
            let says = format!("there is no limit {:?}: there are {}", given.name, names.join(", "));
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

/// Limits of a group as reported by a node. A node of a newer version reports limits that are unknown here, and a node
/// of an older version does not report all limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldLimits([Option<u64>; Limit::ALL.len()]);

impl ToldLimits {
    /// Reads the limits that a node reported. Nothing is refused, because the request to that node has been carried out
    /// already.
    pub fn read(told: &[v1::Limit]) -> ToldLimits {
        let value = |limit: Limit| told.iter().find(|told| told.name == limit.name()).map(|told| told.value);
        ToldLimits(std::array::from_fn(|place| value(Limit::ALL[place])))
    }

    /// Returns all limits, with the default for each that was not reported.
    pub fn or_default(&self) -> Limits {
        let mut limits = Limits::DEFAULT;
        for (limit, told) in Limit::ALL.iter().zip(self.0) {
            if let Some(value) = told {
                limits.set(*limit, value);
            }
        }
        limits
    }
}

impl From<&Limits> for ToldLimits {
    fn from(limits: &Limits) -> ToldLimits {
        ToldLimits(std::array::from_fn(|place| Some(limits.get(Limit::ALL[place]))))
    }
}

/// Returns all limits that were reported by the groups, with range and default, and with the value in each group where
/// the groups differ.
pub fn write_limits(groups: &[(GroupId, ToldLimits)]) -> Vec<v1::Limit> {
    let write = |(place, limit): (usize, &Limit)| {
        let (min, max) = limit.range();
        let told = groups.iter().filter_map(|(group, limits)| Some((*group, limits.0[place]?)));
        let (_, value) = told.clone().next()?;
        let differs = told.clone().any(|(_, other)| other != value);
        let of = |(group, value): (GroupId, u64)| v1::GroupLimit { group_id: group.number(), value };
        let by_group = told.filter(|_| differs).map(of).collect();
        let default = Limits::DEFAULT.get(*limit);
        Some(v1::Limit { name: limit.name().to_owned(), value, min, max, default, by_group })
    };
    Limit::ALL.iter().enumerate().filter_map(write).collect()
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
        let written = write_limits(&[(GroupId::new(3), ToldLimits::from(&limits))]);
        assert_eq!(read_limits("limits", &written, &Limits::DEFAULT), Ok(limits));
        assert!(written.iter().all(|limit| limit.by_group.is_empty()));
    }

    #[test]
    fn where_groups_differ_each_value_is_told() {
        let limits = |locks_max| Limits { locks_max, ..Limits::DEFAULT };
        let groups = (0..).map(GroupId::new).zip([5, 5, 7].map(limits).each_ref().map(ToldLimits::from));
        let written = write_limits(&groups.collect::<Vec<_>>());
        let differing: Vec<_> = written.iter().filter(|limit| !limit.by_group.is_empty()).collect();
        let [locks] = differing[..] else { panic!("{differing:?}") };
        let told: Vec<_> = locks.by_group.iter().map(|of| (of.group_id, of.value)).collect();
        assert_eq!((locks.name.as_str(), locks.value), ("locks_max", 5));
        assert_eq!(told, [(0, 5), (1, 5), (2, 7)]);
    }

    #[test]
    fn what_another_version_told_is_read_as_far_as_it_is_known_and_never_guessed() {
        let told = ToldLimits::read(&[limit("limit_of_the_next_version_max", 1), limit("locks_max", 5)]);
        assert_eq!(told.or_default(), Limits { locks_max: 5, ..Limits::DEFAULT });
        let written = write_limits(&[(GroupId::new(3), told.clone())]);
        assert!(written.iter().map(|limit| (limit.name.as_str(), limit.value)).eq([("locks_max", 5)]));
        let all = write_limits(&[(GroupId::new(3), told), (GroupId::new(4), (&Limits::DEFAULT).into())]);
        assert_eq!(all.len(), Limit::ALL.len());
        let differing: Vec<_> = all.iter().filter(|limit| !limit.by_group.is_empty()).collect();
        assert!(
            differing.len() == 1 && differing[0].name == "locks_max",
            "one group's silence differs from nothing"
        );
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
        let unknown = refused(&[limit("lock_max", 1)]);
        assert!(unknown.contains(r#"there is no limit "lock_max": there are "#), "{unknown}");
        assert!(Limit::ALL.iter().all(|known| unknown.contains(known.name())), "{unknown}");
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
