//! `tollgate server`: runs one node of a cluster, until a signal or a fault.

use super::config;
use crate::exit::{Exit, WithExit};
use crate::logging;
use crate::output;
use crate::signals::Signals;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::num::NonZero;
use tollgate_server::config::Loaded;
use tollgate_server::{Listeners, Server};

/// Flag that founds a node without starting it.
const BOOTSTRAP_ONLY: &str = "bootstrap-only";

const HELP: &str = "\
The first time, every first member is started with --bootstrap; afterwards never again. They begin when all of them \
have met. --bootstrap-only founds the node and ends, for scripts that make machines; where there is a node already it \
changes nothing. One whose disk is gone can't be bootstrapped again: the others refuse it.

A node that is to join a cluster that runs is added there first (`tollgate member add` prints how to start it), and \
waits until a node of --cluster-join answers.

SIGTERM or SIGINT stop it: leadership is handed on first. A second signal stops it at once. SIGHUP does nothing but \
say so in the log: there is nothing to reload.

Ends with 0 after a signal, 1 if it could not start, 64 for a wrong command line, 70 if the node could not go on (the \
log says why), 78 for a wrong configuration.

Examples:
  # a file to start from
  tollgate config example > tollgate.toml
  # the first time, on each machine
  tollgate server --config tollgate.toml --bootstrap-only
  tollgate server --config tollgate.toml";

pub(crate) fn command() -> Command {
    let found = Arg::new(BOOTSTRAP_ONLY)
        .long(BOOTSTRAP_ONLY)
        .action(ArgAction::SetTrue)
        .conflicts_with("bootstrap")
        .help("Found the node as --bootstrap does, and end; nothing is changed where there is one");
    let command = Command::new("server").about("Run one node of a cluster");
    config::with_arguments(command).arg(found).after_help(HELP)
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<Exit> {
    if matches.get_flag(BOOTSTRAP_ONLY) {
        return found(matches);
    }
    let Loaded { config, settings } = config::load(matches)?;
    logging::start(config.log.format, &config.log.level)?;
    tollgate_server::open_files::raise();
    // Half of the cores: the thread that decides and those of the disk need the others, and where there are few cores,
    // every further thread is one more to wake.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(cores.div_ceil(2)).enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::of_server()?;
        let join = tokio::select! {
            join = tollgate_server::join(&config) => join?,
            _ = signals.next() => return Ok(Exit::Done),
        };
        let listeners = Listeners::bind(&config.listen)?;
        let server = Server::start_joining(&config, settings, listeners, join)?;
        tokio::select! {
            number = signals.next() => {
                tracing::info!(signal = number, "stopping");
                if let Err(number) = signals.while_stopping(server.stop()).await {
                    // No cleanup is needed: the disk is always in order.
                    std::process::exit(128 + number);
                }
                Ok(Exit::Done)
            }
            fault = server.failed() => Err(WithExit(Exit::Fault, fault.to_string()).into()),
        }
    })
}

/// Creates the data directory of a first member, without starting the node.
fn found(matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Loaded { config, .. } = config::load_with(matches, &[("cluster.bootstrap", "true")])?;
    logging::start(config.log.format, &config.log.level)?;
    let (node, path) = (config.node.id, config.node.data_dir.display());
    let says = if tollgate_server::found(&config)? {
        format!("node {node} is founded in {path}: start it without --bootstrap")
    } else {
        format!("node {node} is in {path} already: nothing was changed")
    };
    output::line(&says)?;
    Ok(Exit::Done)
}
