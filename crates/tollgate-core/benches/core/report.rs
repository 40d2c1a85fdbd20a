//! Medians, spreads and lines.

use std::time::Duration;

/// Least, median and most of several runs.
pub struct Spread {
    least: Duration,
    median: Duration,
    most: Duration,
}

pub fn spread(rounds: usize, mut run: impl FnMut() -> Duration) -> Spread {
    let mut times: Vec<Duration> = (0..rounds).map(|_| run()).collect();
    times.sort();
    Spread { least: times[0], median: times[rounds / 2], most: times[rounds - 1] }
}

pub struct Line {
    what: String,
    figure: String,
    target: String,
}

impl Line {
    pub fn new(what: String) -> Line {
        Line { what, figure: String::new(), target: String::new() }
    }

    pub fn time(mut self, spread: Spread) -> Line {
        self.figure = format!("{:?} [{:?} .. {:?}]", spread.median, spread.least, spread.most);
        self
    }

    pub fn target(mut self, target: &str) -> Line {
        self.target = format!("  (target {target})");
        self
    }

    pub fn print(self) {
        println!("{:<52} {}{}", self.what, self.figure, self.target);
    }
}
