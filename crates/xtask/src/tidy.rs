//! Rules of the source tree: some keep the core pure, the rest keep it pleasant to read.
//!
//! The rules about words look at code alone: comments, literals and, where a rule is about shipped code, inline
//! `#[cfg(test)]` modules are blanked first (`rust_text`). Not here: dependencies between crates (`layers`).

use crate::finding::Finding;
use crate::manifest::{Manifest, Purpose};
use crate::rust_text;
use crate::tree::{File, Tree};
use std::path::Path;

/// Crates with a `src` that must be a pure function of its input.
const PURE: [&str; 2] = ["tollgate-types", "tollgate-core"];

/// Words that pure code can't use, with the alternatives.
const IMPURE: [(&str, &str); 16] = [
    ("std::time", "take the time from the entry: LogTime, DurationMs"),
    ("Instant", "take the time from the entry: LogTime"),
    ("SystemTime", "take the time from the entry: LogTime"),
    ("std::fs", "leave files to the caller: take and give bytes"),
    ("std::net", "leave the network to the caller"),
    ("std::io", "take and give bytes"),
    ("std::env", "take settings from the caller: two replicas may have different environments"),
    ("std::thread", "leave threads to the caller"),
    ("rand", "every replica must decide alike: no randomness"),
    ("RandomState", "every replica must see the same order: hash with xxh3 and a fixed seed"),
    ("async", "return, and let the caller wait"),
    ("await", "return, and let the caller wait"),
    ("serde", "write the bytes in `format`: they must not change with a field's name"),
    (
        "HashMap",
        "its order differs between replicas: use the index, a sorted map or hashbrown::HashTable by key",
    ),
    ("HashSet", "its order differs between replicas: use a sorted set"),
    ("thread_local", "state lives in State"),
];

/// Names that say nothing about the content.
const EMPTY_NAMES: [&str; 8] =
    ["utils", "util", "common", "helpers", "helper", "managers", "manager", "misc"];

/// Words that open a riddle: a doc comment that begins with one names no thing, so nobody finds the thing by its name.
const QUESTION_WORDS: [&str; 17] = [
    "how",
    "however",
    "what",
    "whatever",
    "when",
    "whenever",
    "where",
    "wherever",
    "whether",
    "which",
    "whichever",
    "who",
    "whoever",
    "whom",
    "whomever",
    "whose",
    "why",
];

/// Metaphors that no reader knew, and the words of the field that took their place.
const GIVEN_UP: [(&str, &str); 23] = [
    ("acquaintances", "seed members"),
    ("attendance", "caller liveness"),
    ("desk", "dispatcher"),
    ("detour", "fallback"),
    ("detours", "fallbacks"),
    ("errand", "task, or call context"),
    ("helm", "maintainer"),
    ("hunt", "detector"),
    ("introduction", "stub registration"),
    ("introductions", "stub registrations"),
    ("keepers", "lease sessions"),
    ("letter", "group message"),
    ("letters", "group messages"),
    ("outlet", "peer writer"),
    ("parked", "pending"),
    ("picture", "cluster view"),
    ("pilot", "connections"),
    ("scout", "discovery"),
    ("sentry", "revocation watcher"),
    ("telling", "response writer"),
    ("tender", "group connections"),
    ("traffic", "multiplexer"),
    ("whereabouts", "node addresses"),
];

const LINE_CHARS_MAX: usize = 120;
const FILE_LINES_MAX: usize = 900;

/// The feature that turns planted bugs on, for tests alone.
const PLANTED_BUGS: &str = "planted-bugs";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path != "Cargo.lock") {
        check_text(file, &mut findings);
        check_path(file, &mut findings);
        if file.is_rust() {
            check_rust(file, &mut findings);
        }
        if file.path.ends_with("Cargo.toml") {
            check_planted(file, &mut findings);
        }
    }
    for (_, file) in tree.crate_manifests() {
        check_crate(file, &mut findings);
    }
    findings
}

/// Checks the rules for every text file.
fn check_text(file: &File, findings: &mut Vec<Finding>) {
    let mut find = |line, rule, advice: &str| findings.push(Finding::new(&file.path, line, rule, advice));
    // Spelled in two parts, or this file would break its own rule.
    let unfinished = [concat!("FIX", "ME"), concat!("XX", "X")];
    let mut in_code_block = false;
    for (number, line) in file.lines() {
        if line.trim_end() != line {
            find(number, "trailing-space", "remove what follows the last visible character");
        }
        if unfinished.iter().any(|word| rust_text::has_word(line, word)) {
            find(number, "unfinished", "finish it, or open an issue and say here why it is so");
        }
        in_code_block ^= line.trim_start().starts_with("```");
        // Table rows, link addresses and code can't be broken.
        let breakable = !(in_code_block || line.starts_with('|') || line.contains("://"));
        let measured = file.is_rust() || file.is_markdown() && breakable;
        if measured && line.chars().count() > LINE_CHARS_MAX {
            find(number, "long-line", &format!("break it: at most {LINE_CHARS_MAX} characters"));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        find(file.lines().count(), "final-newline", "end the file with a line break");
    }
}

/// Checks the rules about names of files and folders inside crates.
fn check_path(file: &File, findings: &mut Vec<Finding>) {
    let Some((_, inside)) = file.in_crate().filter(|_| file.is_rust()) else { return };
    let mut find = |rule, advice: &str| findings.push(Finding::new(&file.path, 1, rule, advice));
    if inside.ends_with("/mod.rs") {
        find("mod-rs", "name it for its module: name.rs beside name/");
    }
    let stem = Path::new(inside).with_extension("");
    if stem.iter().any(|part| says_nothing(&part.to_string_lossy())) {
        find("empty-name", "name the file for the noun inside it");
    }
}

/// True for a name without meaning, alone or as the last word: `lock_manager` says as little as `manager`.
fn says_nothing(name: &str) -> bool {
    EMPTY_NAMES.contains(&name.rsplit('_').next().unwrap_or(name))
}

fn check_rust(file: &File, findings: &mut Vec<Finding>) {
    let code = rust_text::code(&file.text);
    let mut find = |line, rule, advice: &str| findings.push(Finding::new(&file.path, line, rule, advice));
    let in_src = file.in_crate().is_some_and(|(_, inside)| inside.starts_with("src/"));
    if in_src && !file.text.starts_with("//!") {
        find(1, "header", "begin with a //! header: the module's job, its invariant, what is not here");
    }
    for (number, line) in file.lines() {
        if line.contains('\t') {
            find(number, "tabs", "indent with spaces; write \\t inside literals");
        }
    }
    for (number, word) in riddles(file) {
        let advice = format!("say what the thing is or does, in nouns, instead of beginning with \"{word}\"");
        find(number, "doc-opening", &advice);
    }
    if in_src {
        for (number, word, instead) in given_up(&rust_text::without_test_modules(&code)) {
            find(number, "given-up-word", &format!("call it {instead}, not {word}: docs/glossary.md"));
        }
    }
    for (number, line) in crate::tree::numbered(&code) {
        if ["todo!", "unimplemented!", "dbg!"].iter().any(|name| line.contains(name)) {
            find(number, "unfinished", "finish it: no todo!, unimplemented! or dbg!");
        }
    }
    for (number, name) in rust_text::modules(&code) {
        if says_nothing(name) {
            find(number, "empty-name", "name the module for the noun inside it");
        }
    }
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        find(
            1,
            "long-file",
            &format!("{lines} lines, at most {FILE_LINES_MAX}: look for the seam and split it"),
        );
    }
    if in_src && file.in_crate().is_some_and(|(name, _)| PURE.contains(&name)) {
        check_pure(&file.path, &rust_text::without_test_modules(&code), findings);
    }
}

/// Doc comments that begin with a question word: line and word.
fn riddles(file: &File) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut inside = None;
    for (number, line) in file.lines() {
        let line = line.trim_start();
        let mark = ["///", "//!"].into_iter().find(|mark| line.starts_with(mark));
        if let Some(mark) = mark.filter(|_| mark != inside) {
            let text = &line[mark.len()..];
            let word = text.split(|c: char| !c.is_alphabetic()).find(|word| !word.is_empty()).unwrap_or("");
            let word = word.to_lowercase();
            if QUESTION_WORDS.contains(&word.as_str()) {
                found.push((number, word));
            }
        }
        inside = mark;
    }
    found
}

/// Items whose names contain a word that was given up: line, word, and the word of the field.
fn given_up(code: &str) -> Vec<(usize, &'static str, &'static str)> {
    const DECLARATIONS: [&str; 6] = ["struct", "enum", "trait", "type", "mod", "fn"];
    let mut found = Vec::new();
    for (number, line) in crate::tree::numbered(code) {
        let words: Vec<&str> =
            line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2).filter(|pair| DECLARATIONS.contains(&pair[0])) {
            let parts = words_of(pair[1]);
            let given_up = GIVEN_UP.iter().find(|(word, _)| parts.iter().any(|part| part == word));
            found.extend(given_up.map(|(word, instead)| (number, *word, *instead)));
        }
    }
    found
}

/// The words of a name in snake or camel case, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("never empty").extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn check_pure(path: &str, code: &str, findings: &mut Vec<Finding>) {
    for (word, instead) in IMPURE {
        let mut lines = rust_text::lines_with(code, word);
        if let Some(module) = word.strip_prefix("std::") {
            let grouped = rust_text::grouped_std_imports(code).into_iter();
            lines.extend(grouped.filter(|(_, name)| *name == module).map(|(line, _)| line));
        }
        let advice = format!("no {word} in {}: {instead}", PURE.join(" or "));
        findings.extend(lines.into_iter().map(|line| Finding::new(path, line, "pure", advice.clone())));
    }
}

/// Checks that a crate has a description and uses the workspace's lints.
fn check_crate(file: &File, findings: &mut Vec<Finding>) {
    let manifest = Manifest::parse(&file.text);
    let mut find = |rule, advice: &str| findings.push(Finding::new(&file.path, 1, rule, advice));
    if manifest.value("lints", "workspace") != Some("true") {
        find("lints", "add [lints] with workspace = true");
    }
    if manifest.value("package", "description").is_none_or(|description| description.len() <= 2) {
        find("description", "add description = \"...\" to [package]: the crate's job in a line");
    }
}

/// Checks that only tests turn planted bugs on. A feature may pass the switch on if it has the same name.
fn check_planted(file: &File, findings: &mut Vec<Finding>) {
    let manifest = Manifest::parse(&file.text);
    let mut find = |line, advice: &str| findings.push(Finding::new(&file.path, line, PLANTED_BUGS, advice));
    let shipped = manifest.dependencies().filter(|dependency| dependency.purpose != Purpose::Test);
    let shipped =
        shipped.map(|dependency| dependency.entry).chain(manifest.section("workspace.dependencies"));
    for entry in shipped.filter(|entry| entry.value.contains(PLANTED_BUGS)) {
        find(
            entry.line,
            "a shipped binary must not have planted bugs: only [dev-dependencies] may turn them on",
        );
    }
    for entry in manifest.section("features") {
        if entry.key != PLANTED_BUGS && entry.value.contains(PLANTED_BUGS) {
            find(entry.line, "no other feature may turn planted bugs on");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings for one file, as `line rule`.
    fn found(path: &str, text: &str) -> Vec<String> {
        let findings = check(&Tree::of(&[(path, text)]));
        findings.into_iter().map(|finding| format!("{} {}", finding.line, finding.rule)).collect()
    }

    /// Returns the findings for a file of the core with this code below its header.
    fn found_in_core(code: &str) -> Vec<String> {
        found("crates/tollgate-core/src/lock.rs", &format!("//! A lock.\n{code}\n"))
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn each_impure_word_is_found_in_types_and_core() {
        for (word, _) in IMPURE {
            let text = format!("//! A lock.\nfn f() {{ {word}!() }}\n");
            for name in PURE {
                assert!(
                    found(&format!("crates/{name}/src/lock.rs"), &text).contains(&"2 pure".to_owned()),
                    "{word}"
                );
                assert_eq!(found(&format!("crates/{name}/tests/it/main.rs"), &text), NONE, "{word}");
            }
            assert_eq!(found("crates/tollgate-node/src/lock.rs", &text), NONE, "{word}");
        }
    }

    #[test]
    fn impure_code_is_found_however_it_is_written() {
        assert_eq!(found_in_core("use std::{\n    fmt,\n    io,\n};"), ["4 pure"]);
        assert_eq!(found_in_core("async fn wait() {}"), ["2 pure"]);
        assert_eq!(found_in_core("fn f() { g().await; }"), ["2 pure"]);
        assert_eq!(found_in_core("#[derive(serde::Serialize)]\nstruct X;"), ["2 pure"]);
        assert_eq!(found_in_core("use hashbrown::HashMap;"), ["2 pure"]);
    }

    #[test]
    fn comments_literals_and_test_modules_may_say_anything() {
        assert_eq!(found_in_core("// no HashMap here\nconst X: &str = \"Instant\";"), NONE);
        assert_eq!(found_in_core("#[cfg(test)]\nmod tests {\n    use std::collections::HashMap;\n}"), NONE);
        assert_eq!(found_in_core("#[cfg(test)]\nmod tests {\n}\nuse std::fs;"), ["5 pure"]);
        assert_eq!(found_in_core("use crate::time::X;\nlet random = operand;"), NONE);
    }

    #[test]
    fn a_doc_comment_that_opens_with_a_question_word_is_found() {
        let riddle = "/// Whether it was told.\nfn told() {}\n";
        assert_eq!(found_in_core(riddle), ["2 doc-opening"]);
        assert_eq!(found("crates/tollgate-node/tests/it/x.rs", riddle), ["1 doc-opening"], "in tests too");
        assert_eq!(found("crates/tollgate-node/src/x.rs", "//! What a node is.\n"), ["1 doc-opening"]);
        for fine in
            ["/// True once it was told.\n/// How often does not matter.", "// What is not a doc comment."]
        {
            assert_eq!(found_in_core(&format!("{fine}\nfn told() {{}}")), NONE, "{fine}");
        }
    }

    #[test]
    fn names_of_words_that_were_given_up_are_found() {
        for code in
            ["struct FrontDesk;", "fn read_whereabouts() {}", "pub(crate) mod pilot;", "enum Letter {}"]
        {
            assert_eq!(found_in_core(code), ["2 given-up-word"], "{code}");
        }
        for fine in ["fn lettering() {}", "// A letter.\nstruct Message;", "fn f() { let letter = 1; }"] {
            assert_eq!(found_in_core(fine), NONE, "{fine}");
        }
        let test = "#[cfg(test)]\nmod tests {\n    fn a_letter_is_no_word() {}\n}";
        assert_eq!(found_in_core(test), NONE);
    }

    #[test]
    fn a_mod_rs_is_found() {
        assert_eq!(found("crates/tollgate-node/src/state/mod.rs", "//! State.\n"), ["1 mod-rs"]);
    }

    #[test]
    fn a_name_that_says_nothing_is_found() {
        for path in ["src/utils.rs", "src/common/x.rs", "tests/it/helpers.rs", "src/lock_manager.rs"] {
            assert_eq!(found(&format!("crates/tollgate-node/{path}"), "//! Things.\n"), ["1 empty-name"]);
        }
        assert_eq!(found_in_core("mod helpers {}"), ["2 empty-name"]);
        assert_eq!(found_in_core("mod common_prefix;"), NONE);
    }

    #[test]
    fn a_source_file_without_a_header_is_found() {
        let bare = "fn f() {}\n";
        assert_eq!(found("crates/tollgate-node/src/x.rs", bare), ["1 header"]);
        assert_eq!(found("crates/tollgate-node/tests/it/x.rs", bare), NONE);
    }

    #[test]
    fn unfinished_code_is_found() {
        for code in ["fn f() { todo!() }", "fn f() { unimplemented!(\"x\") }", "fn f() { dbg!(1); }"] {
            assert_eq!(found_in_core(code), ["2 unfinished"], "{code}");
        }
        assert_eq!(found_in_core(concat!("// FIX", "ME later")), ["2 unfinished"]);
        assert_eq!(found("docs/x.md", concat!("XX", "X what is this\n")), ["1 unfinished"]);
    }

    #[test]
    fn untidy_text_is_found() {
        assert_eq!(found("docs/x.md", "a \nb\n"), ["1 trailing-space"]);
        assert_eq!(found("Makefile", "a\nb"), ["2 final-newline"]);
        assert_eq!(found_in_core("fn f() {\n\tg();\n}"), ["3 tabs"]);
        assert_eq!(found("Makefile", "a:\n\tb\n"), NONE);
    }

    #[test]
    fn a_long_line_is_found_unless_it_can_not_be_broken() {
        let (fits, long) = ("é".repeat(LINE_CHARS_MAX), "é".repeat(LINE_CHARS_MAX + 1));
        assert_eq!(found("docs/x.md", &format!("{fits}\n{long}\n")), ["2 long-line"]);
        assert_eq!(found("docs/x.md", &format!("```text\n{long}\n```\n| {long} |\nhttps://{long}\n")), NONE);
        assert_eq!(found_in_core(&format!("// {fits}")), ["2 long-line"]);
        assert_eq!(found("Cargo.toml", &format!("# {long}\n")), NONE);
    }

    #[test]
    fn a_long_file_is_found() {
        let lines = "// One.\n".repeat(FILE_LINES_MAX);
        assert_eq!(found("crates/tollgate-node/tests/it/x.rs", &lines), NONE);
        assert_eq!(
            found("crates/tollgate-node/tests/it/x.rs", &format!("{lines}// More.\n")),
            ["1 long-file"]
        );
    }

    #[test]
    fn a_crate_without_lints_or_description_is_found() {
        let good = "[package]\ndescription = \"A lock\"\n[lints]\nworkspace = true\n";
        let path = "crates/tollgate-node/Cargo.toml";
        assert_eq!(found(path, good), NONE);
        assert_eq!(found(path, &good.replace("workspace = true", "")), ["1 lints"]);
        assert_eq!(found(path, &good.replace("A lock", "")), ["1 description"]);
        assert_eq!(found(path, ""), ["1 lints", "1 description"]);
    }

    #[test]
    fn planted_bugs_outside_tests_are_found() {
        let dependency = "tollgate-core = { workspace = true, features = [\"planted-bugs\"] }\n";
        let cases = [
            (format!("[dependencies]\n{dependency}"), vec!["2 planted-bugs"]),
            (format!("[build-dependencies]\n{dependency}"), vec!["2 planted-bugs"]),
            (format!("[workspace.dependencies]\n{dependency}"), vec!["2 planted-bugs"]),
            ("[features]\ndefault = [\"tollgate-core/planted-bugs\"]\n".to_owned(), vec!["2 planted-bugs"]),
            (format!("[dev-dependencies]\n{dependency}"), vec![]),
            ("[features]\nplanted-bugs = [\"tollgate-core/planted-bugs\"]\n".to_owned(), vec![]),
        ];
        for (text, expected) in cases {
            assert_eq!(found("Cargo.toml", &text), expected, "{text}");
        }
    }
}
