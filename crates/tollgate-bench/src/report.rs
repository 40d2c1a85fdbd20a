//! The results of a run.

use crate::cpu::Spent;
use crate::latency::Latency;
use crate::plan::Plan;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Latencies of one kind of operation.
#[derive(Debug, Clone)]
pub struct Series {
    /// Name of the operation.
    pub of: &'static str,
    /// Histogram of its durations.
    pub latency: Latency,
}

/// Results of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// Plan of the run.
    pub plan: Plan,
    /// Measured time.
    pub measured: Duration,
    /// Latencies by operation; the first series is the one that counts as operations.
    pub series: Vec<Series>,
    /// Number of failed operations, those of the warm-up included.
    pub failures: u64,
    /// Text of the first failure.
    pub first_failure: Option<String>,
    /// Processor time spent, if it could be measured.
    pub spent: Option<Spent>,
}

impl Report {
    /// Returns the number of operations that ended in the measured window.
    pub fn operations(&self) -> u64 {
        self.series.first().map_or(0, |series| series.latency.count())
    }

    /// Returns operations per second.
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    pub fn per_second(&self) -> f64 {
        let seconds = self.measured.as_secs_f64();
        if seconds > 0.0 { self.operations() as f64 / seconds } else { 0.0 }
    }

    /// Returns the processor time of this process per operation, in microseconds.
    pub fn client_cpu_us(&self) -> Option<f64> {
        self.each(self.spent.as_ref()?.client)
    }

    /// Returns the processor time of all servers per operation, in microseconds.
    pub fn server_cpu_us(&self) -> Option<f64> {
        self.each(self.spent.as_ref()?.by_servers()?)
    }

    #[allow(clippy::cast_precision_loss, reason = "for people")]
    fn each(&self, spent: Duration) -> Option<f64> {
        let operations = self.operations();
        (operations > 0).then(|| spent.as_secs_f64() * 1e6 / operations as f64)
    }

    /// Returns the report as JSON, for programs. Times are in microseconds where the name says so.
    pub fn json(&self) -> Value {
        let plan = &self.plan;
        let servers = |spent: &Spent| -> Vec<Value> {
            let of =
                |(pid, used): &(u32, Duration)| json!({"pid": pid, "cpu_us_per_operation": self.each(*used)});
            spent.servers.iter().map(of).collect()
        };
        json!({
            "workload": plan.workload.name(),
            "counts": plan.workload.operations(),
            "clients": plan.clients,
            "connections": plan.connections,
            "keys": plan.keys(),
            "payload_bytes": plan.payload,
            "unary": plan.unary,
            "measured_ms": u64::try_from(self.measured.as_millis()).unwrap_or(u64::MAX),
            "operations": self.operations(),
            "operations_per_second": rounded(self.per_second()),
            "failures": self.failures,
            "first_failure": self.first_failure,
            "latencies": self.series.iter().map(Series::json).collect::<Vec<_>>(),
            "client_cpu_us_per_operation": self.client_cpu_us().map(rounded),
            "server_cpu_us_per_operation": self.server_cpu_us().map(rounded),
            "servers": self.spent.as_ref().map(servers).unwrap_or_default(),
        })
    }
}

impl Series {
    fn json(&self) -> Value {
        let us = |duration: Duration| rounded(duration.as_secs_f64() * 1e6);
        let mut fields = Map::new();
        fields.insert("of".to_owned(), json!(self.of));
        fields.insert("count".to_owned(), json!(self.latency.count()));
        fields.insert("mean_us".to_owned(), json!(us(self.latency.mean())));
        for (name, quantile) in Latency::QUANTILES {
            fields.insert(format!("{name}_us"), json!(us(self.latency.quantile(quantile))));
        }
        fields.insert("max_us".to_owned(), json!(us(self.latency.max())));
        Value::Object(fields)
    }
}

/// Rounds to a tenth, because no figure here is more precise.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn report(operations: u64) -> Report {
        let mut latency = Latency::new();
        (0..operations).for_each(|_| latency.record(Duration::from_micros(250)));
        let second = Duration::from_secs(1);
        Report {
            plan: Plan::new(Workload::Uncontended, 4),
            measured: 2 * second,
            series: vec![Series { of: "pair", latency }],
            failures: 0,
            first_failure: None,
            spent: Some(Spent { client: second, servers: vec![(7, second), (8, second)] }),
        }
    }

    #[test]
    fn rates_and_costs_are_per_second_and_per_operation() {
        let report = report(1_000);
        assert_eq!(report.operations(), 1_000);
        assert!((report.per_second() - 500.0).abs() < 1e-9);
        assert!((report.client_cpu_us().unwrap() - 1_000.0).abs() < 1e-9);
        assert!((report.server_cpu_us().unwrap() - 2_000.0).abs() < 1e-9);
    }

    #[test]
    fn json_has_every_figure_and_none_that_is_not_known() {
        let value = report(1_000).json();
        assert_eq!(value["workload"], "uncontended");
        assert_eq!(
            (&value["clients"], &value["keys"], &value["operations"]),
            (&json!(4), &json!(4), &json!(1_000))
        );
        assert_eq!(value["operations_per_second"], 500.0);
        let pair = &value["latencies"][0];
        assert_eq!((&pair["of"], &pair["count"]), (&json!("pair"), &json!(1_000)));
        for name in ["mean_us", "p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"] {
            assert!((pair[name].as_f64().unwrap() - 250.0).abs() < 1.0, "{name}: {pair}");
        }
        assert_eq!(
            (&value["servers"][1]["pid"], &value["server_cpu_us_per_operation"]),
            (&json!(8), &json!(2_000.0))
        );
        let nothing = Report { spent: None, ..report(0) }.json();
        assert_eq!(nothing["operations_per_second"], 0.0);
        assert!(nothing["client_cpu_us_per_operation"].is_null() && nothing["servers"] == json!([]));
    }
}
