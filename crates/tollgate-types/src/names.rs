//! The names of one request: one name, or several names that are taken together.

use crate::invalid::Invalid;
use crate::text::Name;
use std::sync::Arc;

/// The most names that any limit can allow in one request.
pub const NAMES_MAX: usize = 64;

/// One name, or several sorted names without repeats. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// A single name, as in nearly every request.
    One(Name),
    /// Two or more, sorted. Made by [`Names::new`] only.
    Many(Arc<[Name]>),
}

impl Names {
    /// Sorts the names. Refuses an empty list, more than [`NAMES_MAX`] names, and a name given twice.
    pub fn new(mut names: Vec<Name>) -> Result<Names, Invalid> {
        if names.len() > NAMES_MAX {
            let (value, max) = (names.len() as u64, NAMES_MAX as u64);
            return Err(Invalid::OutOfRange { what: "number of names", value, min: 1, max });
        }
        names.sort();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Invalid::Twice { what: "names", element: pair[0].to_string() });
        }
        match names.len() {
            0 => Err(Invalid::Empty { what: "names" }),
            1 => Ok(Names::One(names.remove(0))),
            _ => Ok(Names::Many(names.into())),
        }
    }

    /// The names in order.
    #[inline]
    pub fn as_slice(&self) -> &[Name] {
        match self {
            Names::One(name) => std::slice::from_ref(name),
            Names::Many(names) => names,
        }
    }

    /// True if `name` is one of the names.
    pub fn contains(&self, name: &Name) -> bool {
        match self {
            Names::One(one) => one == name,
            Names::Many(names) => names.binary_search(name).is_ok(),
        }
    }

    /// The names except `name`; none if it was the only one.
    pub fn without(&self, name: &Name) -> Option<Names> {
        let rest: Vec<Name> = self.as_slice().iter().filter(|n| *n != name).cloned().collect();
        Names::new(rest).ok()
    }
}

impl From<Name> for Names {
    fn from(name: Name) -> Names {
        Names::One(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Result<Names, Invalid> {
        Names::new(texts.iter().map(|t| Name::new(t).unwrap()).collect())
    }

    #[test]
    fn names_are_sorted_and_each_once() {
        assert_eq!(names(&["b", "a"]).unwrap(), names(&["a", "b"]).unwrap());
        assert_eq!(
            names(&["b", "a", "b"]).unwrap_err().to_string(),
            r#"names has "b" twice: name each once"#
        );
        assert!(names(&[]).is_err());
        assert!(Names::new((0..65).map(|i| Name::new(i.to_string()).unwrap()).collect()).is_err());
    }

    #[test]
    fn taking_a_name_out_leaves_the_others() {
        let (a, ab) = (Name::new("a").unwrap(), names(&["a", "b"]).unwrap());
        assert_eq!(ab.without(&a), Some(names(&["b"]).unwrap()));
        assert_eq!(names(&["a"]).unwrap().without(&a), None);
    }
}
