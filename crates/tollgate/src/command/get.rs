//! `tollgate get`: shows one lock, with all its holders and waiters.

use super::acquisition::lock_name;
use super::completions::lock_names;
use super::redraw::Redraw;
use crate::exit::Exit;
use crate::failure::failed;
use crate::globals::Globals;
use crate::output::{Look, Output, Table, cell};
use crate::view::{
    client_text, closed_text, freshness, lock_json, missing_text, or_dash, span_or_dash, warn_of_age,
};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use clap_complete::ArgValueCompleter;
use std::fmt::Write;
use std::time::Duration;
use tollgate_client::LockInfo;
use tollgate_types::escaped;

const HELP: &str = "\
A lock that nobody holds or awaits is free; there is no other way not to exist.

Examples:
  tollgate get db/migrate
  # the queue as it moves
  tollgate get --watch db/migrate
  tollgate get -o json db/migrate | jq -r '.holders[].fencing_token'";

#[derive(Debug, Args)]
struct Arguments {
    /// The lock
    #[arg(value_name = "NAME", value_parser = lock_name, add = ArgValueCompleter::new(lock_names))]
    name: String,

    /// Take what the node at hand knows, however old: also while the cluster has no majority
    #[arg(long)]
    stale: bool,

    #[command(flatten)]
    redraw: Redraw,
}

pub(crate) fn command() -> Command {
    Arguments::augment_args(Command::new("get"))
        .about("Show one lock: who holds it, who waits")
        .after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Arguments { name, stale, redraw } = Arguments::from_arg_matches(matches)?;
    globals.with_client(async |client| {
        redraw
            .show(globals, async |output| {
                let lock = client.get_lock_with(&name, freshness(stale)).await.map_err(failed)?;
                warn_of_age(globals, stale);
                output.one(text(&lock, output).trim_end(), &lock_json(&lock))
            })
            .await?;
        Ok(Exit::Done)
    })
}

fn text(lock: &LockInfo, output: Output) -> String {
    let name = output.paint.strong(&escaped(&lock.name).to_string());
    if lock.is_free() {
        return format!("{name} is free");
    }
    let mut text = format!("{name}: {} hold it, {} wait\n", lock.holder_count, lock.waiter_count);
    if lock.closed_for > Duration::ZERO {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{}", closed_text(lock.closed_for, lock.restored));
    }
    for table in [holders(lock), waiters(lock)].iter().filter(|table| !table.is_empty()) {
        text.push('\n');
        text.push_str(&output.render(table));
    }
    for line in missing_text(lock.missing.iter(), "not all is known of them") {
        let _ = writeln!(text, "\n{line}");
    }
    text
}

fn holders(lock: &LockInfo) -> Table {
    let mut table = Table::new(&["HOLDER", "LEASE", "OWNER", "MODE", "TOKEN", "HELD", "ENDS IN", "WHY"]);
    for holder in &lock.holders {
        table.row(vec![
            cell(client_text(&holder.client_id, holder.lease)),
            (holder.lease.to_string(), Look::Faint),
            (or_dash(&holder.owner).to_owned(), Look::Faint),
            cell(holder.mode),
            (holder.token.to_string(), Look::Strong),
            cell(span_or_dash(holder.held)),
            cell(span_or_dash(holder.remaining)),
            cell(or_dash(&holder.why)),
        ]);
    }
    table
}

fn waiters(lock: &LockInfo) -> Table {
    let mut table = Table::new(&["#", "WAITER", "LEASE", "OWNER", "MODE", "WAITED", "GIVES UP IN", "WHY"]);
    for waiter in &lock.waiters {
        let mode =
            if waiter.upgrade { format!("{} (upgrade)", waiter.mode) } else { waiter.mode.to_string() };
        table.row(vec![
            cell(waiter.position),
            cell(client_text(&waiter.client_id, waiter.lease)),
            (waiter.lease.to_string(), Look::Faint),
            (or_dash(&waiter.owner).to_owned(), Look::Faint),
            cell(mode),
            cell(span_or_dash(waiter.waited)),
            cell(span_or_dash(waiter.remaining)),
            cell(or_dash(&waiter.why)),
        ]);
    }
    table
}
