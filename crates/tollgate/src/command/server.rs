//! `tollgate server`: one node of a cluster, until a signal or a fault.

use super::config;
use crate::exit::{Exit, WithExit};
use crate::logging;
use crate::signals::Signals;
use clap::{ArgMatches, Command};
use std::num::NonZero;
use tollgate_server::config::Loaded;
use tollgate_server::{Listeners, Server};

const HELP: &str =
    "The first time, every first member is started with --bootstrap; afterwards never again. They begin
when all of them have met. One whose disk is gone can't be bootstrapped again: the others refuse it.
A node that is to join a cluster that runs is added there first (`tollgate member add` prints how to start it), and
waits until a node of --cluster-join answers.
SIGTERM or SIGINT stop it: leadership is handed on first. A second signal stops it at once.
Ends with 0 after a signal, 1 if it could not start, 64 for a wrong command line, 70 if the
node could not go on (the log says why), 78 for a wrong configuration.

Example:
  tollgate config example > tollgate.toml
  tollgate server --config tollgate.toml --bootstrap";

pub(crate) fn command() -> Command {
    config::with_arguments(Command::new("server").about("Run one node of a cluster")).after_help(HELP)
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Loaded { config, settings } = config::load(matches)?;
    logging::start(config.log.format, &config.log.level)?;
    tollgate_server::open_files::raise();
    // Half of the cores: the others have the thread that decides and those of the disk to run, and where there are few,
    // every further thread is one more to wake.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(cores.div_ceil(2)).enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
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
                    // Nothing here needs to be left in order: the disk is always.
                    std::process::exit(128 + number);
                }
                Ok(Exit::Done)
            }
            fault = server.failed() => Err(WithExit(Exit::Fault, fault.to_string()).into()),
        }
    })
}
