//! Chores of the workspace: checks of the source tree that the compiler doesn't do.
//!
//! Plain text in, findings out, standard library only: it must build in a second, before anything else. Each check is a
//! function from files to findings, so its tests need no disk. Not here: the checks of `rustfmt`, `clippy` and
//! `rustdoc`.

mod finding;
mod hot_path;
mod layers;
mod manifest;
mod mutants;
mod rust_text;
mod tidy;
mod tree;

use finding::Finding;
use std::process::ExitCode;
use tree::Tree;

const USAGE: &str = "\
Usage: cargo xtask CHORE

Chores:
  tidy           check the rules of the source tree: names, headers, words that some crates must not use
  layers         check that crates depend on each other, and on others, only as the table in layers.rs says
  hot-path       count the instructions that an operation takes, under valgrind, and compare them with those written
                 down; `hot-path --write` writes them down
  mutants-node   plant each known bug in node, server and binary, and show that its test catches it

Findings are printed as path:line: rule: what to do.
Exit code: 0 nothing found, 1 findings, 2 wrong usage or unreadable tree.
";

const FINDINGS: u8 = 1;
const FAULT: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => run(tidy::check),
        ["layers"] => run(layers::check),
        ["mutants-node"] => tell(&mutants::run(say)),
        ["hot-path"] => tell(&hot_path::compare(say)),
        ["hot-path", "--write"] => tell(&hot_path::write(say)),
        ["help" | "--help" | "-h"] => {
            say(USAGE);
            ExitCode::SUCCESS
        }
        _ => {
            complain(USAGE);
            ExitCode::from(FAULT)
        }
    }
}

fn tell(problems: &[String]) -> ExitCode {
    for problem in problems {
        complain(&format!("{problem}\n"));
    }
    ExitCode::from(if problems.is_empty() { 0 } else { FINDINGS })
}

fn run(check: fn(&Tree) -> Vec<Finding>) -> ExitCode {
    let root = tree::workspace_root();
    let tree = match Tree::read(&root) {
        Ok(tree) => tree,
        Err(fault) => {
            complain(&format!("{}: {fault}\n", root.display()));
            return ExitCode::from(FAULT);
        }
    };
    let mut findings = check(&tree);
    if findings.is_empty() {
        return ExitCode::SUCCESS;
    }
    findings.sort();
    for finding in &findings {
        complain(&format!("{finding}\n"));
    }
    complain(&format!("{} findings\n", findings.len()));
    ExitCode::from(FINDINGS)
}

#[allow(clippy::print_stdout, reason = "a chore talks to its user")]
fn say(text: &str) {
    print!("{text}");
}

#[allow(clippy::print_stderr, reason = "a chore talks to its user")]
fn complain(text: &str) {
    eprint!("{text}");
}
