//! Finds the group of an operation by its names, keys or lease.
//!
//! Invariant: an operation sent to a group names nothing that another group serves. Not here: the leader of a group,
//! and requests for names of several groups, which are split before (`several`).

use super::error::not_supported;
use tollgate_core::KeySelector;
use tollgate_proto::v1;
use tollgate_types::{GroupId, GroupMap, Names, Slot};

/// Returns the group that serves all the names.
pub(super) fn group_of_names(names: &Names, map: &GroupMap) -> Result<GroupId, v1::Error> {
    let mut found = names.as_slice().iter().map(|name| map.group_of(name.slot()));
    let first = found.next().expect("there is at least one name");
    if found.all(|group| group == first) {
        return Ok(first);
    }
    let says = "the names live in several groups, and this can only be done in one: name them one by one, or give \
                them a common part in braces, like {orders}/1 and {orders}/2";
    Err(v1::Error { field: "names".to_owned(), ..not_supported(says) })
}

/// Returns the groups that can have keys or names starting with `prefix`, in order.
pub(super) fn groups_of_prefix(prefix: &[u8], map: &GroupMap) -> Vec<GroupId> {
    if has_tag(prefix) {
        return vec![map.group_of(Slot::of(prefix))];
    }
    map.groups()
}

/// Returns the single group that serves a selection of keys.
pub(super) fn group_of_keys(keys: &KeySelector, map: &GroupMap) -> Result<GroupId, v1::Error> {
    let (field, groups) = match keys {
        KeySelector::Key(key) => return Ok(map.group_of(key.slot())),
        KeySelector::Prefix(prefix) => ("prefix", groups_of_prefix(prefix.as_bytes(), map)),
        KeySelector::All => ("all", groups_of_prefix(b"", map)),
    };
    if let [group] = groups[..] {
        return Ok(group);
    }
    let says = "the keys live in several groups, which can't be done in one step: use a prefix that has a part in \
                braces, like {orders}/, or name the keys one by one";
    Err(v1::Error { field: field.to_owned(), ..not_supported(says) })
}

/// Refuses an operation that names a second group.
pub(super) fn same_group(first: &mut Option<GroupId>, group: GroupId) -> Result<(), v1::Error> {
    if *first.get_or_insert(group) == group {
        return Ok(());
    }
    Err(not_supported(
        "the keys of the transaction live in several groups: give them a common part in braces, like {orders}/1 and \
         {orders}/2, or split the transaction",
    ))
}

/// Returns true if everything that starts with `prefix` is hashed by the same text in braces.
fn has_tag(prefix: &[u8]) -> bool {
    let mut rest = prefix;
    while let Some(open) = rest.iter().position(|&byte| byte == b'{') {
        rest = &rest[open + 1..];
        match rest.iter().position(|&byte| byte == b'}') {
            Some(0) => rest = &rest[1..],
            Some(_) => return true,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_proto::v1::ErrorReason;
    use tollgate_types::{Key, Name};

    fn names(texts: &[&str]) -> Names {
        Names::new(texts.iter().map(|text| Name::new(text).unwrap()).collect()).unwrap()
    }

    fn even(groups: u32) -> GroupMap {
        GroupMap::even(groups).unwrap()
    }

    #[test]
    fn names_of_one_group_go_there_and_others_are_refused() {
        assert_eq!(group_of_names(&names(&["a", "b", "c"]), &even(1)), Ok(GroupId::MAP));
        assert!(group_of_names(&names(&["{x}/1", "{x}/2"]), &even(64)).is_ok());
        let error = group_of_names(&names(&["a", "b", "c", "d"]), &even(64)).unwrap_err();
        assert_eq!((error.reason(), error.field.as_str()), (ErrorReason::NotSupported, "names"));
        assert!(!error.may_have_happened);
    }

    #[test]
    fn a_prefix_with_a_whole_tag_is_in_one_group() {
        for (prefix, whole) in
            [("{a}", true), ("x{}{a}/", true), ("{a", false), ("a", false), ("{}", false), ("", false)]
        {
            assert_eq!(has_tag(prefix.as_bytes()), whole, "{prefix}");
        }
        let keys = KeySelector::Prefix(Key::new("{a}/").unwrap());
        assert_eq!(group_of_keys(&keys, &even(64)), Ok(even(64).group_of(Slot::of(b"{a}/9"))));
        let keys = KeySelector::Prefix(Key::new("a").unwrap());
        assert_eq!(group_of_keys(&keys, &even(1)), Ok(GroupId::MAP));
        assert_eq!(group_of_keys(&keys, &even(2)).unwrap_err().field, "prefix");
        assert_eq!(group_of_keys(&KeySelector::All, &even(2)).unwrap_err().field, "all");
    }
}
