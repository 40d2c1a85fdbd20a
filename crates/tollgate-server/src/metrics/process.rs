//! What the process takes of the machine, read when somebody asks.
//!
//! The names are those that every Prometheus client library uses, and that dashboards know. Where there is no `/proc`,
//! nothing is told. Not here: anything about locks.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fs::read_to_string;
use std::time::Duration;

/// A clock tick: what Linux shows to programs, whatever the kernel counts in.
const TICK_MS: u64 = 10;

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if let Some(bytes) = read_to_string("/proc/self/status").ok().and_then(|text| resident_bytes(&text)) {
            let metric = ConstGauge::new(bytes);
            let says = "Memory that the process has in RAM";
            let kind = metric.metric_type();
            metric.encode(encoder.encode_descriptor("process_resident_memory_bytes", says, None, kind)?)?;
        }
        if let Some(seconds) = read_to_string("/proc/self/stat").ok().and_then(|text| cpu_seconds(&text)) {
            let metric = ConstCounter::new(seconds);
            let says = "Processor time that the process has used, its own and the kernel's";
            let kind = metric.metric_type();
            metric.encode(encoder.encode_descriptor("process_cpu_seconds", says, None, kind)?)?;
        }
        Ok(())
    }
}

/// From `/proc/self/status`, which unlike its shorter sisters does not count in pages of a size unknown.
fn resident_bytes(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// From `/proc/self/stat`. The second field is the program's name in brackets, and may have brackets and spaces itself.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks = user.checked_add(system)?;
    Some(Duration::from_millis(ticks.checked_mul(TICK_MS)?).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_s_name_does_not_confuse_its_processor_time() {
        let stat = "7 (a) (b c)) S 1 7 7 0 -1 4194560 2034 0 0 0 150 50 0 0 20 0 1 0 100 0 0";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds("7 (a) S 1"), None);
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        assert_eq!(resident_bytes("VmPeak:\t 9 kB\nVmRSS:\t    2048 kB\n"), Some(2_097_152));
        assert_eq!(resident_bytes("VmRSS: many"), None);
    }
}
