//! Reduces a failure to the faults that it needs: leaves out halves, then single faults, while the scenario still
//! fails.
//!
//! The scenario is run once for each attempt, so the number of attempts is bounded. Only a failure of the same kind
//! counts: the same promise is broken, or a violation of the same kind is found.

use crate::fault::Fault;
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use crate::world::World;

/// A failing scenario with fewer faults.
pub struct Reduced {
    /// The remaining faults.
    pub faults: Vec<Fault>,
    /// Number of faults before the reduction.
    pub faults_before: usize,
    /// Number of runs that the reduction took.
    pub runs: u32,
    /// The run with the remaining faults, with its trace in words.
    pub outcome: Outcome,
}

/// Leaves out faults while the scenario still fails, in at most `runs_max` runs.
pub fn reduce(scenario: &Scenario, runs_max: u32) -> Reduced {
    let faults_before = scenario.faults.len();
    let kinds = outcome(scenario, &scenario.faults, false).kinds();
    let fails = |faults: &[Fault]| !outcome(scenario, faults, false).kinds().is_disjoint(&kinds);
    let (faults, runs) = shrink(scenario.faults.clone(), runs_max, fails);
    let outcome = outcome(scenario, &faults, true);
    Reduced { faults, faults_before, runs, outcome }
}

fn outcome(scenario: &Scenario, faults: &[Fault], words: bool) -> Outcome {
    World::new(Scenario { faults: faults.to_vec(), ..scenario.clone() }, words).run()
}

/// Returns a smaller list that still fails, and the number of attempts made.
fn shrink<T: Clone>(mut items: Vec<T>, runs_max: u32, fails: impl Fn(&[T]) -> bool) -> (Vec<T>, u32) {
    let mut runs = 0;
    let mut size = items.len().div_ceil(2);
    while size > 0 {
        let mut shorter = false;
        let mut start = 0;
        while start < items.len() {
            if runs == runs_max {
                return (items, runs);
            }
            runs += 1;
            let end = (start + size).min(items.len());
            let rest: Vec<T> = items[..start].iter().chain(&items[end..]).cloned().collect();
            if fails(&rest) {
                items = rest;
                shorter = true;
            } else {
                start = end;
            }
        }
        if size == 1 && !shorter {
            break;
        }
        size = if size == 1 { 1 } else { size.div_ceil(2) };
    }
    (items, runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_failure_needs_is_left() {
        let all: Vec<u32> = (0..40).collect();
        let (left, runs) = shrink(all, 1_000, |items| items.contains(&7) && items.contains(&31));
        assert_eq!(left, [7, 31]);
        assert!(runs < 60, "{runs}");
    }

    #[test]
    fn a_failure_that_needs_nothing_leaves_nothing() {
        let (left, _) = shrink(vec![1, 2, 3], 100, |_| true);
        assert!(left.is_empty());
    }

    #[test]
    fn the_number_of_runs_is_bounded() {
        let (left, runs) = shrink((0..100).collect(), 5, |items: &[u32]| items.len() >= 100);
        assert_eq!((left.len(), runs), (100, 5));
    }
}
