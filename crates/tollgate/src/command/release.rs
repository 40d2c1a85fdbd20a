//! `tollgate release --force`: takes a lock away from a holder that does not release it.

use super::acquisition::lock_name;
use super::completions::lock_names;
use super::unlock::token;
use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::Globals;
use crate::view::text;
use crate::words::quoted;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};
use clap_complete::ArgValueCompleter;
use serde_json::json;
use tollgate_client::{Error, Token};
use tollgate_types::escaped;

const HELP: &str = "\
The holder may not notice before its next call, and works on meanwhile: only stores that check fencing tokens keep its \
writes out. `tollgate run` ends its command. The token names the grant that is meant, never \"whoever holds it now\";
`tollgate get NAME` shows it. The reason is told to the holder and to all who watch.

Examples:
  tollgate release --force db/migrate --token 42 --reason 'host is gone, see incident 7'";

#[derive(Debug, Args)]
struct Arguments {
    /// The lock
    #[arg(value_name = "NAME", value_parser = lock_name, add = ArgValueCompleter::new(lock_names))]
    name: String,

    /// Yes, take it away
    #[arg(long, required = true, action = ArgAction::SetTrue)]
    force: bool,

    /// The fencing token of the grant to end
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    token: Token,

    /// Reason of the release
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(crate) fn command() -> Command {
    Arguments::augment_args(Command::new("release"))
        .about("Take a lock away from its holder")
        .after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Arguments { name, token, reason, .. } = Arguments::from_arg_matches(matches)?;
    globals.with_client(async |client| {
        client
            .force_release(&name, token, &reason)
            .await
            .map_err(|error| not_released(&name, token, error))?;
        let item = json!({"name": name, "fencing_token": text(token), "released": true});
        let says = format!("took {} away from the holder of token {token}", escaped(&name));
        globals.output.one(&says, &item)?;
        Ok(Exit::Done)
    })
}

/// Turns a refused release into the end of the command. A lock that nobody holds gets a message of its own, because the
/// server's message is meant for a holder.
pub(super) fn not_released(name: &str, token: Token, error: Error) -> anyhow::Error {
    match error.reason() {
        Some("NOT_HELD") => {
            let says = format!("nobody holds {name} with token {token}: there is nothing to release");
            WithExit(
                Exit::Failed,
                format!("{says}\nhint: `tollgate get {}` shows who holds it now", quoted(name)),
            )
            .into()
        }
        _ => failed(error),
    }
}
