//! Flags that all commands which talk to a cluster share: its endpoints, and the output format.

use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::output::{Colour, Format, Output};
use clap::builder::{EnumValueParser, NonEmptyStringValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use std::io::IsTerminal;
use std::time::Duration;
use tokio::runtime::Runtime;
use tollgate_client::Client;

/// Default endpoint: node 1 of `tollgate dev`, or a server with the usual port on this machine. A client learns of the
/// other nodes.
pub(crate) const ENDPOINT: &str = "http://127.0.0.1:7400";

/// Environment variable with the endpoints, used if no flag gives them; `run` sets it for its command.
pub(crate) const ENDPOINTS_VARIABLE: &str = "TOLLGATE_ENDPOINTS";

/// Heading of the common flags in the help of all these commands.
pub(crate) const HEADING: &str = "Cluster and output";

/// Maximum time of a first connection and of a call, however long the user would wait.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const CALL_PATIENCE: Duration = Duration::from_secs(15);

/// Background work that is not done after this time is given up when a command ends.
const SHUTDOWN_PATIENCE: Duration = Duration::from_millis(200);

/// The values of the common flags.
#[derive(Debug)]
pub(crate) struct Globals {
    pub(crate) endpoints: Vec<String>,
    pub(crate) output: Output,
    /// True if remarks are kept off stderr. Errors are printed all the same.
    pub(crate) quiet: bool,
}

impl Globals {
    pub(crate) fn arguments() -> [Arg; 4] {
        [
            Arg::new("endpoints")
                .long("endpoints")
                .value_name("URL,...")
                .env(ENDPOINTS_VARIABLE)
                .hide_env_values(true)
                .default_value(ENDPOINT)
                .value_delimiter(',')
                .value_parser(NonEmptyStringValueParser::new())
                .help("Nodes of the cluster, some or all")
                .help_heading(HEADING),
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FORMAT")
                .value_parser(EnumValueParser::<Format>::new())
                .default_value("table")
                .hide_possible_values(true)
                .help("How results look: table, json, jsonl (one object a line); ids and tokens are strings")
                .help_heading(HEADING),
            Arg::new("color")
                .long("color")
                .value_name("WHEN")
                .value_parser(EnumValueParser::<Colour>::new())
                .default_value("auto")
                .hide_possible_values(true)
                .help("When to use colours: auto, always, never; auto means on a terminal without NO_COLOR")
                .help_heading(HEADING),
            Arg::new("quiet")
                .short('q')
                .long("quiet")
                .action(ArgAction::SetTrue)
                .help("Say nothing on stderr but errors")
                .help_heading(HEADING),
        ]
    }

    /// Reads the flags, which may stand before the command or after it; the latter are nearer, and win.
    pub(crate) fn read(root: &ArgMatches, matches: &ArgMatches) -> anyhow::Result<Globals> {
        let leaf = leaf(matches);
        let given = |of: &ArgMatches, id| of.value_source(id) == Some(ValueSource::CommandLine);
        let choose = |id| if !given(leaf, id) && given(root, id) { root } else { leaf };
        let endpoints: Vec<String> =
            choose("endpoints").get_many("endpoints").into_iter().flatten().cloned().collect();
        if endpoints.is_empty() {
            let says = format!("--endpoints names no node: give at least one, such as {ENDPOINT}");
            return Err(WithExit(Exit::Usage, says).into());
        }
        let format = *choose("output").get_one("output").expect("it has a default");
        let colour = *choose("color").get_one("color").expect("it has a default");
        Ok(Globals {
            endpoints,
            output: Output::new(format, colour),
            quiet: choose("quiet").get_flag("quiet"),
        })
    }

    /// Prints a remark on stderr, unless `--quiet` was given.
    pub(crate) fn remark(&self, text: &str) {
        if !self.quiet {
            crate::output::say(text);
        }
    }

    /// Connects to the cluster and runs `work` with the client.
    pub(crate) fn with_client<T>(
        &self,
        work: impl AsyncFnOnce(Client) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        Globals::block_on(async { work(self.connect().await?).await })
    }

    /// Runs `work` on a runtime of its own, on this thread.
    pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let runtime: Runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let done = runtime.block_on(work);
        runtime.shutdown_timeout(SHUTDOWN_PATIENCE);
        done
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        self.connect_within(None).await
    }

    /// Connects a client whose calls, and first connection, take no longer than `patience`.
    pub(crate) async fn connect_within(&self, patience: Option<Duration>) -> anyhow::Result<Client> {
        let mut client = Client::builder().endpoints(&self.endpoints).client_id(own_name());
        if let Some(patience) = patience {
            client = client
                .connect_timeout(patience.min(CONNECT_PATIENCE))
                .call_timeout(patience.min(CALL_PATIENCE));
        }
        client.connect().await.map_err(failed)
    }
}

/// Returns the matches of the innermost command: `grant` of `lease grant`.
fn leaf(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| leaf(below))
}

/// Returns the name of this process in listings: user, host and process id.
pub(crate) fn own_name() -> String {
    let uid = nix::unistd::getuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    let user = user.map_or_else(|| format!("uid-{uid}"), |user| user.name);
    let host = nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok());
    let name = format!("{user}@{}:{}", host.unwrap_or_else(|| "localhost".into()), std::process::id());
    // Names have a maximum length, and control characters would be refused.
    name.chars().filter(|letter| !letter.is_control()).take(100).collect()
}

/// True if stderr is a terminal.
pub(crate) fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}
