//! The trace of a run: a hash over everything that happened and, on request, the last events in words.
//!
//! Invariant: two runs of one scenario have the same hash. Words are made only if they were asked for.

use crate::types::At;
use std::collections::VecDeque;

const LINES_MAX: usize = 400;

/// The trace so far.
pub(crate) struct Trace {
    hash: u64,
    lines: Option<VecDeque<String>>,
    /// True if each line is printed at once.
    pub(crate) echo: bool,
}

impl Trace {
    pub(crate) fn new(words: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, lines: words.then(VecDeque::new), echo: false }
    }

    /// Mixes an event into the hash.
    pub(crate) fn mix(&mut self, parts: [u64; 3]) {
        for part in parts {
            self.hash = (self.hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
    }

    pub(crate) fn mix_bytes(&mut self, bytes: &[u8]) {
        let hash = xxhash_rust::xxh3::xxh3_64(bytes);
        self.mix([hash, bytes.len() as u64, 0]);
    }

    /// Adds a line that describes an event, if words were asked for.
    pub(crate) fn say(&mut self, now: At, words: impl FnOnce() -> String) {
        let Some(lines) = &mut self.lines else { return };
        let line = format!("{:>12.6} {}", crate::stats::seconds(now), words());
        if self.echo {
            show(&line);
        }
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Takes the last lines; empty if words were not asked for.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.take().map_or_else(Vec::new, Vec::from)
    }
}

#[allow(clippy::print_stdout, reason = "somebody asked to see every line as it comes")]
fn show(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_events_matters_to_the_hash() {
        let hash = |parts: [[u64; 3]; 2]| {
            let mut trace = Trace::new(false);
            for part in parts {
                trace.mix(part);
            }
            trace.hash()
        };
        assert_eq!(hash([[1, 2, 3], [4, 5, 6]]), hash([[1, 2, 3], [4, 5, 6]]));
        assert_ne!(hash([[1, 2, 3], [4, 5, 6]]), hash([[4, 5, 6], [1, 2, 3]]));
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut trace = Trace::new(true);
        for now in 0..1_000 {
            trace.say(now, || format!("line {now}"));
        }
        let lines = trace.take_lines();
        assert_eq!(lines.len(), LINES_MAX);
        assert!(lines.last().unwrap().ends_with("line 999"));
    }
}
