//! Proof that the tests can fail: every planted bug is caught by a golden script or by the oracle.

use crate::{properties, scripts};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tollgate_core::Bug;

/// Most random sequences that a bug may survive before it counts as not caught.
const SEQUENCES_MAX: u64 = 4_000;

#[test]
fn every_planted_bug_is_caught() {
    let scripts = scripts::all();
    let mut survivors = Vec::new();
    silence_panics_of_this_thread();
    let verdicts: Vec<_> =
        Bug::ALL.iter().map(|bug| (bug, by_scripts(&scripts, *bug), by_oracle(*bug))).collect();
    for (bug, by_scripts, by_oracle) in verdicts {
        println!("{:<30} {}", format!("{bug:?}"), bug.says());
        let scripts_say = match by_scripts.first() {
            Some(first) => format!("{} scripts, {first} first", by_scripts.len()),
            None => "no script".to_owned(),
        };
        let oracle_says = match by_oracle {
            Some(1) => "the oracle at the first sequence".to_owned(),
            Some(count) => format!("the oracle after {count} sequences"),
            None => format!("not by the oracle in {SEQUENCES_MAX} sequences"),
        };
        println!("{:<30} caught by {scripts_say}; {oracle_says}", "");
        if by_scripts.is_empty() && by_oracle.is_none() {
            survivors.push(*bug);
        }
    }
    println!("{} bugs planted, {} caught", Bug::ALL.len(), Bug::ALL.len() - survivors.len());
    assert!(survivors.is_empty(), "not caught: {survivors:?}");
}

/// Silences panics on this thread: an assertion of the core may catch a bug, and its backtrace is of no interest here.
/// Other tests run beside this one and keep their backtraces.
fn silence_panics_of_this_thread() {
    let (hook, silent) = (std::panic::take_hook(), std::thread::current().id());
    std::panic::set_hook(Box::new(move |panic| {
        let planted = panic.payload_as_str().is_none_or(|says| !says.starts_with("not caught"));
        if std::thread::current().id() != silent || !planted {
            hook(panic);
        }
    }));
}

#[test]
fn without_a_planted_bug_nothing_is_caught() {
    for (name, text) in scripts::all() {
        assert_eq!(scripts::run_script(&text, None), Ok(()), "{name}");
    }
}

fn by_scripts(scripts: &[(String, String)], bug: Bug) -> Vec<&str> {
    let caught = |text: &str| !matches!(catch_unwind(|| scripts::run_script(text, Some(bug))), Ok(Ok(())));
    scripts.iter().filter(|(_, text)| caught(text)).map(|(name, _)| name.as_str()).collect()
}

/// Number of the first sequence in which the oracle disagrees.
fn by_oracle(bug: Bug) -> Option<u64> {
    (1..=SEQUENCES_MAX).find(|seed| {
        let run = AssertUnwindSafe(|| properties::run_sequence(*seed, Some(bug)).map(drop));
        !matches!(catch_unwind(run), Ok(Ok(())))
    })
}
