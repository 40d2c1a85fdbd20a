//! Names of the locks of one request: `name`, or `names`.

use crate::bad_field::{BadField, SizeLimit};
use crate::convert::text::read_name;
use tollgate_types::{Limit, NAMES_MAX, Names};

/// Reads the names of the locks of a request. Exactly one of the two fields must be set.
pub fn read_names(name: &str, names: &[String]) -> Result<Names, BadField> {
    match (name.is_empty(), names.is_empty()) {
        (true, true) => Err(BadField::new("name", "no lock is given: set name, or names for several")),
        (false, false) => Err(BadField::new("names", "name is set as well: put all of them into names")),
        (false, true) => read_name("name", name).map(Names::One),
        (true, false) => read_several(names),
    }
}

fn read_several(names: &[String]) -> Result<Names, BadField> {
    // Checked before any name is read: a frame has room for millions.
    if names.len() > NAMES_MAX {
        let says = format!("{} names are too many: at most {NAMES_MAX} in one request", names.len());
        let limit = SizeLimit { name: Limit::NamesPerRequest.name(), max: NAMES_MAX };
        return Err(BadField::too_large("names", limit, says));
    }
    let names = names.iter().map(|name| read_name("names", name)).collect::<Result<Vec<_>, _>>()?;
    Names::new(names).map_err(BadField::invalid("names"))
}

/// Refuses locks on trees of names, which are not supported yet, so that nobody believes to hold one.
pub fn read_no_tree(tree: bool) -> Result<(), BadField> {
    if tree { Err(BadField::new("tree", "locks on trees can't be had yet: leave it unset")) } else { Ok(()) }
}

/// Returns the fields `name` and `names`: one name goes into the first, several into the second.
pub fn write_names(names: &Names) -> (String, Vec<String>) {
    match names {
        Names::One(name) => (name.to_string(), Vec::new()),
        Names::Many(names) => (String::new(), names.iter().map(ToString::to_string).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, names: &[&str]) -> Result<Names, BadField> {
        read_names(name, &names.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn one_name_or_several_are_read_and_written_back() {
        let one = read("a", &[]).unwrap();
        assert_eq!(write_names(&one), ("a".to_owned(), vec![]));
        let several = read("", &["b", "a"]).unwrap();
        assert_eq!(write_names(&several), (String::new(), vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(read("", &["a"]).unwrap(), one);
    }

    #[test]
    fn exactly_one_of_name_and_names_must_be_set() {
        let none = read("", &[]).unwrap_err();
        assert_eq!(none.to_string(), "bad field name: no lock is given: set name, or names for several");
        assert_eq!(read("a", &["b"]).unwrap_err().field, "names");
    }

    #[test]
    fn a_bad_name_among_several_is_refused() {
        assert_eq!(
            read("", &["a", ""]).unwrap_err(),
            BadField::new("names", "name is empty: give it at least one byte")
        );
        assert!(read("", &["a", "b", "a"]).unwrap_err().says.contains("twice"));
        assert!(read("", &["x"; 65]).unwrap_err().says.contains("at most 64"));
    }

    #[test]
    fn a_tree_is_refused() {
        assert_eq!(read_no_tree(false), Ok(()));
        assert_eq!(read_no_tree(true).unwrap_err().field, "tree");
    }
}
