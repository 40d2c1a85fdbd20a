//! Prints the events of a demo, line by line, with the time since its start.
//!
//! Prints to stdout, in colour only on a terminal. Not here: the events (each play).

use super::verdict::Verdict;
use crate::output::{self, Colour, Paint};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Prints the lines of a demo. Cheap to copy: all copies share one start time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Narrator {
    began: Instant,
    paint: Paint,
}

impl Narrator {
    pub(super) fn new() -> Narrator {
        Narrator { began: Instant::now(), paint: Paint::new(Colour::Auto, std::io::stdout().is_terminal()) }
    }

    /// Returns the time since the start.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn title(&self, about: &str) -> anyhow::Result<()> {
        output::line(&format!("{}\n", self.paint.strong(&format!("{about}."))))
    }

    /// Prints an event.
    pub(super) fn say(&self, text: &str) -> anyhow::Result<()> {
        let time = format!("{:7.3} s", self.now().as_secs_f64());
        output::line(&format!("{}  {text}", self.paint.faint(&time)))
    }

    /// Prints something that `who` did or learnt.
    pub(super) fn who(&self, who: &str, text: &str) -> anyhow::Result<()> {
        self.say(&format!("{} {text}", self.paint.strong(&format!("{who:<6}"))))
    }

    /// Prints the title of a new part of the play.
    pub(super) fn part(&self, text: &str) -> anyhow::Result<()> {
        output::line(&format!("\n{}", self.paint.strong(text)))
    }

    /// Prints the claims of the demo, and whether each was seen.
    pub(super) fn verdict(&self, verdict: &Verdict) -> anyhow::Result<()> {
        output::text(&format!("\n{}", verdict.render(self.paint)))
    }
}
