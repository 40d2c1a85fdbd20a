//! The operator: runs commands on the command line, and repeats them while the reason for a refusal may pass.
//!
//! Other faults may leave a group without a leader, or a node out of touch, while members change. Invariant: an
//! interrupted command can be repeated until it is complete; a refusal that does not pass with time is a problem. Not
//! here: the choice of commands (`faults/membership`).

use super::arena::{Arena, RECOVERY};
use crate::cluster::BINARY;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A command that takes longer hangs.
const COMMAND_S_MAX: u64 = 90;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Words of refusals that no other fault explains, and that do not pass with time.
const SENSELESS: [&str; 9] = [
    "was used before",
    "is not a member",
    "is not a learner",
    "is not a voter",
    "no voter that keeps locks",
    "is at one of these addresses",
    "never used again",
    "has at most",
    "internal",
];

/// Repeats a command until it succeeds. Returns its output.
pub(crate) async fn carry_out(arena: &Arena, arguments: &[&str]) -> Result<String, String> {
    let until = Instant::now() + RECOVERY;
    loop {
        let Output { status, stdout, stderr } = tollgate(arena.access.nodes.all(), arguments).await;
        if status.success() {
            return Ok(String::from_utf8_lossy(&stdout).into_owned());
        }
        let says = String::from_utf8_lossy(&stderr).trim().replace('\n', " | ");
        let says = format!("`tollgate {}` ended with {status}: {says}", arguments.join(" "));
        let may_pass = matches!(status.code(), Some(1 | 69 | 75));
        if !may_pass || SENSELESS.iter().any(|words| says.contains(words)) {
            return Err(says);
        }
        if Instant::now() > until {
            return Err(format!("still after {RECOVERY:?}: {says}"));
        }
        println!("  again: {says}");
        tokio::time::sleep(PAUSE).await;
    }
}

async fn tollgate(endpoints: Vec<String>, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg(COMMAND_S_MAX.to_string()).arg(BINARY).args(arguments);
    command.env("TOLLGATE_ENDPOINTS", endpoints.join(","));
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}
