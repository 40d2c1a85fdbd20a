//! `tollgate gateway`: serves the cluster's clients without being a node, until a signal comes. Any number of gateways
//! may run.

use super::config;
use crate::exit::Exit;
use crate::logging;
use crate::signals::Signals;
use clap::{ArgMatches, Command};
use tollgate_server::config::{GATEWAY, GatewayConfig, LoadedGateway};
use tollgate_server::{GatewayListeners, GatewayServer};

const HELP: &str = "\
It keeps nothing, so any number of gateways can stand behind a load balancer, and each can be stopped at any time. \
Clients are given the gateways' addresses only; they learn of no node, and need to reach none. It serves what a node \
serves, at the same ports unless told otherwise, and finds the leaders by itself.

SIGTERM or SIGINT stop it: what is under way is answered first, within server.shutdown_grace_ms, and sessions go on by \
another gateway. A second signal stops it at once. SIGHUP does nothing but say so in the log.

Ends with 0 after a signal, 1 if it could not start, 64 for a wrong command line, 78 for a wrong configuration. A \
cluster that can't be reached does not end it: see /readyz, and the log.

Examples:
  tollgate gateway --nodes http://10.0.0.1:7400,http://10.0.0.2:7400,http://10.0.0.3:7400
  tollgate gateway --nodes 127.0.0.1:7400 --listen 127.0.0.1:7500 --http 127.0.0.1:7502
  tollgate gateway --config gateway.toml --cluster-name production";

/// Short names of flags that people type.
const SHORT: &[(&str, &str)] = &[
    ("nodes", "gateway.nodes"),
    ("listen", "listen.client"),
    ("http", "listen.http"),
    ("insecure", "listen.insecure"),
];

pub(crate) fn command() -> Command {
    let command = Command::new("gateway").about("Run a gateway: a cluster's doors without a node");
    config::with_arguments_of(command, GATEWAY.keys, SHORT).after_help(HELP)
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<Exit> {
    let sources = config::sources(matches, GATEWAY.keys, SHORT)?;
    let LoadedGateway { config, settings } = GatewayConfig::load(&sources).map_err(config::wrong)?;
    logging::start(config.log.format, &config.log.level)?;
    tollgate_server::open_files::raise();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::of_server()?;
        let listeners = GatewayListeners::bind(&config)?;
        let server = GatewayServer::start(&config, settings, listeners)?;
        let number = signals.next().await;
        tracing::info!(signal = number, "stopping");
        if let Err(number) = signals.while_stopping(server.stop()).await {
            // A gateway keeps no data.
            std::process::exit(128 + number);
        }
        Ok(Exit::Done)
    })
}
