//! `tollgate __reference`: the page `docs/cli.md`, made from what the commands say of themselves.

use crate::exit::Exit;
use crate::output;
use clap::{Arg, ArgMatches, Command};
use std::fmt::Write;

/// As wide as the page is to be.
const WIDTH: usize = 100;

const OPENING: &str = "\
# Command line

Made by `tollgate __reference > docs/cli.md` from the help of the commands; a test compares the two.

";

pub(crate) fn command() -> Command {
    Command::new("__reference").about("Print the reference of the command line").hide(true)
}

pub(crate) fn run(_matches: &ArgMatches) -> anyhow::Result<Exit> {
    output::text(&page())?;
    Ok(Exit::Done)
}

fn page() -> String {
    let mut page = OPENING.to_owned();
    let mut root = super::tree().term_width(WIDTH);
    root.build();
    add(&mut page, &root, &[]);
    page
}

fn add(page: &mut String, command: &Command, above: &[&str]) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let path = [above, &[command.get_name()]].concat();
    // Every key of the configuration is a flag of three commands: once is enough.
    let repeats = above.last() == Some(&"config");
    let once = |flag: Arg| {
        let hide = repeats && flag.get_help_heading().is_some();
        if hide { flag.hide(true) } else { flag }
    };
    let help = command.clone().mut_args(once).term_width(WIDTH).render_help();
    let help: Vec<String> = help.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    // Writing to a string can't fail.
    let _ = write!(page, "## `{}`\n\n```text\n{}\n```\n\n", path.join(" "), help.join("\n").trim_end());
    for below in command.get_subcommands() {
        add(page, below, &path);
    }
}
