//! `tollgate lock`: holds a lock until a signal comes, for scripts and for people who look around.

use super::acquisition::Acquisition;
use super::parting::{GivenBack, Parting, Stays};
use super::run::forwarding::Forwarding;
use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::Globals;
use crate::output;
use crate::span;
use crate::view::{mode_json, ms, permits_json, text};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde_json::json;
use tollgate_client::Guard;

const HELP: &str = "\
Prints the fencing token once the lock is held, then holds it until SIGINT, SIGTERM or SIGHUP comes or nobody reads \
its output any more, and gives it back. To run a command under a lock, `tollgate run` is better: it ends the command \
should the lock be lost.

Ends with 0 after a signal, 75 if the lock is busy or the wait is over (-E N makes it N), 79 if the lock was lost.

Examples:
  # hold it until Ctrl-C
  tollgate lock db/migrate
  # fail at once if it is busy
  tollgate lock --try --why 'looking' db
  # hold it as long as the loop reads
  tollgate lock -o jsonl jobs | while read -r held; do ./work.sh \"$held\"; done";

#[derive(Debug, Args)]
struct Arguments {
    #[command(flatten)]
    lock: Acquisition,
}

pub(crate) fn command() -> Command {
    Arguments::augment_args(Command::new("lock")).about("Hold a lock until a signal comes").after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Arguments { lock } = Arguments::from_arg_matches(matches)?;
    lock.check()?;
    Globals::block_on(async {
        let mut signals = Forwarding::start()?;
        let patience = lock.patience();
        let opening = async {
            let client = patience.connect(globals).await?;
            let session = lock.session(&client).near(&lock.name).open().await.map_err(failed)?;
            Ok((client, session))
        };
        let (client, session) = signals.unless(patience.bounds(opening)).await?;
        let mut parting = Parting::new(globals);
        let held = async {
            let guard = lock.acquire(globals, &client, &session, None, patience, &mut signals).await?;
            print(globals, &guard, &session)?;
            hold(&mut parting, guard, &mut signals).await
        };
        // If the future is dropped, the lock is released with its session.
        let went = output::while_read(held).await;
        Ok(parting.close(session, went, &mut signals).await)
    })
}

fn print(globals: &Globals, guard: &Guard, session: &tollgate_client::Session) -> anyhow::Result<()> {
    let token = guard.token().map_err(|lost| WithExit(Exit::Lost, format!("lock lost: {lost}")))?;
    let (name, lease) = (guard.name(), session.lease_id());
    let (permits, of) = permits_json(guard.mode());
    let item = json!({
        "name": name,
        "fencing_token": text(token),
        "lease_id": text(lease),
        "owner": guard.owner(),
        "mode": mode_json(guard.mode()),
        "permits": permits,
        "of": of,
        "ttl_ms": ms(session.ttl()),
        "waited_ms": ms(guard.waited()),
    });
    globals.output.next(&token.to_string(), &item)?;
    let ttl = span::text(session.ttl());
    let owner = guard.owner();
    globals.remark(&format!(
        "tollgate: holding {name} (lease {lease}, owner '{owner}', TTL {ttl}); Ctrl-C gives it back"
    ));
    Ok(())
}

async fn hold(parting: &mut Parting<'_>, guard: Guard, signals: &mut Forwarding) -> anyhow::Result<Exit> {
    tokio::select! {
        lost = guard.lost() => Err(WithExit(Exit::Lost, format!("lock lost: {lost}")).into()),
        _ = signals.next() => give_back(parting, guard, signals).await,
    }
}

/// Releases the lock. A second signal ends the wait for the cluster's answer.
async fn give_back(
    parting: &mut Parting<'_>,
    guard: Guard,
    signals: &mut Forwarding,
) -> anyhow::Result<Exit> {
    let (name, stays) = (guard.name().to_owned(), Stays::UntilLeaseEnds(guard.remaining()));
    match signals.unless_insisted(parting.give_back(&name, stays, guard.release())).await? {
        GivenBack::Done => {
            parting.remark(&format!("tollgate: gave {name} back"));
            Ok(Exit::Done)
        }
        GivenBack::Unknown => Ok(Exit::Unreachable),
        GivenBack::WasLost(why) => Err(WithExit(Exit::Lost, format!("lock lost: {why}")).into()),
    }
}
