//! `tollgate __reference`: prints the page `docs/cli.md`, made from the help texts of the commands.

use crate::exit::Exit;
use crate::globals;
use crate::output;
use clap::{Arg, ArgMatches, Command};
use std::fmt::Write;

/// Width of the help texts on the page, in characters.
const WIDTH: usize = 100;

const OPENING: &str = "\
# Command line

Made by `tollgate __reference > docs/cli.md` from the help of the commands; a test compares the two. Commands that talk
to a cluster take the flags under \"Cluster and output\" of [`tollgate`](#tollgate), before their name or after it.

Lease ids are written and typed as `L-` and sixteen hex digits, in tables and in `-o json` alike. The JSON API has the
same ids as decimal strings, and takes this form as well.

";

pub(crate) fn command() -> Command {
    Command::new("__reference").about("Print the reference of the command line").hide(true)
}

pub(crate) fn run(_matches: &ArgMatches) -> anyhow::Result<Exit> {
    output::text(&page())?;
    Ok(Exit::Done)
}

fn page() -> String {
    let mut root = super::tree().term_width(WIDTH);
    root.build();
    let (mut contents, mut pages) = (String::new(), String::new());
    add(&mut contents, &mut pages, &root, &[]);
    format!("{OPENING}{contents}\n{}\n", pages.trim_end())
}

fn add(contents: &mut String, pages: &mut String, command: &Command, above: &[&str]) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let path = [above, &[command.get_name()]].concat();
    // Every key of the configuration is a flag of three commands, and the flags of the cluster are those of most: each
    // is listed once.
    let keys_are_told = above.last() == Some(&"config");
    let once = |flag: Arg| {
        let heading = flag.get_help_heading();
        let hide =
            heading == Some(globals::HEADING) && !above.is_empty() || keys_are_told && heading.is_some();
        if hide { flag.hide(true) } else { flag }
    };
    let help = super::help_text(&command.clone().mut_args(once).term_width(WIDTH).render_help());
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let title = path.join(" ");
    // Writing to a string can't fail.
    let (indent, anchor) = ("  ".repeat(above.len()), path.join("-"));
    let _ = writeln!(contents, "{indent}- [`{title}`](#{anchor})");
    let _ = write!(pages, "## `{title}`\n\n```text\n{}\n```\n\n", help.join("\n").trim_end());
    for below in command.get_subcommands() {
        add(contents, pages, below, &path);
    }
}
