//! `tollgate unlock`: releases a lock that some lease holds.

use super::acquisition::lock_name;
use super::completions::lock_names;
use super::release::not_released;
use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::Globals;
use crate::lease_id;
use crate::view::text;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use clap_complete::ArgValueCompleter;
use serde_json::json;
use tollgate_client::{Client, LeaseId, Token};
use tollgate_types::escaped;

const HELP: &str = "\
For locks taken with a lease of one's own (`tollgate lease grant`, the JSON API). It takes the lock from whoever works \
under it: with --token only from the grant that is meant, however late the command arrives. `tollgate get NAME` shows \
lease, owner and token of each holder. Quote owners: a shell may make something else of `~1`.

Examples:
  tollgate unlock db/migrate --lease L-0000000000000001
  tollgate unlock db/migrate --lease L-0000000000000001 --owner '~1'
  tollgate unlock db/migrate --token 42";

#[derive(Debug, Args)]
struct Arguments {
    /// The lock
    #[arg(value_name = "NAME", value_parser = lock_name, add = ArgValueCompleter::new(lock_names))]
    name: String,

    /// The lease that holds it; not needed with --token
    #[arg(long, value_name = "ID", value_parser = lease_id::parse, required_unless_present = "token")]
    lease: Option<LeaseId>,

    /// The owner within the lease that holds it [default: whoever has the token; without one the lease itself]
    #[arg(long, value_name = "TEXT", requires = "lease")]
    owner: Option<String>,

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
        match (lease, &owner, token) {
            // The token identifies the grant, and so its holder.
            (lease, None, Some(token)) => unlock_by_token(&client, &name, lease, token).await?,
            (Some(lease), owner, token) => {
                let owner = owner.as_deref().unwrap_or_default();
                client.unlock(&name, lease, owner, token).await.map_err(failed)?;
            }
            (None, ..) => unreachable!("clap asks for a lease or a token"),
        }
        let item = json!({"name": name, "lease_id": lease.map(text), "released": true});
        globals.output.one(&format!("released {}", escaped(&name)), &item)?;
        Ok(Exit::Done)
    })
}

/// Releases the grant with this token. A lease, if given, must be the one that holds it.
async fn unlock_by_token(
    client: &Client,
    name: &str,
    lease: Option<LeaseId>,
    token: Token,
) -> anyhow::Result<()> {
    let lock = client.get_lock(name).await.map_err(failed)?;
    let holder = lock.holders.iter().find(|holder| holder.token == token);
    if let Some((holder, lease)) = holder.zip(lease).filter(|(holder, lease)| holder.lease != *lease) {
        let says = format!("{name} is held with token {token}, but by lease {}, not {lease}", holder.lease);
        return Err(WithExit(Exit::Failed, says).into());
    }
    client.unlock_by_token(name, token).await.map_err(|error| not_released(name, token, error))
}
