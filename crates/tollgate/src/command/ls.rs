//! `tollgate ls`: lists the locks that are held or awaited.

use super::completions::lock_names;
use super::redraw::Redraw;
use crate::exit::Exit;
use crate::failure::failed;
use crate::globals::Globals;
use crate::output::{Look, Output, Table, cell};
use crate::view::{client_text, freshness, lock_json, missing_text, or_dash, span_or_dash, warn_of_age};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use clap_complete::ArgValueCompleter;
use tollgate_client::{Client, LockInfo};

const HELP: &str = "\
Only locks that somebody holds or awaits are there to be listed: a free lock takes no room anywhere.

Examples:
  tollgate ls
  # those whose name begins with db/
  tollgate ls db/
  # again and again
  tollgate ls --watch 500ms
  tollgate ls -o jsonl | jq -r 'select(.waiter_count > 0) | .name'";

#[derive(Debug, Args)]
struct Arguments {
    /// Only locks whose name begins with this
    #[arg(value_name = "PREFIX", add = ArgValueCompleter::new(lock_names))]
    prefix: Option<String>,

    /// At most so many
    #[arg(long, value_name = "N", default_value = "1000")]
    limit: usize,

    /// Take what the node at hand knows, however old: also while the cluster has no majority
    #[arg(long)]
    stale: bool,

    #[command(flatten)]
    redraw: Redraw,
}

pub(crate) fn command() -> Command {
    Arguments::augment_args(Command::new("ls"))
        .about("List locks: who holds what, and how many wait")
        .after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let arguments = Arguments::from_arg_matches(matches)?;
    globals.with_client(async |client| {
        arguments
            .redraw
            .show(globals, async |output| {
                let (locks, more) = list(&client, &arguments).await?;
                warn_of_age(globals, arguments.stale);
                print(globals, output, &locks)?;
                if more {
                    let limit = arguments.limit;
                    globals.remark(&format!(
                        "tollgate: there are more than {limit}: raise --limit, or give a prefix"
                    ));
                }
                Ok(())
            })
            .await?;
        Ok(Exit::Done)
    })
}

/// Lists locks by name, up to the limit. The bool is true if there are more.
async fn list(client: &Client, arguments: &Arguments) -> anyhow::Result<(Vec<LockInfo>, bool)> {
    let (prefix, limit) = (arguments.prefix.as_deref().unwrap_or_default(), arguments.limit);
    let page_size = u32::try_from(limit.saturating_add(1).min(1_000)).unwrap_or(1_000);
    let listing = client.list_locks(prefix).limit(page_size).consistency(freshness(arguments.stale));
    let (mut locks, mut after) = (Vec::new(), None);
    loop {
        let page = listing.page(after.as_deref()).await.map_err(failed)?;
        locks.extend(page.locks);
        after = page.next;
        if after.is_none() || locks.len() > limit {
            break;
        }
    }
    locks.sort_by(|a, b| a.name.cmp(&b.name));
    let more = after.is_some() || locks.len() > limit;
    locks.truncate(limit);
    Ok((locks, more))
}

fn print(globals: &Globals, output: Output, locks: &[LockInfo]) -> anyhow::Result<()> {
    let mut table = Table::new(&["NAME", "MODE", "HOLDER", "TOKEN", "HELD", "ENDS IN", "WAITING", "WHY"]);
    for lock in locks {
        table.row(row(lock));
    }
    if output.is_table() && table.is_empty() {
        globals.remark("tollgate: nobody holds or awaits a lock");
    }
    output.list(&table, locks.iter().map(lock_json).collect())?;
    let missing = locks.iter().flat_map(|lock| &lock.missing);
    for line in missing_text(missing, "tollgate: when some of them end is not known") {
        globals.remark(&line);
    }
    Ok(())
}

fn row(lock: &LockInfo) -> Vec<(String, Look)> {
    let waiting = match lock.waiter_count {
        0 => cell("-"),
        count => (count.to_string(), Look::Warning),
    };
    let name = (lock.name.clone(), Look::Strong);
    let Some(first) = lock.holders.first() else {
        return vec![name, cell("-"), cell("-"), cell("-"), cell("-"), cell("-"), waiting, cell("-")];
    };
    let others = lock.holder_count.saturating_sub(1);
    let who = client_text(&first.client_id, first.lease);
    let who = if others > 0 { format!("{who} +{others}") } else { who };
    vec![
        name,
        cell(first.mode),
        cell(who),
        cell(first.token),
        cell(span_or_dash(first.held)),
        cell(span_or_dash(first.remaining)),
        waiting,
        cell(or_dash(&first.why)),
    ]
}
