//! `tollgate elect`: stands for election, leads until the end, and meanwhile runs a command if one is given.

use super::acquisition::{Patience, check_keepalive, kept_alive, lock_name};
use super::parting::{GivenBack, Parting, Stays};
use super::run::exit_of;
use super::run::family::Reach;
use super::run::forwarding::Forwarding;
use super::run::launcher;
use super::run::nesting;
use super::run::on_lost::OnLost;
use super::run::schedule::Schedule;
use super::run::supervisor::{Held, Loss, Order, look_every, supervise};
use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::Globals;
use crate::output;
use crate::span;
use crate::view::{client_text, leader_json, text};
use crate::words::quoted;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde_json::json;
use std::ffi::OsString;
use std::fmt::Display;
use std::time::Duration;
use tokio_stream::StreamExt;
use tollgate_client::{AcquireError, Client, Leader, Leadership, Session};
use tollgate_types::escaped;

const HELP: &str = "\
Waits in line until elected. With a command, runs it as long as the election holds, exactly as `tollgate run` does, \
and steps down when it ends. Without one, prints the token and leads until a signal comes.

--leader prints who leads now; --observe goes on to print every change.

Exit codes are those of `tollgate run`: 75 if not elected in time, 79 if the leadership was lost.

Examples:
  tollgate elect scheduler --value \"$(hostname)\" -- ./scheduler
  # lead until Ctrl-C
  tollgate elect scheduler --wait 10s
  tollgate elect scheduler --leader -o json
  tollgate elect scheduler --observe";

#[derive(Debug, Args)]
struct Arguments {
    /// The election
    #[arg(value_name = "NAME", value_parser = lock_name)]
    name: String,

    /// Value that the leader publishes about itself, such as its address
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    value: String,

    /// Wait at most this long, in line or for the cluster [default: in line as long as it takes]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    wait: Option<Duration>,

    /// Time that the leadership outlives us should we vanish
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "30s")]
    ttl: Duration,

    /// The time between two renewals, from 50ms to half of the TTL [default: a third of the TTL]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    keepalive: Option<Duration>,

    /// Don't stand: print who leads
    #[arg(long, conflicts_with_all = ["value", "wait", "command"])]
    leader: bool,

    /// Don't stand: print who leads, and every change
    #[arg(long, conflicts_with_all = ["value", "wait", "command", "leader"])]
    observe: bool,

    /// Let be what has left the command's process group (setsid, daemons): it runs on without leading
    #[arg(long, requires = "command")]
    leave_daemons: bool,

    /// The command to run while leading
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
}

pub(crate) fn command() -> Command {
    let about = "Lead an election, and run a command meanwhile; or see who leads";
    Arguments::augment_args(Command::new("elect")).about(about).after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let arguments = Arguments::from_arg_matches(matches)?;
    if let Some(program) = arguments.command.first() {
        launcher::check_program(program).map_err(|(exit, says)| WithExit(exit, says))?;
    }
    if arguments.leader || arguments.observe {
        // Nothing is held, so a signal may end the process where it stands.
        return globals
            .with_client(async |client| output::while_read(look(globals, &client, &arguments)).await);
    }
    check_keepalive(arguments.keepalive, arguments.ttl)?;
    Globals::block_on(stand(globals, &arguments))
}

async fn look(globals: &Globals, client: &Client, arguments: &Arguments) -> anyhow::Result<Exit> {
    if arguments.observe {
        return observe(globals, client, &arguments.name).await;
    }
    let leader = client.election(&arguments.name).leader().await.map_err(failed)?;
    print_leader(globals, &arguments.name, leader.as_ref())?;
    Ok(if leader.is_some() { Exit::Done } else { Exit::Failed })
}

fn print_leader(globals: &Globals, election: &str, leader: Option<&Leader>) -> anyhow::Result<()> {
    let says = leader.map_or_else(
        || format!("nobody leads {}", escaped(election)),
        |leader| {
            let value = escaped(&leader.value);
            let value = if leader.value.is_empty() { String::new() } else { format!(", says \"{value}\"") };
            let who = client_text(&leader.client_id, leader.lease);
            format!("{} is led by {who} with token {}{value}", escaped(election), leader.token)
        },
    );
    globals.output.next(&says, &leader_json(election, leader))
}

async fn observe(globals: &Globals, client: &Client, election: &str) -> anyhow::Result<Exit> {
    let mut leaders = client.election(election).observe();
    while let Some(leader) = leaders.next().await {
        print_leader(globals, election, leader.map_err(failed)?.as_ref())?;
    }
    Ok(Exit::Done)
}

async fn stand(globals: &Globals, arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut signals = Forwarding::start()?;
    let name = &arguments.name;
    let patience = Patience::new(arguments.wait, false);
    let opening = async {
        let client = patience.connect(globals).await?;
        let session = kept_alive(client.session().ttl(arguments.ttl), arguments.keepalive);
        session.near(name).open().await.map_err(failed)
    };
    let session = signals.unless(patience.bounds(opening)).await?;
    let mut campaign = session.campaign(name).value(arguments.value.as_bytes());
    if let Some(wait) = arguments.wait {
        campaign = campaign.wait(patience.left_of(wait));
    }
    let mut parting = Parting::new(globals);
    let elected = async { campaign.stand().await.map_err(|error| refused(name, error)) };
    let went = if arguments.command.is_empty() {
        let leads = async {
            let leadership = signals.unless(elected).await?;
            lead(globals, &session, leadership, &mut parting, &mut signals).await
        };
        // If the future is dropped, the leadership ends with its session.
        Box::pin(output::while_read(leads)).await
    } else {
        match signals.unless(elected).await {
            Ok(leadership) => {
                lead_with(globals, arguments, &session, leadership, &mut parting, &mut signals).await
            }
            Err(error) => Err(error),
        }
    };
    Ok(parting.close(session, went, &mut signals).await)
}

fn refused(name: &str, error: AcquireError) -> anyhow::Error {
    match error {
        AcquireError::Busy { .. } | AcquireError::TimedOut { .. } => {
            let says = format!(
                "not elected in time\nhint: `tollgate elect {} --leader` says who leads",
                quoted(name)
            );
            WithExit(Exit::Busy, says).into()
        }
        AcquireError::Lost(lost) => {
            WithExit(Exit::Lost, format!("the lease was lost while waiting in line: {lost}")).into()
        }
        AcquireError::Failed(error) => failed(error),
        other => WithExit(Exit::Failed, other.to_string()).into(),
    }
}

fn lost(why: &dyn Display) -> anyhow::Error {
    WithExit(Exit::Lost, format!("leadership lost: {why}")).into()
}

/// Leads until a signal comes.
async fn lead(
    globals: &Globals,
    session: &Session,
    leadership: Leadership,
    parting: &mut Parting<'_>,
    signals: &mut Forwarding,
) -> anyhow::Result<Exit> {
    let (name, lease) = (leadership.election().to_owned(), session.lease_id());
    let token = leadership.token().map_err(|why| lost(&why))?;
    let item = json!({"name": name, "fencing_token": text(token), "lease_id": text(lease)});
    globals.output.next(&token.to_string(), &item)?;
    globals.remark(&format!("tollgate: leading {name}; Ctrl-C steps down"));
    tokio::select! {
        why = leadership.lost() => return Err(lost(&why)),
        _ = signals.next() => {}
    }
    let stays = Stays::UntilLeaseEnds(leadership.remaining());
    let resigning = parting.give_back(&name, stays, leadership.resign());
    match signals.unless_insisted(resigning).await? {
        GivenBack::Done => Ok(Exit::Done),
        GivenBack::Unknown => Ok(Exit::Unreachable),
        GivenBack::WasLost(why) => Err(lost(&why)),
    }
}

/// Leads while a command runs.
async fn lead_with(
    globals: &Globals,
    arguments: &Arguments,
    session: &Session,
    leadership: Leadership,
    parting: &mut Parting<'_>,
    signals: &mut Forwarding,
) -> anyhow::Result<Exit> {
    let (name, lease, owner) = (&arguments.name, session.lease_id(), leadership.owner());
    let token = leadership.token().map_err(|why| lost(&why))?;
    let order = Order {
        command: &arguments.command,
        environment: nesting::environment(
            globals,
            None,
            name,
            (token, session.lineage()),
            lease,
            owner,
            leadership.remaining(),
        ),
        schedule: Schedule::new(arguments.ttl, None).expect("without a grace any TTL will do"),
        on_lost: OnLost::Term,
        reach: if arguments.leave_daemons { Reach::Group } else { Reach::All },
        look_every: look_every(arguments.ttl),
        stopped_max: arguments.ttl,
    };
    let ended = supervise(&leadership, order, signals).await?;
    let stays = Stays::UntilLeaseEnds(leadership.remaining());
    let given_back = match leadership.token() {
        Err(lost) => GivenBack::WasLost(lost.to_string()),
        Ok(_) => parting.give_back(name, stays, leadership.resign()).await,
    };
    exit_of(&ended, given_back, &format!("the leadership of {name}"), OnLost::Term)
}

impl Held for Leadership {
    fn remaining(&self) -> Duration {
        Leadership::remaining(self)
    }

    fn lost_now(&self) -> Option<Loss> {
        self.token().err().map(Loss::from)
    }

    async fn until_lost(&self) {
        self.lost().await;
    }
}
