//! Medians, spreads and lines.

use std::fs;
use std::time::{Duration, Instant};

pub(crate) const ROUNDS: usize = 5;

/// Measurement of a number of steps.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    steps: u32,
    time: Duration,
    cpu: Duration,
}

impl Round {
    /// Runs steps until the time is up.
    pub(crate) fn run(time: Duration, mut step: impl FnMut()) -> Round {
        let (started, cpu) = (Instant::now(), cpu());
        let mut steps = 0;
        while started.elapsed() < time {
            step();
            steps += 1;
        }
        Round { steps, time: started.elapsed(), cpu: self::cpu().saturating_sub(cpu) }
    }

    pub(crate) fn once(step: impl FnOnce()) -> Round {
        let (started, cpu) = (Instant::now(), cpu());
        step();
        Round { steps: 1, time: started.elapsed(), cpu: self::cpu().saturating_sub(cpu) }
    }
}

/// CPU time that this thread has used, kernel included.
fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

pub(crate) struct Line {
    /// Number of writes per step.
    together: u64,
    /// Times, in ascending order.
    times: Vec<Duration>,
    cpu: Duration,
}

pub(crate) fn rounds(together: u64, mut run: impl FnMut() -> Round) -> Line {
    let rounds: Vec<Round> = (0..ROUNDS).map(|_| run()).collect();
    line(together, &rounds)
}

pub(crate) fn line(together: u64, rounds: &[Round]) -> Line {
    let sorted = |of: fn(&Round) -> Duration| {
        let mut times: Vec<Duration> = rounds.iter().map(|round| of(round) / round.steps).collect();
        times.sort();
        times
    };
    let (times, cpus) = (sorted(|round| round.time), sorted(|round| round.cpu));
    Line { together, times, cpu: cpus[cpus.len() / 2] }
}

impl Line {
    pub(crate) fn print(&self, what: &str) {
        let writes = |time: Duration| self.together as f64 / time.as_secs_f64();
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let (least, median, most) = self.spread();
        println!(
            "{what:<48} {:>8.0}/s  {:>7.1} us [{:.1} .. {:.1}]  cpu {:.1} us an fsync",
            writes(median),
            micros(median),
            micros(least),
            micros(most),
            micros(self.cpu),
        );
    }

    pub(crate) fn print_times(&self, what: &str) {
        let (least, median, most) = self.spread();
        println!("{what:<48} {median:.0?} [{least:.0?} .. {most:.0?}]  cpu {:.0?}", self.cpu);
    }

    fn spread(&self) -> (Duration, Duration, Duration) {
        (self.times[0], self.times[self.times.len() / 2], self.times[self.times.len() - 1])
    }
}
