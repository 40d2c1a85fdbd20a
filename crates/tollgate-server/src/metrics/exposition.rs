//! The two text formats of metrics.
//!
//! The registry writes `OpenMetrics`. The text format of Prometheus, version 0.0.4, is derived from it: there, a
//! counter has the name of its samples, information metrics do not exist, and there is no end mark. Not here: the
//! choice of the format (`http`).

use std::fmt::Write;

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// The Prometheus text format 0.0.4, which every reader of metrics knows.
    Text,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

impl Exposition {
    /// Returns the value of the `Content-Type` header.
    pub const fn content_type(self) -> &'static str {
        match self {
            Exposition::Text => "text/plain; version=0.0.4; charset=utf-8",
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Converts text in `OpenMetrics` to the Prometheus text format.
pub(super) fn plain(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        if let Some((_, says)) = after("# HELP ", line) {
            help = says;
        } else if let Some((name, kind)) = after("# TYPE ", line) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            write!(text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n")
                .expect("a string takes all text");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Splits a line that has this prefix into the name of a metric and the rest.
fn after<'a>(begin: &str, line: &'a str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(begin)?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_information_are_named_as_their_samples() {
        let openmetrics = "# HELP a_grants Locks granted.\n# TYPE a_grants counter\na_grants_total 7\n\
                           # HELP a_build The binary.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
                           # HELP a_seconds How long.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\n\
                           a_seconds_sum 0.5\na_seconds_count 1\na_seconds_bucket{le=\"+Inf\"} 1\n# EOF\n";
        let expected = "# HELP a_grants_total Locks granted.\n# TYPE a_grants_total counter\na_grants_total 7\n\
                        # HELP a_build_info The binary.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
                        # HELP a_seconds How long.\n# TYPE a_seconds histogram\n\
                        a_seconds_sum 0.5\na_seconds_count 1\na_seconds_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(plain(openmetrics), expected);
    }
}
