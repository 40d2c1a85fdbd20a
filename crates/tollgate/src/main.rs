//! The command line. Each command is a file; this one only finds it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what a command line does")]

mod config;
mod dev;
mod exit;
mod logging;
mod server;
mod signals;

use clap::{Arg, ArgMatches, Command};
use exit::Exit;
use std::process::ExitCode;

const ABOUT: &str = "Distributed locks with leases, fair queues and fencing tokens.";

const EXAMPLES: &str = "Examples:
  tollgate dev                              a three-node cluster on this machine, ready to lock
  tollgate server --config tollgate.toml    one node of a real cluster
  tollgate config check --config tollgate.toml";

fn cli() -> Command {
    Command::new("tollgate")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(dev::command())
        .subcommand(server::command())
        .subcommand(config::command())
}

fn main() -> ExitCode {
    let matches = match cli().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version are no mistakes.
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            // Nobody may be there to read it.
            let _ = error.print();
            return code.into();
        }
    };
    match run(&matches) {
        Ok(exit) => exit.into(),
        Err(error) => {
            let exit = Exit::of(&error);
            // Problems of a configuration are many, and each says itself that it is one.
            eprintln!("{}{error:#}", if exit == Exit::Config { "" } else { "error: " });
            exit.into()
        }
    }
}

fn run(matches: &ArgMatches) -> anyhow::Result<Exit> {
    match matches.subcommand() {
        Some(("dev", matches)) => dev::run(matches),
        Some(("server", matches)) => server::run(matches),
        Some(("config", matches)) => config::run(matches),
        _ => unreachable!("clap knows no other command"),
    }
}

/// Where logs are shaped; all commands that run servers have them.
fn log_arguments() -> [Arg; 2] {
    [
        Arg::new("log-format")
            .long("log-format")
            .value_parser(["pretty", "json"])
            .help("How log lines look [default: pretty]"),
        Arg::new("log-level").long("log-level").value_name("FILTER").help(
            "What is logged: error, warn, info, debug, trace, or a filter such as tollgate_node=debug,info",
        ),
    ]
}
