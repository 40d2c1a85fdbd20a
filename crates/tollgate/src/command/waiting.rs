//! Tells on stderr whom one waits for: as a line that changes on a terminal, as a line whenever it changes elsewhere.

use crate::globals::{Globals, stderr_is_terminal};
use crate::output;
use crate::span;
use crate::view;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tollgate_client::{Client, LeaseId, LockInfo};

/// A wait shorter than this is not worth a word.
const FIRST_AFTER: Duration = Duration::from_millis(700);
const EVERY: Duration = Duration::from_secs(1);

/// A wait under way.
pub(crate) struct Waiting<'a> {
    client: &'a Client,
    name: &'a str,
    lease: LeaseId,
    /// As which owner, once that is known: others may wait under the same lease.
    owner: Arc<OnceLock<String>>,
    began: Instant,
    terminal: bool,
    quiet: bool,
    /// What was said last, without what changes all the time.
    said: String,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(globals: &Globals, client: &'a Client, name: &'a str, lease: LeaseId) -> Waiting<'a> {
        let terminal = stderr_is_terminal();
        let (owner, began, quiet, said) = (Arc::default(), Instant::now(), globals.quiet, String::new());
        Waiting { client, name, lease, owner, began, terminal, quiet, said }
    }

    /// Where to put the owner that waits.
    pub(crate) fn owner(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.owner)
    }

    /// Goes on until it is dropped.
    pub(crate) async fn tell(&mut self) -> Infallible {
        tokio::time::sleep(FIRST_AFTER).await;
        loop {
            if self.quiet {
                std::future::pending::<()>().await;
            }
            // A read that fails is no news: the wait itself goes on.
            if let Ok(lock) = self.client.get_lock(self.name).await {
                self.show(&lock);
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    fn show(&mut self, lock: &LockInfo) {
        let text = progress(self.name, self.lease, self.owner.get(), lock);
        // Elsewhere than on a terminal, only a change of who is in the way is news, and that it has a place in line.
        let tokens: Vec<_> = lock.holders.iter().map(|holder| holder.token).collect();
        let news = format!("{tokens:?} {}", place(self.lease, self.owner.get(), lock).is_some());
        if self.terminal {
            let waited = span::text(self.began.elapsed());
            output::say_as_it_is(format!("\r\u{1b}[K{text} ({waited})"));
        } else if news != self.said {
            output::say(&text);
        }
        self.said = news;
    }

    /// Leaves a clean line behind.
    pub(crate) fn finish(&mut self) {
        if self.terminal && !self.said.is_empty() {
            output::say_as_it_is("\r\u{1b}[K".to_owned());
            // Or it would wipe out what comes next.
            output::let_said_be_seen();
        }
    }
}

/// Its place in the queue, if it is to be seen there.
fn place(lease: LeaseId, owner: Option<&String>, lock: &LockInfo) -> Option<u64> {
    let own = lock.waiters.iter().find(|waiter| waiter.lease == lease && Some(&waiter.owner) == owner);
    own.map(|own| own.position)
}

/// `waiting for jobs: held by ..., position 2 of 3`.
fn progress(name: &str, lease: LeaseId, owner: Option<&String>, lock: &LockInfo) -> String {
    let holders = match &lock.holders[..] {
        [] if lock.closed_for.is_zero() => "free".to_owned(),
        [] => view::closed_text(lock.closed_for, lock.restored),
        holders => super::acquisition::held_by(holders),
    };
    let position = place(lease, owner, lock).map_or_else(String::new, |position| {
        format!(", position {position} of {}", lock.waiter_count.max(position))
    });
    format!("tollgate: waiting for {name}: {holders}{position}")
}
