//! `tollgate deadlocks`: lists cycles of waits that were found and broken.

use crate::exit::Exit;
use crate::failure::failed;
use crate::globals::Globals;
use crate::output;
use crate::span;
use crate::view::{cycle_json, cycle_text, missing_text, ms};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Value, json};
use tollgate_client::DeadlockFound;

const HELP: &str = "\
A deadlock is found when it arises (over several groups, within seconds), and broken by refusing one request: its \
caller was told, and the others went on. \
So what is listed here is over. Each node remembers what it found as a leader since it started; all are asked, and one \
that can't be is named. Locks that are always taken in the same order can't deadlock.

Examples:
  tollgate deadlocks
  tollgate deadlocks --limit 1 -o json";

#[derive(Debug, Args)]
struct Arguments {
    /// At most so many, newest first
    #[arg(long, value_name = "N", default_value = "100")]
    limit: u32,
}

pub(crate) fn command() -> Command {
    Arguments::augment_args(Command::new("deadlocks"))
        .about("List deadlocks that were found lately")
        .after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Arguments { limit } = Arguments::from_arg_matches(matches)?;
    globals.with_client(async |client| {
        let found = client.admin().deadlocks(limit).await.map_err(failed)?;
        let (items, output) = (found.deadlocks.iter().map(item).collect::<Vec<_>>(), globals.output);
        if !output.is_table() {
            output.list(&output::Table::new(&[]), items)?;
        } else if found.deadlocks.is_empty() {
            let by = if found.missing.is_empty() { "the nodes" } else { "the nodes that answer" };
            globals.remark(&format!("tollgate: {by} have found no deadlock since they started"));
        } else {
            found.deadlocks.iter().try_for_each(|deadlock| output::line(&for_people(deadlock)))?;
        }
        for line in missing_text(found.missing.iter(), "tollgate: there may have been more") {
            globals.remark(&line);
        }
        Ok(Exit::Done)
    })
}

fn item(deadlock: &DeadlockFound) -> Value {
    json!({
        "cycle": cycle_json(&deadlock.cycle),
        "ago_ms": ms(deadlock.ago),
        "group_id": deadlock.group.number(),
    })
}

fn for_people(deadlock: &DeadlockFound) -> String {
    let ago = span::text(deadlock.ago);
    format!("{ago} ago, the first of these was refused:\n{}", cycle_text(&deadlock.cycle))
}
