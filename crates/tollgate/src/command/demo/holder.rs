//! A holder of a lock in a process of its own, so that it can be killed or stopped for real.
//!
//! The process takes a lock, prints `held TOKEN`, and then executes the lines that it reads: `write ADDRESS VALUE`
//! sends a value to a store with the token of the first grant. It does not look at its guard before the write, which is
//! the point: it looked, was stopped, and goes on. Not here: stopping it (`crash`, `split_brain`).

use super::store::{Answer, write};
use crate::exit::Exit;
use crate::output;
use anyhow::{Context, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, stdin};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tollgate_client::{Client, Token};

/// The first argument of a holder's process.
pub(crate) const HOLDER: &str = "__demo-holder";

/// Maximum time that a step of a holder may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// Words that a holder prints.
const HELD: &str = "held";
const ACCEPTED: &str = "accepted";
const REFUSED: &str = "refused";
const GUARD: &str = "guard";

/// Holds the lock, and executes the commands that it reads.
pub(crate) fn run(arguments: &[OsString]) -> Exit {
    let held = || -> anyhow::Result<()> {
        // Should the demo be killed, nobody would be left to stop this process.
        set_pdeathsig(Signal::SIGKILL)?;
        let text = |index: usize| {
            arguments.get(index).and_then(|text| text.to_str()).context("an argument is missing")
        };
        let endpoints = text(0)?.split(',').map(str::to_owned).collect();
        let ttl = Duration::from_millis(text(3)?.parse()?);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(hold(endpoints, text(1)?, text(2)?, ttl))
    };
    match held() {
        Ok(()) => Exit::Done,
        Err(error) => {
            output::say(&format!("error: {error:#}"));
            Exit::Failed
        }
    }
}

async fn hold(endpoints: Vec<String>, who: &str, lock: &str, ttl: Duration) -> anyhow::Result<()> {
    let client = Client::builder().endpoints(endpoints).client_id(who).connect().await?;
    let session = client.session().ttl(ttl).open().await?;
    let guard = session.lock(lock).why("a demo").acquire().await?;
    let token = guard.token()?;
    output::line(&format!("{HELD} {token}"))?;
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let (address, value) =
            line.strip_prefix("write ").and_then(|rest| rest.split_once(' ')).context("what?")?;
        match write(address.parse()?, token, value).await? {
            Answer::Accepted => output::line(ACCEPTED)?,
            Answer::Refused(why) => output::line(&format!("{REFUSED} {why}"))?,
        }
        let state = guard
            .token()
            .map_or_else(|lost| lost.to_string(), |_| "it believes that it holds the lock".into());
        output::line(&format!("{GUARD} {state}"))?;
    }
    Ok(())
}

/// A holder's process, as a play sees it. Killed on drop.
pub(super) struct Holder {
    child: Child,
    stdin: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

/// Result of a write, and the state of the holder's guard after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrote {
    pub(super) answer: Answer,
    pub(super) guard: String,
}

impl Holder {
    /// Starts a holder and waits until it has the lock.
    pub(super) async fn start(
        endpoints: &[String],
        who: &str,
        lock: &str,
        ttl: Duration,
    ) -> anyhow::Result<(Holder, Token)> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([HOLDER, &endpoints.join(","), who, lock, &ttl.as_millis().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("can't start a holder")?;
        let stdin = child.stdin.take().context("it has no stdin")?;
        let stdout = child.stdout.take().context("it has no stdout")?;
        let mut holder = Holder { child, stdin, says: BufReader::new(stdout).lines() };
        let token = holder.hears(HELD).await?.parse()?;
        Ok((holder, Token::new(token).context("a token is never 0")?))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Sends a signal to the process.
    pub(super) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.pid())?), signal)?)
    }

    /// Asks the holder to write. While the process is stopped, nothing happens yet.
    pub(super) async fn tell_to_write(&mut self, store: SocketAddr, value: &str) -> anyhow::Result<()> {
        self.stdin.write_all(format!("write {store} {value}\n").as_bytes()).await?;
        Ok(self.stdin.flush().await?)
    }

    /// Waits until the holder has written.
    pub(super) async fn wrote(&mut self) -> anyhow::Result<Wrote> {
        let line = self.line().await?;
        let answer = match line.split_once(' ') {
            None if line == ACCEPTED => Answer::Accepted,
            Some((REFUSED, why)) => Answer::Refused(why.to_owned()),
            _ => bail!("the holder said {line:?}"),
        };
        Ok(Wrote { answer, guard: self.hears(GUARD).await? })
    }

    /// Returns the rest of the next line, which must begin with `word`.
    async fn hears(&mut self, word: &str) -> anyhow::Result<String> {
        let line = self.line().await?;
        let rest = line.strip_prefix(word).and_then(|rest| rest.strip_prefix(' '));
        Ok(rest.with_context(|| format!("the holder said {line:?} and no {word}"))?.to_owned())
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        let line = tokio::time::timeout(PATIENCE, self.says.next_line()).await;
        line.context("the holder says nothing")??.context("the holder ended")
    }
}
