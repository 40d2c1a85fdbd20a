//! A progress line of a run, on a terminal.

use crate::globals::{Globals, stderr_is_terminal};
use crate::output;
use crate::span;
use tollgate_bench::{Plan, Progress, Workload};

pub(super) struct ProgressLine<'a> {
    plan: &'a Plan,
    shown: bool,
    last: Option<Progress>,
}

impl<'a> ProgressLine<'a> {
    pub(super) fn new(globals: &Globals, plan: &'a Plan) -> ProgressLine<'a> {
        ProgressLine { plan, shown: stderr_is_terminal() && !globals.quiet, last: None }
    }

    pub(super) fn show(&mut self, progress: Progress) {
        if self.shown {
            output::say_as_it_is(format!("\r\u{1b}[K{}", text(self.plan, self.last, progress)));
        }
        self.last = Some(progress);
    }

    /// Clears the line, so that the next output stands in its place.
    pub(super) fn clear(&self) {
        if self.shown && self.last.is_some() {
            output::say_as_it_is("\r\u{1b}[K".to_owned());
        }
    }
}

fn text(plan: &Plan, last: Option<Progress>, now: Progress) -> String {
    let Plan { workload, clients, .. } = plan;
    if *workload == Workload::Failover {
        return format!("{workload}: the leader was lost {} times of {}", now.operations, 2 * plan.rounds);
    }
    if now.ready < *clients {
        return format!("{workload}: {} of {clients} clients are ready", now.ready);
    }
    let failed = if now.failures > 0 { format!(", {} failed", now.failures) } else { String::new() };
    let (at, of) = (span::text(now.measured), span::text(plan.duration));
    let rate = last.and_then(|last| {
        let seconds = now.measured.checked_sub(last.measured)?.as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        let operations = now.operations.checked_sub(last.operations)? as f64;
        (seconds > 0.0 && !last.measured.is_zero()).then(|| format!(", {:.0}/s", operations / seconds))
    });
    format!("{workload}: {clients} clients, {at} of {of}{}{failed}", rate.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64, operations: u64, failures: u64) -> Progress {
        Progress { ready: 64, measured: Duration::from_secs(seconds), operations, failures }
    }

    #[test]
    fn a_line_says_how_far_it_is_and_how_fast() {
        let plan = Plan::new(Workload::Contended, 64);
        let first = text(&plan, None, Progress { ready: 10, ..at(0, 0, 0) });
        assert_eq!(first, "contended: 10 of 64 clients are ready");
        assert_eq!(text(&plan, None, at(1, 500, 0)), "contended: 64 clients, 1s of 10s");
        let later = text(&plan, Some(at(1, 500, 0)), at(3, 20_500, 2));
        assert_eq!(later, "contended: 64 clients, 3s of 10s, 10000/s, 2 failed");
        let lost = text(&Plan::new(Workload::Failover, 1), None, at(9, 4, 0));
        assert_eq!(lost, "failover: the leader was lost 4 times of 10");
    }
}
