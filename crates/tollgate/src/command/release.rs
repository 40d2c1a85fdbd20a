//! `tollgate release --force`: takes a lock away from a holder that does not give it back.

use super::completions::lock_names;
use super::unlock::token;
use crate::exit::Exit;
use crate::failure::failed;
use crate::globals::Globals;
use crate::view::text;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};
use clap_complete::ArgValueCompleter;
use serde_json::json;
use tollgate_client::Token;

const HELP: &str = "\
The holder may not notice before its next call, and works on meanwhile: only stores that check fencing tokens keep its \
writes out. `tollgate run` ends its command. The token names the grant that is meant, never \"whoever holds it now\";
`tollgate get NAME` shows it. The reason is told to the holder and to all who watch.

Examples:
  tollgate release --force db/migrate --token 42 --reason 'host is gone, see incident 7'";

#[derive(Debug, Args)]
struct Arguments {
    /// The lock
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(lock_names))]
    name: String,

    /// Yes, take it away
    #[arg(long, required = true, action = ArgAction::SetTrue)]
    force: bool,

    /// The fencing token of the grant to end
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    token: Token,

    /// Why
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
        client.force_release(&name, token, &reason).await.map_err(failed)?;
        let item = json!({"name": name, "fencing_token": text(token), "released": true});
        globals.output.one(&format!("took {name} away from the holder of token {token}"), &item)?;
        Ok(Exit::Done)
    })
}
