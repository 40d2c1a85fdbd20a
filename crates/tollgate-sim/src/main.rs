//! The command line of the simulator: runs seeds, shows progress, and says how to repeat a failure.
//!
//! Each world has one thread; several seeds run in parallel. This is the only file that looks at a real clock, to
//! report its speed. Not here: the worlds themselves (the library).

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what a command line does")]

mod arguments;
mod summary;

use arguments::Arguments;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use summary::{Row, Summary};
use tollgate_sim::{Outcome, Scenario, World, reduce};

/// Maximum number of runs to find the faults that a failure needs.
const REDUCE_RUNS_MAX: u32 = 150;
const TRACE_LINES: usize = 60;

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|word| word == "-h" || word == "--help") {
        println!("{}", arguments::help());
        return ExitCode::SUCCESS;
    }
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(says) => {
            eprintln!("{says}");
            return ExitCode::from(64);
        }
    };
    if let Some(seed) = arguments.seed {
        return run_one(seed, &arguments);
    }
    run_many(&arguments)
}

fn scenario(seed: u64, arguments: &Arguments) -> Scenario {
    Scenario { planted: arguments.planted, ..Scenario::new(seed) }
}

/// Runs one seed, and prints every event if asked.
fn run_one(seed: u64, arguments: &Arguments) -> ExitCode {
    let scenario = scenario(seed, arguments);
    println!("seed {seed}: {}", scenario.describe());
    for fault in &scenario.faults {
        println!("  {fault}");
    }
    let mut world = World::new(scenario.clone(), true);
    if arguments.trace {
        world.echo();
    }
    let outcome = world.run();
    println!("trace hash {:016x}", outcome.trace_hash);
    for (name, value) in outcome.stats.rows() {
        println!("  {name:22} {value}");
    }
    if outcome.is_clean() {
        println!("clean");
        return ExitCode::SUCCESS;
    }
    explain(&outcome, arguments);
    ExitCode::FAILURE
}

fn run_many(arguments: &Arguments) -> ExitCode {
    let begun = Instant::now();
    let next = AtomicU64::new(arguments.start);
    let end = arguments.start.saturating_add(arguments.seeds);
    let (failed, unread) = (AtomicBool::new(false), AtomicBool::new(false));
    let rows: Mutex<BTreeMap<u64, Row>> = Mutex::new(BTreeMap::new());
    let failures: Mutex<BTreeMap<u64, Scenario>> = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let stops = failed.load(Ordering::Relaxed) && !arguments.keep_going;
                    if seed >= end || stops || unread.load(Ordering::Relaxed) {
                        break;
                    }
                    let row = run_seed(seed, arguments, &failures);
                    if !row.clean {
                        failed.store(true, Ordering::Relaxed);
                    }
                    rows.lock().insert(seed, row);
                }
            });
        }
        if show_progress(arguments, begun, &rows, end).is_err() {
            // Nobody would read the result either: the threads need not go on to the last seed.
            unread.store(true, Ordering::Relaxed);
        }
    });
    let rows = rows.into_inner();
    let summary = Summary::new(&rows);
    println!("{}", summary.line(begun.elapsed(), arguments.jobs));
    if !arguments.quiet {
        println!("{}", summary.table());
    }
    let failures = failures.into_inner();
    if let Some((seed, first)) = failures.iter().next() {
        println!(
            "{} of {} seeds failed: {:?}",
            failures.len(),
            rows.len(),
            failures.keys().collect::<Vec<_>>()
        );
        println!("\nseed {seed}: {}", first.describe());
        explain(&World::new(first.clone(), true).run(), arguments);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run_seed(seed: u64, arguments: &Arguments, failures: &Mutex<BTreeMap<u64, Scenario>>) -> Row {
    let scenario = scenario(seed, arguments);
    let outcome = World::new(scenario.clone(), false).run();
    let mut clean = outcome.is_clean();
    if !clean {
        println!("\nseed {seed} FAILED: {}", outcome.findings().first().map_or("", String::as_str));
    }
    if arguments.check_determinism {
        let again = World::new(scenario.clone(), false).run();
        if again.trace_hash != outcome.trace_hash {
            clean = false;
            println!(
                "\nseed {seed} is not deterministic: {:016x}, {:016x}",
                outcome.trace_hash, again.trace_hash
            );
        }
    }
    if !clean {
        failures.lock().insert(seed, scenario);
    }
    Row { stats: outcome.stats, clean }
}

/// Shows the progress until all seeds are done, or one has failed. An error means that nobody reads it.
fn show_progress(
    arguments: &Arguments,
    begun: Instant,
    rows: &Mutex<BTreeMap<u64, Row>>,
    end: u64,
) -> io::Result<()> {
    if arguments.quiet {
        return Ok(());
    }
    // On a terminal, one line that changes; in a file, a line now and then.
    let terminal = io::stdout().is_terminal();
    let (opening, finish, pause_s) = if terminal { ("\r", "   ", 2) } else { ("", "\n", 30) };
    let mut shown = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let done = {
            let rows = rows.lock();
            let failed = rows.values().any(|row| !row.clean) && !arguments.keep_going;
            if shown.elapsed() > Duration::from_secs(pause_s) {
                shown = Instant::now();
                let line = Summary::new(&rows).line(begun.elapsed(), arguments.jobs);
                write!(io::stdout(), "{opening}{line}{finish}")?;
                io::stdout().flush().ok();
            }
            failed || rows.len() as u64 >= end - arguments.start
        };
        if done {
            if terminal {
                println!();
            }
            return Ok(());
        }
    }
}

/// Explains why a run failed, and how to see the failure again.
fn explain(outcome: &Outcome, arguments: &Arguments) {
    for finding in outcome.findings() {
        println!("  {finding}");
    }
    for violation in outcome.report.violations.iter().take(3) {
        println!("the events of: {}", violation.says);
        for &place in violation.events.iter().take(20) {
            let (at, event) = &outcome.history.events()[place];
            println!("  #{place} {at} {event:?}");
        }
    }
    let seed = outcome.scenario.seed;
    match outcome.scenario.planted {
        Some(bug) => println!("replay: tollgate-sim --seed {seed} --plant {}", bug.name()),
        None => println!("replay: make sim SEED={seed}"),
    }
    println!("the last events:");
    let skipped = outcome.trace.len().saturating_sub(TRACE_LINES);
    for line in &outcome.trace[skipped..] {
        println!("  {line}");
    }
    if arguments.no_reduce {
        return;
    }
    let reduced = reduce(&outcome.scenario, REDUCE_RUNS_MAX);
    println!(
        "{} of {} faults are enough ({} runs); with them: {}",
        reduced.faults.len(),
        reduced.faults_before,
        reduced.runs,
        reduced.outcome.findings().first().map_or("", String::as_str)
    );
    for fault in &reduced.faults {
        println!("  {fault}");
    }
}
