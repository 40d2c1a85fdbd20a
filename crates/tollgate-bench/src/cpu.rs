//! Processor time of processes, as the kernel counts it.
//!
//! User and system time together, usually in ticks of ten milliseconds, which is precise enough for runs of seconds.
//! Not here: finding the processes (`listener`, and the callers that start servers).

use std::time::Duration;

/// Error: the processor time of a process could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("can't read the processor time of process {pid}: {says}")]
pub struct CpuError {
    /// Process id.
    pub pid: u32,
    /// Cause, in words.
    pub says: String,
}

/// Processes whose processor time is measured: this process, and servers.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    /// Process ids of the servers on this machine; empty if there are none, or none could be identified.
    pub servers: Vec<u32>,
}

/// Processor time spent while something was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    /// Time spent by this process.
    pub client: Duration,
    /// Time spent by each server, with its process id.
    pub servers: Vec<(u32, Duration)>,
}

impl Processes {
    /// Returns the processor time that all processes have used since they started.
    pub(crate) fn used(&self) -> Result<Spent, CpuError> {
        let servers = self.servers.iter().map(|pid| Ok((*pid, used_by(*pid)?)));
        Ok(Spent { client: used_by(std::process::id())?, servers: servers.collect::<Result<_, _>>()? })
    }
}

impl Spent {
    /// Returns the processor time spent since the earlier reading `before`.
    #[must_use]
    pub fn since(&self, before: &Spent) -> Spent {
        let then = |pid| before.servers.iter().find(|(known, _)| *known == pid).map(|(_, used)| *used);
        let servers = self
            .servers
            .iter()
            .map(|(pid, used)| (*pid, used.saturating_sub(then(*pid).unwrap_or_default())));
        Spent { client: self.client.saturating_sub(before.client), servers: servers.collect() }
    }

    /// Returns the sum over all servers, or none if no server was measured.
    pub fn by_servers(&self) -> Option<Duration> {
        (!self.servers.is_empty()).then(|| self.servers.iter().map(|(_, used)| *used).sum())
    }
}

fn used_by(pid: u32) -> Result<Duration, CpuError> {
    let failed = |says: String| CpuError { pid, says };
    let stat = std::fs::read(format!("/proc/{pid}/stat")).map_err(|error| failed(error.to_string()))?;
    let ticks = ticks(&stat).ok_or_else(|| failed("it is told in a form that we don't know".to_owned()))?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Ok(Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / per_second)))
}

/// Parses user plus system ticks from the content of `/proc/PID/stat`. The second field is the name of the process, in
/// brackets, and may hold any bytes: the last closing bracket ends it.
fn ticks(stat: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(stat);
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    // Fields are counted from one, and the first field after the name is the third: fields 14 and 15 are wanted.
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_whatever_the_name() {
        let rest = b") S 7 8 9 34816 42 4194304 1 2 3 4 250 17 7 8 20 0 1 0 12345 99 98";
        for name in [&b"tollgate"[..], b"a ) b (c", b"", b"\xff)", b"1 2 3"] {
            assert_eq!(ticks(&[b"42 (", name, rest].concat()), Some(267));
        }
        for wrong in [&b""[..], b"42 (x", b"42 (x) S 1 2", b"42 (x) S 7 8 9 34816 42 4194304 1 2 3 4 a 17"] {
            assert_eq!(ticks(wrong), None);
        }
    }

    #[test]
    fn time_of_this_process_grows_and_that_of_none_is_refused() {
        let used = Processes::default().used().unwrap();
        assert!(used.servers.is_empty() && used.by_servers().is_none());
        let later = Processes { servers: vec![std::process::id()] }.used().unwrap();
        assert!(later.client >= used.client && later.by_servers().is_some());
        let nobody = Processes { servers: vec![u32::MAX - 1] }.used().unwrap_err();
        assert!(nobody.to_string().contains("4294967294"), "{nobody}");
    }

    #[test]
    fn what_was_spent_is_the_difference_by_process() {
        let ms = Duration::from_millis;
        let before = Spent { client: ms(10), servers: vec![(1, ms(5)), (2, ms(50))] };
        let after = Spent { client: ms(30), servers: vec![(2, ms(80)), (1, ms(6)), (3, ms(2))] };
        let spent = after.since(&before);
        assert_eq!(spent, Spent { client: ms(20), servers: vec![(2, ms(30)), (1, ms(1)), (3, ms(2))] });
        assert_eq!(spent.by_servers(), Some(ms(33)));
    }
}
