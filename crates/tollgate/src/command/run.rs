//! `tollgate run`: a command that runs only while a lock is held.
//!
//! The lock is acquired, the command runs in a process group of its own, the lock is released. Invariant: no process
//! that the command started still runs when the lease can have expired on the server: it is ended before the client's
//! own deadline, by this process (`supervisor`) or, should this process be unable to, by another (`guardian`). A lock
//! that an operator took away is free at once, before any command can be ended.

mod boot_clock;
pub(crate) mod family;
pub(crate) mod forwarding;
pub(crate) mod guardian;
pub(crate) mod launcher;
pub(crate) mod nesting;
pub(crate) mod on_lost;
mod process;
mod process_group;
mod run_id;
pub(crate) mod schedule;
mod search;
pub(crate) mod supervisor;
mod terminal;

use super::acquisition::Acquisition;
use super::parting::{GivenBack, Parting, Stays};
use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::Globals;
use crate::span;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use family::Reach;
use forwarding::Forwarding;
use nesting::Outer;
use on_lost::OnLost;
use schedule::Schedule;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use supervisor::{Ended, Held, Loss, Order};
use tollgate_client::{Client, ErrorKind, Guard, Lost, LostReason, Session};

const HELP: &str = "\
The command runs in a process group of its own. Signals sent to tollgate go on to it, it has the terminal, stdin and \
stdout, and its exit code is that of tollgate. Processes that it leaves behind are ended with it, even if they have \
left the group or become orphans (setsid, timeout, daemons). With --leave-daemons those that have left the group are \
let be, when the command ends and when the lock is lost: they then run without the lock, and so may others that do \
the same. That is right for a command that starts a service and is done (start-app.sh, ssh with ControlPersist, \
build daemons), and wrong for one whose work goes on in what it started.

If no keepalive has been answered for so long that the lease might end soon, the command is ended before it can end on \
the server: SIGTERM, --grace later SIGKILL. This holds too if tollgate is killed, stopped or starved meanwhile: a \
small guardian process sees to it. A lock that is taken away (release --force, lease revoke, unlock) is free at once: \
the command is ended in the same way, but others may have the lock before it is gone. A job that Ctrl-Z stops for \
longer than its TTL loses the lock, and is ended. So is, without a terminal, a command that SIGTSTP or SIGSTOP stops \
for longer than the TTL: until then the lock is renewed, and SIGCONT takes it up again.

Out of reach are processes that others start for the command (systemd-run, docker, cron, a remote shell) and those of \
another user: put sudo in front of tollgate, not behind it. Should tollgate itself be killed, stopped or starved, \
orphans are out of reach too that have emptied their environment, or whose environment may not be read (ssh-agent, \
setuid programs).

The command finds in its environment:
  TOLLGATE_LOCK_NAME         the lock
  TOLLGATE_FENCING_TOKEN     a number that grows with every grant: have stores refuse writes with a lower one
  TOLLGATE_LINEAGE           the history of grants that the token belongs to: clusters restored from one backup share \
it; empty while a cluster has none
  TOLLGATE_LEASE_ID          the lease, as the command line takes it
  TOLLGATE_OWNER             the owner within the lease
  TOLLGATE_DEADLINE_UNIX_MS  when the lease would have ended if it was never renewed after the start
  TOLLGATE_ENDPOINTS         where the cluster is
  TOLLGATE_HELD              for runs inside: what this one and those around it hold, as JSON
  TOLLGATE_RUNS              for guardians: which runs this process belongs to
A `tollgate run` inside goes on with the same lease. A lock that a run around it holds it may take again, as often as \
it likes, and never gives back. Any other lock it takes for itself: runs inside that run at a time exclude each other, \
and give back what they took. The search for deadlocks does not see that the run around waits for the one inside, so \
nested runs that take locks in opposite order wait for ever: take them in the same order, or give --wait. What a run \
inside held or waited for that is killed with SIGKILL, or made to hurry by a second signal, stays so until the \
outermost run ends.

Exit codes:
  the command's own; 128 + N if signal N ended it
  64 wrong usage, 69 cluster unreachable, 75 busy or timed out (-E N makes it N), 77 denied,
  79 lock lost, 126 the command can't be run, 127 there is no such command

Examples:
  # wait for the lock, run, give it back
  tollgate run db/migrate -- ./migrate.sh
  # on every machine: one runs it, the others get 75
  tollgate run --try nightly -- ./report.sh
  # the same, and a busy lock is no failure
  tollgate run --try -E 0 nightly -- ./report.sh
  tollgate run --wait 30s --why 'schema v42' db/migrate -- ./migrate.sh
  # at most three at a time
  tollgate run --permits 1/3 builders -- make
  # together with other readers
  tollgate run --shared dataset -- ./read.sh
  tollgate run db -- sh -c './write.sh --token $TOLLGATE_FENCING_TOKEN'";

#[derive(Debug, Args)]
struct Arguments {
    #[command(flatten)]
    lock: Acquisition,

    /// Action on the command if the lock is lost: term (SIGTERM, then SIGKILL), kill (SIGKILL at the last moment),
    /// notify (SIGUSR1 to the command itself, which runs on and must know what it does)
    #[arg(long, value_name = "WHAT", value_enum, default_value = "term", hide_possible_values = true)]
    on_lost: OnLost,

    /// Time that the command has to end by itself; at most a sixth of the TTL [default: 5s, or a sixth of the TTL]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    grace: Option<Duration>,

    /// Let be what has left the command's process group (setsid, daemons): it runs on without the lock
    #[arg(long)]
    leave_daemons: bool,

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
    arguments.lock.check()?;
    schedule_of(arguments.lock.ttl, arguments.grace)?;
    if arguments.lock.why.is_none() {
        // Only the name of the program: its arguments may hold secrets.
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
    let patience = arguments.lock.patience();
    let opening = async {
        let client = patience.connect(globals).await?;
        let session = open(&client, &arguments.lock, outer.as_ref()).await?;
        let owner = held_around(&client, &arguments.lock.name, outer.as_ref()).await?;
        Ok((client, session, owner))
    };
    let (client, session, owner) = signals.unless(patience.bounds(opening)).await?;
    let mut parting = Parting::new(globals);
    let acquired = arguments.lock.acquire(globals, &client, &session, owner, patience, &mut signals).await;
    let went = match acquired {
        Ok(guard) => {
            under(globals, arguments, outer.as_ref(), &session, guard, &mut parting, &mut signals).await
        }
        Err(error) => Err(error),
    };
    Ok(parting.close(session, went, &mut signals).await)
}

/// Opens a session for the lock, with a lease of its own or with the lease of the `run` around this one.
async fn open(client: &Client, lock: &Acquisition, outer: Option<&Outer>) -> anyhow::Result<Session> {
    let session = lock.session(client);
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

/// Returns the owner under which a `run` around this one holds the lock. A lock that no outer run holds is requested by
/// an owner of this run's own: other runs may share the lease, and must be kept out.
async fn held_around<'a>(
    client: &Client,
    name: &str,
    outer: Option<&'a Outer>,
) -> anyhow::Result<Option<&'a str>> {
    let Some((outer, owner)) = outer.and_then(|outer| Some((outer, outer.owner_of(name)?))) else {
        return Ok(None);
    };
    // The outer run may have lost the lock meanwhile.
    let lock = client.get_lock(name).await.map_err(failed)?;
    Ok(lock.may_be_held_by(outer.lease, owner).then_some(owner))
}

/// Runs the command under the lock, and releases the lock.
async fn under(
    globals: &Globals,
    arguments: &Arguments,
    outer: Option<&Outer>,
    session: &Session,
    guard: Guard,
    parting: &mut Parting<'_>,
    signals: &mut Forwarding,
) -> anyhow::Result<Exit> {
    let token = match guard.token() {
        Ok(token) => token,
        Err(lost) => return Err(WithExit(Exit::Lost, format!("lock lost before the start: {lost}")).into()),
    };
    let (name, lease, ttl) = (&arguments.lock.name, session.lease_id(), session.ttl());
    // A lease that another run granted may have another TTL than the flag of this run.
    let grace = arguments.grace.map(|grace| grace.min(ttl / 6));
    let order = Order {
        command: &arguments.command,
        environment: nesting::environment(
            globals,
            outer,
            name,
            (token, guard.lineage()),
            lease,
            guard.owner(),
            guard.remaining(),
        ),
        schedule: schedule_of(ttl, grace)?,
        on_lost: arguments.on_lost,
        reach: if arguments.leave_daemons { Reach::Group } else { Reach::All },
        look_every: supervisor::look_every(ttl),
        stopped_max: ttl,
    };
    let ended = supervisor::supervise(&guard, order, signals).await?;
    let of_own_lease = Stays::UntilLeaseEnds(guard.remaining());
    let stays = outer.map_or(of_own_lease, |_| Stays::UntilOutermostRunEnds);
    let given_back = match guard.token() {
        Err(lost) => GivenBack::WasLost(lost.to_string()),
        // A lock that an outer `run` holds stays with that run.
        Ok(_) => parting.give_back(name, stays, guard.release()).await,
    };
    exit_of(&ended, given_back, &format!("the lock {name}"), arguments.on_lost)
}

/// Decides how the process ends: the lock counts as lost if the command ended by itself, but only after the lock was
/// gone.
pub(crate) fn exit_of(
    ended: &Ended,
    given_back: GivenBack,
    what: &str,
    on_lost: OnLost,
) -> anyhow::Result<Exit> {
    match (ended, given_back) {
        (Ended::ByItself(_), GivenBack::WasLost(why)) if on_lost != OnLost::Notify => {
            let says = format!("{what} was lost before the command had ended: {why}");
            Err(WithExit(Exit::Lost, says).into())
        }
        _ => Ok(ended.exit()),
    }
}

impl From<Lost> for Loss {
    fn from(lost: Lost) -> Loss {
        Loss {
            why: lost.to_string(),
            by_time: matches!(lost.reason, LostReason::Unreachable | LostReason::Paused),
        }
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
