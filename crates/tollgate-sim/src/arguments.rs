//! Arguments of the command line. Belongs to the binary.

use tollgate_sim::Planted;

/// Usage lines of the program.
const USAGE: &str =
    "usage: tollgate-sim [--seeds N] [--start S] [--jobs J] [--plant BUG] [--check-determinism]
                    [--keep-going] [--no-reduce] [--quiet]
       tollgate-sim --seed X [--trace] [--plant BUG]
       tollgate-sim --help";

/// Description of each option.
const HELP: &str = "Runs random worlds of real replicas through faults, and has what the clients saw judged.

  --seeds N            how many worlds [100]
  --start S            number of the first [0]
  --jobs J             worlds beside each other [one a core]
  --seed X             only this world, told in detail
  --trace              with --seed: every event as it happens
  --plant BUG          with a known bug in every node (build with --features planted-bugs)
  --check-determinism  run each world twice, and compare
  --keep-going         don't stop at the first that fails
  --no-reduce          don't look for the fewest faults that make it fail
  --quiet              no progress line

Ends with 0 if all worlds are clean, 1 if one is not, 64 for a wrong command line.
Example: tollgate-sim --seeds 5000 --start 100000 --keep-going";

/// Returns the whole help page.
pub(crate) fn help() -> String {
    format!("{USAGE}\n\n{HELP}")
}

/// Parsed arguments of the command line.
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Arguments {
    pub(crate) seeds: u64,
    pub(crate) start: u64,
    pub(crate) jobs: usize,
    pub(crate) seed: Option<u64>,
    pub(crate) trace: bool,
    pub(crate) planted: Option<Planted>,
    pub(crate) check_determinism: bool,
    pub(crate) keep_going: bool,
    pub(crate) no_reduce: bool,
    pub(crate) quiet: bool,
}

impl Arguments {
    /// Parses the arguments; an error says what is wrong.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let mut arguments = Arguments {
            seeds: 100,
            start: 0,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            seed: None,
            trace: false,
            planted: None,
            check_determinism: false,
            keep_going: false,
            no_reduce: false,
            quiet: false,
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--seeds" => arguments.seeds = number(&word, words.next())?,
                "--start" => arguments.start = number(&word, words.next())?,
                "--seed" => arguments.seed = Some(number(&word, words.next())?),
                "--jobs" => {
                    let jobs = number(&word, words.next())?;
                    let jobs = usize::try_from(jobs).ok().filter(|jobs| (1..=1_024).contains(jobs));
                    arguments.jobs = jobs.ok_or_else(|| format!("--jobs goes from 1 to 1024\n{USAGE}"))?;
                }
                "--plant" => arguments.planted = Some(bug(&words.next().unwrap_or_default())?),
                "--trace" => arguments.trace = true,
                "--check-determinism" => arguments.check_determinism = true,
                "--keep-going" => arguments.keep_going = true,
                "--no-reduce" => arguments.no_reduce = true,
                "--quiet" => arguments.quiet = true,
                _ => return Err(format!("{word} is not known\n{USAGE}")),
            }
        }
        arguments.validate()?;
        Ok(arguments)
    }

    fn validate(&self) -> Result<(), String> {
        let many = self.check_determinism || self.keep_going || self.quiet;
        if self.trace && self.seed.is_none() {
            return Err(format!("--trace tells of one world: give it with --seed\n{USAGE}"));
        }
        if self.seed.is_some() && many {
            return Err(format!(
                "--seed runs one world: leave out --check-determinism, --keep-going and --quiet\n{USAGE}"
            ));
        }
        if self.seeds == 0 {
            return Err(format!("--seeds 0 would show nothing\n{USAGE}"));
        }
        Ok(())
    }
}

fn number(option: &str, word: Option<String>) -> Result<u64, String> {
    let word = word.ok_or_else(|| format!("{option} needs a number\n{USAGE}"))?;
    word.replace('_', "").parse().map_err(|_| format!("{option} needs a number, not {word}\n{USAGE}"))
}

fn bug(word: &str) -> Result<Planted, String> {
    let all = Planted::all();
    let found = all.iter().copied().find(|planted| planted.name() == word);
    found.ok_or_else(|| {
        let names: Vec<String> = all.into_iter().map(Planted::name).collect();
        if names.is_empty() {
            return "there are no bugs in this build: add --features planted-bugs".to_owned();
        }
        format!("--plant needs one of: {}", names.join(", "))
    })
}
