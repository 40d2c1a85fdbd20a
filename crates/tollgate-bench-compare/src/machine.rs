//! The machine and the versions of the measurement.

use crate::contender::Kind;
use std::path::Path;
use std::process::Command;

/// Returns the processor, the number of its cores, memory and kernel, in a line.
pub(crate) fn description() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    let gib = kib.map_or(0, |kib: u64| kib.div_ceil(1 << 20));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    format!("{count} × {}, {gib} GiB, Linux {kernel}", model.unwrap_or("unknown processor").trim())
}

/// Returns the version of a service, as reported by itself.
pub(crate) fn version_of(kind: Kind, tollgate: &Path) -> String {
    match kind {
        Kind::Tollgate => first_line(Command::new(tollgate).arg("--version")),
        Kind::Etcd => first_line(Command::new("etcd").arg("--version")),
        Kind::Zookeeper | Kind::ZookeeperBare => {
            let said = first_line(Command::new("dpkg-query").args(["-W", "-f", "${Version}\n", "zookeeper"]));
            format!("ZooKeeper {said} on {}", first_line(Command::new("java").arg("--version")))
        }
        Kind::RedisMemory | Kind::RedisAof | Kind::Redlock => {
            let said = first_line(Command::new("redis-server").arg("--version"));
            said.split(" sha=").next().unwrap_or_default().to_owned()
        }
    }
}

fn first_line(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or("unknown version").trim().to_owned()
}

/// Returns the median time in milliseconds until a written page is on disk: every durable lock waits for that.
pub(crate) fn fsync_ms() -> Option<f64> {
    let file = tempfile::tempfile().ok()?;
    let mut took = Vec::new();
    for page in 0..200_u64 {
        let began = std::time::Instant::now();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4_096], page * 4_096).ok()?;
        file.sync_data().ok()?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    took.get(took.len() / 2).copied()
}
