//! Runs the golden scripts in `tests/scripts` and compares the state machine's output with the expected lines.
//!
//! A script is commands, `---`, and one line of output per command; `tests/scripts/README.md` is its manual. With
//! `UPDATE_SCRIPTS=1` in the environment the output is rewritten instead: read the difference before you keep it. Not
//! here: the rules in general (`oracle`, `properties`); a script is one story with a known end.

mod aliases;
mod outcome;
mod parse;
mod print;
mod read;
mod stubs;
mod txn;
mod words;

use aliases::Aliases;
use parse::Step;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use tollgate_core::{APPLY_VERSION_SUPPORTED, Applied, Bug, Command, Entry, Event, Reply, State, Watch};
use tollgate_types::{LeaseId, Limits, LogTime, Revision, Seq};

const DIVIDER: &str = "---";
/// Most differences shown; further ones mostly follow from the first.
const DIFFERENCES_MAX: usize = 6;

/// Runs one script; `bug` is planted before its first command. The error shows each line that came out differently.
/// A panic of the state machine (a fault, a broken invariant) passes through to the caller.
pub(crate) fn run_script(text: &str, bug: Option<Bug>) -> Result<(), String> {
    let expected: Vec<&str> = text.lines().skip_while(|line| *line != DIVIDER).skip(1).collect();
    let actual = transcript(text, bug)?;
    let wanted = expected.iter().copied().chain(std::iter::repeat("(no line)"));
    let mut differences: Vec<String> = actual
        .iter()
        .zip(wanted)
        .filter(|((_, got), wanted)| got != wanted)
        .map(|((source, got), wanted)| format!("  {source}\n    expected: {wanted}\n    actual:   {got}\n"))
        .take(DIFFERENCES_MAX)
        .collect();
    if expected.len() > actual.len() {
        differences.push(format!("  {} commands but {} lines of output\n", actual.len(), expected.len()));
    }
    if differences.is_empty() { Ok(()) } else { Err(differences.concat()) }
}

/// Every script: its file name and its text, in order of name.
pub(crate) fn all() -> Vec<(String, String)> {
    let mut scripts: Vec<(String, String)> = std::fs::read_dir(directory())
        .expect("the scripts are part of the repository")
        .map(|file| file.expect("a readable directory").path())
        .filter(|path| path.extension().is_none())
        .map(|path| {
            let name = path.file_name().expect("it was listed").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("a script is a text file"))
        })
        .collect();
    scripts.sort();
    scripts
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// The output of each command, beside the line of the command.
fn transcript(text: &str, bug: Option<Bug>) -> Result<Vec<(String, String)>, String> {
    let mut run = Run::new(bug);
    let mut printed = Vec::new();
    for (number, line) in text.lines().take_while(|line| *line != DIVIDER).enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let source = format!("line {}: {line}", number + 1);
        let output = run.line(line).map_err(|why| format!("  {source}\n    {why}\n"))?;
        printed.push((source, output));
    }
    Ok(printed)
}

/// A script in the middle of its run.
struct Run {
    state: State,
    aliases: Aliases,
    bug: Option<Bug>,
    /// Requests that were sent before: the next one with the same seq is a repeat.
    sent: BTreeSet<(LeaseId, Seq)>,
}

impl Run {
    fn new(bug: Option<Bug>) -> Run {
        let mut state = State::new(Limits::DEFAULT);
        state.apply(Entry::new(LogTime::ZERO, Command::RaiseApplyVersion(APPLY_VERSION_SUPPORTED)));
        let mut run = Run { state, aliases: Aliases::default(), bug, sent: BTreeSet::new() };
        run.plant();
        run
    }

    /// Plants the bug again, because a restored state has none.
    fn plant(&mut self) {
        if let Some(bug) = self.bug {
            self.state.plant(bug);
        }
    }

    fn line(&mut self, line: &str) -> Result<String, String> {
        let output = match parse::line(line, &mut self.aliases, self.state.limits())? {
            Step::Apply { entry, binds } => self.apply(&entry, binds.as_deref()),
            Step::Read(read) => read.run(&mut self.state),
        };
        self.plant();
        Ok(self.aliases.put_into(&output))
    }

    fn apply(&mut self, entry: &Entry, binds: Option<&str>) -> String {
        let before = self.state.revision();
        let applied = self.state.apply(entry.clone());
        self.state.assert_invariants();
        if let (Some(alias), Reply::LeaseGranted { lease, .. }) = (binds, &applied.reply) {
            self.aliases.bind(alias, *lease);
        }
        let outcome = outcome::Outcome {
            events: &self.events(before, &applied),
            applied: &applied,
            at: entry.at,
            before,
            again: self.is_repeat(&entry.command, &applied),
            assigned: binds.is_some(),
        };
        outcome.print(&entry.command)
    }

    /// Reads what the entry added to the history, and checks that `Applied` points at all of it.
    fn events(&self, before: Revision, applied: &Applied) -> Vec<Event> {
        assert_eq!(applied.revision, self.state.revision(), "an entry reports the revision after it");
        if applied.revision == before {
            assert_eq!(applied.events_from, None, "events need a revision");
            return Vec::new();
        }
        let batch =
            self.state.events_since(before.next(), &Watch::All, usize::MAX).expect("the newest are kept");
        assert_eq!(
            applied.events_from,
            batch.events.first().map(|e| e.revision),
            "events_from is the first event's"
        );
        batch.events
    }

    fn is_repeat(&mut self, command: &Command, applied: &Applied) -> bool {
        if let Reply::LeaseGranted { lease, renewed: false, .. } = applied.reply {
            // A new lease numbers its requests anew.
            self.sent.retain(|(other, _)| *other != lease);
        }
        parse::request_of(command).is_some_and(|request| !self.sent.insert(request))
    }
}

/// Checks that the first line names the file and the script's subject, so that a listing of first lines is a table of
/// contents.
fn check_title(name: &str, text: &str) -> Result<(), String> {
    let title = format!("# {name}: ");
    let good = text.lines().next().is_some_and(|line| line.starts_with(&title) && line.len() > title.len());
    if good {
        Ok(())
    } else {
        Err(format!("  the first line must be `{title}` and a sentence that says what it shows\n"))
    }
}

fn update(name: &str, text: &str) -> Result<(), String> {
    let commands: Vec<&str> = text.lines().take_while(|line| *line != DIVIDER).collect();
    let output: Vec<String> = transcript(text, None)?.into_iter().map(|(_, printed)| printed).collect();
    let text = format!("{}\n{DIVIDER}\n{}\n", commands.join("\n"), output.join("\n"));
    std::fs::write(directory().join(name), text).map_err(|e| format!("  {e}\n"))
}

#[test]
fn golden_scripts_hold() {
    let updating = std::env::var_os("UPDATE_SCRIPTS").is_some();
    let scripts = all();
    assert!(!scripts.is_empty(), "no scripts in {}", directory().display());
    let mut failures = Vec::new();
    for (name, text) in &scripts {
        let run = || {
            check_title(name, text)
                .and_then(|()| if updating { update(name, text) } else { run_script(text, None) })
        };
        let result =
            catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("  panicked: see above\n".into()));
        failures.extend(result.err().map(|why| format!("{name}\n{why}")));
    }
    assert!(
        failures.is_empty(),
        "{} of {} scripts failed:\n{}",
        failures.len(),
        scripts.len(),
        failures.join("\n")
    );
}

#[test]
fn a_script_that_expects_something_else_fails() {
    let script = "lease l1 ttl=1s @0s\n---\nr2 lease l1\n";
    let why = run_script(script, None).unwrap_err();
    assert!(why.contains("expected: r2 lease l1") && why.contains("actual:   r1 lease l1"), "{why}");
    assert!(run_script("lease l1 ttl=1s @0s\n---\nr1 lease l1\nr2 lease l2\n", None).is_err());
    assert!(run_script("lease l1 ttl=1s @0s\n---\n", None).is_err());
}
