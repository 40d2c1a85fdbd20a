//! `cargo xtask hot-path`: checks that an operation takes as many instructions as when they were last recorded.
//!
//! Times differ from machine to machine and from minute to minute; instructions of the same code, counted by valgrind,
//! do not. The benchmark `hot_path` of `tollgate-gateway` is run with few and with many operations, and the difference
//! is the cost of the operations. Invariant: a higher count than recorded is a finding, and so is a clearly lower one,
//! or an improvement could be lost again unseen. Not here: the benchmark itself (`tollgate-gateway/benches/hot_path`).

use std::fmt::Write;
use std::process::Command;

/// File of recorded counts: a line for each case, with its clients and its instructions.
const WRITTEN: &str = "crates/tollgate-gateway/benches/hot_path/instructions.txt";

/// Numbers of clients that ask at once: one, as many as a busy program has, and so many that work which is shared by
/// all of them hardly counts.
const CASES: [usize; 3] = [1, 64, 1_024];

/// Operations of the two runs whose difference is taken, spread over rounds of all clients.
const FEW: usize = 2_048;
const MANY: usize = 3 * 2_048;

/// Difference in percent that the linker or a rebuilt library may make.
const TOLERATED_PERCENT: u64 = 3;

const HEADER: &str = "\
# Instructions that an operation takes, by how many clients ask at once; `cargo xtask hot-path` compares, and
# `cargo xtask hot-path --write` writes them down. Say in the commit what made the difference.
";

/// Instructions per operation for each number of clients.
type Counts = Vec<(usize, u64)>;

/// Counts the instructions, and returns the differences from the recorded counts.
pub(crate) fn compare(say: fn(&str)) -> Vec<String> {
    let (counted, written) = match (count_all(say), read()) {
        (Ok(counted), Ok(written)) => (counted, written),
        (counted, written) => return counted.err().into_iter().chain(written.err()).collect(),
    };
    differences(&counted, &written)
}

/// Counts the instructions, and records them.
pub(crate) fn write(say: fn(&str)) -> Vec<String> {
    let mut text = HEADER.to_owned();
    let counted = match count_all(say) {
        Ok(counted) => counted,
        Err(problem) => return vec![problem],
    };
    for (clients, instructions) in counted {
        writeln!(text, "{clients} {instructions}").expect("a string takes everything");
    }
    match std::fs::write(crate::tree::workspace_root().join(WRITTEN), text) {
        Ok(()) => Vec::new(),
        Err(error) => vec![format!("{WRITTEN}: {error}")],
    }
}

fn differences(counted: &Counts, written: &Counts) -> Vec<String> {
    let mut found = Vec::new();
    for (clients, now) in counted {
        let Some((_, before)) = written.iter().find(|(of, _)| of == clients) else {
            found.push(format!(
                "{WRITTEN}: nothing is written for {clients} clients: cargo xtask hot-path --write"
            ));
            continue;
        };
        let tolerated = before * TOLERATED_PERCENT / 100;
        if now.abs_diff(*before) > tolerated {
            let what = if now > before {
                "find out what made it more, or say in the commit why that is worth it"
            } else {
                "well done; so that it stays so"
            };
            found.push(format!(
                "an operation takes {now} instructions with {clients} clients, and took {before}: {what}, and write it \
                 down: cargo xtask hot-path --write"
            ));
        }
    }
    found
}

fn read() -> Result<Counts, String> {
    let text = std::fs::read_to_string(crate::tree::workspace_root().join(WRITTEN));
    parse(&text.map_err(|error| format!("{WRITTEN}: {error}"))?)
}

fn parse(text: &str) -> Result<Counts, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parsed = lines.map(|line| {
        let numbers = line
            .split_once(' ')
            .and_then(|(clients, count)| Some((clients.parse().ok()?, count.parse().ok()?)));
        numbers
            .ok_or_else(|| format!("{WRITTEN}: `{line}` is not a number of clients and one of instructions"))
    });
    parsed.collect()
}

fn count_all(say: fn(&str)) -> Result<Counts, String> {
    let mut counts = Counts::new();
    for clients in CASES {
        let operations = MANY - FEW;
        let taken = count(MANY, clients)?.checked_sub(count(FEW, clients)?);
        let taken = taken.ok_or("more operations took fewer instructions: is the benchmark broken?")?;
        let each = taken / operations as u64;
        say(&format!("{clients:>6} clients: {each:>7} instructions an operation\n"));
        counts.push((clients, each));
    }
    Ok(counts)
}

/// Returns the instructions of a whole run.
fn count(operations: usize, clients: usize) -> Result<u64, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(crate::tree::workspace_root());
    // The profile with the shortest build: counts are only compared with counts from the same profile.
    cargo.args([
        "bench",
        "--quiet",
        "--profile",
        "quick",
        "-p",
        "tollgate-gateway",
        "--bench",
        "hot_path",
        "--",
    ]);
    cargo.args([operations.to_string(), clients.to_string()]);
    let counts = "valgrind --tool=cachegrind --cache-sim=no --branch-sim=no --cachegrind-out-file=/dev/null";
    cargo.env(format!("CARGO_TARGET_{}_RUNNER", target()), counts);
    let output = cargo.output().map_err(|error| format!("cargo bench: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    instructions(&said).filter(|_| output.status.success()).ok_or_else(|| {
        format!("the benchmark could not be counted (is valgrind installed?), {}:\n{said}", output.status)
    })
}

/// Returns the target that this binary was built for, as cargo's environment variables spell it.
fn target() -> String {
    let triple = format!(
        "{}-unknown-linux-{}",
        std::env::consts::ARCH,
        if cfg!(target_env = "musl") { "musl" } else { "gnu" }
    );
    triple.to_uppercase().replace('-', "_")
}

/// Reads the count from valgrind's last lines: `==123== I refs: 1,234,567`.
fn instructions(said: &str) -> Option<u64> {
    let (_, count) = said.lines().find(|line| line.contains("refs:"))?.rsplit_once(':')?;
    count.trim().replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_what_valgrind_says() {
        assert_eq!(instructions("==7== \n==7== I   refs:      1,234,567\n"), Some(1_234_567));
        assert_eq!(instructions("==7== Cachegrind\n"), None);
    }

    #[test]
    fn more_is_a_finding_less_is_one_and_about_the_same_is_none() {
        let written = parse("# a comment\n1 1000\n64 500\n").unwrap();
        assert_eq!(written, [(1, 1_000), (64, 500)]);
        assert!(differences(&vec![(1, 1_030), (64, 486)], &written).is_empty());
        let found = differences(&vec![(1, 1_031), (64, 484)], &written);
        assert!(found[0].contains("find out what made it more"), "{found:?}");
        assert!(found[1].contains("well done"), "{found:?}");
        assert!(differences(&vec![(2, 1)], &written)[0].contains("nothing is written"));
        assert!(parse("1 much\n").is_err());
    }
}
