//! Resource usage of the process, read when metrics are collected.
//!
//! The names are those that every Prometheus client library uses, and that dashboards know. Without `/proc`, only the
//! limit of open files is exported. Not here: anything about locks.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::process::{Resource, getrlimit};
use std::fs::{read_dir, read_to_string};
use std::time::Duration;

/// A clock tick in milliseconds, as Linux presents it to programs, whatever the kernel counts in.
const TICK_MS: u64 = 10;

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let read = |file: &str| read_to_string(file).unwrap_or_default();
        let (stat, boot) = (read("/proc/self/stat"), read("/proc/stat"));
        if let Some(bytes) = resident_bytes(&read("/proc/self/status")) {
            gauge(
                &mut encoder,
                "process_resident_memory_bytes",
                "Memory that the process has in RAM",
                bytes,
            )?;
        }
        if let Some(seconds) = cpu_seconds(&stat) {
            let metric = ConstCounter::new(seconds);
            let says = "Processor time that the process has used, its own and the kernel's";
            let kind = metric.metric_type();
            metric.encode(encoder.encode_descriptor("process_cpu_seconds", says, None, kind)?)?;
        }
        if let Some(seconds) = start_seconds(&stat, &boot) {
            gauge(&mut encoder, "process_start_time_seconds", "When the process began, since 1970", seconds)?;
        }
        if let Some(files) = open_files() {
            gauge(
                &mut encoder,
                "process_open_fds",
                "Files that the process has open, connections included",
                files,
            )?;
        }
        if let Some(files) = getrlimit(Resource::Nofile).current {
            let files = i64::try_from(files).unwrap_or(i64::MAX);
            gauge(&mut encoder, "process_max_fds", "Files that the process may have open", files)?;
        }
        Ok(())
    }
}

fn gauge<N: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    says: &str,
    value: N,
) -> Result<(), std::fmt::Error>
where
    ConstGauge<N>: EncodeMetric,
{
    let metric = ConstGauge::new(value);
    let kind = metric.metric_type();
    metric.encode(encoder.encode_descriptor(name, says, None, kind)?)
}

/// Counts the open files, except the one that is open for counting.
fn open_files() -> Option<i64> {
    let files = read_dir("/proc/self/fd").ok()?.count();
    i64::try_from(files).ok().map(|files| files - 1)
}

/// Reads `/proc/self/status`, because `stat` and `statm` count in pages of unknown size.
fn resident_bytes(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    let ticks = ticks(stat, 14)?.checked_add(ticks(stat, 15)?)?;
    Some(Duration::from_millis(ticks.checked_mul(TICK_MS)?).as_secs_f64())
}

/// Returns the start time of the process since 1970: the boot time in `/proc/stat`, and the time from boot to its
/// start.
fn start_seconds(stat: &str, boot: &str) -> Option<f64> {
    let boot_seconds: u64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let since = Duration::from_millis(ticks(stat, 22)?.checked_mul(TICK_MS)?);
    Some(Duration::from_secs(boot_seconds).checked_add(since)?.as_secs_f64())
}

/// Returns a field of `/proc/self/stat` by its number, from 1. The second field is the program's name in brackets, and
/// may contain brackets and spaces itself.
fn ticks(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
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
    fn a_process_began_so_long_after_its_machine() {
        let stat = "7 (a) S 1 7 7 0 -1 4194560 2034 0 0 0 150 50 0 0 20 0 1 0 12345 0 0";
        assert_eq!(start_seconds(stat, "cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_123.45));
        assert_eq!(start_seconds(stat, "cpu 1 2\n"), None);
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        assert_eq!(resident_bytes("VmPeak:\t 9 kB\nVmRSS:\t    2048 kB\n"), Some(2_097_152));
        assert_eq!(resident_bytes("VmRSS: many"), None);
    }
}
