//! `tollgate limits`: shows and changes the limits of the cluster.

use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::Globals;
use crate::output::{Look, Output, Table, cell};
use crate::view::text;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use serde_json::{Value, json};
use tollgate_client::{GroupId, LimitInfo};

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the limits in force, or one of them
    #[command(after_help = "\
Where groups differ, each value is shown with its group.

Examples:
  tollgate limits get
  tollgate limits get waiters_per_lock_max")]
    Get(Get),
    /// Change limits, in all groups
    #[command(after_help = "\
What is over a new limit stays; nothing is added to it. Should some groups not be
reached, the error says which have changed; run it again then.

Examples:
  tollgate limits set waiters_per_lock_max=5000
  tollgate limits set ttl_ms_min=1000 ttl_ms_max=60000")]
    Set(Set),
}

#[derive(Debug, Args)]
struct Get {
    /// Only this one
    #[arg(value_name = "LIMIT")]
    name: Option<String>,

    /// Of this group [default: of all groups]
    #[arg(long, value_name = "GROUP")]
    group: Option<u32>,
}

#[derive(Debug, Args)]
struct Set {
    /// Names and values
    #[arg(value_name = "LIMIT=VALUE", required = true, value_parser = assignment)]
    limits: Vec<(String, u64)>,
}

fn assignment(given: &str) -> Result<(String, u64), String> {
    let advice = "write NAME=VALUE, such as waiters_per_lock_max=5000";
    let (name, value) = given.split_once('=').ok_or(advice)?;
    Ok((name.to_owned(), value.parse().map_err(|_| advice.to_owned())?))
}

pub(crate) fn command() -> Command {
    let command = Command::new("limits").about("Show and change how much of everything there may be");
    Action::augment_subcommands(command).subcommand_required(true).arg_required_else_help(true)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    match Action::from_arg_matches(matches)? {
        Action::Get(arguments) => get(globals, &arguments),
        Action::Set(arguments) => set(globals, &arguments),
    }
}

fn get(globals: &Globals, arguments: &Get) -> anyhow::Result<Exit> {
    globals.with_client(async |client| {
        let admin = client.admin();
        let read = match arguments.group {
            Some(group) => admin.limits(GroupId::new(group)).await,
            None => admin.all_limits().await,
        };
        let mut limits = read.map_err(failed)?;
        if let Some(name) = &arguments.name {
            limits.retain(|limit| limit.name == *name);
            if limits.is_empty() {
                let says = format!("there is no limit {name}: `tollgate limits get` lists them");
                return Err(WithExit(Exit::Usage, says).into());
            }
        }
        print(globals.output, &limits)?;
        Ok(Exit::Done)
    })
}

fn set(globals: &Globals, arguments: &Set) -> anyhow::Result<Exit> {
    globals.with_client(async |client| {
        let changes: Vec<_> = arguments.limits.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let limits = client.admin().set_limits(&changes, &[]).await.map_err(failed)?;
        let is_meant = |limit: &LimitInfo| arguments.limits.iter().any(|(name, _)| *name == limit.name);
        print(globals.output, &limits.into_iter().filter(is_meant).collect::<Vec<_>>())?;
        Ok(Exit::Done)
    })
}

fn print(output: Output, limits: &[LimitInfo]) -> anyhow::Result<()> {
    let mut table = Table::new(&["LIMIT", "VALUE", "DEFAULT", "MIN", "MAX"]);
    for limit in limits {
        let usual = limit.value == limit.default && limit.by_group.is_empty();
        let look = if usual { Look::Plain } else { Look::Warning };
        table.row(vec![
            cell(&limit.name),
            (values(limit), look),
            cell(limit.default),
            cell(limit.min),
            cell(limit.max),
        ]);
    }
    output.list(&table, limits.iter().map(limit_json).collect())
}

/// Returns the limit's value, or the value of each group where they differ.
fn values(limit: &LimitInfo) -> String {
    if limit.by_group.is_empty() {
        return limit.value.to_string();
    }
    let of = |(group, value): &(GroupId, u64)| format!("{value} (group {group})");
    limit.by_group.iter().map(of).collect::<Vec<_>>().join(", ")
}

fn limit_json(limit: &LimitInfo) -> Value {
    let of = |(group, value): &(GroupId, u64)| json!({"group_id": group.number(), "value": text(*value)});
    json!({
        "name": limit.name,
        "value": text(limit.value),
        "default": text(limit.default),
        "min": text(limit.min),
        "max": text(limit.max),
        "by_group": limit.by_group.iter().map(of).collect::<Vec<_>>(),
    })
}
