//! The figures as charts.

use crate::arguments::Arguments;
use crate::contender::Kind;
use crate::figure::Figure;
use crate::result::Results;
use std::path::Path;
use tollgate_bench::{Chart, Line, Scale};

/// Writes the charts: throughput by clients, and latency by percentile for the most telling figures.
pub(crate) fn write(dir: &Path, arguments: &Arguments, results: &Results) -> anyhow::Result<()> {
    throughput(arguments, results).write(&dir.join("pairs-throughput.svg"))?;
    for figure in arguments.all_figures() {
        let (name, title) = match figure {
            Figure::Pairs { clients } => {
                (format!("pairs-{clients}-latency.svg"), format!("lock+unlock by {clients} clients: latency"))
            }
            Figure::Handoff { waiters } => (
                "handoff-latency.svg".to_owned(),
                format!("from a release to the next grant, {waiters} waiters"),
            ),
            _ => continue,
        };
        latency(&title, figure, arguments, results).write(&dir.join(name))?;
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "a plot has no more digits")]
fn throughput(arguments: &Arguments, results: &Results) -> Chart {
    let line = |kind: &Kind| {
        let point = |clients: &usize| {
            let summary = results.summary(*kind, Figure::Pairs { clients: *clients })?;
            Some((*clients as f64, summary.per_second.median))
        };
        Line { label: kind.name().to_owned(), points: arguments.clients.iter().filter_map(point).collect() }
    };
    Chart {
        title: "lock+unlock pairs per second, by clients".to_owned(),
        labels: ("clients".to_owned(), "pairs per second".to_owned()),
        scales: (Scale::Log, Scale::Log),
        lines: arguments.peers.iter().map(line).collect(),
    }
}

fn latency(title: &str, figure: Figure, arguments: &Arguments, results: &Results) -> Chart {
    let line = |kind: &Kind| {
        let summary = results.summary(*kind, figure)?;
        let points =
            summary.latency.curve().into_iter().map(|(quantile, took)| (quantile, took.as_secs_f64() * 1e3));
        Some(Line { label: kind.name().to_owned(), points: points.collect() })
    };
    Chart {
        title: title.to_owned(),
        labels: ("percentile".to_owned(), "milliseconds".to_owned()),
        scales: (Scale::Quantile, Scale::Log),
        lines: arguments.peers.iter().filter_map(line).collect(),
    }
}
