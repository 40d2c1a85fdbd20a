//! Which group an operation goes to: that of its names, keys or lease.
//!
//! Invariant: a request whose names live in several groups is refused before anything is done. Not here: which node
//! leads a group, and the map of moved slots, which is to come: slots lie in equal ranges.

use super::error::not_supported;
use tollgate_core::KeySelector;
use tollgate_proto::v1;
use tollgate_types::{GroupId, Names, SLOTS, Slot};

/// The group that a slot belongs to, where there are so many. Each has an equal range of slots.
///
/// ```
/// use tollgate_server::operation::group_of;
/// use tollgate_types::{GroupId, Slot};
///
/// assert_eq!(group_of(Slot::new(16_383)?, 4), GroupId::new(3));
/// assert_eq!(group_of(Slot::new(16_383)?, 1), GroupId::MAP);
/// # Ok::<(), tollgate_types::Invalid>(())
/// ```
pub fn group_of(slot: Slot, groups: u32) -> GroupId {
    let group = u64::from(slot.number()) * u64::from(groups) / u64::from(SLOTS);
    GroupId::new(u32::try_from(group).expect("below the number of groups"))
}

/// The group that all the names live in.
pub(super) fn group_of_names(names: &Names, groups: u32) -> Result<GroupId, v1::Error> {
    let mut found = names.as_slice().iter().map(|name| group_of(name.slot(), groups));
    let first = found.next().expect("there is at least one name");
    if found.all(|group| group == first) {
        return Ok(first);
    }
    let says = "the names live in several groups, which can't be had together yet: take them one by one, always in \
                the same order, or give them a common part in braces, like {orders}/1 and {orders}/2";
    Err(v1::Error { field: "names".to_owned(), ..not_supported(says) })
}

/// The groups in which there can be keys or names that begin with `prefix`: the first and the last.
pub(super) fn groups_of_prefix(prefix: &[u8], groups: u32) -> (GroupId, GroupId) {
    if has_tag(prefix) {
        let group = group_of(Slot::of(prefix), groups);
        return (group, group);
    }
    (GroupId::new(0), GroupId::new(groups.saturating_sub(1)))
}

/// The one group that a selection of keys is in.
pub(super) fn group_of_keys(keys: &KeySelector, groups: u32) -> Result<GroupId, v1::Error> {
    let (field, (first, last)) = match keys {
        KeySelector::Key(key) => return Ok(group_of(key.slot(), groups)),
        KeySelector::Prefix(prefix) => ("prefix", groups_of_prefix(prefix.as_bytes(), groups)),
        KeySelector::All => ("all", groups_of_prefix(b"", groups)),
    };
    if first == last {
        return Ok(first);
    }
    let says = "the keys live in several groups, which can't be done together yet: use a prefix that has a part in \
                braces, like {orders}/, or name the keys one by one";
    Err(v1::Error { field: field.to_owned(), ..not_supported(says) })
}

/// Refuses a second group.
pub(super) fn same_group(first: &mut Option<GroupId>, group: GroupId) -> Result<(), v1::Error> {
    if *first.get_or_insert(group) == group {
        return Ok(());
    }
    Err(not_supported(
        "the keys of the transaction live in several groups: give them a common part in braces, like {orders}/1 and \
         {orders}/2, or split the transaction",
    ))
}

/// Whether all that begins with `prefix` is hashed by the same text in braces.
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

    #[test]
    fn every_group_has_an_equal_range_of_slots() {
        let mut counts = [0; 5];
        let mut last = 0;
        for number in 0..SLOTS {
            let group = group_of(Slot::new(number).unwrap(), 5).number();
            assert!(group >= last, "ranges are contiguous");
            last = group;
            counts[group as usize] += 1;
        }
        assert!(counts.iter().all(|count| (3_276..=3_277).contains(count)), "{counts:?}");
    }

    #[test]
    fn names_of_one_group_go_there_and_others_are_refused() {
        assert_eq!(group_of_names(&names(&["a", "b", "c"]), 1), Ok(GroupId::MAP));
        assert!(group_of_names(&names(&["{x}/1", "{x}/2"]), 64).is_ok());
        let error = group_of_names(&names(&["a", "b", "c", "d"]), 64).unwrap_err();
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
        assert_eq!(group_of_keys(&keys, 64), Ok(group_of(Slot::of(b"{a}/9"), 64)));
        let keys = KeySelector::Prefix(Key::new("a").unwrap());
        assert_eq!(group_of_keys(&keys, 1), Ok(GroupId::MAP));
        assert_eq!(group_of_keys(&keys, 2).unwrap_err().field, "prefix");
        assert_eq!(group_of_keys(&KeySelector::All, 2).unwrap_err().field, "all");
    }
}
