//! The reference in `docs/cli.md` is equal to the help texts of the commands.

use crate::cluster::BINARY;
use std::process::Command;

#[test]
fn the_reference_is_up_to_date() {
    let printed = Command::new(BINARY).arg("__reference").output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let first = printed.lines().zip(kept.lines()).position(|(printed, kept)| printed != kept);
    assert!(
        printed == kept,
        "docs/cli.md differs from line {first:?} on: cargo run -p tollgate -- __reference > docs/cli.md"
    );
}
