//! `tollgate completions`: lets a shell complete commands, flags, and the names of existing locks.
//!
//! The script that it prints calls this binary whenever the user presses Tab. Invariant: a completion is quick and
//! silent, whatever the state of the cluster.

use crate::exit::{Exit, WithExit};
use crate::globals::{ENDPOINT, ENDPOINTS_VARIABLE};
use crate::output;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};
use clap_complete::CompletionCandidate;
use clap_complete::env::{CompleteEnv, Shells};
use std::ffi::OsStr;
use std::time::Duration;
use tollgate_client::{Client, Consistency};

/// Environment variable that the script sets when it asks for completions.
const VARIABLE: &str = "TOLLGATE_COMPLETE";

/// Maximum time to list names: later ones are of no use to somebody who types.
const PATIENCE: Duration = Duration::from_millis(500);
const NAMES_MAX: u32 = 100;

const HELP: &str = "\
Names of locks are asked of the cluster in TOLLGATE_ENDPOINTS, or of the one on this machine.

Examples:
  # ~/.bashrc
  source <(tollgate completions bash)
  # ~/.zshrc
  source <(tollgate completions zsh)
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish";

pub(crate) fn command() -> Command {
    let shell = Arg::new("shell")
        .value_name("SHELL")
        .required(true)
        .value_parser(PossibleValuesParser::new(["bash", "zsh", "fish", "elvish", "powershell"]))
        .help("The shell");
    Command::new("completions")
        .about("Print a script that completes commands in a shell")
        .arg(shell)
        .after_help(HELP)
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<Exit> {
    let shell = matches.get_one::<String>("shell").expect("clap asks for it");
    let shells = Shells::builtins();
    let completer = shells
        .completer(shell)
        .ok_or_else(|| WithExit(Exit::Usage, format!("there are no completions for {shell}")))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "tollgate", "tollgate", "tollgate", &mut script)?;
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

/// Answers a shell that asks for completions, and ends the process then.
pub(crate) fn complete_and_exit_if_asked() {
    CompleteEnv::with_factory(super::tree).var(VARIABLE).complete();
}

/// Returns names of locks that begin with `begin`; none if listing them takes too long.
pub(crate) fn lock_names(begin: &OsStr) -> Vec<CompletionCandidate> {
    let Some(begin) = begin.to_str() else { return Vec::new() };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let names = runtime.block_on(async { tokio::time::timeout(PATIENCE, ask(begin)).await });
    runtime.shutdown_background();
    let names = names.ok().flatten().unwrap_or_default();
    names.into_iter().map(CompletionCandidate::new).collect()
}

async fn ask(begin: &str) -> Option<Vec<String>> {
    let endpoints = std::env::var(ENDPOINTS_VARIABLE).unwrap_or_else(|_| ENDPOINT.to_owned());
    let client = Client::connect(endpoints.split(',')).await.ok()?;
    let listing = client.list_locks(begin).limit(NAMES_MAX).consistency(Consistency::Stale);
    let page = listing.page(None).await.ok()?;
    Some(page.locks.into_iter().map(|lock| lock.name).collect())
}
