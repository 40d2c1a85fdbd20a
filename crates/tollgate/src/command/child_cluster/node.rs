//! A node of a child cluster, as a process: `tollgate server` that does not outlive the command that started it.

use crate::command::server;
use crate::exit::{Exit, WithExit};
use crate::output;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use std::ffi::OsString;

/// The first argument of a child node's process; the arguments of `tollgate server` follow.
pub(crate) const NODE: &str = "__child-node";

/// Runs the server.
pub(crate) fn run(arguments: &[OsString]) -> Exit {
    match serve(arguments) {
        Ok(exit) => exit,
        Err(error) => {
            output::say(&format!("error: {error:#}"));
            error.downcast_ref::<WithExit>().map_or(Exit::Failed, |WithExit(exit, _)| *exit)
        }
    }
}

fn serve(arguments: &[OsString]) -> anyhow::Result<Exit> {
    // Should the command that started this process be killed, nobody would be left to stop it.
    set_pdeathsig(Signal::SIGKILL)?;
    let command_line = [OsString::from("server")].into_iter().chain(arguments.iter().cloned());
    server::run(&server::command().try_get_matches_from(command_line)?)
}
