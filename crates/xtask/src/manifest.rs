//! Parser for the part of TOML that this workspace's manifests use.
//!
//! Sections are `[name]` headers; entries are `key = value` with a bare or dotted key, and a value that may run over
//! several lines inside brackets. A dependency is `name.workspace = true` or `name = { workspace = true, ... }`. Other
//! TOML syntax (`[dependencies.name]`, quoted keys) is parsed as an entry that no rule accepts, and never skipped.

/// A manifest as a list of its entries, in order.
#[derive(Debug)]
pub(crate) struct Manifest {
    entries: Vec<Entry>,
}

/// An entry `key = value` under `[section]`. The value is the text after the sign, on one line, without comments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) section: String,
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) line: usize,
}

/// Purpose of a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Use,
    Build,
    Test,
}

/// A dependency of a crate, for any target.
#[derive(Debug)]
pub(crate) struct Dependency<'a> {
    pub(crate) name: &'a str,
    pub(crate) purpose: Purpose,
    pub(crate) entry: &'a Entry,
}

impl Manifest {
    pub(crate) fn parse(text: &str) -> Manifest {
        let mut entries: Vec<Entry> = Vec::new();
        let mut section = String::new();
        // True while the last entry's value has open brackets.
        let mut open = false;
        for (line, raw) in crate::tree::numbered(text) {
            let content = without_comment(raw).trim();
            if content.is_empty() {
                continue;
            }
            if open && let Some(last) = entries.last_mut() {
                last.value.push_str(content);
                open = depth(&last.value) > 0;
            } else if let Some(header) = content.strip_prefix('[') {
                header.trim_matches(['[', ']']).trim().clone_into(&mut section);
            } else {
                let (key, value) = content.split_once('=').unwrap_or((content, ""));
                let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
                open = depth(&value) > 0;
                entries.push(Entry { section: section.clone(), key, value, line });
            }
        }
        Manifest { entries }
    }

    /// Returns the value of a key, as written.
    pub(crate) fn value(&self, section: &str, key: &str) -> Option<&str> {
        let found = self.entries.iter().find(|entry| entry.section == section && entry.key == key);
        found.map(|entry| entry.value.as_str())
    }

    pub(crate) fn section<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| entry.section == name)
    }

    pub(crate) fn dependencies(&self) -> impl Iterator<Item = Dependency<'_>> {
        self.entries.iter().filter_map(dependency)
    }
}

impl Dependency<'_> {
    /// True if version and source come from the root manifest.
    pub(crate) fn is_from_workspace(&self) -> bool {
        let Entry { key, value, .. } = self.entry;
        key.ends_with(".workspace") && value == "true"
            || value.starts_with('{') && without_spaces(value).contains("workspace=true")
    }
}

/// Reads a dependency from `[dependencies]`, `[target.'cfg(unix)'.dependencies]` or `[dependencies.name]`. The entry of
/// the last form differs.
fn dependency(entry: &Entry) -> Option<Dependency<'_>> {
    let (table, rest) = match entry.section.rsplit_once('.') {
        Some((before, last)) if purpose(last).is_none() => {
            (before.rsplit('.').next().unwrap_or(before), Some(last))
        }
        Some((_, last)) => (last, None),
        None => (entry.section.as_str(), None),
    };
    if entry.section.starts_with("workspace") {
        return None;
    }
    let name = rest.unwrap_or_else(|| entry.key.split('.').next().unwrap_or(&entry.key));
    Some(Dependency { name: name.trim_matches('"'), purpose: purpose(table)?, entry })
}

fn purpose(table: &str) -> Option<Purpose> {
    match table {
        "dependencies" => Some(Purpose::Use),
        "build-dependencies" => Some(Purpose::Build),
        "dev-dependencies" => Some(Purpose::Test),
        _ => None,
    }
}

fn without_comment(line: &str) -> &str {
    let mut in_string = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => in_string = !in_string,
            '#' if !in_string => return &line[..at],
            _ => {}
        }
    }
    line
}

/// Returns the number of brackets of either kind that are open at the end.
fn depth(value: &str) -> i32 {
    let mut in_string = false;
    let mut depth = 0;
    for c in value.chars() {
        match c {
            '"' => in_string = !in_string,
            '[' | '{' if !in_string => depth += 1,
            ']' | '}' if !in_string => depth -= 1,
            _ => {}
        }
    }
    depth
}

fn without_spaces(value: &str) -> String {
    value.chars().filter(|c| !c.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_carry_their_section_and_line() {
        let manifest = Manifest::parse("[package]\nname = \"a#b\" # why\n\n[lints]\nworkspace = true\n");
        assert_eq!(manifest.value("package", "name"), Some("\"a#b\""));
        assert_eq!(manifest.value("lints", "workspace"), Some("true"));
        assert_eq!(manifest.section("lints").next().unwrap().line, 5);
        assert_eq!(manifest.value("lints", "name"), None);
    }

    #[test]
    fn a_value_may_run_over_lines() {
        let manifest = Manifest::parse("[features]\nall = [ # every one\n  \"a\",\n  \"b\",\n]\nnone = []\n");
        assert_eq!(manifest.value("features", "all"), Some("[\"a\",\"b\",]"));
        assert_eq!(manifest.value("features", "none"), Some("[]"));
    }

    #[test]
    fn every_kind_of_dependency_table_is_read() {
        let manifest = Manifest::parse(
            "[dependencies]\na.workspace = true\nb = { workspace = true, features = [\"x\"] }\nc = \"1.0\"\n\
             [build-dependencies]\nd.workspace = true\n\
             [target.'cfg(unix)'.dev-dependencies]\ne.workspace = true\n\
             [dependencies.f]\nversion = \"1.0\"\n\
             [target.'cfg(unix)'.dependencies.g]\nversion = \"1.0\"\n\
             [workspace.dependencies]\nh = \"1.0\"\n",
        );
        let found: Vec<_> =
            manifest.dependencies().map(|d| (d.name, d.purpose, d.is_from_workspace())).collect();
        let expected = [
            ("a", Purpose::Use, true),
            ("b", Purpose::Use, true),
            ("c", Purpose::Use, false),
            ("d", Purpose::Build, true),
            ("e", Purpose::Test, true),
            ("f", Purpose::Use, false),
            ("g", Purpose::Use, false),
        ];
        assert_eq!(found, expected);
    }
}
