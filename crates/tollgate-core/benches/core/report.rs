//! Medians, spreads and lines.

use std::time::Duration;

/// Least, median and most of several runs.
pub(crate) struct Spread {
    least: Duration,
    median: Duration,
    most: Duration,
}

pub(crate) fn spread(rounds: usize, mut run: impl FnMut() -> Duration) -> Spread {
    let mut times: Vec<Duration> = (0..rounds).map(|_| run()).collect();
    times.sort();
    Spread { least: times[0], median: times[rounds / 2], most: times[rounds - 1] }
}

pub(crate) struct Line {
    what: String,
    figure: String,
    target: String,
}

impl Line {
    pub(crate) fn new(what: String) -> Line {
        Line { what, figure: String::new(), target: String::new() }
    }

    pub(crate) fn time(mut self, spread: &Spread) -> Line {
        self.figure = format!("{:?} [{:?} .. {:?}]", spread.median, spread.least, spread.most);
        self
    }

    pub(crate) fn target(mut self, target: &str) -> Line {
        self.target = format!("  (target {target})");
        self
    }

    pub(crate) fn print(self) {
        println!("{:<52} {}{}", self.what, self.figure, self.target);
    }
}
