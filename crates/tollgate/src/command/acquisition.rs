//! Asking for a lock: the flags that `run` and `lock` share, and the wait that follows.

use super::completions::lock_names;
use super::run::forwarding::Forwarding;
use super::waiting::Waiting;
use crate::exit::{Exit, WithExit};
use crate::failure::{exit_of, failed};
use crate::globals::Globals;
use crate::span;
use crate::view;
use crate::words::quoted;
use clap::Args;
use clap_complete::ArgValueCompleter;
use std::time::{Duration, Instant};
use tollgate_client::{Acquire, AcquireError, Client, Guard, Holder, Session, SessionBuilder};
use tollgate_types::Name;

/// Time that a request which does not wait for the lock waits for the cluster: longer than a leader election takes.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);

/// Minimum time that the cluster has to answer, however short the wait is.
const ANSWER_PATIENCE_MIN: Duration = Duration::from_millis(500);

/// Time after the end of the wait in which a call can still return its own error, with the reason.
const AFTERTHOUGHT: Duration = Duration::from_millis(200);

/// The shortest time between two keepalives that a session accepts.
const KEEPALIVE_MIN: Duration = Duration::from_millis(50);

/// Flags of a request for a lock: its name, its mode and the time to wait.
#[derive(Debug, Args)]
pub(crate) struct Acquisition {
    /// The lock: any text up to 512 bytes
    #[arg(value_name = "NAME", value_parser = lock_name, add = ArgValueCompleter::new(lock_names))]
    pub(crate) name: String,

    /// Share the lock with others that ask for it shared
    #[arg(long, conflicts_with = "permits")]
    shared: bool,

    /// Take N of a semaphore's M permits; all who use the name must say the same M
    #[arg(long, value_name = "N/M", value_parser = permits)]
    permits: Option<(u32, u32)>,

    /// Don't wait if the lock is busy, nor longer than 3s for the cluster
    #[arg(long = "try", conflicts_with = "wait")]
    at_once: bool,

    /// Wait at most this long, whatever for: the lock or the cluster [default: for the lock as long as it takes]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    wait: Option<Duration>,

    /// Time that the lease outlives us should we vanish; it is renewed all the time
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "30s")]
    pub(crate) ttl: Duration,

    /// The time between two renewals, from 50ms to half of the TTL [default: a third of the TTL]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    keepalive: Option<Duration>,

    /// Reason for wanting the lock, for people who look at it
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

/// Reads the name of a lock. An invalid name is reported before the cluster is asked for anything.
pub(crate) fn lock_name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("the lock's name is empty".to_owned());
    }
    Name::new(text).map(|_| text.to_owned()).map_err(|invalid| invalid.to_string())
}

/// Bounds of a command's waits: for the cluster until the request has a place in line, and for the lock altogether.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    began: Instant,
    /// None means the default timeout of calls.
    span: Option<Duration>,
}

impl Patience {
    /// Starts the wait now. A wait of zero still leaves time for the cluster's answer.
    pub(crate) fn new(wait: Option<Duration>, at_once: bool) -> Patience {
        let span = match wait {
            _ if at_once => Some(ANSWER_PATIENCE),
            Some(wait) if wait.is_zero() => Some(ANSWER_PATIENCE),
            wait => wait.map(|wait| wait.max(ANSWER_PATIENCE_MIN)),
        };
        Patience { began: Instant::now(), span }
    }

    /// Connects a client whose calls take no longer than the wait.
    pub(crate) async fn connect(self, globals: &Globals) -> anyhow::Result<Client> {
        globals.connect_within(self.span).await
    }

    /// Runs `work` on the cluster, and fails once the wait for the cluster is over.
    pub(crate) async fn bounds<T>(self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        // Single calls end by themselves with their own reason. This bounds several calls of which each took its time.
        tokio::select! {
            biased;
            done = work => done,
            error = self.until_over() => Err(error),
        }
    }

    /// Completes with an error when the wait for the cluster is over.
    async fn until_over(self) -> anyhow::Error {
        let Some(span) = self.span else { return std::future::pending().await };
        tokio::time::sleep_until((self.began + span + AFTERTHOUGHT).into()).await;
        let says = format!("the cluster has not answered within {}", span::text(span));
        WithExit(Exit::Unreachable, says).into()
    }

    /// Returns the part of `wait` that is left.
    pub(crate) fn left_of(self, wait: Duration) -> Duration {
        wait.saturating_sub(self.began.elapsed())
    }
}

impl Acquisition {
    /// Refuses settings that no cluster would accept.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        check_keepalive(self.keepalive, self.ttl)
    }

    /// Returns the bounds of the wait, which starts now.
    pub(crate) fn patience(&self) -> Patience {
        Patience::new(self.wait, self.at_once)
    }

    /// Returns a session builder with the TTL and keepalive that the flags ask for.
    pub(crate) fn session(&self, client: &Client) -> SessionBuilder {
        kept_alive(client.session().ttl(self.ttl), self.keepalive)
    }

    /// Turns a busy lock into the end of the command: an error, unless `--busy-exit 0` makes it a success.
    fn busy(&self, globals: &Globals, says: String) -> anyhow::Error {
        if self.busy_exit == Some(0) {
            globals.remark(&format!("tollgate: {says}"));
            return WithExit(Exit::Done, String::new()).into();
        }
        let exit = self.busy_exit.map_or(Exit::Busy, Exit::Code);
        WithExit(exit, says).into()
    }

    /// Waits for the lock, and reports what it waits for. A signal that asks for an end ends the wait.
    pub(crate) async fn acquire(
        &self,
        globals: &Globals,
        client: &Client,
        session: &Session,
        owner: Option<&str>,
        patience: Patience,
        signals: &mut Forwarding,
    ) -> anyhow::Result<Guard> {
        let acquire = match owner {
            Some(owner) => session.owner(owner).lock(&self.name),
            None => session.lock(&self.name),
        };
        let mut waiting = Waiting::new(globals, client, &self.name, session.lease_id());
        let acquiring = self.shaped(acquire.tell_owner(waiting.owner()), patience);
        let acquired = tokio::select! {
            acquired = acquiring => acquired,
            signal = signals.next() => {
                waiting.finish();
                return Err(WithExit(Exit::signal(signal as i32), String::new()).into());
            }
            // A dropped request leaves no lock behind.
            error = patience.until_over(), if self.at_once => {
                waiting.finish();
                return Err(error);
            }
            never = waiting.tell() => match never {},
        };
        waiting.finish();
        acquired.map_err(|error| self.refused(globals, error))
    }

    async fn shaped(&self, mut acquire: Acquire, patience: Patience) -> Result<Guard, AcquireError> {
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
            // The time left may be zero: then the request does not wait for a busy lock.
            Some(wait) => acquire.wait(patience.left_of(wait)).acquire().await,
            None => acquire.acquire().await,
        }
    }

    fn refused(&self, globals: &Globals, error: AcquireError) -> anyhow::Error {
        let name = &self.name;
        let hint = format!("hint: `tollgate explain {}` says more", quoted(name));
        match error {
            AcquireError::Busy { holders, closed, .. } => {
                let closed = closed.map(|closed| view::closed_text(closed.left, closed.restored));
                let why = closed.unwrap_or_else(|| held_by(&holders));
                let says = if self.at_once { ", and --try does not wait" } else { "" };
                self.busy(globals, format!("{name} is busy: {why}{says}\n{hint}"))
            }
            AcquireError::TimedOut { holders, .. } => {
                let waited = self.wait.map(span::text).unwrap_or_default();
                self.busy(globals, format!("{name} was not to be had within {waited}: {}\n{hint}", held_by(&holders)))
            }
            AcquireError::Deadlock { cycle } => self.busy(globals, format!(
                "waiting for {name} would never end, for there is a circle:\n{}\nhint: always take locks in the same \
                 order, or give up what you hold and start again",
                view::cycle_text(&cycle)
            )),
            AcquireError::Lost(lost) => {
                WithExit(Exit::Lost, format!("the lease was lost while waiting for {name}: {lost}")).into()
            }
            AcquireError::Failed(error) if exit_of(&error) == Exit::Busy => self.busy(globals, error.to_string()),
            AcquireError::Failed(error) => failed(error),
            other => WithExit(Exit::Failed, other.to_string()).into(),
        }
    }
}

/// Refuses a time between two keepalives that does not fit the TTL.
pub(crate) fn check_keepalive(every: Option<Duration>, ttl: Duration) -> anyhow::Result<()> {
    check_interval("--keepalive", every, ttl)
}

/// Refuses an interval that does not fit the TTL; `flag` is the flag that gave the interval.
pub(crate) fn check_interval(flag: &str, every: Option<Duration>, ttl: Duration) -> anyhow::Result<()> {
    let Some(every) = every.filter(|every| !(KEEPALIVE_MIN..=ttl / 2).contains(every)) else { return Ok(()) };
    let says = format!(
        "{flag} {} does not fit a TTL of {}: give from {} to {}, or another TTL",
        span::text(every),
        span::text(ttl),
        span::text(KEEPALIVE_MIN),
        span::text(ttl / 2),
    );
    Err(WithExit(Exit::Usage, says).into())
}

/// Sets the keepalive interval of the session, if one was given.
pub(crate) fn kept_alive(session: SessionBuilder, every: Option<Duration>) -> SessionBuilder {
    match every {
        Some(every) => session.keepalive_interval(every),
        None => session,
    }
}

/// Describes the holders in a few words.
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
    fn a_wait_is_also_one_for_the_cluster_which_gets_a_moment_at_least() {
        let span = |wait_ms: u64| Patience::new(Some(Duration::from_millis(wait_ms)), false).span;
        assert_eq!(span(3_000), Some(Duration::from_secs(3)));
        assert_eq!((span(20), span(0)), (Some(ANSWER_PATIENCE_MIN), Some(ANSWER_PATIENCE)));
        assert_eq!(Patience::new(None, true).span, Some(ANSWER_PATIENCE));
        assert_eq!(Patience::new(None, false).span, None);
    }

    #[test]
    fn a_time_between_keepalives_fits_its_ttl() {
        let ttl = Duration::from_secs(30);
        assert!(check_keepalive(None, ttl).is_ok() && check_keepalive(Some(ttl / 2), ttl).is_ok());
        let says = check_keepalive(Some(ttl), ttl).unwrap_err().to_string();
        assert_eq!(says, "--keepalive 30s does not fit a TTL of 30s: give from 50ms to 15s, or another TTL");
        assert!(check_keepalive(Some(Duration::from_millis(49)), ttl).is_err());
    }

    #[test]
    fn permits_are_read_as_a_fraction() {
        assert_eq!(permits("2/10"), Ok((2, 10)));
        for wrong in ["2", "2/", "a/b", "3/2", "0/2", "-1/2"] {
            assert!(permits(wrong).is_err(), "{wrong}");
        }
    }
}
