//! The launcher: a process that becomes the command, once the command may run.
//!
//! `run` does not start a command itself, but this binary again: a process that stops, is continued when everything
//! that will end the command is ready, and only then becomes the command. So there is no moment in which the command
//! runs without anybody to end it. Should `run` die, the guardian ends the command; with `--on-lost kill` the kernel
//! kills it.

use super::on_lost::OnLost;
use super::process_group::ProcessGroup;
use crate::exit::Exit;
use crate::output::say;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getppid};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The first argument of a launcher's process.
pub(crate) const LAUNCH: &str = "__launch";

/// Returns the path of the running binary, even if another has replaced it on disk.
pub(crate) fn own_binary() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() {
        running
    } else {
        std::env::current_exe().unwrap_or_else(|_| PathBuf::from("tollgate"))
    }
}

/// Starts a process in a group of its own that will become the command. The process is stopped when this returns.
///
/// Must be called on the main thread: the kernel counts the death of the thread that started a process as its parent's.
pub(crate) fn prepare(
    command: &[OsString],
    on_lost: OnLost,
    environment: impl IntoIterator<Item = (&'static str, String)>,
) -> anyhow::Result<(Child, ProcessGroup)> {
    let mut launcher = Command::new(own_binary());
    launcher.arg0("tollgate").args([LAUNCH, on_lost.name()]).arg(Pid::this().to_string()).args(command);
    launcher.envs(environment).process_group(0);
    let child = launcher.spawn()?;
    let pid = i32::try_from(child.id())?;
    // The process stops, or it has failed and ended. In that case the next wait for it sees its end.
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    if let Ok(WaitStatus::Stopped(..)) = waitid(Id::Pid(Pid::from_raw(pid)), flags) {
        let seen = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        let _ = waitid(Id::Pid(Pid::from_raw(pid)), seen);
    }
    Ok((child, ProcessGroup::of(pid)))
}

/// Runs the launcher's process. Returns only if the command can't be run.
pub(crate) fn run(arguments: &[OsString]) -> Exit {
    let [on_lost, parent, program, rest @ ..] = arguments else { return Exit::Usage };
    let Some(on_lost) = on_lost.to_str().and_then(OnLost::of_name) else { return Exit::Usage };
    let parent = parent.to_str().and_then(|parent| parent.parse().ok()).map(Pid::from_raw);
    let orphaned = |signal| set_pdeathsig(signal).is_err() || Some(getppid()) != parent;
    // Nothing is lost if the process is killed while it is stopped.
    let is_over = orphaned(Some(Signal::SIGKILL)) || raise(Signal::SIGSTOP).is_err();
    if is_over || orphaned(at_the_death_of_run(on_lost)) {
        return Exit::Lost;
    }
    let error = Command::new(program).args(rest).exec();
    say(&format!("error: can't run {}: {error}", program.display()));
    exit_of(&error)
}

/// Signal that the kernel sends to the command should `run` die. The kernel never asks: it would do so once for every
/// thread of `run` that dies, and the guardian asks too.
fn at_the_death_of_run(on_lost: OnLost) -> Option<Signal> {
    match on_lost {
        OnLost::Kill => Some(Signal::SIGKILL),
        OnLost::Term | OnLost::Notify => None,
    }
}

fn exit_of(error: &std::io::Error) -> Exit {
    if error.kind() == ErrorKind::NotFound { Exit::NotFound } else { Exit::NotExecutable }
}

/// Checks that there is such a program, before anybody waits for a lock to run it. Passes if that can't be decided.
pub(crate) fn check_program(program: &OsStr) -> Result<(), (Exit, String)> {
    let given = Path::new(program);
    if program.as_encoded_bytes().contains(&b'/') {
        return match std::fs::metadata(given) {
            Ok(found) if found.is_dir() => {
                Err((Exit::NotExecutable, format!("can't run {}: it is a directory", given.display())))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err((Exit::NotFound, format!("can't run {}: there is no such file", given.display())))
            }
            _ => Ok(()),
        };
    }
    let Some(path) = std::env::var_os("PATH") else { return Ok(()) };
    if std::env::split_paths(&path).any(|dir| dir.join(given).is_file()) {
        return Ok(());
    }
    let says = format!("can't run {}: there is no such command in PATH", given.display());
    Err((Exit::NotFound, says))
}
