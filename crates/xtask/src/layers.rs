//! Layers of the workspace: the crates that each crate may use.
//!
//! The dependencies are read from the manifests, so a forbidden one is reported where it is declared. A dependency
//! counts whatever its purpose: a test that needs a higher layer belongs in the higher layer. Not here: names used in
//! the code of a crate (`tidy`).

use crate::finding::Finding;
use crate::manifest::{Dependency, Manifest, Purpose};
use crate::tree::{File, Tree};
use std::collections::BTreeSet;

/// The crates of the workspace, each with the crates of the layer below. It may also use everything that those may use.
///
/// A new crate gets a line here before it gets code.
const ARROWS: [(&str, &[&str]); 15] = [
    ("tollgate-types", &[]),
    ("tollgate-core", &["tollgate-types"]),
    ("tollgate-fence", &["tollgate-types"]),
    ("tollgate-check", &["tollgate-types"]),
    ("tollgate-proto", &["tollgate-types"]),
    ("tollgate-replica", &["tollgate-core"]),
    ("tollgate-node", &["tollgate-replica", "tollgate-proto"]),
    ("tollgate-gateway", &["tollgate-node"]),
    ("tollgate-server", &["tollgate-gateway"]),
    ("tollgate-client", &["tollgate-proto"]),
    ("tollgate-bench", &["tollgate-client"]),
    ("tollgate-bench-compare", &["tollgate-bench"]),
    ("tollgate", &["tollgate-server", "tollgate-client", "tollgate-bench", "tollgate-fence"]),
    ("tollgate-sim", &["tollgate-replica", "tollgate-check"]),
    ("xtask", &[]),
];

/// Crate that judges histories: every crate's tests may use it.
const JUDGE: &str = "tollgate-check";

/// The only external crates that these crates may use, except in tests: any other could bring in a clock, randomness or
/// hash order.
const ALLOWED_OUTSIDE: [(&str, &[&str]); 2] = [
    ("tollgate-types", &["smallvec", "thiserror", "xxhash-rust"]),
    ("tollgate-core", &["crc32fast", "hashbrown", "smallvec", "thiserror", "xxhash-rust"]),
];

/// Crates that are synchronous, in their tests too: the caller passes time and IO in, so that a simulator can drive
/// them.
const WITHOUT_TOKIO: [&str; 6] = [
    "tollgate-types",
    "tollgate-core",
    "tollgate-fence",
    "tollgate-check",
    "tollgate-replica",
    "tollgate-sim",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, file) in tree.crate_manifests() {
        check_crate(folder, file, &mut findings);
    }
    for file in tree.files.iter().filter(|file| file.path == "Cargo.toml") {
        check_root(file, &mut findings);
    }
    findings
}

fn check_crate(folder: &str, file: &File, findings: &mut Vec<Finding>) {
    let manifest = Manifest::parse(&file.text);
    if manifest.value("package", "name") != Some(&format!("\"{folder}\"")) {
        let advice = format!("name the package \"{folder}\", as its folder");
        findings.push(Finding::new(&file.path, 1, "folder-is-crate", advice));
    }
    if !is_ours(folder) {
        let advice = format!("give {folder} its place in ARROWS of crates/xtask/src/layers.rs first");
        findings.push(Finding::new(&file.path, 1, "unknown-crate", advice));
        return;
    }
    for dependency in manifest.dependencies() {
        if let Some((rule, advice)) = objection(folder, &dependency) {
            findings.push(Finding::new(&file.path, dependency.entry.line, rule, advice));
        }
    }
}

/// Returns the first rule that a dependency breaks.
fn objection(user: &str, dependency: &Dependency) -> Option<(&'static str, String)> {
    let name = dependency.name;
    if !dependency.is_from_workspace() {
        let form = "`.workspace = true` or `{ workspace = true, ... }`";
        let advice = format!("choose {name} in [workspace.dependencies] and write {form} here");
        return Some(("workspace-dependency", advice));
    }
    if is_ours(name) {
        let may = may_use(user);
        let judged = dependency.purpose == Purpose::Test && name == JUDGE;
        if may.contains(name) || judged {
            return None;
        }
        let may = may.into_iter().collect::<Vec<_>>().join(", ");
        let may = if may.is_empty() { "no crate of the workspace" } else { &may };
        return Some(("arrow", format!("{user} may not use {name}: it may use {may}")));
    }
    if is_tokio(name) && WITHOUT_TOKIO.contains(&user) {
        return Some(("no-tokio", format!("{user} is synchronous: leave {name} to tollgate-node and above")));
    }
    let (_, allowed) = ALLOWED_OUTSIDE.iter().find(|(of, _)| *of == user)?;
    if dependency.purpose != Purpose::Test && !allowed.contains(&name) {
        let advice = format!("{user} may use {}: do without {name}", allowed.join(", "));
        return Some(("outside", advice));
    }
    None
}

/// Checks that a name in the table of dependencies is the crate's own, or the other rules would look at an alias.
fn check_root(file: &File, findings: &mut Vec<Finding>) {
    for entry in Manifest::parse(&file.text).section("workspace.dependencies") {
        if entry.value.contains("package") {
            let advice = format!("{} is an alias: depend on the crate by its own name", entry.key);
            findings.push(Finding::new(&file.path, entry.line, "alias", advice));
        }
    }
}

fn is_ours(name: &str) -> bool {
    ARROWS.iter().any(|(known, _)| *known == name)
}

fn is_tokio(name: &str) -> bool {
    name == "tokio" || name.starts_with("tokio-")
}

/// Returns all crates below `user`, which `ARROWS` leads to in any number of steps.
fn may_use(user: &str) -> BTreeSet<&'static str> {
    let mut below = BTreeSet::new();
    let mut next = arrows_from(user).to_vec();
    while let Some(target) = next.pop() {
        if below.insert(target) {
            next.extend(arrows_from(target));
        }
    }
    below
}

fn arrows_from(user: &str) -> &'static [&'static str] {
    let (_, targets) = ARROWS.iter().find(|(name, _)| *name == user).expect("arrows lead to known crates");
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}")
    }

    /// Returns the findings for one crate with these tables, as `line rule`.
    fn found(name: &str, rest: &str) -> Vec<String> {
        let tree = Tree::of(&[(&format!("crates/{name}/Cargo.toml"), &manifest(name, rest))]);
        check(&tree).into_iter().map(|finding| format!("{} {}", finding.line, finding.rule)).collect()
    }

    #[test]
    fn a_crate_may_use_all_that_stands_below_it() {
        let node = "[dependencies]\ntollgate-types.workspace = true\ntollgate-core = { workspace = true }\n\
                    tollgate-proto.workspace = true\ntokio.workspace = true\n";
        assert_eq!(found("tollgate-node", node), [""; 0]);
        assert_eq!(found("tollgate-types", "[dependencies]\nsmallvec.workspace = true\n"), [""; 0]);
        assert_eq!(found("tollgate-core", "[dev-dependencies]\nproptest.workspace = true\n"), [""; 0]);
    }

    #[test]
    fn an_arrow_upwards_or_sideways_is_found() {
        let arrow = |to: &str| format!("[dependencies]\n{to}.workspace = true\n");
        assert_eq!(found("tollgate-types", &arrow("tollgate-core")), ["4 arrow"]);
        assert_eq!(found("tollgate-check", &arrow("tollgate-core")), ["4 arrow"]);
        assert_eq!(found("tollgate-server", &arrow("tollgate-client")), ["4 arrow"]);
        assert_eq!(found("xtask", &arrow("tollgate-types")), ["4 arrow"]);
    }

    #[test]
    fn an_arrow_for_tests_or_builds_counts_too() {
        assert_eq!(
            found("tollgate-core", "[dev-dependencies]\ntollgate-sim.workspace = true\n"),
            ["4 arrow"]
        );
        assert_eq!(
            found("tollgate-core", "[build-dependencies]\ntollgate-sim.workspace = true\n"),
            ["4 arrow"]
        );
        let target = "[target.'cfg(unix)'.dependencies]\ntollgate-sim.workspace = true\n";
        assert_eq!(found("tollgate-core", target), ["4 arrow"]);
    }

    #[test]
    fn a_version_or_path_outside_the_workspace_table_is_found() {
        for line in ["bytes = \"1\"", "bytes = { version = \"1\" }", "tollgate-types = { path = \"../x\" }"] {
            assert_eq!(
                found("tollgate-node", &format!("[dependencies]\n{line}\n")),
                ["4 workspace-dependency"]
            );
        }
        let table = "[dependencies.bytes]\nworkspace = true\n";
        assert_eq!(found("tollgate-node", table), ["4 workspace-dependency"]);
    }

    #[test]
    fn types_and_core_use_few_crates_from_outside() {
        let hashbrown = "[dependencies]\nhashbrown.workspace = true\n";
        assert_eq!(found("tollgate-types", hashbrown), ["4 outside"]);
        assert_eq!(found("tollgate-core", hashbrown), [""; 0]);
        assert_eq!(found("tollgate-core", "[dependencies]\nserde.workspace = true\n"), ["4 outside"]);
        assert_eq!(found("tollgate-core", "[build-dependencies]\ncc.workspace = true\n"), ["4 outside"]);
    }

    #[test]
    fn synchronous_crates_have_no_tokio_even_in_tests() {
        for name in WITHOUT_TOKIO {
            assert_eq!(found(name, "[dependencies]\ntokio.workspace = true\n"), ["4 no-tokio"]);
            assert_eq!(found(name, "[dev-dependencies]\ntokio-util.workspace = true\n"), ["4 no-tokio"]);
        }
    }

    #[test]
    fn a_crate_that_the_table_does_not_know_is_found() {
        assert_eq!(found("tollgate-extra", ""), ["1 unknown-crate"]);
    }

    #[test]
    fn a_folder_is_named_as_its_crate() {
        let tree = Tree::of(&[("crates/tollgate-core/Cargo.toml", &manifest("tollgate-kernel", ""))]);
        assert_eq!(check(&tree)[0].rule, "folder-is-crate");
    }

    #[test]
    fn an_alias_in_the_workspace_table_is_found() {
        let tree = Tree::of(&[("Cargo.toml", "[workspace.dependencies]\nclock = { package = \"tokio\" }\n")]);
        assert_eq!(check(&tree)[0].rule, "alias");
    }

    #[test]
    fn the_table_has_no_circle_and_no_unknown_name() {
        for (name, _) in ARROWS {
            assert!(!may_use(name).contains(name), "{name} stands on itself");
        }
    }
}
