//! `tollgate explain`: explains in sentences why a lock is blocked, and what can be done.

use super::acquisition::lock_name;
use super::completions::lock_names;
use crate::exit::Exit;
use crate::failure::failed;
use crate::globals::Globals;
use crate::view::lock_json;
use crate::words::quoted;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use clap_complete::ArgValueCompleter;
use serde_json::json;
use tollgate_client::Explanation;
use tollgate_types::escaped;

const HELP: &str = "\
Examples:
  tollgate explain db/migrate
  tollgate explain -o json db/migrate | jq -r '.lines[]'";

#[derive(Debug, Args)]
struct Arguments {
    /// The lock
    #[arg(value_name = "NAME", value_parser = lock_name, add = ArgValueCompleter::new(lock_names))]
    name: String,
}

pub(crate) fn command() -> Command {
    let about = "Say why a lock is blocked: who holds it, since when and why, who waits, what to do";
    Arguments::augment_args(Command::new("explain")).about(about).after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Arguments { name } = Arguments::from_arg_matches(matches)?;
    globals.with_client(async |client| {
        let explanation = client.explain(&name).await.map_err(failed)?;
        let (output, advice) = (globals.output, advice(&explanation));
        let item = json!({
            "lock": lock_json(&explanation.lock),
            "slot": explanation.slot.number(),
            "group_id": explanation.group.number(),
            "leader_id": explanation.leader.map(|node| node.number().to_string()),
            "lines": explanation.lines,
            "advice": advice.iter().map(Advice::line).collect::<Vec<_>>(),
        });
        let mut lines: Vec<String> =
            explanation.lines.iter().map(|line| output.wrap(&escaped(line).to_string(), "  ")).collect();
        lines.push(format!("\n{}", output.paint.faint("What you can do:")));
        lines.extend(advice.iter().map(|Advice { command, does }| {
            format!("  {}\n  {}", output.paint.faint(&format!("# {does}")), escaped(command))
        }));
        output.one(&lines.join("\n"), &item)?;
        Ok(Exit::Done)
    })
}

/// A command that can help now, ready to be pasted, and its effect.
struct Advice {
    command: String,
    does: &'static str,
}

impl Advice {
    fn line(&self) -> String {
        format!("{}    # {}", self.command, self.does)
    }
}

fn advice(explanation: &Explanation) -> Vec<Advice> {
    let lock = &explanation.lock;
    let name = quoted(&lock.name);
    if lock.is_free() {
        return vec![Advice { command: format!("tollgate run {name} -- COMMAND"), does: "take it" }];
    }
    let mut advice =
        vec![Advice { command: format!("tollgate watch {name}"), does: "see when it changes hands" }];
    if let Some(holder) = lock.holders.first() {
        advice.push(Advice {
            command: format!("tollgate lease ttl {} --keys", holder.lease),
            does: "what else its holder holds or waits for",
        });
        advice.push(Advice {
            command: format!("tollgate release --force {name} --token {} --reason TEXT", holder.token),
            does: "take it away, if its holder is stuck",
        });
    }
    advice
}
