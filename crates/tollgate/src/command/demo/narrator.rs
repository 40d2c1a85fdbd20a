//! Tells what happens, line by line, with the time since the curtain rose.
//!
//! On stdout, in colour only on a terminal. Not here: what is told (each play).

use super::verdict::Verdict;
use crate::output::{self, Colour, Paint};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Cheap to clone: all clones have one clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Narrator {
    began: Instant,
    paint: Paint,
}

impl Narrator {
    pub(super) fn new() -> Narrator {
        Narrator { began: Instant::now(), paint: Paint::new(Colour::Auto, std::io::stdout().is_terminal()) }
    }

    /// The time since the beginning.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn title(&self, about: &str) -> anyhow::Result<()> {
        output::line(&format!("{}\n", self.paint.strong(&format!("{about}."))))
    }

    /// Something that happened.
    pub(super) fn say(&self, text: &str) -> anyhow::Result<()> {
        let time = format!("{:7.3} s", self.now().as_secs_f64());
        output::line(&format!("{}  {text}", self.paint.faint(&time)))
    }

    /// Something that somebody did or learnt.
    pub(super) fn who(&self, who: &str, text: &str) -> anyhow::Result<()> {
        self.say(&format!("{} {text}", self.paint.strong(&format!("{who:<6}"))))
    }

    /// A new part of the play.
    pub(super) fn part(&self, text: &str) -> anyhow::Result<()> {
        output::line(&format!("\n{}", self.paint.strong(text)))
    }

    /// What was to be seen, and whether it was.
    pub(super) fn verdict(&self, verdict: &Verdict) -> anyhow::Result<()> {
        output::text(&format!("\n{}", verdict.render(self.paint)))
    }
}
