//! The figures as Markdown tables, for the page and for a terminal.

use crate::arguments::Arguments;
use crate::contender::Kind;
use crate::figure::Figure;
use crate::result::{Results, Spread, Summary};
use std::fmt::Write;

/// Returns the tables: rates, with the factor by which Tollgate is faster, then outages.
pub(crate) fn of(arguments: &Arguments, results: &Results) -> String {
    let figures = arguments.all_figures();
    let (losses, rates): (Vec<Figure>, Vec<Figure>) =
        figures.into_iter().partition(|figure| figure.blow().is_some());
    let mut text = String::new();
    for figure in rates {
        let ours = results.summary(Kind::Tollgate, figure);
        // Writing to a string can't fail.
        let _ = write!(
            text,
            "**{}**\n\n| | per second | Tollgate is | p50 | p99 | server CPU | client CPU |\n\
             |---|--:|--:|--:|--:|--:|--:|\n",
            figure.name()
        );
        for kind in arguments.peers.iter().filter(|kind| kind.has(figure)) {
            text.push_str(&rate_row(*kind, results.summary(*kind, figure).as_ref(), ours.as_ref()));
        }
        text.push('\n');
    }
    for figure in losses {
        let ours = results.summary(Kind::Tollgate, figure);
        let _ = write!(
            text,
            "**{}, to the next lock**\n\n| | median | least | most | Tollgate is |\n|---|--:|--:|--:|--:|\n",
            figure.name()
        );
        for kind in arguments.peers.iter().filter(|kind| kind.has(figure)) {
            text.push_str(&loss_row(*kind, results.summary(*kind, figure).as_ref(), ours.as_ref()));
        }
        text.push('\n');
    }
    for complaint in results.complaints() {
        let _ = writeln!(text, "- {complaint}");
    }
    text.trim_end().to_owned()
}

fn rate_row(kind: Kind, its: Option<&Summary>, ours: Option<&Summary>) -> String {
    let Some(its) = its else { return format!("| {} | - | | | | | |\n", kind.name()) };
    let times = match ours {
        Some(ours) if kind != Kind::Tollgate => {
            format!("{:.1} ×", ours.per_second.median / its.per_second.median)
        }
        _ => String::new(),
    };
    let cpu = |spread: Option<Spread>| {
        spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.0} µs", spread.median))
    };
    format!(
        "| {} | {} ({} to {}) | {times} | {} | {} | {} | {} |\n",
        kind.name(),
        count(its.per_second.median),
        count(its.per_second.min),
        count(its.per_second.max),
        ms(its.p50_ms.median),
        ms(its.p99_ms.median),
        cpu(its.server_cpu_us),
        cpu(its.client_cpu_us),
    )
}

fn loss_row(kind: Kind, its: Option<&Summary>, ours: Option<&Summary>) -> String {
    let Some(its) = its else { return format!("| {} | - | | | |\n", kind.name()) };
    let whole = |duration: std::time::Duration| ms(duration.as_secs_f64() * 1e3);
    let median = |summary: &Summary| summary.latency.quantile(0.5);
    let times = match ours {
        Some(ours) if kind != Kind::Tollgate => {
            format!("{:.1} × as fast", median(its).as_secs_f64() / median(ours).as_secs_f64())
        }
        _ => String::new(),
    };
    let (min, max) = (whole(its.latency.min()), whole(its.latency.max()));
    format!("| {} | {} | {min} | {max} | {times} |\n", kind.name(), whole(median(its)))
}

/// Formats a number with separators between thousands.
pub(crate) fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let marked: Vec<String> =
        digits.as_bytes().rchunks(3).rev().map(|three| String::from_utf8_lossy(three).into_owned()).collect();
    marked.join(",")
}

fn ms(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{} ms", count(value)),
        value if value >= 10.0 => format!("{value:.1} ms"),
        value => format!("{value:.2} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_marked() {
        let counts = [0.4, 7.0, 999.6, 12_345.0, 1_234_567.0].map(count);
        assert_eq!(counts, ["0", "7", "1,000", "12,345", "1,234,567"]);
        assert_eq!([1.234, 12.34, 1_234.0].map(ms), ["1.23 ms", "12.3 ms", "1,234 ms"]);
    }
}
