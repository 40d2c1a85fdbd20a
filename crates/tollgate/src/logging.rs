//! Log lines on stderr, as text for people or as one JSON object each.

use clap::Arg;
use std::io::IsTerminal;
use tollgate_server::config::LogFormat;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// Starts the log. To be called once in a process.
pub(crate) fn start(format: LogFormat, level: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(level)?;
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Json => lines.json().flatten_event(true).init(),
        LogFormat::Pretty => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            lines.with_ansi(colours).with_target(false).init();
        }
    }
    Ok(())
}

/// Returns the log flags, which all commands that run servers have.
pub(crate) fn log_arguments() -> [Arg; 2] {
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
