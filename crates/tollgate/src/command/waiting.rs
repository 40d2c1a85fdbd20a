//! Reports on stderr what a wait is for: in a line that is redrawn on a terminal, in a new line for each change
//! elsewhere.

use crate::globals::{Globals, stderr_is_terminal};
use crate::output;
use crate::screen;
use crate::span;
use crate::view;
use crate::words::cut;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tollgate_client::{Client, LeaseId, LockInfo};
use tollgate_types::escaped;

/// A wait shorter than this is not reported.
const FIRST_AFTER: Duration = Duration::from_millis(700);
const EVERY: Duration = Duration::from_secs(1);

/// A wait under way.
pub(crate) struct Waiting<'a> {
    client: &'a Client,
    name: &'a str,
    lease: LeaseId,
    /// Owner of the waiting request, once known: other owners may wait under the same lease.
    owner: Arc<OnceLock<String>>,
    began: Instant,
    terminal: bool,
    quiet: bool,
    /// Last report, reduced to the parts whose change is news.
    said: String,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(globals: &Globals, client: &'a Client, name: &'a str, lease: LeaseId) -> Waiting<'a> {
        let terminal = stderr_is_terminal();
        let (owner, began, quiet, said) = (Arc::default(), Instant::now(), globals.quiet, String::new());
        Waiting { client, name, lease, owner, began, terminal, quiet, said }
    }

    /// Returns the cell that receives the owner of the waiting request.
    pub(crate) fn owner(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.owner)
    }

    /// Reports the wait until it is dropped.
    pub(crate) async fn tell(&mut self) -> Infallible {
        tokio::time::sleep(FIRST_AFTER).await;
        loop {
            if self.quiet {
                std::future::pending::<()>().await;
            }
            // A failed read is no news: the wait itself goes on.
            if let Ok(lock) = self.client.get_lock(self.name).await {
                self.show(&lock);
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    fn show(&mut self, lock: &LockInfo) {
        let (text, place_text) = progress(self.name, self.lease, self.owner.get(), lock);
        // Elsewhere than on a terminal, the only news is a change of the holders, or that the request has got its place
        // in line.
        let tokens: Vec<_> = lock.holders.iter().map(|holder| holder.token).collect();
        let news = format!("{tokens:?} {}", place(self.lease, self.owner.get(), lock).is_some());
        if self.terminal {
            let end = format!("{place_text} ({})", span::text(self.began.elapsed()));
            output::say_as_it_is(format!(
                "\r\u{1b}[K{}",
                fitted(&text, &end, screen::width(&std::io::stderr()))
            ));
        } else if news != self.said {
            output::say(&format!("{text}{place_text}"));
        }
        self.said = news;
    }

    /// Clears the line.
    pub(crate) fn finish(&mut self) {
        if self.terminal && !self.said.is_empty() {
            output::say_as_it_is("\r\u{1b}[K".to_owned());
            // Otherwise a late redraw would wipe out the next output.
            output::let_said_be_seen();
        }
    }
}

/// Returns the place of the request in the queue, if it is among the waiters that are listed.
fn place(lease: LeaseId, owner: Option<&String>, lock: &LockInfo) -> Option<u64> {
    let own = lock.waiters.iter().find(|waiter| waiter.lease == lease && Some(&waiter.owner) == owner);
    own.map(|own| own.position)
}

/// Fits a report into one line: a longer one would not be wiped out by the next. The changing part is at its end, and
/// stays whole.
fn fitted(text: &str, end: &str, width: Option<usize>) -> String {
    let text = escaped(text).to_string();
    // The last column is left free: with it, some terminals begin the next line.
    let width = width.map_or(usize::MAX, |width| (width - 1).saturating_sub(end.chars().count()));
    format!("{}{end}", cut(&text, width))
}

/// Returns the report and the place, as in `waiting for jobs: held by ...` and `, position 2 of 3`.
fn progress(name: &str, lease: LeaseId, owner: Option<&String>, lock: &LockInfo) -> (String, String) {
    let holders = match &lock.holders[..] {
        [] if lock.closed_for.is_zero() => "free".to_owned(),
        [] => view::closed_text(lock.closed_for, lock.restored),
        holders => super::acquisition::held_by(holders),
    };
    let position = place(lease, owner, lock).map_or_else(String::new, |position| {
        format!(", position {position} of {}", lock.waiter_count.max(position))
    });
    (format!("tollgate: waiting for {name}: {holders}"), position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_its_terminal_and_keeps_what_moves() {
        let text = format!("tollgate: waiting for {}: held by w1", "x".repeat(100));
        let line = fitted(&text, ", position 2 of 3 (12s)", Some(80));
        assert_eq!(line.chars().count(), 79);
        assert!(line.ends_with("…, position 2 of 3 (12s)"), "{line}");
        assert_eq!(fitted("a\u{202e}b", " (1s)", None), "a\\u{202e}b (1s)");
    }
}
