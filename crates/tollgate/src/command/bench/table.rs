//! Table of the results for people: a line for each kind of operation.

use crate::output::{Look, Table, cell};
use std::time::Duration;
use tollgate_bench::{Latency, Report};

const HEADINGS: [&str; 12] = [
    "WORKLOAD",
    "CLIENTS",
    "PER SECOND",
    "OF",
    "P50",
    "P90",
    "P99",
    "P99.9",
    "MAX",
    "CPU CLIENT",
    "CPU SERVERS",
    "FAILED",
];

pub(super) fn of(reports: &[Report]) -> Table {
    let mut table = Table::new(&HEADINGS);
    for report in reports {
        for (index, series) in report.series.iter().enumerate() {
            // Values of the whole run stand on its first line only.
            let once = |text: String| cell(if index == 0 { text } else { String::new() });
            let cpu = |us: Option<f64>| once(us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1} us")));
            let quantiles =
                Latency::QUANTILES.map(|(_, quantile)| cell(ms(series.latency.quantile(quantile))));
            let failed = once(report.failures.to_string());
            let look = if report.failures > 0 { Look::Bad } else { Look::Plain };
            let mut row = vec![
                (once(report.plan.workload.to_string()).0, Look::Strong),
                once(report.plan.clients.to_string()),
                cell(rate(series.latency.count(), report.measured)),
                cell(series.of),
            ];
            row.extend(quantiles);
            row.extend([
                cell(ms(series.latency.max())),
                cpu(report.client_cpu_us()),
                cpu(report.server_cpu_us()),
                (failed.0, look),
            ]);
            table.row(row);
        }
    }
    table
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn rate(count: u64, measured: Duration) -> String {
    let per_second = count as f64 / measured.as_secs_f64().max(1e-9);
    if per_second >= 10.0 { format!("{per_second:.0}") } else { format!("{per_second:.2}") }
}

fn ms(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    match ms {
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms if ms >= 10.0 => format!("{ms:.1} ms"),
        _ => format!("{ms:.2} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Paint;
    use tollgate_bench::{Plan, Series, Spent, Workload};

    #[test]
    fn a_run_has_a_line_for_each_thing_that_was_measured() {
        let mut latency = Latency::new();
        (0..1_000).for_each(|_| latency.record(Duration::from_micros(1_500)));
        let second = Duration::from_secs(1);
        let report = Report {
            plan: Plan::new(Workload::Uncontended, 64),
            measured: second,
            series: vec![Series { of: "pair", latency: latency.clone() }, Series { of: "lock", latency }],
            failures: 3,
            first_failure: None,
            spent: Some(Spent { client: second / 10, servers: Vec::new() }),
        };
        let text = of(&[report]).render(Paint::PLAIN, None);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[1][..5], ["uncontended", "64", "1000", "pair", "1.50"]);
        assert_eq!(lines[1][lines[1].len() - 4..], ["100.0", "us", "-", "3"]);
        assert_eq!(lines[2][..3], ["1000", "lock", "1.50"]);
    }
}
