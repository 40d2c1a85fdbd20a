//! `tollgate explain`: why is this blocked, in sentences, and what can be done.

use super::completions::lock_names;
use crate::exit::Exit;
use crate::failure::failed;
use crate::globals::Globals;
use crate::view::lock_json;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use clap_complete::ArgValueCompleter;
use serde_json::json;
use tollgate_client::Explanation;

const HELP: &str = "\
Examples:
  tollgate explain db/migrate
  tollgate explain -o json db/migrate | jq -r '.lines[]'";

#[derive(Debug, Args)]
struct Arguments {
    /// The lock
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(lock_names))]
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
        let advice = advice(&explanation);
        let item = json!({
            "lock": lock_json(&explanation.lock),
            "slot": explanation.slot.number(),
            "group_id": explanation.group.number(),
            "leader_id": explanation.leader.map(|node| node.number().to_string()),
            "lines": explanation.lines,
            "advice": advice,
        });
        let mut text = explanation.lines.join("\n");
        if !advice.is_empty() {
            text.push_str("\n\n");
            text.push_str(&globals.output.paint.faint("What you can do:"));
            text.push_str("\n  ");
            text.push_str(&advice.join("\n  "));
        }
        globals.output.one(&text, &item)?;
        Ok(Exit::Done)
    })
}

/// Commands that help here, each with what it does.
fn advice(explanation: &Explanation) -> Vec<String> {
    let lock = &explanation.lock;
    let name = quoted(&lock.name);
    if lock.is_free() {
        return vec![format!("tollgate run {name} -- COMMAND    take it")];
    }
    let mut lines = vec![format!("tollgate watch {name}    see when it changes hands")];
    if let Some(holder) = lock.holders.first() {
        let lease = holder.lease;
        lines.push(format!("tollgate lease ttl {lease} --keys    what else its holder holds or waits for"));
        lines.push(format!(
            "tollgate release --force {name} --token {} --reason TEXT    take it away, if its holder is stuck",
            holder.token
        ));
    }
    lines
}

/// As a shell takes it.
fn quoted(name: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "/._-:@%+=,".contains(letter);
    if !name.is_empty() && name.chars().all(plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_a_shell_would_take_them_apart() {
        assert_eq!(quoted("db/migrate-v2"), "db/migrate-v2");
        assert_eq!(quoted("two words"), "'two words'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
