//! `tollgate config`: looks at a configuration without starting anything. Also where every command finds its own.

use crate::exit::{Exit, WithExit};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::PathBuf;
use tollgate_server::config::{Config, ConfigFile, KEYS, Kind, Loaded, Preset, Sources};

/// Short names for flags that people type.
const SHORT: &[(&str, &str)] = &[("bootstrap", "cluster.bootstrap"), ("insecure", "listen.insecure")];

pub(crate) fn command() -> Command {
    Command::new("config")
        .about("Look at a configuration without starting anything")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            with_arguments(Command::new("check").about("Check a configuration; prints every problem"))
                .after_help(
                    "Takes every flag of `tollgate server`. Ends with 0 if a server would start with it, and with \
                     78 if not.\n\n\
                     Examples:\n  tollgate config check --config tollgate.toml",
                ),
        )
        .subcommand(
            with_arguments(Command::new("show").about("Print every setting as a server would use it"))
                .arg(
                    Arg::new("origin")
                        .long("origin")
                        .action(ArgAction::SetTrue)
                        .help("Say where each value comes from"),
                )
                .arg(
                    Arg::new("output")
                        .short('o')
                        .long("output")
                        .value_parser(["table", "json"])
                        .default_value("table")
                        .help("How to print it"),
                )
                .after_help(
                    "Takes every flag of `tollgate server`.\n\n\
                     Examples:\n  tollgate config show --origin --config tollgate.toml",
                ),
        )
        .subcommand(
            Command::new("example")
                .about("Print a commented example to start from")
                .after_help("Examples:\n  tollgate config example > tollgate.toml"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<Exit> {
    match matches.subcommand() {
        Some(("check", matches)) => {
            load(matches)?;
            println!("the configuration is good");
        }
        Some(("show", matches)) => {
            let settings = load(matches)?.settings;
            let json = matches.get_one::<String>("output").is_some_and(|output| output == "json");
            let text = if json { settings.to_json() } else { settings.to_text(matches.get_flag("origin")) };
            println!("{}", text.trim_end());
        }
        Some(("example", _)) => print!("{}", tollgate_server::config::EXAMPLE),
        _ => unreachable!("clap knows no other command"),
    }
    Ok(Exit::Done)
}

/// Adds `--config` and a flag for every key.
pub(crate) fn with_arguments(command: Command) -> Command {
    let file = Arg::new("config")
        .short('c')
        .long("config")
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("The configuration file; flags and TOLLGATE_* variables win over it");
    let mut command = command.arg(file);
    for (name, key) in SHORT {
        let help = KEYS.iter().find(|known| known.path() == *key).map_or("", |known| known.help);
        let flag = Arg::new(*name).long(*name).action(ArgAction::SetTrue).help(help);
        command = command.arg(flag);
    }
    for key in KEYS {
        let preset = match &key.preset {
            Preset::Required => String::new(),
            preset => format!(" [default: {preset}]"),
        };
        let flag = Arg::new(key.path())
            .long(key.flag().trim_start_matches('-').to_owned())
            .value_name(value_name(&key.kind))
            .help(format!("{}{preset}", key.help))
            .help_heading(key.section);
        command = command.arg(flag);
    }
    command
}

fn value_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Bool => "BOOL",
        Kind::Number { .. } => "N",
        Kind::Millis { .. } => "MS",
        Kind::Bytes { .. } => "BYTES",
        Kind::Path => "PATH",
        Kind::Address => "HOST:PORT",
        Kind::Members => "LIST",
        _ => "TEXT",
    }
}

/// The configuration that flags, environment and file make together.
pub(crate) fn load(matches: &ArgMatches) -> anyhow::Result<Loaded> {
    let wrong = |problems: tollgate_server::config::Problems| WithExit(Exit::Config, problems.to_string());
    let path = matches.get_one::<PathBuf>("config");
    let file = path.map(|path| ConfigFile::read(path)).transpose().map_err(wrong)?;
    let mut flags = Vec::new();
    for key in KEYS {
        if let Some(value) = matches.get_one::<String>(&key.path()) {
            flags.push((key.path(), value.clone()));
        }
    }
    for (name, key) in SHORT {
        if matches.get_flag(name) {
            flags.push(((*key).to_owned(), "true".to_owned()));
        }
    }
    let sources = Sources { file, env: std::env::vars_os().collect(), flags };
    Ok(Config::load(&sources).map_err(wrong)?)
}
