//! Results of all rounds, and their summary: medians, and the spread between rounds.

use crate::contender::Kind;
use crate::figure::Figure;
use std::time::Duration;
use tollgate_bench::{Latency, Report};

/// One figure of one service in one round.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) kind: Kind,
    pub(crate) figure: Figure,
    /// The measurement, or the reason for its lack.
    pub(crate) report: Result<Report, String>,
}

/// Samples of all rounds.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) samples: Vec<Sample>,
    /// Versions of the services, as reported by themselves.
    pub(crate) versions: Vec<(Kind, String)>,
}

/// A number over all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Spread { median, min, max })
    }
}

/// Summary of one figure of one service.
#[derive(Debug, Clone)]
pub(crate) struct Summary {
    /// Operations per second; meaningless for losses.
    pub(crate) per_second: Spread,
    pub(crate) p50_ms: Spread,
    pub(crate) p99_ms: Spread,
    /// Processor time of all servers for an operation.
    pub(crate) server_cpu_us: Option<Spread>,
    pub(crate) client_cpu_us: Option<Spread>,
    /// Latency over all rounds.
    pub(crate) latency: Latency,
}

impl Results {
    /// Returns the summary of a figure; none if no round has it.
    pub(crate) fn summary(&self, kind: Kind, figure: Figure) -> Option<Summary> {
        let reports: Vec<&Report> = self
            .samples
            .iter()
            .filter(|sample| sample.kind == kind && sample.figure == figure)
            .filter_map(|sample| sample.report.as_ref().ok())
            .filter(|report| report.operations() > 0)
            .collect();
        let spread = |value: &dyn Fn(&Report) -> Option<f64>| {
            Spread::of(reports.iter().filter_map(|report| value(report)).collect())
        };
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let mut latency = Latency::new();
        for report in &reports {
            latency.merge(&report.series[0].latency);
        }
        Some(Summary {
            per_second: spread(&|report| Some(report.per_second()))?,
            p50_ms: spread(&|report| Some(ms(report.series[0].latency.quantile(0.5))))?,
            p99_ms: spread(&|report| Some(ms(report.series[0].latency.quantile(0.99))))?,
            server_cpu_us: spread(&Report::server_cpu_us),
            client_cpu_us: spread(&Report::client_cpu_us),
            latency,
        })
    }

    /// Returns the number of samples that could not be measured.
    pub(crate) fn missing(&self) -> usize {
        self.samples.iter().filter(|sample| sample.report.is_err()).count()
    }

    /// Returns the reasons for missing figures, each once.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut said = Vec::new();
        for sample in &self.samples {
            let says = match &sample.report {
                Err(says) => format!("{}, {}: {says}", sample.kind.name(), sample.figure.name()),
                Ok(report) => match &report.first_failure {
                    Some(says) => {
                        format!(
                            "{}, {}: {} failed: {says}",
                            sample.kind.name(),
                            sample.figure.name(),
                            report.failures
                        )
                    }
                    None => continue,
                },
            };
            if !said.contains(&says) {
                said.push(says);
            }
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_stands_between_the_halves() {
        let of = |values: &[f64]| Spread::of(values.to_vec());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(of(&[4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
    }
}
