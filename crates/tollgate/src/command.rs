//! The table of all commands, and the lookup of a command by its name.
//!
//! A command is a file here with two functions: `command` defines its command line, `run` executes it. Commands that
//! talk to a cluster share some flags (`globals`), which may stand before the command's name or after it.

mod acquisition;
mod bench;
mod child_cluster;
mod completions;
mod config;
mod deadlocks;
mod demo;
mod dev;
mod elect;
mod explain;
mod gateway;
mod get;
mod group;
mod health;
mod lease;
mod limits;
mod lock;
mod ls;
mod member;
mod parting;
mod redraw;
mod reference;
mod release;
mod run;
mod server;
mod snapshot;
mod status;
mod unlock;
mod waiting;
mod watch;

use crate::exit::Exit;
use crate::globals::Globals;
use clap::{ArgMatches, Command};

const ABOUT: &str = "Distributed locks with leases, fair queues and fencing tokens.";

const EXAMPLES: &str = "\
Examples:
  # a three-node cluster on this machine, ready to lock
  tollgate dev
  # short plays that show what locks are good for
  tollgate demo
  # run a command while holding a lock
  tollgate run db/migrate -- ./migrate.sh
  # who holds what
  tollgate ls
  # why is this blocked?
  tollgate explain db/migrate
  # one node of a real cluster
  tollgate server --config tollgate.toml

Exit codes: 0 done, 1 failed, 64 wrong usage, 69 cluster unreachable, 75 busy or timed out, 77 denied, 79 lock lost. \
`tollgate COMMAND --help` has examples of each command.";

/// Entry point of a command.
#[derive(Clone, Copy)]
enum Run {
    /// A command that needs no cluster.
    Alone(fn(&ArgMatches) -> anyhow::Result<Exit>),
    /// A command that talks to a cluster, and gets the global flags.
    Client(fn(&Globals, &ArgMatches) -> anyhow::Result<Exit>),
}

use Run::{Alone, Client};

/// Every command, in the order of the help.
const COMMANDS: [(fn() -> Command, Run); 25] = [
    (run::command, Client(run::run)),
    (lock::command, Client(lock::run)),
    (unlock::command, Client(unlock::run)),
    (ls::command, Client(ls::run)),
    (get::command, Client(get::run)),
    (explain::command, Client(explain::run)),
    (watch::command, Client(watch::run)),
    (elect::command, Client(elect::run)),
    (lease::command, Client(lease::run)),
    (release::command, Client(release::run)),
    (deadlocks::command, Client(deadlocks::run)),
    (status::command, Client(status::run)),
    (member::command, Client(member::run)),
    (group::command, Client(group::run)),
    (limits::command, Client(limits::run)),
    (snapshot::command, Client(snapshot::run)),
    (bench::command, Client(bench::run)),
    (dev::command, Alone(dev::run)),
    (demo::command, Alone(demo::run)),
    (server::command, Alone(server::run)),
    (gateway::command, Alone(gateway::run)),
    (health::command, Alone(health::run)),
    (config::command, Alone(config::run)),
    (completions::command, Alone(completions::run)),
    (reference::command, Alone(reference::run)),
];

/// Returns the command line of the program: all commands with their flags and help.
pub(crate) fn tree() -> Command {
    let root = Command::new("tollgate")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(EXAMPLES)
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(Globals::arguments());
    let root = COMMANDS.iter().fold(root, |root, (command, run)| {
        let command = command();
        root.subcommand(match run {
            Alone(_) => command,
            Client(_) => command.args(Globals::arguments().map(|argument| argument.global(true))),
        })
    });
    with_whole_examples(root)
}

/// Stands for a space at which a line must not be broken. Lines of example commands are never broken, or they could not
/// be pasted.
const UNBROKEN: char = '\u{a0}';

/// Keeps the lines of examples whole, however narrow the terminal is.
fn with_whole_examples(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let command =
        names.iter().fold(command, |command, name| command.mut_subcommand(name, with_whole_examples));
    let Some(help) = command.get_after_help().map(ToString::to_string) else { return command };
    let (mut lines, mut examples) = (Vec::new(), false);
    for line in help.lines() {
        examples = examples && line.starts_with("  ") || line.starts_with("Example");
        let whole = examples && line.starts_with("  ");
        lines.push(if whole { line.replace(' ', &UNBROKEN.to_string()) } else { line.to_owned() });
    }
    command.after_help(lines.join("\n"))
}

/// Returns a help text as the user sees it, with normal spaces.
pub(crate) fn help_text(help: &impl ToString) -> String {
    help.to_string().replace(UNBROKEN, " ")
}

/// Runs the command that was given on the command line.
pub(crate) fn run(root: &ArgMatches) -> anyhow::Result<Exit> {
    let (name, matches) = root.subcommand().expect("clap asks for one");
    let (_, run) =
        COMMANDS.iter().find(|(command, _)| command().get_name() == name).expect("clap knows no other");
    match run {
        Alone(run) => run(matches),
        Client(run) => run(&Globals::read(root, matches)?, matches),
    }
}

/// Runs the internal role of this process, if another `tollgate` process started it for one (a child node, a launcher,
/// ...).
pub(crate) fn run_internal() -> Option<Exit> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let (first, rest) = arguments.split_first()?;
    match first.to_str()? {
        child_cluster::node::NODE => Some(child_cluster::node::run(rest)),
        demo::holder::HOLDER => Some(demo::holder::run(rest)),
        run::launcher::LAUNCH => Some(run::launcher::run(rest)),
        run::guardian::GUARD => Some(run::guardian::run(rest)),
        _ => None,
    }
}

pub(crate) use completions::complete_and_exit_if_asked;
pub(crate) use run::forwarding::is_ignored;

#[cfg(test)]
mod tests {
    use super::*;

    /// Doc comments of shared argument structs: a command whose description is one of these has lost its own.
    const ABOUTS_OF_PARTS: [&str; 2] =
        ["Flags of a request for a lock: its name, its mode and the time to wait", "The `--watch` flag"];

    #[test]
    fn the_tree_is_sound() {
        tree().debug_assert();
    }

    /// A broken command could not be pasted.
    #[test]
    fn examples_are_whole_on_terminals_of_any_width() {
        fn check(command: &Command) {
            let help = command.get_after_help().map(help_text).unwrap_or_default();
            let examples = help.split_once("Examples:\n").map_or("", |(_, examples)| examples);
            for width in [40, 80, 100] {
                let shown = help_text(&command.clone().term_width(width).render_help());
                let mut continued = false;
                for line in examples.lines().take_while(|line| line.starts_with("  ")) {
                    assert!(shown.lines().any(|shown| shown == line), "{line:?} at {width}:\n{shown}");
                    let what = line.trim_start();
                    let begins = ["# ", "tollgate ", "source "].iter().any(|begin| what.starts_with(begin));
                    assert!(continued != begins, "{line}");
                    continued = what.ends_with('\\');
                }
                assert!(!continued, "{examples}");
            }
            command.get_subcommands().for_each(check);
        }
        let mut root = tree();
        root.build();
        check(&root);
    }

    #[test]
    fn every_command_teaches_by_example() {
        fn check(command: &Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let help = command.get_after_help().map(help_text).unwrap_or_default();
            if command.has_subcommands() {
                command.get_subcommands().for_each(|below| check(below, &path));
            } else if !command.is_hide_set() {
                assert!(help.contains(path.trim_start()), "{path} has no example of itself:\n{help}");
                let about = command.get_about().map(ToString::to_string).unwrap_or_default();
                assert!(!about.is_empty() && !ABOUTS_OF_PARTS.contains(&about.as_str()), "{path}: {about}");
            }
        }
        tree().get_subcommands().for_each(|command| check(command, "tollgate"));
    }
}
