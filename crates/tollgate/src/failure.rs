//! Mapping from failed operations to exit codes and advice for the user.

use crate::exit::{Exit, WithExit};
use tollgate_client::{Error, ErrorKind};

/// Turns a failed operation into the end of the command.
#[allow(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub(crate) fn failed(error: Error) -> anyhow::Error {
    let advice = advice(&error);
    let says = if advice.is_empty() { error.to_string() } else { format!("{error}\n{advice}") };
    WithExit(exit_of(&error), says).into()
}

/// Returns the exit of a command that failed with this error.
pub(crate) fn exit_of(error: &Error) -> Exit {
    match error.kind() {
        ErrorKind::Unreachable | ErrorKind::TimedOut => Exit::Unreachable,
        ErrorKind::Invalid => Exit::Usage,
        ErrorKind::Denied => Exit::Denied,
        ErrorKind::Deadlock => Exit::Busy,
        ErrorKind::Lost => Exit::Lost,
        _ => Exit::Failed,
    }
}

fn advice(error: &Error) -> &'static str {
    match (error.kind(), error.reason()) {
        (ErrorKind::Unreachable, _) => {
            "hint: is the cluster up? `tollgate dev` starts one on this machine; --endpoints or TOLLGATE_ENDPOINTS \
             name another"
        }
        (ErrorKind::TimedOut, _) => "hint: see how the nodes are doing with `tollgate status`",
        (_, Some("LEASE_NOT_FOUND")) => "hint: `tollgate lease ls` lists those that live",
        (_, Some("STALE_TOKEN" | "NOT_HELD")) => {
            "hint: `tollgate get NAME` shows who holds it, with which token"
        }
        (_, Some("MEMBER_REFUSED")) => {
            "hint: `tollgate member ls` shows who votes, who answers and how far each is"
        }
        (_, Some("TTL_OUT_OF_RANGE")) => {
            "hint: `tollgate limits get` shows what this cluster allows, as ttl_ms_min and ttl_ms_max"
        }
        (ErrorKind::Limit, Some("LIMIT_EXCEEDED")) => "hint: `tollgate limits` shows and changes the limits",
        _ => "",
    }
}

/// Prints an error, and returns how the process ends.
pub(crate) fn complain(error: &anyhow::Error) -> Exit {
    let known = error.downcast_ref::<WithExit>();
    let exit = known.map_or(Exit::Failed, |WithExit(exit, _)| *exit);
    let text = format!("{error:#}");
    match exit {
        // There may be many configuration problems, and each message says itself that it is an error.
        Exit::Config => crate::output::say(&text),
        // The reader of the output went away: there is nothing to say, and nobody to read it.
        _ if text.is_empty() => {}
        _ => crate::output::say(&format!("error: {text}")),
    }
    exit
}
