//! Asking for a lock: the flags that `run` and `lock` share, and the wait that follows.

use super::completions::lock_names;
use super::run::forwarding::Forwarding;
use super::waiting::Waiting;
use crate::exit::{Exit, WithExit};
use crate::failure::{exit_of, failed};
use crate::globals::Globals;
use crate::span;
use crate::view;
use clap::Args;
use clap_complete::ArgValueCompleter;
use std::time::Duration;
use tollgate_client::{Acquire, AcquireError, Client, Guard, Holder, Session};

/// What lock, how, and for how long to wait.
#[derive(Debug, Args)]
pub(crate) struct Acquisition {
    /// The lock: any text up to 512 bytes
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(lock_names))]
    pub(crate) name: String,

    /// Share the lock with others that ask for it shared
    #[arg(long, conflicts_with = "permits")]
    shared: bool,

    /// Take N of a semaphore's M permits; all who use the name must say the same M
    #[arg(long, value_name = "N/M", value_parser = permits)]
    permits: Option<(u32, u32)>,

    /// Don't wait if the lock is busy
    #[arg(long = "try", conflicts_with = "wait")]
    at_once: bool,

    /// Wait at most this long [default: as long as it takes]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    wait: Option<Duration>,

    /// How long the lease outlives us should we vanish; it is renewed all the time
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "30s")]
    pub(crate) ttl: Duration,

    /// Why the lock is wanted, for people who look at it
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,

    /// Exit code if the lock is busy or the wait is over, instead of 75
    #[arg(short = 'E', long = "busy-exit", value_name = "N")]
    busy_exit: Option<u8>,
}

/// Reads `2/10`.
fn permits(text: &str) -> Result<(u32, u32), String> {
    let advice = "write how many of how many, such as 1/3";
    let (n, of) = text.split_once('/').ok_or(advice)?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| advice.to_owned());
    let (n, of) = (number(n)?, number(of)?);
    tollgate_client::Mode::permit(n, of).map_err(|invalid| invalid.to_string())?;
    Ok((n, of))
}

impl Acquisition {
    fn busy(&self, says: String) -> anyhow::Error {
        let exit = self.busy_exit.map_or(Exit::Busy, Exit::Code);
        WithExit(exit, says).into()
    }

    /// Waits for the lock, and tells whom it waits for. A signal that asks for an end ends the wait.
    pub(crate) async fn acquire(
        &self,
        globals: &Globals,
        client: &Client,
        session: &Session,
        owner: Option<&str>,
        signals: &mut Forwarding,
    ) -> anyhow::Result<Guard> {
        let acquire = match owner {
            Some(owner) => session.owner(owner).lock(&self.name),
            None => session.lock(&self.name),
        };
        let mut waiting = Waiting::new(globals, client, &self.name, session.lease_id());
        let acquiring = self.shaped(acquire.tell_owner(waiting.owner()));
        let acquired = tokio::select! {
            acquired = acquiring => acquired,
            signal = signals.next() => {
                waiting.finish();
                return Err(WithExit(Exit::signal(signal as i32), String::new()).into());
            }
            never = waiting.tell() => match never {},
        };
        waiting.finish();
        acquired.map_err(|error| self.refused(error))
    }

    async fn shaped(&self, mut acquire: Acquire) -> Result<Guard, AcquireError> {
        if self.shared {
            acquire = acquire.shared();
        }
        if let Some((n, of)) = self.permits {
            acquire = acquire.permits(n, of);
        }
        if let Some(why) = &self.why {
            acquire = acquire.why(why);
        }
        if self.at_once {
            return acquire.try_acquire().await;
        }
        match self.wait {
            Some(wait) => acquire.wait(wait).acquire().await,
            None => acquire.acquire().await,
        }
    }

    fn refused(&self, error: AcquireError) -> anyhow::Error {
        let name = &self.name;
        let hint = format!("hint: `tollgate explain {name}` says more");
        match error {
            AcquireError::Busy { holders, closed, .. } => {
                let closed = closed.map(|closed| view::closed_text(closed.left, closed.restored));
                let why = closed.unwrap_or_else(|| held_by(&holders));
                self.busy(format!("{name} is busy: {why}, and --try does not wait\n{hint}"))
            }
            AcquireError::TimedOut { holders, .. } => {
                let waited = self.wait.map(span::text).unwrap_or_default();
                self.busy(format!("{name} was not to be had within {waited}: {}\n{hint}", held_by(&holders)))
            }
            AcquireError::Deadlock { cycle } => self.busy(format!(
                "waiting for {name} would never end, for there is a circle:\n{}\nhint: always take locks in the same \
                 order, or give up what you hold and start again",
                view::cycle_text(&cycle)
            )),
            AcquireError::Lost(lost) => {
                WithExit(Exit::Lost, format!("the lease was lost while waiting for {name}: {lost}")).into()
            }
            AcquireError::Failed(error) if exit_of(&error) == Exit::Busy => self.busy(error.to_string()),
            AcquireError::Failed(error) => failed(error),
            other => WithExit(Exit::Failed, other.to_string()).into(),
        }
    }
}

/// Who is in the way, in a few words.
pub(crate) fn held_by(holders: &[Holder]) -> String {
    match holders {
        [] => "the cluster did not say who holds it".to_owned(),
        [one] => format!("held by {}", view::holder_text(one)),
        [first, rest @ ..] => format!("held by {} and {} more", view::holder_text(first), rest.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_read_as_a_fraction() {
        assert_eq!(permits("2/10"), Ok((2, 10)));
        for wrong in ["2", "2/", "a/b", "3/2", "0/2", "-1/2"] {
            assert!(permits(wrong).is_err(), "{wrong}");
        }
    }
}
