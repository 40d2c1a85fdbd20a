//! Entry point of the command line. Each command is a file in `command/`; this file only dispatches to it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what a command line does")]

mod arguments;
mod command;
mod exit;
mod failure;
mod globals;
mod lease_id;
mod logging;
mod output;
mod screen;
mod signals;
mod span;
mod utc;
mod view;
mod words;

use exit::Exit;
use std::process::ExitCode;

/// A server allocates and frees many small objects on a thread other than the one that allocated them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let code = execute();
    output::finish_saying();
    code
}

fn execute() -> ExitCode {
    // Internal processes come first: they are started on the way to a command, which waits for them.
    if let Some(exit) = command::run_internal() {
        return exit.into();
    }
    command::complete_and_exit_if_asked();
    let matches = match command::tree().try_get_matches_from(arguments::arguments()) {
        Ok(matches) => matches,
        Err(error) => {
            // A request for the help or the version is no mistake.
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            let text = command::help_text(&error.render());
            if error.use_stderr() {
                output::say_as_it_is(text);
            } else {
                // There may be nobody to read it.
                let _ = output::text(&text);
            }
            return code.into();
        }
    };
    match command::run(&matches) {
        Ok(exit) => exit.into(),
        Err(error) => failure::complain(&error).into(),
    }
}
