//! Promises to other programs: clients in any language must compute the same slot for a name.

use tollgate_types::{Name, Slot};

/// Expected slots, computed with the reference implementation of XXH3 through another language's binding, not with this
/// crate. A change here would send clients to the wrong group.
const SLOTS_BY_NAME: [(&str, u16); 14] = [
    ("a", 3_615),
    ("db/migrate", 819),
    ("jobs", 2_063),
    // The longest input of one of the hash's code paths, and the shortest of the next.
    ("0123456789abcdef", 8_493),
    ("01234567890123456", 7_972),
    // Hash tags: only the text inside the first non-empty braces is hashed.
    ("orders", 13_563),
    ("{orders}/42", 13_563),
    ("{}{tenant-7}/cart", 10_762),
    ("{{nested}}", 15_296),
    // No tag: the whole name is hashed, braces included.
    ("queue/{}", 8_043),
    ("{}", 7_190),
    ("left{open", 12_059),
    // Bytes are hashed, not characters.
    ("größe/東京/🔒", 6_662),
    ("tab{né}le", 480),
];

/// Expected slots, computed in the same way, for names of this many `x` bytes: the hash changes its code path after 128
/// and 240 bytes.
const SLOTS_BY_LENGTH: [(usize, u16); 5] =
    [(128, 7_447), (129, 10_204), (240, 2_920), (241, 10_781), (512, 10_854)];

#[test]
fn slots_are_those_of_every_other_client() {
    for (name, slot) in SLOTS_BY_NAME {
        assert_eq!(Name::new(name).unwrap().slot(), Slot::new(slot).unwrap(), "{name}");
    }
    for (bytes, slot) in SLOTS_BY_LENGTH {
        assert_eq!(Name::new("x".repeat(bytes)).unwrap().slot(), Slot::new(slot).unwrap(), "{bytes} bytes");
    }
}
