//! `tollgate run`: a command that runs only while a lock is held.
//!
//! The lock is taken, the command runs in a process group of its own, the lock is given back. Invariant: nothing of the
//! command runs when the lease can have ended on the server: it is ended before the client's own deadline, by this
//! process (`supervisor`) or, should this process be unable to, by another (`guardian`).

pub(crate) mod forwarding;
pub(crate) mod guardian;
pub(crate) mod launcher;
pub(crate) mod nesting;
pub(crate) mod on_lost;
mod process_group;
pub(crate) mod schedule;
pub(crate) mod supervisor;
mod terminal;

use super::acquisition::Acquisition;
use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::Globals;
use crate::span;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use forwarding::Forwarding;
use nesting::Outer;
use on_lost::OnLost;
use schedule::Schedule;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use supervisor::{Ended, Held, Loss, Order};
use tollgate_client::{Client, ErrorKind, Guard, Lost, LostReason, Session};

/// How long the end of a command may be held up by giving the lock back. What is not given back ends with its lease.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

const HELP: &str = "\
The command runs in a process group of its own. Signals sent to tollgate go on to it, it has the terminal, stdin and \
stdout, and its exit code is that of tollgate. Processes that it leaves behind in its group are ended with it.

If the lock is lost, or no keepalive has been answered for so long that it might be soon, the command is ended before \
the lease can end on the server: SIGTERM, --grace later SIGKILL. This holds too if tollgate is killed, stopped or \
starved meanwhile: a small guardian process sees to it. A command under `sudo` can't be ended by a user's tollgate: \
put sudo in front of tollgate instead. A job that Ctrl-Z stops for longer than its TTL loses the lock, and is ended.

The command finds in its environment:
  TOLLGATE_LOCK_NAME         the lock
  TOLLGATE_FENCING_TOKEN     a number that grows with every grant: have stores refuse writes with a lower one
  TOLLGATE_LEASE_ID          the lease, in hex
  TOLLGATE_OWNER             the owner within the lease
  TOLLGATE_DEADLINE_UNIX_MS  when the lease would have ended if it was never renewed after the start
  TOLLGATE_ENDPOINTS         where the cluster is
A `tollgate run` inside goes on with the same lease and owner: it may take the same lock again, takes part in the \
search for deadlocks, and gives back only what it took itself.

Exit codes:
  the command's own; 128 + N if signal N ended it
  64 wrong usage, 69 cluster unreachable, 75 busy or timed out (-E N makes it N), 77 denied,
  79 lock lost, 126 the command can't be run, 127 there is no such command

Examples:
  tollgate run db/migrate -- ./migrate.sh           wait for the lock, run, give it back
  tollgate run --try nightly -- ./report.sh         on every machine: one runs it, the others get 75
  tollgate run --try -E 0 nightly -- ./report.sh    the same, and a busy lock is no failure
  tollgate run --wait 30s --why 'schema v42' db/migrate -- ./migrate.sh
  tollgate run --permits 1/3 builders -- make       at most three at a time
  tollgate run --shared dataset -- ./read.sh        together with other readers
  tollgate run db -- sh -c './write.sh --token $TOLLGATE_FENCING_TOKEN'";

#[derive(Debug, Args)]
struct Arguments {
    #[command(flatten)]
    lock: Acquisition,

    /// What happens to the command if the lock is lost: term (SIGTERM, then SIGKILL), kill (SIGKILL at the last
    /// moment), notify (SIGUSR1 to the command itself, which runs on and must know what it does)
    #[arg(long, value_name = "WHAT", value_enum, default_value = "term", hide_possible_values = true)]
    on_lost: OnLost,

    /// How long the command has to end by itself; at most a sixth of the TTL [default: 5s, or a sixth of the TTL]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    grace: Option<Duration>,

    /// Take a lease of one's own, even inside another run
    #[arg(long)]
    own_lease: bool,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", last = true, required = true, num_args = 1..)]
    command: Vec<OsString>,
}

pub(crate) fn command() -> Command {
    Arguments::augment_args(Command::new("run")).about("Run a command while holding a lock").after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let mut arguments = Arguments::from_arg_matches(matches)?;
    let program = &arguments.command[0];
    launcher::check_program(program).map_err(|(exit, says)| WithExit(exit, says))?;
    schedule_of(arguments.lock.ttl, arguments.grace)?;
    if arguments.lock.why.is_none() {
        // The name of the program and not its arguments, which may hold secrets.
        let name = Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned());
        arguments.lock.why = name;
    }
    Globals::block_on(execute(globals, &arguments))
}

fn schedule_of(ttl: Duration, grace: Option<Duration>) -> anyhow::Result<Schedule> {
    Ok(Schedule::new(ttl, grace).map_err(|says| WithExit(Exit::Usage, says))?)
}

async fn execute(globals: &Globals, arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut signals = Forwarding::start()?;
    let outer = if arguments.own_lease { None } else { Outer::find(globals)? };
    let opened = async {
        let client = globals.connect().await?;
        let session = open(&client, &arguments.lock, outer.as_ref()).await?;
        anyhow::Ok((client, session))
    };
    let (client, session) = tokio::select! {
        opened = opened => opened?,
        signal = signals.next() => return Ok(Exit::signal(signal as i32)),
    };
    let owner = outer.as_ref().map(|outer| outer.owner.as_str());
    let acquired = arguments.lock.acquire(globals, &client, &session, owner, &mut signals).await;
    let exit = match acquired {
        Ok(guard) => under(globals, arguments, &session, guard, &mut signals).await,
        Err(error) => Err(error),
    };
    if outer.is_none() {
        // A lease that is not given back ends by itself.
        let _ = tokio::time::timeout(RELEASE_PATIENCE, session.close()).await;
    }
    exit
}

/// A lease for the lock: one of its own, or that of the `run` around this one.
async fn open(client: &Client, lock: &Acquisition, outer: Option<&Outer>) -> anyhow::Result<Session> {
    let session = client.session().ttl(lock.ttl);
    let Some(outer) = outer else { return session.near(&lock.name).open().await.map_err(failed) };
    session.join(outer.lease).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::Lost => {
            let says = format!(
                "the lease {} of the run around this one has ended\nhint: --own-lease takes another",
                outer.lease
            );
            WithExit(Exit::Lost, says).into()
        }
        _ => failed(error),
    })
}

/// Runs the command under the lock, and gives the lock back.
async fn under(
    globals: &Globals,
    arguments: &Arguments,
    session: &Session,
    guard: Guard,
    signals: &mut Forwarding,
) -> anyhow::Result<Exit> {
    let token = match guard.token() {
        Ok(token) => token,
        Err(lost) => return Err(WithExit(Exit::Lost, format!("lock lost before the start: {lost}")).into()),
    };
    let (name, lease, ttl) = (&arguments.lock.name, session.lease_id(), session.ttl());
    // Of a lease that another run granted, another TTL than the one given here may hold.
    let grace = arguments.grace.map(|grace| grace.min(ttl / 6));
    let order = Order {
        command: &arguments.command,
        environment: nesting::environment(globals, name, token, lease, guard.owner(), guard.remaining()),
        schedule: schedule_of(ttl, grace)?,
        on_lost: arguments.on_lost,
        look_every: supervisor::look_every(ttl),
    };
    let ended = supervisor::supervise(&guard, order, signals).await?;
    let lost_unnoticed = give_back(globals, name, guard).await;
    match (&ended, lost_unnoticed) {
        (Ended::ByItself(_), Some(why)) if arguments.on_lost != OnLost::Notify => {
            let says = format!("the lock {name} was lost before the command had ended: {why}");
            Err(WithExit(Exit::Lost, says).into())
        }
        _ => Ok(ended.exit()),
    }
}

/// Gives the lock back; one that the `run` around this one holds stays its own. Says why if it turns out that it was
/// held no more.
async fn give_back(globals: &Globals, name: &str, guard: Guard) -> Option<String> {
    if let Err(lost) = guard.token() {
        return Some(lost.to_string());
    }
    let left = guard.remaining();
    match tokio::time::timeout(RELEASE_PATIENCE, guard.release()).await {
        Ok(Ok(())) => None,
        Ok(Err(error))
            if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound | ErrorKind::Lost) =>
        {
            Some(error.to_string())
        }
        Ok(Err(_)) | Err(_) => {
            let left = span::text(left);
            globals.remark(&format!(
                "warning: {name} could not be given back; it is free when its lease ends, in {left}"
            ));
            None
        }
    }
}

impl From<Lost> for Loss {
    fn from(lost: Lost) -> Loss {
        Loss { why: lost.to_string(), by_time: lost.reason == LostReason::Unreachable }
    }
}

impl Held for Guard {
    fn remaining(&self) -> Duration {
        Guard::remaining(self)
    }

    fn lost_now(&self) -> Option<Loss> {
        self.token().err().map(Loss::from)
    }

    async fn until_lost(&self) {
        self.lost().await;
    }
}
