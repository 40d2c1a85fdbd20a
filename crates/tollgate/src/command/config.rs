//! `tollgate config`: checks and shows a configuration without starting anything. Also loads the configuration of every
//! command that needs one.

use crate::exit::{Exit, WithExit};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::PathBuf;
use tollgate_server::config::{Config, ConfigFile, KEYS, Key, Kind, Loaded, Preset, Problems, Sources};

/// Short names of flags that people type.
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

/// Adds `--config` and a flag for every key of a node.
pub(crate) fn with_arguments(command: Command) -> Command {
    with_arguments_of(command, KEYS, SHORT)
}

/// Adds `--config` and a flag for every key, and the short names.
pub(crate) fn with_arguments_of(command: Command, keys: &[Key], short: &[(&'static str, &str)]) -> Command {
    let file = Arg::new("config")
        .short('c')
        .long("config")
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("The configuration file; flags and TOLLGATE_* variables win over it");
    let mut command = command.arg(file);
    for (name, key) in short {
        let key = keys.iter().find(|known| known.path() == *key).expect("a short name is that of a key");
        let flag = Arg::new(*name).long(*name).help(key.help);
        command = command.arg(match key.kind {
            Kind::Bool => flag.action(ArgAction::SetTrue),
            kind => flag.value_name(value_name(&kind)),
        });
    }
    for key in keys {
        let preset = match &key.preset {
            Preset::Required | Preset::Empty => String::new(),
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
        Kind::Endpoints => "HOST:PORT,...",
        _ => "TEXT",
    }
}

/// Loads the configuration from flags, environment and file.
pub(crate) fn load(matches: &ArgMatches) -> anyhow::Result<Loaded> {
    load_with(matches, &[])
}

/// Loads the configuration as `load` does, with additional settings in the place of flags.
pub(crate) fn load_with(matches: &ArgMatches, more: &[(&str, &str)]) -> anyhow::Result<Loaded> {
    let mut sources = sources(matches, KEYS, SHORT)?;
    sources.flags.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    Ok(Config::load(&sources).map_err(wrong)?)
}

/// Turns a wrong configuration into the end of the command.
#[allow(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub(crate) fn wrong(problems: Problems) -> WithExit {
    WithExit(Exit::Config, problems.to_string())
}

/// Collects the settings from flags, environment and file.
pub(crate) fn sources(
    matches: &ArgMatches,
    keys: &[Key],
    short: &[(&'static str, &str)],
) -> anyhow::Result<Sources> {
    let path = matches.get_one::<PathBuf>("config");
    let file = path.map(|path| ConfigFile::read(path)).transpose().map_err(wrong)?;
    let mut flags = Vec::new();
    for key in keys {
        if let Some(value) = matches.get_one::<String>(&key.path()) {
            flags.push((key.path(), value.clone()));
        }
    }
    for (name, path) in short {
        let is_switch = keys.iter().any(|key| key.path() == *path && key.kind == Kind::Bool);
        let value = if is_switch {
            matches.get_flag(name).then(|| "true".to_owned())
        } else {
            matches.get_one::<String>(name).cloned()
        };
        flags.extend(value.map(|value| ((*path).to_owned(), value)));
    }
    Ok(Sources { file, env: std::env::vars_os().collect(), flags })
}
