//! `tollgate demo`: short plays on a cluster of real processes, which tell what they show and check that it happened.
//!
//! Invariant: a demo ends with 0 only if every claim it makes at the end was seen in this very run. Each play is a file
//! in `demo/`: `play` makes things happen and writes down what it saw, `judge` looks at that alone. Not here: special
//! behaviour of servers or clients for a demo; there is none.

mod contention;
mod crash;
mod deadlock;
pub(crate) mod holder;
mod leader_loss;
mod narrator;
mod split_brain;
mod stage;
mod store;
mod verdict;

use crate::exit::Exit;
use crate::output;
use crate::signals::Signals;
use clap::builder::PossibleValue;
use clap::{Arg, ArgMatches, Command};
use narrator::Narrator;
use stage::Stage;
use std::time::Duration;

const HELP: &str = "\
Each demo starts three nodes, every one a process of its own with its own disk, in a temporary directory that is
removed at the end. Nothing else on this machine is touched. It takes less than 20 seconds, tells what happens with
times, and ends with 0 only if it saw what it claims.

Examples:
  # list them
  tollgate demo
  # a holder that was paused writes too late, with and without fencing
  tollgate demo split-brain";

/// Background work that is not done after this time is given up when a demo ends.
const SHUTDOWN_PATIENCE: Duration = Duration::from_millis(200);

/// Name and description of a demo.
struct Demo {
    name: &'static str,
    about: &'static str,
}

/// All demos, in the order in which they are best seen.
const DEMOS: [Demo; 5] = [
    Demo {
        name: "contention",
        about: "Three clients want one lock, and get it in the order in which they asked",
    },
    Demo { name: "crash", about: "A holder is killed; its lease ends, and the next in line gets the lock" },
    Demo {
        name: "split-brain",
        about: "A holder is paused past its lease and writes too late; a fenced store refuses",
    },
    Demo {
        name: "leader-loss",
        about: "The leader is killed while locks are held and awaited: nothing is lost",
    },
    Demo { name: "deadlock", about: "Two wait for each other; one is told so at once, with the circle" },
];

pub(crate) fn command() -> Command {
    let names = DEMOS.iter().map(|demo| PossibleValue::new(demo.name).help(demo.about));
    Command::new("demo")
        .about("See for yourself: short plays on a cluster that is started for them")
        .arg(Arg::new("name").value_name("NAME").value_parser(names.collect::<Vec<_>>()).help("Which"))
        .after_help(HELP)
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Some(name) = matches.get_one::<String>("name") else {
        output::text(&list())?;
        return Ok(Exit::Done);
    };
    let demo = DEMOS.iter().find(|demo| demo.name == name).expect("clap knows no other");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let exit = runtime.block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            exit = show(demo) => exit,
            number = signals.next() => Ok(Exit::signal(number)),
        }
    });
    runtime.shutdown_timeout(SHUTDOWN_PATIENCE);
    exit
}

fn list() -> String {
    let lines = DEMOS.iter().map(|demo| format!("{:<12} {}\n", demo.name, demo.about));
    lines.chain(["\ntollgate demo NAME plays one of them.\n".to_owned()]).collect()
}

async fn show(demo: &Demo) -> anyhow::Result<Exit> {
    let tell = Narrator::new();
    tell.title(demo.about)?;
    let mut stage = Stage::set(tell).await?;
    let verdict = match demo.name {
        "contention" => contention::play(&stage).await?,
        "crash" => crash::play(&stage).await?,
        "split-brain" => split_brain::play(&stage).await?,
        "leader-loss" => leader_loss::play(&mut stage).await?,
        "deadlock" => deadlock::play(&stage).await?,
        other => unreachable!("{other} is in the list and has no play"),
    };
    stage.tell.verdict(&verdict)?;
    Ok(if verdict.holds() { Exit::Done } else { Exit::Failed })
}
