//! `tollgate unlock`: gives back a lock that some lease holds.

use super::completions::lock_names;
use crate::exit::Exit;
use crate::failure::failed;
use crate::globals::Globals;
use crate::lease_id;
use crate::view::text;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use clap_complete::ArgValueCompleter;
use serde_json::json;
use tollgate_client::{LeaseId, Token};

const HELP: &str = "\
For locks taken with a lease of one's own (`tollgate lease grant`, the JSON API). It takes the lock from whoever works \
under it: with --token only from the grant that is meant, however late the command arrives.

Examples:
  tollgate unlock db/migrate --lease 0000000000000001
  tollgate unlock db/migrate --lease 0000000000000001 --owner worker-3 --token 42";

#[derive(Debug, Args)]
struct Arguments {
    /// The lock
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(lock_names))]
    name: String,

    /// The lease that holds it
    #[arg(long, value_name = "ID", value_parser = lease_id::parse)]
    lease: LeaseId,

    /// The owner within the lease that holds it [default: the lease itself]
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    owner: String,

    /// Only if it is held with this fencing token
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    token: Option<Token>,
}

/// Reads a fencing token.
pub(crate) fn token(value: &str) -> Result<Token, String> {
    let number =
        value.parse().map_err(|_| "is no token: give the number that `tollgate get` shows".to_owned())?;
    Token::new(number).map_err(|invalid| invalid.to_string())
}

pub(crate) fn command() -> Command {
    Arguments::augment_args(Command::new("unlock"))
        .about("Give back a lock that a lease holds")
        .after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Arguments { name, lease, owner, token } = Arguments::from_arg_matches(matches)?;
    globals.with_client(async |client| {
        client.unlock(&name, lease, &owner, token).await.map_err(failed)?;
        let item = json!({"name": name, "lease_id": text(lease), "released": true});
        globals.output.one(&format!("released {name}"), &item)?;
        Ok(Exit::Done)
    })
}
